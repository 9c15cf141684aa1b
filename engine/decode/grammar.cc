#include "engine/decode/grammar.h"

#include <map>
#include <unordered_set>
#include <utility>

#include "engine/text/unicode.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::decode {
namespace {

bool has_borders(const Vocabulary& v) {
  return v.border() == WordBorder::separator || v.border() == WordBorder::prefix;
}

// What words and phrases are spelled in: characters; or bytes, where some tokens are single ones.
std::vector<int32_t> symbols_of(std::string_view text, const Vocabulary& vocabulary) {
  std::vector<int32_t> symbols;
  if (vocabulary.has_bytes()) {
    for (const char c : text) symbols.push_back(static_cast<unsigned char>(c));
  } else {
    for (const char32_t c : code_points(text)) symbols.push_back(static_cast<int32_t>(c));
  }
  return symbols;
}

// A token as a language model of tokens calls it; a separator has several names.
LanguageModel::Word number_of(const LanguageModel& model, const Vocabulary& vocabulary,
                              int32_t label) {
  const LanguageModel::Word number = model.word(vocabulary.token(label).name);
  if (number != LanguageModel::unknown || label != vocabulary.separator()) return number;
  for (const char* usual : {"<space>", "|", "\xe2\x96\x81"}) {
    if (const auto other = model.word(usual); other != LanguageModel::unknown) return other;
  }
  return number;
}

bool is_of_tokens(const LanguageModel& model, const Vocabulary& vocabulary) {
  switch (vocabulary.border()) {
    case WordBorder::every:
      return true;
    case WordBorder::separator:
      return number_of(model, vocabulary, vocabulary.separator()) != LanguageModel::unknown;
    case WordBorder::prefix:
      // Only a model of tokens knows those that are marked: what opens words, or goes on with them.
      for (int32_t label = 0; label < vocabulary.classes(); ++label) {
        const Vocabulary::Token& t = vocabulary.token(label);
        const bool is_marked = t.is_written && t.piece != t.name;
        if (is_marked && model.word(t.name) != LanguageModel::unknown) return true;
      }
      return false;
    case WordBorder::none:
      break;
  }
  LanguageModel::Word tokens = 0;
  for (LanguageModel::Word w = 0; w < model.words(); ++w)
    tokens += vocabulary.find(model.text(w)).has_value();
  return 2 * uint64_t{tokens} > model.words();
}

bool is_special(std::string_view word) {
  return word == "<unk>" || word == "<s>" || word == "</s>";
}

// The three of the highest numbers, the highest first.
void keep_highest(std::vector<std::pair<double, std::string>>& kept, double number,
                  const std::string& text) {
  constexpr size_t most = 3;
  const auto at = std::upper_bound(kept.begin(), kept.end(), number,
                                   [](double n, const auto& k) { return n > k.first; });
  if (at == kept.end() && kept.size() == most) return;
  kept.insert(at, {number, text});
  if (kept.size() > most) kept.pop_back();
}

// Which words the tokens may spell: those whose symbols all occur in some token.
class Spellable {
 public:
  explicit Spellable(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    for (int32_t label = 0; label < vocabulary.classes(); ++label)
      for (const int32_t symbol : symbols_of(vocabulary.token(label).piece, vocabulary))
        symbols_.insert(symbol);
  }
  bool operator()(std::string_view word) const {
    for (const int32_t symbol : symbols_of(word, vocabulary_))
      if (!symbols_.contains(symbol)) return false;
    return !word.empty();
  }

 private:
  const Vocabulary& vocabulary_;
  std::unordered_set<int32_t> symbols_;
};

}  // namespace

Grammar::Grammar(const Vocabulary& vocabulary, const DecoderOptions& options,
                 const DecoderKnowledge& knowledge, std::span<const HotWord> hot_words,
                 const Grammar* like)
    : options_(options), model_(knowledge.language_model) {
  const bool has_lexicon = !knowledge.lexicon.empty();
  for (const Spelling& s : knowledge.lexicon) {
    if (std::find(s.labels.begin(), s.labels.end(), knowledge.silence) != s.labels.end())
      fail_input("the word ", quoted_start(s.word), " of the lexicon has ",
                 quoted_start(vocabulary.token(knowledge.silence).name),
                 " in it, which stands between words alone");
  }
  if (model_) {
    choose_unit(vocabulary, has_lexicon);
    start_.history = options_.sentence_begin ? model_->begin_sentence() : model_->empty_context();
    if (!has_lexicon && !knowledge.known_words.empty())
      known_ = like ? like->known_ : find_known(knowledge.known_words);
  }
  needs_separator_ = vocabulary.border() == WordBorder::separator;
  opens_words_ = vocabulary.border() == WordBorder::prefix;
  takes_unknown_ = !has_lexicon && has_borders(vocabulary);
  set_roles(vocabulary, knowledge);
  // A token that opens words is part of the text's first word.
  if (scores_tokens_ && !opens_words_) start_.border = before_text;
  const double word_score = scores_tokens_ ? 0 : options_.word_score;
  known_word_gain_ = std::exp(word_score);
  unknown_word_gain_ = std::exp(word_score + options_.unknown_score);
  if (has_lexicon) {
    phrase_symbols_ = PhraseSymbols::words;
  } else if (vocabulary.border() == WordBorder::every) {
    phrase_symbols_ = PhraseSymbols::labels;
  }
  if (has_lexicon || scores_words_) add_words(vocabulary, knowledge, hot_words, like);
  warnings_.insert(warnings_.end(), known_->warnings.begin(), known_->warnings.end());
  if (!hot_words.empty()) add_phrases(vocabulary, hot_words);
  set_bounds(vocabulary);
}

void Grammar::choose_unit(const Vocabulary& vocabulary, bool has_lexicon) {
  unit_ = options_.unit;
  if (unit_ == ModelUnit::automatic)
    unit_ =
        !has_lexicon && is_of_tokens(*model_, vocabulary) ? ModelUnit::tokens : ModelUnit::words;
  if (unit_ == ModelUnit::words && !has_lexicon && vocabulary.border() == WordBorder::every)
    fail_input("a language model of words needs a lexicon where each token is a word of its own");
  scores_words_ = unit_ == ModelUnit::words;
  scores_tokens_ = !scores_words_;
}

std::shared_ptr<const Grammar::KnownWords> Grammar::find_known(
    const std::vector<std::string>& words) const {
  const auto known = std::make_shared<KnownWords>();
  if (!scores_words_) {
    known->warnings.push_back("the language model is of tokens, and has no use for known words");
    return known;
  }
  std::vector<bool> is_known(model_->words());
  size_t found = 0;
  const std::string* lost = nullptr;
  for (const std::string& word : words) {
    const LanguageModel::Word number = model_->word(word);
    if (number == LanguageModel::unknown) {
      if (!lost) lost = &word;
      continue;
    }
    found += !is_known[number];
    is_known[number] = true;
  }
  if (2 * found < words.size())
    known->warnings.push_back(str("the language model has ", found, " of the ", words.size(),
                                  " known words, and not ", quoted_start(*lost),
                                  found == 0 ? "; so all of its own count as known" : ""));
  if (found > 0) known->is_known = std::move(is_known);
  return known;
}

void Grammar::set_roles(const Vocabulary& vocabulary, const DecoderKnowledge& knowledge) {
  const bool has_lexicon = !knowledge.lexicon.empty();
  for (int32_t label = 0; label < vocabulary.classes(); ++label) {
    const Vocabulary::Token& token = vocabulary.token(label);
    Role role;
    role.separates = label == vocabulary.separator() || (has_lexicon && label == knowledge.silence);
    role.opens = opens_words_ && token.opens;
    role.borders = role.separates || (role.opens && token.piece.empty());
    if (has_lexicon) {
      role.symbols = {label};
    } else {
      role.symbols = symbols_of(token.piece, vocabulary);
    }
    if (scores_tokens_) role.number = number_of(*model_, vocabulary, label);
    roles_.push_back(std::move(role));
  }
}

int32_t Grammar::word_called(const std::string& text, WordList& list) const {
  const auto [at, is_new] = list.by_text.try_emplace(text, static_cast<int32_t>(list.words.size()));
  if (is_new) {
    const auto number = scores_words_ ? model_->word(text) : LanguageModel::unknown;
    list.words.push_back({text, number});
  }
  return at->second;
}

// All words that may be found, without their weights.
std::vector<WordTrie::Entry> Grammar::listed_words(const Vocabulary& vocabulary,
                                                   const std::vector<Spelling>& lexicon,
                                                   WordList& list) {
  std::vector<WordTrie::Entry> entries;
  if (!lexicon.empty()) {
    for (const Spelling& s : lexicon) entries.push_back({s.labels, word_called(s.word, list), 0});
    int64_t known = 0;
    for (const Word& w : list.words) known += w.number != LanguageModel::unknown;
    if (scores_words_ && 2 * known < static_cast<int64_t>(list.words.size()))
      list.warnings.push_back(str("the language model knows ", known, " of the ", list.words.size(),
                                  " words of the lexicon"));
    return entries;
  }
  const Spellable spellable(vocabulary);
  int64_t all = 0;
  double lost = 0;  // probability of the words that are never found
  std::vector<std::pair<double, std::string>> most_lost;
  for (LanguageModel::Word w = 0; w < model_->words(); ++w) {
    const std::string text(model_->text(w));
    if (is_special(text)) continue;
    ++all;
    if (spellable(text)) {
      entries.push_back({symbols_of(text, vocabulary), word_called(text, list), 0});
      continue;
    }
    LanguageModel::State ignored;
    const double p = std::pow(10, model_->score(model_->empty_context(), w, ignored));
    lost += p;
    keep_highest(most_lost, p, text);
  }
  const auto spelled = static_cast<int64_t>(entries.size());
  constexpr double much = 0.1;
  if (lost > much || 2 * spelled < all) {
    std::string names;
    for (const auto& [p, text] : most_lost)
      names += str(names.empty() ? "" : ", ", quoted_start(text));
    list.warnings.push_back(
        str("the model's tokens can spell ", spelled, " of the ", all,
            " words of the language model; the most frequent of the others: ", names));
  }
  return entries;
}

// Where every word is in the list, those to be expected are, unless a lexicon says which there are.
// Where phrases are spelled in words, the matcher hears of them when they are over: until then,
// each word stands for its share of the largest weight.
std::shared_ptr<const Grammar::WordList> Grammar::list_words(const Vocabulary& vocabulary,
                                                             const DecoderKnowledge& knowledge,
                                                             std::span<const HotWord> hot_words) {
  const auto list = std::make_shared<WordList>();
  std::vector<WordTrie::Entry> entries = listed_words(vocabulary, knowledge.lexicon, *list);
  std::unordered_map<int32_t, double> shares;
  std::map<std::vector<std::string>, double> phrases;  // of one that is there twice, the last
  for (const HotWord& hot : hot_words) phrases[split_words(hot.phrase)] = hot.weight;
  for (const auto& [words, weight] : phrases) {
    for (const std::string& word : words) {
      if (phrase_symbols_ == PhraseSymbols::words) {
        const auto at = list->by_text.find(word);
        if (at == list->by_text.end()) continue;
        double& share = shares[at->second];
        share = std::max(share, weight / static_cast<double>(words.size()));
      } else if (!takes_unknown_ && !list->by_text.contains(word)) {
        entries.push_back({symbols_of(word, vocabulary), word_called(word, *list), 0});
      }
    }
  }
  for (WordTrie::Entry& e : entries) {
    const LanguageModel::Word number = list->words[static_cast<size_t>(e.word)].number;
    e.weight = scores_words_ ? unigram(number) : std::log(known_word_gain_);
    if (const auto at = shares.find(e.word); at != shares.end()) e.weight += at->second;
  }
  list->trie = WordTrie(std::move(entries));
  return list;
}

double Grammar::unigram(LanguageModel::Word number) const {
  LanguageModel::State ignored;
  return score_of(number, model_->score(model_->empty_context(), number, ignored));
}

void Grammar::add_words(const Vocabulary& vocabulary, const DecoderKnowledge& knowledge,
                        std::span<const HotWord> hot_words, const Grammar* like) {
  const bool is_shared = like && phrase_symbols_ != PhraseSymbols::words && takes_unknown_;
  list_ = is_shared ? like->list_ : list_words(vocabulary, knowledge, hot_words);
  warnings_ = list_->warnings;
  if (takes_unknown_) {
    const double weight =
        scores_words_ ? unigram(LanguageModel::unknown) : std::log(unknown_word_gain_);
    outside_gain_ = std::exp(weight);
    outside_inverse_gain_ = std::exp(-weight);
  }
  for (Role& role : roles_)
    for (int32_t& symbol : role.symbols) symbol = trie().number(symbol);
  lists_followers_ = !knowledge.lexicon.empty() && trie().has_few_symbols();
  if (!lists_followers_) return;
  for (const Role& role : roles_) {
    const int32_t number = role.symbols.front();
    follower_bits_.push_back(role.separates                ? separator_bit
                             : number == WordTrie::nowhere ? 0
                                                           : uint64_t{1} << number);
  }
}

// Hot words that nothing can match.
void Grammar::warn_of_lost(const Vocabulary& vocabulary, std::span<const HotWord> hot_words) {
  const Spellable spellable(vocabulary);
  const bool has_lexicon = phrase_symbols_ == PhraseSymbols::words;
  constexpr int shown = 5;
  std::string names;
  int count = 0;
  for (const HotWord& hot : hot_words) {
    const std::vector<std::string> words = split_words(hot.phrase);
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) {
          return has_lexicon ? list_->by_text.contains(word) : spellable(word);
        }))
      continue;
    if (++count <= shown) names += str(count == 1 ? "" : ", ", quoted_start(hot.phrase));
  }
  if (count == 0) return;
  if (count > shown) names += ", ...";
  warnings_.push_back(has_lexicon
                          ? str("the lexicon does not have ", count, " of ", hot_words.size(),
                                " hot words, which will not be found: ", names)
                          : str("the model's tokens cannot spell ", count, " of ", hot_words.size(),
                                " hot words: ", names));
}

void Grammar::add_phrases(const Vocabulary& vocabulary, std::span<const HotWord> hot_words) {
  if (phrase_symbols_ != PhraseSymbols::labels) warn_of_lost(vocabulary, hot_words);
  const bool marks_borders =
      phrase_symbols_ == PhraseSymbols::characters && has_borders(vocabulary);
  std::vector<PhraseMatcher::Phrase> phrases;
  for (const HotWord& hot : hot_words) {
    std::vector<int32_t>& symbols = phrases.emplace_back().symbols;
    phrases.back().weight = hot.weight;
    if (marks_borders) symbols.push_back(border_symbol);
    for (const std::string& word : split_words(hot.phrase)) {
      switch (phrase_symbols_) {
        case PhraseSymbols::words: {
          const auto at = list_->by_text.find(word);
          symbols.push_back(at == list_->by_text.end() ? no_symbol : at->second);
          break;
        }
        case PhraseSymbols::labels: {
          const auto label = vocabulary.find(word);
          if (!label) fail_input("the hot word ", quoted_start(word), " is no token of the model");
          symbols.push_back(*label);
          break;
        }
        case PhraseSymbols::characters: {
          const std::vector<int32_t> characters = symbols_of(word, vocabulary);
          symbols.insert(symbols.end(), characters.begin(), characters.end());
          break;
        }
      }
      if (marks_borders) symbols.push_back(border_symbol);
    }
  }
  matcher_ = PhraseMatcher(phrases);
  if (phrase_symbols_ != PhraseSymbols::words) {
    for (int32_t label = 0; label < vocabulary.classes(); ++label) {
      std::vector<int32_t>& symbols = roles_[static_cast<size_t>(label)].phrase_symbols;
      const Vocabulary::Token& token = vocabulary.token(label);
      if (phrase_symbols_ == PhraseSymbols::labels) {
        symbols = {label};
        continue;
      }
      if (marks_borders && (token.opens || label == vocabulary.separator()))
        symbols.push_back(border_symbol);
      for (const int32_t c : symbols_of(token.piece, vocabulary)) symbols.push_back(c);
    }
  }
  if (marks_borders) {
    start_.phrase = matcher_.step(0, border_symbol, start_gain_);
    border_ends_phrases_ = true;
  }
}

void Grammar::set_bounds(const Vocabulary& vocabulary) {
  const double best_of_model =
      std::exp(options_.word_score + std::max(0.0, options_.unknown_score));
  if (scores_tokens_) most_gain_ = std::max(1.0, best_of_model);
  if (!trie().empty()) {
    most_begin_ = std::max({1.0, trie().most_gain(), takes_unknown_ ? outside_gain_ : 0});
    most_behind_ = needs_separator_ ? 1 : std::max(1.0, most_begin_);
  }
  phrases_have_labels_ = !matcher_.empty() && phrase_symbols_ != PhraseSymbols::words;
  if (!phrases_have_labels_) return;
  for (size_t label = 0; label < roles_.size(); ++label) {
    const std::vector<int32_t>& symbols = roles_[label].phrase_symbols;
    if (!vocabulary.token(static_cast<int32_t>(label)).is_written) continue;
    if (!symbols.empty()) labels_by_symbol_[symbols.front()].push_back(static_cast<int32_t>(label));
    double gain = 1;
    if (phrase_step(0, symbols, gain) != 0 || gain > room_for_rounding || symbols.empty())
      opening_labels_.push_back(static_cast<int32_t>(label));
  }
}

// Behind a symbol that goes on with none of what has been seen, a label is as at the beginning.
PhraseLabels Grammar::find_phrase_labels(int32_t phrase) const {
  std::vector<int32_t> candidates = opening_labels_;
  matcher_.for_continuations(phrase, [&](int32_t symbol) {
    const auto at = labels_by_symbol_.find(symbol);
    if (at == labels_by_symbol_.end()) return;
    candidates.insert(candidates.end(), at->second.begin(), at->second.end());
  });
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  PhraseLabels found;
  found.idle = found.most = matcher_.end_gain(phrase) * room_for_rounding;
  for (const int32_t label : candidates) {
    double gain = 1;
    const int32_t next =
        phrase_step(phrase, roles_[static_cast<size_t>(label)].phrase_symbols, gain);
    if (next == 0 && gain <= found.idle) continue;
    found.labels.push_back({label, gain});
    found.most = std::max(found.most, gain);
  }
  return found;
}

double Grammar::log_gains(std::span<const int32_t> labels, std::span<const int32_t> words,
                          ModelMemo& memo) const {
  double sum = 0;
  GrammarState state = start_;
  for (size_t i = 0; i < labels.size(); ++i) {
    GrammarState then;
    extend(state, labels[i], memo, [&](const GrammarState& next, int32_t word, double gain) {
      if (word != words[i]) return;
      sum += std::log(gain);
      then = next;
    });
    state = then;
  }
  return sum;
}

// Without the borders that are no part of a text.
std::vector<int32_t> Grammar::tokens_of_text(std::span<const int32_t> labels) const {
  std::vector<int32_t> tokens;
  int32_t border = start_.border;
  for (const int32_t label : labels) {
    const Role& role = roles_[static_cast<size_t>(label)];
    if (role.borders) {
      if (border == no_border) border = label;
      continue;
    }
    if (border >= 0 && !role.opens) tokens.push_back(border);
    border = no_border;
    tokens.push_back(label);
  }
  return tokens;
}

double Grammar::lm_log10(std::span<const int32_t> labels, std::span<const int32_t> words) const {
  if (!model_) return 0;
  LanguageModel::State history = start_.history;
  double log10 = 0;
  if (scores_tokens_) {
    for (const int32_t label : tokens_of_text(labels))
      log10 += model_->score(history, roles_[static_cast<size_t>(label)].number, history);
  } else {
    for (const int32_t word : words) {
      const auto number = word == unknown_word ? LanguageModel::unknown
                                               : list_->words[static_cast<size_t>(word)].number;
      log10 += model_->score(history, number, history);
    }
  }
  return options_.sentence_end ? log10 + model_->end_score(history) : log10;
}

}  // namespace rondo::decode
