#include "engine/lm/arpa.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "engine/lm/kenlm/kenlm_model.h"
#include "kernels/base/cpu/printable.h"

namespace rondo::lm {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

class ArpaReader {
 public:
  ArpaReader(LineReader& lines, Vocabulary& vocabulary, NgramSink& sink)
      : lines_(lines), vocabulary_(vocabulary), sink_(sink) {}

  void read() {
    read_counts();
    sink_.begin(counts_);
    for (size_t order = 1; order <= counts_.size(); ++order) {
      expect(str("\\", order, "-grams:"), order);
      read_order(order);
    }
    expect("\\end\\", counts_.size() + 1);
  }

 private:
  // The next line that is not empty.
  bool next(std::string_view& line) {
    while (lines_.next(line)) {
      line = trimmed(line);
      if (!line.empty()) return true;
    }
    return false;
  }

  [[noreturn]] void fail_end(const std::string& expected) {
    fail_input(lines_.name(), ":", lines_.line(), ": the file ends here, expected ", expected);
  }

  void read_counts() {
    std::string_view line;
    do {
      if (!next(line)) {
        fail_input(lines_.name(),
                   ": is no language model: no line of an ARPA file is \\data\\, and "
                   "it was written by neither rondo lm train nor rondo lm build");
      }
      if (line.starts_with(kenlm_magic)) {
        lines_.fail(
            "this is a binary of KenLM, expected ARPA here; decoding and rondo lm query "
            "take the binary as it is, uncompressed and from a file");
      }
      if (line.starts_with("SRILM_BINARY_NGRAM")) {
        lines_.fail("this is a binary of SRILM, expected ARPA (ngram -lm FILE -write-lm makes it)");
      }
      if (line.starts_with("blmt") || line.starts_with("Qblmt")) {
        lines_.fail("this is a binary of IRSTLM, expected ARPA (compile-lm --text=yes makes it)");
      }
      if (line == "iARPA")
        lines_.fail(
            "this is IRSTLM's own iARPA, expected ARPA (compile-lm "
            "--text=yes makes it)");
    } while (line != "\\data\\");
    while (next(line)) {
      if (line.front() == '\\') {
        held_ = line;
        if (counts_.empty()) lines_.fail("expected 'ngram 1=COUNT', found ", quoted_start(line));
        return;
      }
      counts_.push_back(parse_count(line));
    }
    fail_end("'ngram N=COUNT' or \\1-grams:");
  }

  uint64_t parse_count(std::string_view line) {
    const size_t order = counts_.size() + 1;
    const std::string_view whole = line;
    uint64_t n = 0, count = 0;
    const auto number = [&](uint64_t& into) {
      line = trimmed(line);
      const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), into);
      if (error != std::errc{}) return false;
      line.remove_prefix(static_cast<size_t>(end - line.data()));
      line = trimmed(line);
      return true;
    };
    bool good = line.starts_with("ngram") && line.size() > 5 && is_blank(line[5]);
    if (good) line.remove_prefix(5);
    good = good && number(n) && n == order && line.starts_with("=");
    if (good) line.remove_prefix(1);
    if (!good || !number(count) || !line.empty()) {
      lines_.fail("expected 'ngram ", order, "=COUNT', found ", quoted_start(whole));
    }
    if (n > most_orders) lines_.fail("the order is ", n, ", expected at most ", most_orders);
    if (count >= UINT32_MAX) {
      lines_.fail(count, " n-grams of one order, expected fewer than ", UINT32_MAX);
    }
    return count;
  }

  void expect(const std::string& header, size_t order) {
    const std::string held = std::exchange(held_, {});
    std::string_view line = held;
    if (line.empty() && !next(line)) fail_end(header);
    if (line == header) return;
    if (order > 1 && line.front() != '\\') {
      lines_.fail("expected ", header, " after the ", counts_[order - 2], " ", order - 1,
                  "-grams that \\data\\ promises, found ", quoted_start(line));
    }
    lines_.fail("expected ", header, ", found ", quoted_start(line));
  }

  float number(std::string_view text, const char* what) {
    if (text.starts_with('+')) text.remove_prefix(1);
    float value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // What is too small for a float is 0.
    const bool tiny = error == std::errc::result_out_of_range && text.find('-', 1) != text.npos;
    if ((error != std::errc{} && !tiny) || end != text.data() + text.size() ||
        !(value < INFINITY)) {
      lines_.fail("the ", what, " is ", quoted_start(text), ", expected a number");
    }
    return tiny ? 0 : value == -INFINITY ? zero_probability : value;
  }

  // The words between blanks; at most two more than the order, which is enough to see too many.
  void split(std::string_view line, size_t order) {
    fields_.clear();
    for (size_t at = 0; at < line.size() && fields_.size() <= order + 2;) {
      size_t end = at;
      while (end < line.size() && !is_blank(line[end])) ++end;
      fields_.push_back(line.substr(at, end - at));
      at = end;
      while (at < line.size() && is_blank(line[at])) ++at;
    }
  }

  void read_order(size_t order) {
    for (uint64_t i = 0; i < counts_[order - 1]; ++i) {
      std::string_view line;
      const auto promised = [&] {
        return str(counts_[order - 1], " ", order, "-grams, of which ", i, " are there");
      };
      if (!next(line)) fail_end(promised());
      if (line.front() == '\\' && line.find_first_of(" \t") == line.npos) {
        lines_.fail("expected ", promised(), ", found ", quoted_start(line));
      }
      split(line, order);
      if (fields_.size() != order + 1 && fields_.size() != order + 2) {
        lines_.fail("expected log10 p, ", order, order == 1 ? " word" : " words",
                    " and perhaps a back-off weight, found ", quoted_start(line));
      }
      const float probability = number(fields_[0], "logarithm of the probability");
      const bool has_backoff = fields_.size() == order + 2;
      const float backoff = has_backoff ? number(fields_.back(), "back-off weight") : 0;
      if (probability > 0) {
        lines_.fail("the logarithm of a probability is ", quoted_start(fields_[0]),
                    ", expected at most 0");
      }
      add(order, probability, backoff);
    }
    if (order > 1) return;
    if (!seen_unknown_ && !sink_.add(std::span(&unknown, 1), missing_unknown, 0)) fail_unigrams();
    for (const std::string_view text : {begin_text, end_text}) {
      if (vocabulary_.find(text) == no_word) {
        lines_.fail("the 1-grams end here without ", text, ", which a model of sentences has");
      }
    }
  }

  [[noreturn]] void fail_unigrams() { lines_.fail("the 1-grams were not taken"); }

  void add(size_t order, float probability, float backoff) {
    words_.clear();
    for (size_t i = 1; i <= order; ++i) words_.push_back(word(fields_[i], order));
    if (sink_.add(words_, probability, backoff)) return;
    std::string context(fields_[1]);
    for (size_t i = 2; i < order; ++i) context.append(" ").append(fields_[i]);
    lines_.fail("the words before the last, ", quoted_start(context), ", are not among the ",
                order - 1, "-grams");
  }

  Word word(std::string_view text, size_t order) {
    if (text == "<UNK>") text = unknown_text;
    if (order > 1) {
      const Word known = vocabulary_.find(text);
      if (known == no_word)
        lines_.fail("the word ", quoted_start(text), " is not among the 1-grams");
      return known;
    }
    const Word before = vocabulary_.size();
    const Word added = vocabulary_.add(text);
    const bool twice = added == unknown ? seen_unknown_ : added < before;
    if (twice) lines_.fail("the word ", quoted_start(text), " stands twice among the 1-grams");
    seen_unknown_ = seen_unknown_ || added == unknown;
    return added;
  }

  LineReader& lines_;
  Vocabulary& vocabulary_;
  NgramSink& sink_;
  std::vector<uint64_t> counts_;
  std::string held_;  // a header that was read already
  bool seen_unknown_ = false;
  std::vector<std::string_view> fields_;
  std::vector<Word> words_;
};

}  // namespace

void read_arpa(LineReader& lines, Vocabulary& vocabulary, NgramSink& sink) {
  ArpaReader(lines, vocabulary, sink).read();
}

}  // namespace rondo::lm
