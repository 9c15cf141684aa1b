#include <cmath>

#include "engine/c/handles.h"
#include "engine/decode/transcript/text_alignment.h"

namespace rondo::c {
namespace {

std::optional<int32_t> blank_of(int32_t blank) {
  if (blank == RONDO_FIND_BLANK) return std::nullopt;
  if (blank == RONDO_FIRST_BLANK) return Vocabulary::first_blank;
  return blank == RONDO_LAST_BLANK ? Vocabulary::last_blank : blank;
}

std::vector<HotWord> hot_words_of(const rondo_hot_word* given, size_t count) {
  if (count > 0) require_given(given, "hot_words");
  std::vector<HotWord> words;
  for (size_t i = 0; i < count; ++i) {
    require_given(given[i].phrase, "the phrase of a hot word");
    words.push_back({given[i].phrase, given[i].weight});
  }
  return words;
}

std::vector<Spelling> lexicon_of(const char* const* words, size_t count,
                                 const Vocabulary& vocabulary) {
  if (count > 0) require_given(words, "words");
  std::vector<Spelling> lexicon;
  for (size_t i = 0; i < count; ++i) {
    require_given(words[i], "one of words");
    auto labels = vocabulary.spell(words[i]);
    if (!labels || labels->empty())
      fail_input("words: the tokens cannot spell '", words[i], "', which is word ", i);
    lexicon.push_back({words[i], std::move(*labels)});
  }
  return lexicon;
}

rondo_decoder_options usual_decoder() {
  const DecoderOptions usual;
  rondo_decoder_options o{};
  o.size = sizeof o;
  o.beam = usual.beam;
  o.nbest = usual.nbest;
  o.lm_weight = usual.lm_weight;
  o.word_score = usual.word_score;
  o.unknown_score = usual.unknown_score;
  o.sentence_begin = o.sentence_end = 1;
  return o;
}

Decoder decoder_of(const Vocabulary& vocabulary, const rondo_decoder_options& o) {
  for (const double number : {o.token_floor, o.lm_weight, o.word_score, o.unknown_score}) {
    if (!std::isfinite(number))
      fail_input("rondo_decoder_options: ", number, ", expected a finite number");
  }
  if (o.beam < 1 || o.nbest < 1)
    fail_input("rondo_decoder_options: a beam of ", o.beam, " and ", o.nbest,
               " texts, expected at least 1 of both");
  if (o.token_floor < 0 || o.token_floor >= 1)
    fail_input("rondo_decoder_options: token_floor ", o.token_floor,
               ", expected 0 or more, below 1");
  DecoderOptions options;
  options.beam = o.beam;
  options.nbest = o.nbest;
  if (o.token_floor > 0) options.token_floor = std::log(o.token_floor);
  options.lm_weight = o.lm_weight;
  options.word_score = o.word_score;
  options.unknown_score = o.unknown_score;
  options.sentence_begin = o.sentence_begin != 0;
  options.sentence_end = o.sentence_end != 0;
  DecoderKnowledge knowledge;
  if (o.known_word_count > 0) require_given(o.known_words, "known_words");
  for (size_t i = 0; i < o.known_word_count; ++i) {
    require_given(o.known_words[i], "a known word");
    knowledge.known_words.emplace_back(o.known_words[i]);
  }
  if (o.language_model) knowledge.language_model = o.language_model->model;
  knowledge.lexicon = lexicon_of(o.words, o.word_count, vocabulary);
  knowledge.hot_words = hot_words_of(o.hot_words, o.hot_word_count);
  return Decoder(vocabulary, options, knowledge);
}

// The scores of a CTC model with these classes; a row that is no distribution is an error with its
// number.
Matrix scores_of(const rondo_matrix* scores, const Vocabulary& vocabulary) {
  require_given(scores, "scores");
  Matrix m = matrix_of(*scores, "scores");
  if (m.dim != vocabulary.classes()) {
    fail_input("scores of ", m.dim, " classes, expected the ", vocabulary.classes(),
               " of the vocabulary");
  }
  for (int64_t t = 0; t < m.frames; ++t) {
    const std::span row(m.row(t), static_cast<size_t>(m.dim));
    const float largest = *std::max_element(row.begin(), row.end());
    const bool is_nan = std::any_of(row.begin(), row.end(), [](float v) { return std::isnan(v); });
    if (is_nan || !std::isfinite(largest)) {
      fail_input("scores: frame ", t, is_nan ? " holds NaN" : " has no finite largest score",
                 ", expected logits or log-probabilities");
    }
  }
  return m;
}

void require_frame_seconds(double seconds) {
  if (!(seconds > 0) || !std::isfinite(seconds))
    fail_input("frame_seconds ", seconds, ", expected a positive number");
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

rondo_status rondo_vocabulary_open(const char* path, int32_t blank, const char* border,
                                   rondo_vocabulary** vocabulary) {
  return making<rondo_vocabulary>(vocabulary, [&] {
    require_given(path, "path");
    auto made = std::make_unique<rondo_vocabulary>();
    made->vocabulary = Vocabulary::open(path, blank_of(blank), border ? border : "");
    return made;
  });
}

rondo_status rondo_vocabulary_new(const char* const* tokens, size_t count, int32_t blank,
                                  const char* border, rondo_vocabulary** vocabulary) {
  return making<rondo_vocabulary>(vocabulary, [&] {
    require_given(tokens, "tokens");
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) {
      require_given(tokens[i], "one of tokens");
      names.emplace_back(tokens[i]);
    }
    auto made = std::make_unique<rondo_vocabulary>();
    made->vocabulary =
        Vocabulary(std::move(names), blank_of(blank), border ? border : "", "tokens");
    return made;
  });
}

rondo_status rondo_vocabulary_of_model(const rondo_model* model, rondo_vocabulary** vocabulary) {
  return making<rondo_vocabulary>(vocabulary, [&] {
    require_given(model, "model");
    const Model& m = model->model;
    if (m.description().config.task != Task::ctc)
      fail_input(m.file(), ": is not a ctc model: it writes no text");
    auto made = std::make_unique<rondo_vocabulary>();
    made->vocabulary = m.vocabulary();
    made->rules = m.description().config.text;
    made->reads_leftwards = m.alphabet().reads_leftwards();
    return made;
  });
}

void rondo_vocabulary_free(rondo_vocabulary* vocabulary) { delete vocabulary; }

rondo_status rondo_language_model_open(const char* path, rondo_language_model** model) {
  return making<rondo_language_model>(model, [&] {
    require_given(path, "path");
    return std::make_unique<rondo_language_model>(rondo_language_model{LanguageModel::open(path)});
  });
}

rondo_status rondo_language_model_from_memory(const void* bytes, size_t size, const char* name,
                                              rondo_language_model** model) {
  return making<rondo_language_model>(model, [&] {
    require_given(bytes, "bytes");
    const std::string_view content(static_cast<const char*>(bytes), size);
    return std::make_unique<rondo_language_model>(
        rondo_language_model{LanguageModel::parse(content, name ? name : "the language model")});
  });
}

void rondo_language_model_free(rondo_language_model* model) { delete model; }

rondo_status rondo_language_model_score(const rondo_language_model* model, const char* const* words,
                                        size_t count, int32_t end, double* total, double* each) {
  return guarded([&] {
    require_given(model, "model");
    if (count > 0) require_given(words, "words");
    const LanguageModel& lm = model->model;
    LanguageModel::State state = lm.begin_sentence();
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      require_given(words[i], "one of words");
      const double score = lm.score(state, lm.word(words[i]), state);
      if (each) each[i] = score;
      sum += score;
    }
    if (end != 0) {
      const double score = lm.end_score(state);
      if (each) each[count] = score;
      sum += score;
    }
    if (total) *total = sum;
  });
}

void rondo_decoder_options_init(rondo_decoder_options* options, size_t size) {
  write_options(options, size, usual_decoder());
}

rondo_status rondo_decoder_new(const rondo_vocabulary* vocabulary,
                               const rondo_decoder_options* options, rondo_decoder** decoder) {
  return making<rondo_decoder>(decoder, [&] {
    require_given(vocabulary, "vocabulary");
    const auto o = read_options(options, usual_decoder(), "rondo_decoder_options");
    return std::make_unique<rondo_decoder>(rondo_decoder{decoder_of(vocabulary->vocabulary, o)});
  });
}

rondo_status rondo_decoder_with_hot_words(const rondo_decoder* decoder,
                                          const rondo_hot_word* hot_words, size_t count,
                                          rondo_decoder** other) {
  return making<rondo_decoder>(other, [&] {
    require_given(decoder, "decoder");
    return std::make_unique<rondo_decoder>(
        rondo_decoder{decoder->decoder.with_hot_words(hot_words_of(hot_words, count))});
  });
}

void rondo_decoder_free(rondo_decoder* decoder) { delete decoder; }

const char* rondo_decoder_warning(const rondo_decoder* decoder, size_t index) {
  if (!decoder || index >= decoder->decoder.warnings().size()) return nullptr;
  return decoder->decoder.warnings()[index].c_str();
}

rondo_status rondo_decode(const rondo_vocabulary* vocabulary, const rondo_decoder* decoder,
                          const rondo_matrix* scores, double frame_seconds, rondo_result** result) {
  return making<rondo_result>(result, [&] {
    require_given(vocabulary, "vocabulary");
    require_frame_seconds(frame_seconds);
    const Vocabulary& v = vocabulary->vocabulary;
    if (decoder && (decoder->decoder.vocabulary().classes() != v.classes() ||
                    decoder->decoder.vocabulary().blank() != v.blank())) {
      fail_input("a decoder of ", decoder->decoder.vocabulary().classes(), " classes with blank ",
                 decoder->decoder.vocabulary().blank(), ", expected one of the vocabulary's ",
                 v.classes(), " with ", v.blank());
    }
    Matrix m = scores_of(scores, v);
    Transcript t =
        transcript_of(std::move(m.data), v, decoder ? &decoder->decoder : nullptr, frame_seconds);
    if (vocabulary->reads_leftwards) turn_leftwards(t);
    return result_of(std::move(t), frame_seconds);
  });
}

void rondo_align_options_init(rondo_align_options* options, size_t size) {
  write_options(options, size, rondo_align_options{});
}

rondo_status rondo_align(const rondo_vocabulary* vocabulary, const rondo_matrix* scores,
                         double frame_seconds, const char* text, const rondo_align_options* options,
                         rondo_result** result) {
  return making<rondo_result>(result, [&] {
    require_given(vocabulary, "vocabulary");
    require_given(text, "text");
    require_frame_seconds(frame_seconds);
    const auto o = read_options(options, rondo_align_options{}, "rondo_align_options");
    const Vocabulary& v = vocabulary->vocabulary;
    SpellingOptions spelling;
    spelling.rules = vocabulary->rules;
    spelling.open_ends = o.open_ends != 0;
    if (o.skip_unspellable != 0) spelling.unspellable = UnspellableText::skip;
    TextAlignmentOptions how;
    how.find_gaps = o.find_gaps != 0;
    const SpelledText spelled = TextSpeller(v, spelling).spell(text, "text");
    AlignedText found =
        align_text(std::move(scores_of(scores, v).data), v, spelled, how, frame_seconds);
    const double score =
        found.score(0, static_cast<double>(found.shortfall.size()) * frame_seconds);
    auto r = result_of(std::move(found.transcript), frame_seconds);
    r->score = score;
    return r;
  });
}
