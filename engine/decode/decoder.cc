#include "engine/decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "engine/decode/decoder_tables.h"
#include "engine/text/edit_alignment.h"
#include "kernels/base/error.h"

namespace rondo {

using decode::FoundPrefixes;
using decode::no_word;
using decode::PrefixPath;
using decode::PrefixSearch;

namespace {

void check(const DecoderOptions& o) {
  RONDO_CHECK(o.beam >= 1 && o.nbest >= 1, "beam is ", o.beam, ", nbest ", o.nbest);
  RONDO_CHECK(o.lm_weight >= 0 && std::isfinite(o.lm_weight), "lm_weight is ", o.lm_weight);
  RONDO_CHECK(std::isfinite(o.word_score) && std::isfinite(o.unknown_score), "word_score is ",
              o.word_score, ", unknown_score ", o.unknown_score);
  RONDO_CHECK(!std::isnan(o.token_floor) && o.score_range >= 0, "token_floor is ", o.token_floor,
              ", score_range ", o.score_range);
}

}  // namespace

std::vector<SpelledWord> Decoder::Tables::words(const PrefixPath& path, int32_t last_word) const {
  if (!has_lexicon) return vocabulary.words(path.labels);
  std::vector<SpelledWord> words;
  const auto count = static_cast<int32_t>(path.labels.size());
  int32_t first = 0;
  const auto end = [&](int32_t word, int32_t at) {
    const auto separates = [&](int32_t i) {
      const int32_t label = path.labels[static_cast<size_t>(i)];
      return label == vocabulary.separator() || label == silence;
    };
    int32_t behind = at;
    while (first < behind && separates(first)) ++first;
    while (first < behind && separates(behind - 1)) --behind;
    words.push_back({grammar.word_text(word), first, behind});
    first = at;
  };
  for (int32_t i = 0; i < count; ++i)
    if (const int32_t word = path.words[static_cast<size_t>(i)]; word != no_word) end(word, i);
  if (last_word != no_word) end(last_word, count);
  return words;
}

std::string Decoder::Tables::text(const PrefixPath& path, int32_t last_word) const {
  if (!has_lexicon) return vocabulary.text(path.labels);
  std::string text;
  const auto add = [&](int32_t word) {
    if (word == no_word) return;
    if (!text.empty() && vocabulary.border() != WordBorder::none) text += ' ';
    text += grammar.word_text(word);
  };
  for (const int32_t word : path.words) add(word);
  add(last_word);
  return text;
}

// Those that end within no word only where no other is.
std::vector<Decoder::Tables::Ending> Decoder::Tables::endings(const FoundPrefixes& found,
                                                              decode::ModelMemo& memo) const {
  std::vector<Ending> all;
  for (const FoundPrefixes::Prefix& p : found.prefixes) {
    grammar.finish(p.state, memo, [&](int32_t word, double gain) {
      const double probability = p.probability * gain;
      if (probability > 0) all.push_back({&p, word, gain, probability});
    });
  }
  if (!all.empty()) return all;
  for (const FoundPrefixes::Prefix& p : found.prefixes)
    all.push_back({&p, no_word, 1, p.probability});
  return all;
}

// Endings of one text are added up, or the best of them counts. The best first.
std::vector<Decoder::Tables::Group> Decoder::Tables::groups(
    const std::vector<Ending>& endings) const {
  std::vector<Group> groups;
  std::unordered_map<std::string, size_t> by_text;
  for (const Ending& e : endings) {
    std::string text = this->text(e.prefix->path, e.word);
    const auto [at, is_new] = by_text.try_emplace(text, groups.size());
    if (is_new) groups.push_back({std::move(text), e, 0});
    Group& g = groups[at->second];
    if (e.probability > g.best.probability) g.best = e;
    g.probability =
        options.sum ? g.probability + e.probability : std::max(g.probability, e.probability);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.probability > b.probability; });
  return groups;
}

namespace {

std::vector<std::string> texts_of(std::span<const SpelledWord> words) {
  std::vector<std::string> texts;
  for (const SpelledWord& w : words) texts.push_back(w.text);
  return texts;
}

// Adds `share` to the element of each that `other` has in the same place.
template <class T>
void add_agreement(const std::vector<T>& elements, const std::vector<T>& other, double share,
                   std::vector<double>& sums) {
  size_t at = 0;
  for (const Edit edit : align_edits(std::span<const T>(elements), std::span<const T>(other))) {
    if (edit == Edit::equal) sums[at] += share;
    at += edit != Edit::insertion;
  }
}

}  // namespace

void Decoder::Tables::set_posteriors(std::span<const Group> beam,
                                     std::span<DecodedText> texts) const {
  double sum = 0;
  for (const Group& g : beam) sum += g.probability;
  const auto as_symbols = [](const std::vector<int32_t>& labels) {
    return std::vector<char32_t>(labels.begin(), labels.end());
  };
  for (DecodedText& t : texts) {
    t.word_posteriors.assign(t.words.size(), 0);
    t.label_posteriors.assign(t.labels.size(), 0);
  }
  if (!(sum > 0)) return;
  for (const Group& g : beam) {
    const PrefixPath& path = g.best.prefix->path;
    const std::vector<std::string> other = texts_of(words(path, g.best.word));
    const std::vector<char32_t> symbols = as_symbols(path.labels);
    for (DecodedText& t : texts) {
      const double share = g.probability / sum;
      add_agreement(texts_of(t.words), other, share, t.word_posteriors);
      add_agreement(as_symbols(t.labels), symbols, share, t.label_posteriors);
    }
  }
  // The shares of a hundred texts that all agree add up to 1 but for rounding.
  for (DecodedText& t : texts) {
    for (auto* shares : {&t.word_posteriors, &t.label_posteriors})
      for (double& p : *shares) p = std::min(p, 1.0);
  }
}

std::vector<DecodedText> Decoder::Tables::texts(const FoundPrefixes& found) const {
  decode::ModelMemo memo;
  const std::vector<Group> beam = groups(endings(found, memo));
  const double log_scale = static_cast<double>(found.exponent) * std::log(2.0);
  std::vector<DecodedText> texts;
  for (const Group& g :
       std::span(beam).first(std::min(beam.size(), static_cast<size_t>(options.nbest)))) {
    const PrefixPath& path = g.best.prefix->path;
    DecodedText& t = texts.emplace_back();
    t.text = g.text;
    t.words = words(path, g.best.word);
    t.labels = path.labels;
    t.score = std::log(g.probability) + log_scale;
    t.log_probability =
        t.score - std::log(g.best.gain) - grammar.log_gains(path.labels, path.words, memo);
    if (!found.is_possible) t.score = t.log_probability = -std::numeric_limits<double>::infinity();
    std::vector<int32_t> spoken = path.words;
    spoken.push_back(g.best.word);
    std::erase(spoken, no_word);
    t.lm_log10 = grammar.lm_log10(path.labels, spoken);
  }
  if (options.posteriors)
    set_posteriors(found.is_possible ? beam : std::span<const Group>(), texts);
  return texts;
}

Decoder::Decoder(Vocabulary vocabulary, const DecoderOptions& options,
                 const DecoderKnowledge& knowledge) {
  check(options);
  RONDO_CHECK(knowledge.silence >= -1 && knowledge.silence < vocabulary.classes() &&
                  knowledge.silence != vocabulary.blank(),
              "silence is class ", knowledge.silence);
  const auto kept = std::make_shared<const DecoderKnowledge>(knowledge);
  tables_ = std::make_shared<const Tables>(std::move(vocabulary), options, kept, kept->hot_words,
                                           nullptr);
}

Decoder Decoder::with_hot_words(std::span<const HotWord> hot_words) const {
  const Tables& t = *tables_;
  Decoder other = *this;
  other.tables_ =
      std::make_shared<const Tables>(t.vocabulary, t.options, t.knowledge, hot_words, &t.grammar);
  return other;
}

const Vocabulary& Decoder::vocabulary() const { return tables_->vocabulary; }
const DecoderOptions& Decoder::options() const { return tables_->options; }
ModelUnit Decoder::unit() const { return tables_->grammar.unit(); }
const std::vector<std::string>& Decoder::warnings() const { return tables_->grammar.warnings(); }

void require_fit(const Decoder& decoder, const Vocabulary& vocabulary) {
  const Vocabulary& own = decoder.vocabulary();
  RONDO_CHECK(own.classes() == vocabulary.classes() && own.blank() == vocabulary.blank(),
              "a decoder for ", own.classes(), " classes with the blank ", own.blank(),
              ", and outputs of ", vocabulary.classes(), " with the blank ", vocabulary.blank());
}

std::vector<DecodedText> Decoder::decode(const float* scores, int32_t frames) const {
  DecoderStream stream(*this);
  stream.accept(scores, frames);
  return stream.finish();
}

struct DecoderStream::State {
  explicit State(std::shared_ptr<const Decoder::Tables> t)
      : tables(std::move(t)), search(tables->vocabulary, tables->grammar, tables->options) {}

  std::shared_ptr<const Decoder::Tables> tables;
  PrefixSearch search;
};

DecoderStream::DecoderStream(const Decoder& decoder)
    : state_(std::make_unique<State>(decoder.tables_)) {}
DecoderStream::~DecoderStream() = default;
DecoderStream::DecoderStream(DecoderStream&&) noexcept = default;
DecoderStream& DecoderStream::operator=(DecoderStream&&) noexcept = default;

void DecoderStream::accept(const float* scores, int32_t frames) {
  RONDO_CHECK(frames >= 0, frames, " frames");
  const int64_t classes = state_->tables->vocabulary.classes();
  for (int32_t t = 0; t < frames; ++t) state_->search.advance(scores + t * classes);
}

DecoderStream::Partial DecoderStream::partial() const {
  const Decoder::Tables& tables = *state_->tables;
  const PrefixSearch& search = state_->search;
  Partial p;
  p.blank_frames = search.blank_frames();
  p.text = tables.text(search.path(search.best_node()), no_word);
  PrefixPath common = search.path(search.common_node());
  if (!tables.has_lexicon && tables.vocabulary.border() != WordBorder::none) {
    // The last word may still grow, unless a token has closed it.
    const auto closes = [&](int32_t label) { return tables.vocabulary.token(label).closes; };
    while (!common.labels.empty() && !closes(common.labels.back())) {
      const bool opens = tables.vocabulary.token(common.labels.back()).opens;
      common.labels.pop_back();
      if (opens) break;
    }
  }
  // So may a character.
  while (!common.labels.empty() && tables.vocabulary.token(common.labels.back()).is_byte)
    common.labels.pop_back();
  p.stable = tables.text(common, no_word);
  return p;
}

std::vector<DecodedText> DecoderStream::finish() {
  std::vector<DecodedText> texts = state_->tables->texts(state_->search.found());
  state_ = std::make_unique<State>(state_->tables);
  return texts;
}

}  // namespace rondo
