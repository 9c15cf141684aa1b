// rondo lm: n-gram language models, from a text to a file that is mapped.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "engine/data/features/endings.h"
#include "engine/io/json.h"
#include "engine/io/output_file.h"
#include "engine/lm/language_model.h"
#include "engine/lm/sentences.h"
#include "engine/lm/train.h"
#include "kernels/base/cpu/resident_memory.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/text_options.h"

namespace rondo {
namespace {

// "2G", "500M", "4096"; nothing for what is none.
std::optional<uint64_t> parse_bytes(const std::string& text) {
  size_t digits = 0;
  uint64_t value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 15) {
    value = value * 10 + static_cast<uint64_t>(text[digits++] - '0');
  }
  const std::string unit = text.substr(digits);
  const int shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : unit.empty() ? 0 : -1;
  if (digits == 0 || shift < 0 || value > (UINT64_MAX >> 20 >> shift)) return std::nullopt;
  return value << shift;
}

std::string check_bytes(const std::string& text) {
  return parse_bytes(text) ? "" : str("'", text, "', expected a number of bytes, as 500M or 2G");
}

std::string bytes_text(uint64_t bytes) {
  char text[32];
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) {
    std::snprintf(text, sizeof text, "%.2f GB", b / 1e9);
  } else {
    std::snprintf(text, sizeof text, b >= 1e6 ? "%.1f MB" : "%.3f MB", b / 1e6);
  }
  return text;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void add_token_options(Command& command, TextOptions* text, bool& characters) {
  command.add_flag("--characters", characters,
                   "tokens are characters, with <space> between words, instead of words");
  add_text_options(command, text);
}

void print_model(const std::string& path, const LanguageModel& model) {
  std::string counts;
  for (int32_t k = 1; k <= model.order(); ++k) {
    counts += str(k == 1 ? "" : " + ", model.ngrams(k));
  }
  std::printf(
      "%s: order %d, %s n-grams, %u states, %s, weights %s\n", path.c_str(), model.order(),
      counts.c_str(), model.states(), bytes_text(model.bytes()).c_str(),
      model.quantized_bits() == 0 ? "exact" : str("of ", model.quantized_bits(), " bits").c_str());
}

void add_quantize(Command& command, int32_t& bits) {
  command
      .add_option("--quantize", bits,
                  "bits of each weight from order 2 on, 2 to 16: 8 loses little; 0: exact floats")
      .range(0, 16)
      .type_name("INT")
      .show_default();
}

void check_quantize(int32_t bits) {
  if (bits == 1) throw WrongUsage("--quantize is 1, expected 0 or 2 to 16");
}

void add_build(Command& parent) {
  struct Options {
    std::string arpa, out;
    int32_t quantize = 0;
  };
  auto o = std::make_shared<Options>();
  Command& command = parent.add_command(
      "build", "Turn an ARPA file of any program into the compact form that is mapped, not read");
  command.add_option("arpa", o->arpa, "the ARPA file; *.gz too").required().check(check_file_name);
  command.add_option("out", o->out, "the file to write").required().check(check_file_name);
  add_quantize(command, o->quantize);
  command.footer("\nExample:  rondo lm build 4gram.arpa.gz 4gram.lm --quantize 8\n");
  command.action([o] {
    check_quantize(o->quantize);
    OutputFile(o->out, "out").require_not(o->arpa, "the ARPA file");
    require_folder_of(o->out);
    const Stopwatch watch;
    build_language_model(o->arpa, o->out, o->quantize);
    print_model(o->out, LanguageModel::open(o->out));
    std::printf("built in %.1f s with %s of memory\n", watch.seconds(),
                bytes_text(resident_memory().peak).c_str());
    return 0;
  });
}

struct TrainWords {
  LanguageModelTraining training;
  TextOptions text;
  std::string memory = "2G";
  std::vector<int> prune;
  bool fallback = false;
};

void print_training(const LanguageModelReport& r, bool characters) {
  std::printf("%llu sentences, %llu %s, %llu different",
              static_cast<unsigned long long>(r.sentences),
              static_cast<unsigned long long>(r.tokens), characters ? "characters" : "words",
              static_cast<unsigned long long>(r.words - 3));
  if (r.empty_lines > 0) {
    std::printf("; %llu empty lines were passed over",
                static_cast<unsigned long long>(r.empty_lines));
  }
  std::printf("\norder      n-grams         kept   discounts of 1, 2, 3+\n");
  for (size_t k = 0; k < r.orders.size(); ++k) {
    const LanguageModelReport::Order& e = r.orders[k];
    std::printf("%5zu %12llu %12llu   %.4f %.4f %.4f%s\n", k + 1,
                static_cast<unsigned long long>(e.found), static_cast<unsigned long long>(e.kept),
                e.discounts[0], e.discounts[1], e.discounts[2],
                e.fell_back ? "  (fixed ones: its own cannot be estimated)" : "");
  }
}

void warn_of_dotless_i(const DotlessI& found) {
  if (!found.matters()) return;
  warn(found.found() + "; --locale tr makes \u0131 of I in lower case");
}

int train(const TrainWords& o) {
  LanguageModelTraining t = o.training;
  check_quantize(t.quantize);
  if (t.quantize != 0 && (has_ending(t.out, ".arpa") || has_ending(t.out, ".arpa.gz"))) {
    throw WrongUsage(
        "--quantize is for the compact form, not for ARPA files; name --out otherwise");
  }
  t.rules = o.text.rules();
  t.memory = *parse_bytes(o.memory);
  t.prune.assign(o.prune.begin(), o.prune.end());
  if (o.fallback) t.discount_fallback = {0.5, 1, 1.5};
  const OutputFile out(t.out, "--out");
  for (const std::string& text : t.texts) out.require_not(text, "a text");
  require_folder_of(t.out);
  const Stopwatch watch;
  const LanguageModelReport report = train_language_model(t);
  print_training(report, t.characters);
  warn_of_dotless_i(report.dotless_i);
  const double seconds = watch.seconds();
  std::printf("%s: trained in %.1f s, %.0f thousand tokens a second, with %s of memory",
              t.out.c_str(), seconds, double(report.tokens) / seconds / 1000,
              bytes_text(resident_memory().peak).c_str());
  if (report.spilled_bytes > 0) {
    std::printf(" and %s on the disk", bytes_text(report.spilled_bytes).c_str());
  }
  std::printf("\n");
  return 0;
}

void add_train_lm(Command& parent) {
  auto o = std::make_shared<TrainWords>();
  LanguageModelTraining& t = o->training;
  Command& command = parent.add_command(
      "train", "Learn a model from text: modified Kneser-Ney smoothing, interpolated");
  command
      .add_option(
          "text", t.texts,
          "files with a sentence on each line, or manifests (*.jsonl) whose \"text\" it is; "
          "*.gz too; - is standard input")
      .required()
      .check(check_file_name);
  command
      .add_option("--out", t.out,
                  "the model: *.arpa and *.arpa.gz are ARPA files, all else the compact form")
      .required()
      .check(check_file_name);
  command.add_option("--order", t.order, "words of the longest n-grams")
      .range(1, 32)
      .type_name("INT")
      .show_default();
  command
      .add_option("--prune", o->prune,
                  "for each order, leave out n-grams that occur so often or more rarely; the last "
                  "one holds for higher orders: 0 0 1")
      .range(0, 1 << 30)
      .type_name("INT ...");
  command.add_flag("--discount-fallback", o->fallback,
                   "discounts 0.5, 1 and 1.5 for orders whose own cannot be estimated, as in small "
                   "texts");
  add_token_options(command, &o->text, t.characters);
  add_quantize(command, t.quantize);
  command
      .add_option("--memory", o->memory, "for sorting; what it does not hold goes to --temporary")
      .check(check_bytes)
      .type_name("BYTES")
      .show_default();
  command.add_option("--temporary", t.temporary, "folder for that; else the system's own");
  command.footer(
      "\nExample:  rondo lm train texts.txt corpus/train.jsonl --order 4 --prune 0 0 1 --lowercase "
      "--out 4gram.lm\n");
  command.action([o] { return train(*o); });
}

struct QueryWords {
  std::string model, text = "-", format = "text";
  TextOptions text_options;
  bool characters = false, words = false, summary = false;
};

struct Scored {
  std::string_view token;
  double log10 = 0;
  int32_t length = 0;
  bool known = true;
};

// Sums over sentences, as KenLM's query has them: </s> is a token, <s> is none.
struct Totals {
  double log10 = 0, log10_unknown = 0;
  int64_t sentences = 0, tokens = 0, unknown = 0;

  void add(const std::vector<Scored>& sentence) {
    ++sentences;
    for (const Scored& s : sentence) {
      ++tokens;
      log10 += s.log10;
      if (s.known) continue;
      ++unknown;
      log10_unknown += s.log10;
    }
  }
  double perplexity() const { return std::pow(10, -log10 / double(tokens)); }
  double perplexity_without() const {
    return std::pow(10, -(log10 - log10_unknown) / double(tokens - unknown));
  }
};

std::vector<Scored> score_sentence(const LanguageModel& model,
                                   const std::vector<std::string_view>& tokens) {
  std::vector<Scored> scored;
  LanguageModel::State state = model.begin_sentence();
  const auto take = [&](std::string_view token) {
    const LanguageModel::Word word = model.word(token);
    Scored s{token, 0, 0, word != LanguageModel::unknown};
    s.log10 = model.score(state, word, state, s.length);
    scored.push_back(s);
  };
  for (const std::string_view token : tokens) take(token);
  take("</s>");
  return scored;
}

void print_sentence(const QueryWords& o, const std::vector<Scored>& scored) {
  Totals of_one;
  of_one.add(scored);
  std::string text;
  Json words = Json::array();
  for (const Scored& s : scored) {
    if (&s != &scored.back()) text.append(text.empty() ? "" : " ").append(s.token);
    words.push_back(Json::object(
        {{"token", s.token}, {"log10", s.log10}, {"ngram", s.length}, {"known", s.known}}));
  }
  if (o.format == "jsonl") {
    Json line = Json::object({{"text", text},
                              {"log10", of_one.log10},
                              {"tokens", of_one.tokens},
                              {"unknown", of_one.unknown}});
    if (o.words) line["words"] = std::move(words);
    std::printf("%s\n", line.dump_replacing().c_str());
    return;
  }
  std::printf("%10.4f  %s%s\n", of_one.log10, text.c_str(),
              of_one.unknown > 0 ? str("  (", of_one.unknown, " unknown)").c_str() : "");
  for (const Scored& s : scored) {
    if (!o.words) break;
    std::printf("    %10.4f  %d  %.*s%s\n", s.log10, s.length, static_cast<int>(s.token.size()),
                s.token.data(), s.known ? "" : "  (unknown)");
  }
}

void print_totals(const QueryWords& o, const Totals& t) {
  const bool some_known = t.tokens > t.unknown;
  if (o.format == "jsonl") {
    const Json totals = Json::object(
        {{"log10", t.log10},
         {"sentences", t.sentences},
         {"tokens", t.tokens},
         {"unknown", t.unknown},
         {"perplexity", t.perplexity()},
         {"perplexity_without_unknown", some_known ? Json(t.perplexity_without()) : Json()}});
    std::printf("%s\n", Json::object({{"totals", totals}}).dump().c_str());
    return;
  }
  std::printf("log10 p %.4f of %lld sentences, %lld tokens with </s>\n", t.log10,
              static_cast<long long>(t.sentences), static_cast<long long>(t.tokens));
  std::printf("perplexity %.6g with unknown words", t.perplexity());
  if (some_known) std::printf(", %.6g without", t.perplexity_without());
  std::printf("; %lld unknown, %.2f %% of tokens\n", static_cast<long long>(t.unknown),
              100.0 * double(t.unknown) / double(t.tokens));
}

int query(const QueryWords& o) {
  const LanguageModel model = LanguageModel::open(o.model);
  lm::SentenceReader sentences(o.text, {o.text_options.rules(), o.characters});
  std::vector<std::string_view> tokens;
  Totals totals;
  while (sentences.next(tokens)) {
    const std::vector<Scored> scored = score_sentence(model, tokens);
    if (!o.summary) print_sentence(o, scored);
    totals.add(scored);
  }
  if (totals.sentences == 0) fail_input(sentences.lines().name(), ": has no sentences");
  print_totals(o, totals);
  warn_of_dotless_i(sentences.dotless_i());
  return 0;
}

void add_query(Command& parent) {
  auto o = std::make_shared<QueryWords>();
  Command& command = parent.add_command(
      "query", "Score sentences: log10 of their probabilities, and the perplexity");
  command
      .add_option("model", o->model,
                  "an ARPA file (*.gz too), KenLM's binary, or what build or train wrote")
      .required()
      .check(check_file_name);
  command
      .add_option("text", o->text,
                  "a file with a sentence on each line, or a manifest (*.jsonl); *.gz too; - is "
                  "standard input")
      .check(check_file_name)
      .show_default();
  command.add_flag("--words", o->words, "each word, and the length of the n-gram found for it");
  command.add_flag("--summary", o->summary, "the totals alone");
  command.add_option("--format", o->format, "text or jsonl")
      .one_of({"text", "jsonl"})
      .show_default();
  add_token_options(command, &o->text_options, o->characters);
  command.footer("\nExample:  echo 'one two three' | rondo lm query 4gram.lm --words\n");
  command.action([o] { return query(*o); });
}

}  // namespace

void add_lm(Command& program) {
  Command& command =
      program.add_command("lm", "Train, convert and query n-gram language models for decoding");
  command.require_command("what to do");
  command.footer(
      "\nExample:  rondo lm train texts.txt --order 4 --out 4gram.lm\n"
      "          rondo lm query 4gram.lm test.txt\n");
  add_train_lm(command);
  add_build(command);
  add_query(command);
}

}  // namespace rondo
