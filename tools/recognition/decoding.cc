#include "tools/recognition/decoding.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <system_error>

#include "engine/decode/transcript/confidence.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo {

namespace {

constexpr int usual_beam = 100;
// Of many classes nearly all are as good as impossible in a frame.
constexpr int32_t many_classes = 256;
constexpr double floor_of_many = 0.001;

}  // namespace

int DecodingOptions::beam_used() const {
  if (beam >= 0) return beam;
  return needs_search() ? std::max(usual_beam, nbest) : default_beam;
}

std::string given_of(const DecodingOptions& o) {
  std::string given = str(o.beam_used(), ' ', o.nbest, ' ', o.unit, ' ', o.confidence);
  for (const std::string* file : {&o.lm, &o.lexicon, &o.silence, &o.hot_words}) {
    given += file->empty() ? " -" : " +";
  }
  const DecoderOptions& s = o.search;
  for (const double number : {o.hot_word_weight, o.score_range, o.token_floor, s.lm_weight,
                              s.word_score, s.unknown_score}) {
    given += str(' ', number);
  }
  return str(given, ' ', s.sum, s.sentence_end);
}

DecoderOptions search_options(const DecodingOptions& o, int32_t classes) {
  DecoderOptions s = o.search;
  s.beam = o.beam_used();
  s.nbest = o.nbest;
  const double floor = o.token_floor >= 0       ? o.token_floor
                       : classes > many_classes ? floor_of_many
                                                : 0;
  if (floor > 0) s.token_floor = std::log(floor);
  if (o.score_range > 0) s.score_range = o.score_range;
  s.unit = o.unit == "words"    ? ModelUnit::words
           : o.unit == "tokens" ? ModelUnit::tokens
                                : ModelUnit::automatic;
  s.posteriors = confidence_of(o.confidence) == Confidence::posterior;
  return s;
}

void add_decoding_options(Command& command, DecodingOptions* o, bool shows_all) {
  command
      .add_option("--beam", o->beam,
                  str("search for the most probable text among so many beginnings of one; 0: the "
                      "best class of each frame",
                      o->default_beam > 0 ? str(" [", o->default_beam, "]")
                                          : "; 100 where what follows needs a search, else 0"))
      .range(0, 100000)
      .type_name("INT");
  command.add_option("--lm", o->lm, "n-gram language model: ARPA, KenLM's binary, or of rondo lm")
      .type_name("FILE");
  command
      .add_option(
          "--lexicon", o->lexicon,
          "the only words there are: a line each, with the tokens that spell it if they are "
          "not its letters")
      .type_name("FILE");
  command
      .add_option("--silence", o->silence,
                  "with --lexicon: a token that may stand between words, SIL for phonemes, say")
      .type_name("TOKEN");
  command
      .add_option("--hot-words", o->hot_words,
                  "words and phrases to be expected: a line each, with a weight behind a tab if it "
                  "has its own")
      .type_name("FILE");
  command
      .add_option("--lm-weight", o->search.lm_weight,
                  "of the language model, beside the network's 1")
      .range(0.0, 100.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--word-score", o->search.word_score, "for each word; more makes texts longer")
      .range(-100.0, 100.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--unknown-score", o->search.unknown_score,
                  "for each word that the language model does not know")
      .range(-1000.0, 100.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--hot-word-weight", o->hot_word_weight, "of those without a weight")
      .range(-1000.0, 1000.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--lm-unit", o->unit, "what the language model's words are")
      .one_of({"auto", "words", "tokens"})
      .show_default();
  command
      .add_option(
          "--token-floor", o->token_floor,
          str("classes less probable than this in a frame begin nothing there; faster. ",
              floor_of_many, " where there are more than ", many_classes, " classes, else 0"))
      .range(0.0, 1.0)
      .type_name("FLOAT");
  command
      .add_option("--score-range", o->score_range,
                  "drop what is worse than the best by more than this; faster. 0: nothing")
      .range(0.0, 10000.0)
      .type_name("FLOAT")
      .show_default();
  if (!shows_all) return;
  command.add_option("--nbest", o->nbest, "so many texts, as alternatives in --format jsonl")
      .range(1, 100000)
      .type_name("INT")
      .show_default();
  add_confidence_option(command, &o->confidence, true);
}

void add_confidence_option(Command& command, std::string* name, bool by_search) {
  std::vector<std::string> names = confidence_names();
  if (!by_search) std::erase(names, "posterior");
  command
      .add_option("--confidence", *name,
                  std::string("what the probabilities of words and tokens are: of a token's frames "
                              "the mean, geometric mean, least or product, or how far from even "
                              "their classes are (entropy)") +
                      (by_search ? "; with a search: the share of the beam's texts that agree "
                                   "(posterior)"
                                 : ""))
      .one_of(names)
      .show_default();
}

namespace {

void require_search(const DecodingOptions& o) {
  if (!o.searches() && o.needs_search())
    throw WrongUsage(
        o.knows_something()
            ? "--lm, --lexicon and --hot-words need a search, --beam 0 is none"
            : "--confidence posterior compares the texts of a search, --beam 0 is none");
}

}  // namespace

std::string format_of(const DecodingOptions& o, const std::string& given) {
  if (o.nbest > 1) {
    if (o.beam >= 0 && o.beam < o.nbest)
      throw WrongUsage(
          str("--nbest ", o.nbest, " takes a --beam that is at least as large, it is ", o.beam));
    if (!given.empty() && given != "jsonl")
      throw WrongUsage(str("--nbest ", o.nbest, " takes --format jsonl, it is ", given));
    return "jsonl";
  }
  require_search(o);
  return given.empty() ? "text" : given;
}

DecoderKnowledge read_knowledge(const DecodingOptions& o, const Vocabulary& vocabulary,
                                const TextRules& rules) {
  require_search(o);
  DecoderKnowledge k;
  if (!o.lm.empty()) k.language_model = LanguageModel::open(o.lm);
  if (!o.lexicon.empty()) {
    k.lexicon = open_lexicon(o.lexicon, vocabulary);
  } else if (!o.known_words.empty()) {
    k.known_words = open_known_words(o.known_words);
    if (k.known_words.empty())
      warn(o.known_words + ": holds no words; all that the language model has are known");
  }
  if (!o.silence.empty()) {
    if (o.lexicon.empty()) throw WrongUsage("--silence goes with --lexicon");
    const auto label = vocabulary.find(o.silence);
    if (!label) fail_input("--silence: the model has no token '", o.silence, "'");
    k.silence = *label;
  }
  if (!o.hot_words.empty()) k.hot_words = open_hot_words(o.hot_words, o.hot_word_weight);
  for (HotWord& hot : k.hot_words) {
    std::string changed = apply_rules(rules, hot.phrase);
    if (!changed.empty()) hot.phrase = std::move(changed);
  }
  return k;
}

namespace {

// An option that would change nothing: probably one is missing that it goes with.
void require_effect(const DecodingOptions& o) {
  const DecodingOptions usual;
  const auto require = [](bool as_usual, const char* option, bool has_effect, const char* with) {
    if (!as_usual && !has_effect) throw WrongUsage(str(option, " goes with ", with));
  };
  const bool searches = o.searches();
  constexpr const char* search = "a search: --lm, --lexicon, --hot-words or --beam 100, say";
  require(o.search.lm_weight == usual.search.lm_weight, "--lm-weight", !o.lm.empty(), "--lm");
  require(o.search.unknown_score == usual.search.unknown_score, "--unknown-score", !o.lm.empty(),
          "--lm");
  require(o.unit == usual.unit, "--lm-unit", !o.lm.empty(), "--lm");
  require(o.hot_word_weight == usual.hot_word_weight, "--hot-word-weight", !o.hot_words.empty(),
          "--hot-words");
  require(o.search.word_score == usual.search.word_score, "--word-score", searches, search);
  require(o.token_floor == usual.token_floor, "--token-floor", searches, search);
  require(o.score_range == usual.score_range, "--score-range", searches, search);
}

}  // namespace

namespace {

// What pyctcdecode calls them. Its unk_score_offset is, as what the model says of a word, a base-10
// logarithm that alpha weighs.
void use_attributes(const std::string& path, const Command& command, DecoderOptions* search) {
  try {
    const Json json = Json::parse(read_text_file(path, 1 << 20));
    const auto number = [&](const char* key, double usual, double least, double most) {
      const Json* found = json.find(key);
      const double value = found ? found->get<double>() : usual;
      if (!(value >= least && value <= most))
        fail_input(path, ": \"", key, "\" is ", value, ", expected ", least, " to ", most);
      return value;
    };
    const DecoderOptions own;
    const double alpha = number("alpha", own.lm_weight, 0, 100);
    const double beta = number("beta", own.word_score, -100, 100);
    const double offset = number("unk_score_offset", own.unknown_score, -1000, 0);
    if (!command.has("--lm-weight")) search->lm_weight = alpha;
    if (!command.has("--word-score")) search->word_score = beta;
    if (!command.has("--unknown-score"))
      search->unknown_score = alpha * std::numbers::ln10 * offset;
    if (const Json* boundary = json.find("score_boundary"))
      search->sentence_begin = search->sentence_end = boundary->get<bool>();
  } catch (const JsonError& e) {
    fail_input(path, ": ", e.what());
  }
}

}  // namespace

void use_language_model_of(const std::string& folder, const Command& command, DecodingOptions* o) {
  namespace fs = std::filesystem;
  const fs::path inside = fs::path(folder) / "language_model";
  std::error_code ignored;
  if (!fs::is_directory(inside, ignored) || !o->lm.empty() || o->beam == 0) return;
  for (const auto& entry : fs::directory_iterator(inside)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "attrs.json") continue;
    if (name == "unigrams.txt") {
      o->known_words = entry.path().string();
      continue;
    }
    if (!o->lm.empty())
      fail_input(inside.string(), ": holds several language models, '",
                 fs::path(o->lm).filename().string(), "' and '", name, "'; --lm says which");
    o->lm = entry.path().string();
  }
  if (o->lm.empty())
    fail_input(inside.string(),
               ": holds no language model, expected an ARPA file or a binary of KenLM's beside "
               "attrs.json and unigrams.txt");
  const std::string attributes = (inside / "attrs.json").string();
  if (fs::exists(attributes)) use_attributes(attributes, command, &o->search);
}

std::optional<Decoder> make_decoder(const DecodingOptions& o, const Vocabulary& vocabulary,
                                    const TextRules& rules) {
  require_search(o);
  require_effect(o);
  if (!o.searches()) return {};
  Decoder decoder(vocabulary, search_options(o, vocabulary.classes()),
                  read_knowledge(o, vocabulary, rules));
  for (const std::string& w : decoder.warnings()) warn(w);
  return decoder;
}

}  // namespace rondo
