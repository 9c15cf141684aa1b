// What the knowledge of a decoder makes of a prefix that grows: which labels may follow, and by
// what its probability is multiplied then. For decode/ alone.
//
// A gain is the exponential of a difference of scores, and depends on the prefix alone, not on its
// alignment. So alignments of one prefix can be added with their gains multiplied in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/decode/decoder.h"
#include "engine/decode/phrase_matcher.h"
#include "engine/decode/word_trie.h"

namespace rondo::decode {

inline constexpr int32_t no_word = -1, unknown_word = -2;
inline constexpr int32_t no_border = -1, before_text = -2;

// What a prefix's future depends on, besides its last label.
struct GrammarState {
  int32_t place = WordTrie::root;    // of the word that has begun; outside: it is none of the list
  LanguageModel::State history = 0;  // of the language model, before that word, and before `border`
  int32_t phrase = 0;
  // Where the language model is of tokens: the token that ends the prefix and does nothing but end
  // words. It is paid for, and paid back if the text has no words behind it. before_text: the text
  // has none yet, so that a separator is free.
  int32_t border = no_border;
};

// Remembers what the language model said. One thread at a time.
class ModelMemo {
 public:
  struct Answer {
    uint64_t key = UINT64_MAX;
    double gain = 1;
    LanguageModel::State next = 0;
  };
  static uint64_t key(LanguageModel::State state, LanguageModel::Word word) {
    return uint64_t{state} << 32 | word;
  }
  Answer& slot(LanguageModel::State state, LanguageModel::Word word) {
    return slots_[(key(state, word) * 0x9e3779b97f4a7c15u) >> (64 - bits)];
  }

 private:
  static constexpr int bits = 12;
  std::vector<Answer> slots_ = std::vector<Answer>(size_t{1} << bits);
};

// The labels that begin, go on with or end a phrase, behind what has been seen of phrases, and by
// what phrases multiply the gain of each.
struct PhraseLabels {
  struct Label {
    int32_t label;
    double gain;
  };
  std::vector<Label> labels;  // in the order of their numbers
  double idle = 1;            // of all other labels, at most
  double most = 1;            // of any label

  double gain(int32_t label) const {
    const auto at = std::lower_bound(labels.begin(), labels.end(), label,
                                     [](const Label& l, int32_t n) { return l.label < n; });
    return at != labels.end() && at->label == label ? at->gain : idle;
  }
};

// Remembers them by the state of the matcher. One thread at a time.
using PhraseMemo = std::unordered_map<int32_t, PhraseLabels>;

class Grammar {
 public:
  // `hot_words` in place of the knowledge's. `like`: made of the same but for hot words, whose list
  // of words is shared if it may be; or nullptr. Throws InputError for knowledge that does not fit
  // the vocabulary.
  Grammar(const Vocabulary& vocabulary, const DecoderOptions& options,
          const DecoderKnowledge& knowledge, std::span<const HotWord> hot_words,
          const Grammar* like);

  GrammarState start() const { return start_; }
  ModelUnit unit() const { return unit_; }
  bool has_words() const { return !trie().empty(); }
  const std::string& word_text(int32_t word) const {
    return list_->words[static_cast<size_t>(word)].text;
  }

  // Whether followers() tells which labels may follow, each by a bit, so that they need not be
  // tried.
  bool lists_followers() const { return lists_followers_; }
  uint64_t followers(const GrammarState& s) const {
    const bool between_words = s.place == WordTrie::root;
    uint64_t bits = trie().children(s.place);
    if (between_words || !trie().words(s.place).empty())
      bits |= separator_bit | (needs_separator_ ? 0 : trie().children(WordTrie::root));
    return bits;
  }
  uint64_t follower_bit(int32_t label) const { return follower_bits_[static_cast<size_t>(label)]; }

  // Calls take(state, word, gain) for each way in which a label may follow: `word` is the one that
  // ends before it.
  template <class Take>
  void extend(const GrammarState& s, int32_t label, ModelMemo& memo, const Take& take) const;
  // Calls take(word, gain) for each way in which the text may end.
  template <class Take>
  void finish(const GrammarState& s, ModelMemo& memo, const Take& take) const;
  // None where phrases are spelled in words.
  const PhraseLabels& phrase_labels(const GrammarState& s, PhraseMemo& memo) const {
    if (!phrases_have_labels_) return no_phrase_labels_;
    const auto [at, is_new] = memo.try_emplace(s.phrase);
    if (is_new) at->second = find_phrase_labels(s.phrase);
    return at->second;
  }
  // No label has a larger gain behind this state, without what phrase_labels() say of it.
  double most_gain(const GrammarState& s, ModelMemo& memo) const;
  // The natural logarithm of the gains of a prefix, whose labels end these words.
  double log_gains(std::span<const int32_t> labels, std::span<const int32_t> words,
                   ModelMemo& memo) const;
  // log10 of the probability that the language model gives a text of these words, or labels.
  double lm_log10(std::span<const int32_t> labels, std::span<const int32_t> words) const;

  // What may be wrong, in sentences: few words of the model can be spelled.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Word {
    std::string text;
    LanguageModel::Word number = LanguageModel::unknown;
  };
  // The words that may be found, and how they are spelled.
  struct WordList {
    std::vector<Word> words;
    std::unordered_map<std::string, int32_t> by_text;
    WordTrie trie;
    std::vector<std::string> warnings;
  };
  // What a label is to words and phrases.
  struct Role {
    bool opens = false, separates = false;
    bool borders = false;                                 // has no character of a word
    std::vector<int32_t> symbols;                         // in the tree of words
    std::vector<int32_t> phrase_symbols;                  // in hot phrases
    LanguageModel::Word number = LanguageModel::unknown;  // of the token
  };
  // How hot phrases are spelled.
  enum class PhraseSymbols : uint8_t { characters, labels, words };

  // Of bounds: products of the same factors differ by their order.
  static constexpr double room_for_rounding = 1 + 1e-9;
  static constexpr uint64_t separator_bit = uint64_t{1} << 63;
  static constexpr int32_t outside = -2;              // a place: none of the words in the tree
  static constexpr int32_t border_symbol = 0x110000;  // no character
  static constexpr int32_t no_symbol = 0x110001;      // a hot word that no text may have

  // Which words of the language model are known ones, by their numbers; empty: all are.
  struct KnownWords {
    std::vector<bool> is_known;
    std::vector<std::string> warnings;
  };

  void choose_unit(const Vocabulary& vocabulary, bool has_lexicon);
  std::shared_ptr<const KnownWords> find_known(const std::vector<std::string>& words) const;
  void set_roles(const Vocabulary& vocabulary, const DecoderKnowledge& knowledge);
  int32_t word_called(const std::string& text, WordList& list) const;
  std::vector<WordTrie::Entry> listed_words(const Vocabulary& vocabulary,
                                            const std::vector<Spelling>& lexicon, WordList& list);
  void add_words(const Vocabulary& vocabulary, const DecoderKnowledge& knowledge,
                 std::span<const HotWord> hot_words, const Grammar* like);
  std::shared_ptr<const WordList> list_words(const Vocabulary& vocabulary,
                                             const DecoderKnowledge& knowledge,
                                             std::span<const HotWord> hot_words);
  double unigram(LanguageModel::Word number) const;  // its score
  void add_phrases(const Vocabulary& vocabulary, std::span<const HotWord> hot_words);
  PhraseLabels find_phrase_labels(int32_t phrase) const;
  void set_bounds(const Vocabulary& vocabulary);
  void warn_of_lost(const Vocabulary& vocabulary, std::span<const HotWord> hot_words);
  const WordTrie& trie() const { return list_->trie; }

  double log_gain(double log10) const { return options_.lm_weight * 2.302585092994045684 * log10; }
  bool is_unknown(LanguageModel::Word number) const {
    return number == LanguageModel::unknown ||
           (!known_->is_known.empty() && !known_->is_known[number]);
  }
  double score_of(LanguageModel::Word number, double log10) const {
    return log_gain(log10) + options_.word_score +
           (is_unknown(number) ? options_.unknown_score : 0);
  }
  // Of a word or token behind a history; moves the history on.
  double model_gain(LanguageModel::State& history, LanguageModel::Word number,
                    ModelMemo& memo) const;
  // Of a label behind a state, by a language model of tokens; moves history and border on.
  double token_gain(int32_t label, GrammarState& s, ModelMemo& memo) const;
  // What the border of a state was paid with.
  double border_gain(const GrammarState& s) const {
    LanguageModel::State ignored;
    const auto number = roles_[static_cast<size_t>(s.border)].number;
    return std::exp(score_of(number, model_->score(s.history, number, ignored)));
  }
  int32_t walk(int32_t place, const Role& role) const;
  double gain_at(int32_t place) const {
    return place == outside ? outside_gain_ : trie().gain(place);
  }
  double inverse_gain_at(int32_t place) const {
    return place == outside ? outside_inverse_gain_ : trie().inverse_gain(place);
  }
  int32_t phrase_step(int32_t phrase, std::span<const int32_t> symbols, double& gain) const {
    for (const int32_t symbol : symbols) {
      // Several separators in a row are one.
      if (symbol == border_symbol && matcher_.symbol(phrase) == border_symbol) continue;
      phrase = matcher_.step(phrase, symbol, gain);
    }
    return phrase;
  }
  template <class Take>
  void end_word(const GrammarState& s, ModelMemo& memo, const Take& take) const;
  std::vector<int32_t> tokens_of_text(std::span<const int32_t> labels) const;

  DecoderOptions options_;
  std::optional<LanguageModel> model_;
  ModelUnit unit_ = ModelUnit::words;
  bool scores_words_ = false, scores_tokens_ = false;  // what the language model does
  bool needs_separator_ = false;                       // between words
  bool opens_words_ = false;                           // tokens of their own kind begin words
  bool takes_unknown_ = false;                         // words that are not in the list
  std::vector<Role> roles_;                            // of each label
  bool lists_followers_ = false;
  std::vector<uint64_t> follower_bits_;  // of each label
  std::shared_ptr<const WordList> list_ = std::make_shared<WordList>();
  std::shared_ptr<const KnownWords> known_ = std::make_shared<KnownWords>();
  double outside_gain_ = 1, outside_inverse_gain_ = 1;
  double known_word_gain_ = 1, unknown_word_gain_ = 1;  // where no language model scores words
  // Bounds: of all that depends on neither place nor phrase; of a word's first label; of the label
  // behind a word.
  double most_gain_ = 1, most_begin_ = 1, most_behind_ = 1;
  PhraseMatcher matcher_;
  PhraseSymbols phrase_symbols_ = PhraseSymbols::characters;
  bool border_ends_phrases_ = false;
  bool phrases_have_labels_ = false;  // they are spelled with what labels are made of
  PhraseLabels no_phrase_labels_;
  // Labels that phrase symbols begin, and those that bring phrases on where nothing of one was
  // seen.
  std::unordered_map<int32_t, std::vector<int32_t>> labels_by_symbol_;
  std::vector<int32_t> opening_labels_;
  GrammarState start_;
  double start_gain_ = 1;  // of phrases that begin with the text; counted at its end
  std::vector<std::string> warnings_;
};

inline double Grammar::model_gain(LanguageModel::State& history, LanguageModel::Word number,
                                  ModelMemo& memo) const {
  ModelMemo::Answer& answer = memo.slot(history, number);
  const uint64_t key = ModelMemo::key(history, number);
  if (answer.key != key) {
    const double log10 = model_->score(history, number, answer.next);
    answer.gain = std::exp(score_of(number, log10));
    answer.key = key;
  }
  history = answer.next;
  return answer.gain;
}

// Borders at the ends of a text, and several in a row, are no part of it: it has one between words.
inline double Grammar::token_gain(int32_t label, GrammarState& s, ModelMemo& memo) const {
  const Role& role = roles_[static_cast<size_t>(label)];
  if (role.borders) {
    if (s.border != no_border) return 1;
    s.border = label;
    LanguageModel::State behind = s.history;
    return model_gain(behind, role.number, memo);
  }
  double gain = 1;
  if (s.border >= 0) {
    LanguageModel::State behind = s.history;
    const double paid = model_gain(behind, roles_[static_cast<size_t>(s.border)].number, memo);
    if (role.opens) {
      gain = 1 / paid;  // the token is its own border
    } else {
      s.history = behind;
    }
  }
  s.border = no_border;
  return gain * model_gain(s.history, role.number, memo);
}

// `outside` is left by a new word alone.
inline int32_t Grammar::walk(int32_t place, const Role& role) const {
  if (place == outside) return outside;
  for (const int32_t symbol : role.symbols) {
    place = trie().child(place, symbol);
    if (place == WordTrie::nowhere) return takes_unknown_ ? outside : WordTrie::nowhere;
  }
  return place;
}

template <class Take>
void Grammar::end_word(const GrammarState& s, ModelMemo& memo, const Take& take) const {
  const double without = inverse_gain_at(s.place);
  const auto end = [&](int32_t word, LanguageModel::Word number, double gain_without_model) {
    LanguageModel::State history = s.history;
    const double gain = scores_words_ ? model_gain(history, number, memo) : gain_without_model;
    take(history, word, gain * without);
  };
  const auto words = s.place == outside ? std::span<const int32_t>() : trie().words(s.place);
  for (const int32_t word : words)
    end(word, list_->words[static_cast<size_t>(word)].number, known_word_gain_);
  if (words.empty() && takes_unknown_)
    end(unknown_word, LanguageModel::unknown, unknown_word_gain_);
}

inline double Grammar::most_gain(const GrammarState& s, ModelMemo& memo) const {
  double most = most_gain_ * room_for_rounding;
  if (opens_words_ && s.border >= 0) most /= border_gain(s);
  if (trie().empty()) return most;
  if (s.place == WordTrie::root) return most * most_begin_;
  double end = 0;
  end_word(s, memo, [&](LanguageModel::State, int32_t word, double gain) {
    if (phrase_symbols_ == PhraseSymbols::words && !matcher_.empty())
      matcher_.step(s.phrase, word, gain);
    end = std::max(end, gain);
  });
  const double within =
      takes_unknown_ ? std::max(1.0, outside_gain_ * inverse_gain_at(s.place)) : 1;
  return most * std::max(within, end * most_behind_);
}

template <class Take>
void Grammar::extend(const GrammarState& s, int32_t label, ModelMemo& memo,
                     const Take& take) const {
  const Role& role = roles_[static_cast<size_t>(label)];
  GrammarState next = s;
  double gain = 1;
  if (scores_tokens_) gain = token_gain(label, next, memo);
  if (!role.phrase_symbols.empty()) next.phrase = phrase_step(s.phrase, role.phrase_symbols, gain);
  if (trie().empty()) {
    take(next, no_word, gain);
    return;
  }
  // A word ends, and the next is at `place`.
  const auto after_word = [&](int32_t place, double gain_there) {
    end_word(s, memo, [&](LanguageModel::State history, int32_t word, double word_gain) {
      GrammarState then = next;
      then.place = place;
      if (scores_words_) then.history = history;
      double all = gain * gain_there * word_gain;
      if (phrase_symbols_ == PhraseSymbols::words && !matcher_.empty())
        then.phrase = matcher_.step(s.phrase, word, all);
      take(then, word, all);
    });
  };
  const bool between_words = s.place == WordTrie::root;
  if (role.separates) {
    next.place = WordTrie::root;
    if (between_words) {
      take(next, no_word, gain);
    } else {
      after_word(WordTrie::root, 1);
    }
    return;
  }
  if (between_words || !role.opens) {
    const int32_t place = walk(s.place, role);
    if (place != WordTrie::nowhere) {
      next.place = place;
      take(next, no_word, gain * (gain_at(place) * inverse_gain_at(s.place)));
    }
  }
  const bool may_begin = !needs_separator_ && !between_words && (role.opens || !opens_words_);
  if (!may_begin) return;
  const int32_t place = walk(WordTrie::root, role);
  if (place != WordTrie::nowhere) after_word(place, gain_at(place));
}

template <class Take>
void Grammar::finish(const GrammarState& s, ModelMemo& memo, const Take& take) const {
  double gain = s.border >= 0 ? start_gain_ / border_gain(s) : start_gain_;
  int32_t phrase = s.phrase;
  if (border_ends_phrases_) phrase = phrase_step(phrase, {&border_symbol, 1}, gain);
  const auto end = [&](LanguageModel::State history, int32_t word, double word_gain) {
    double all = gain * word_gain;
    int32_t last = phrase;
    if (word != no_word && phrase_symbols_ == PhraseSymbols::words && !matcher_.empty())
      last = matcher_.step(phrase, word, all);
    if (!matcher_.empty()) all *= matcher_.end_gain(last);
    if (model_ && options_.sentence_end) all *= std::exp(log_gain(model_->end_score(history)));
    take(word, all);
  };
  if (trie().empty() || s.place == WordTrie::root) {
    end(s.history, no_word, 1);
  } else {
    end_word(s, memo, end);
  }
}

}  // namespace rondo::decode
