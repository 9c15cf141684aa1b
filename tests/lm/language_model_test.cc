// Scores against KenLM's, the automaton against the definition, and files that are wrong.
#include "engine/lm/language_model.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <sstream>

#include "engine/io/file.h"
#include "engine/lm/quantizer.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/lm/lm_golden.h"

using namespace rondo;

namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

void check_golden(const LanguageModel& model, const GoldenModel& golden, double tolerance) {
  int equal_lengths = 0, all = 0;
  for (const GoldenSentence& s : golden.sentences) {
    INFO(s.words);
    LanguageModel::State state = model.begin_sentence();
    std::vector<std::string> words = words_of(s.words);
    words.push_back("</s>");
    REQUIRE(words.size() == s.scores.size());
    for (size_t i = 0; i < words.size(); ++i) {
      int32_t length = 0;
      if (words[i] == "</s>") CHECK(std::abs(model.end_score(state) - s.scores[i]) <= tolerance);
      const double score = model.score(state, model.word(words[i]), state, length);
      INFO(i << " " << words[i] << " " << score << " " << s.scores[i]);
      // KenLM adds floats.
      CHECK(std::abs(score - s.scores[i]) <= tolerance * std::max(1.0, std::abs(score)));
      // KenLM counts n-grams that it filled in between a longer one and its words.
      CHECK(length <= s.lengths[i]);
      equal_lengths += length == s.lengths[i];
      ++all;
    }
  }
  CHECK(equal_lengths > 0.85 * all);
}

std::string message_of(const std::string& content) {
  try {
    LanguageModel::parse(content, "m.arpa");
  } catch (const InputError& e) {
    return e.what();
  }
  return "was accepted";
}

const std::string small =
    "made by hand\n\n\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n"
    "-0.5\ta\t-0.25\n-0.75\tb\n\n\\2-grams:\n-0.125\t<s> a\n-0.0625\ta </s>\n\n\\end\\\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("scores are KenLM's", "[lm]") {
  for (const GoldenModel& golden : golden_models) {
    check_golden(LanguageModel::parse(golden.arpa, "golden"), golden, 1e-6);
  }
}

TEST_CASE("a model that was built scores as the ARPA file does", "[lm]") {
  const TemporaryFolder folder;
  for (const GoldenModel& golden : golden_models) {
    const std::string arpa = folder.write("m.arpa", golden.arpa), out = folder.path("m.lm");
    build_language_model(arpa, out, 0);
    const LanguageModel built = LanguageModel::open(out), read = LanguageModel::open(arpa);
    check_golden(built, golden, 1e-6);
    CHECK(built.order() == read.order());
    CHECK(built.states() == read.states());
    // There are fewer different weights than 65536, so quantised ones are exact.
    build_language_model(arpa, out, 16);
    CHECK(LanguageModel::open(out).quantized_bits() == 16);
    check_golden(LanguageModel::open(out), golden, 1e-6);
  }
}

TEST_CASE("quantised weights are near the exact ones", "[lm]") {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  std::normal_distribution<double> weight(-3, 1);
  std::string bigrams, unigrams;
  for (int i = 0; i < 300; ++i) {
    unigrams += str("-2\tw", i, "\t-0.5\n");
    for (int k = 0; k < 10; ++k) {
      bigrams += str(-std::abs(weight(random)), "\tw", i, " w", 7 * k + i % 7, "\n");
    }
  }
  const std::string arpa = folder.write(
      "m.arpa", "\\data\\\nngram 1=302\nngram 2=3000\n\\1-grams:\n-99\t<s>\n-2\t</s>\n" + unigrams +
                    "\\2-grams:\n" + bigrams + "\\end\\\n");
  const LanguageModel exact = LanguageModel::open(arpa);
  double before = 1;
  for (const int bits : {4, 8, 12}) {
    build_language_model(arpa, folder.path("m.lm"), bits);
    const LanguageModel model = LanguageModel::open(folder.path("m.lm"));
    double sum = 0;
    for (LanguageModel::Word w = 1; w < exact.words(); ++w) {
      for (LanguageModel::Word v = 1; v < exact.words(); ++v) {
        LanguageModel::State a, b, unused;
        exact.score(0, w, a);
        model.score(0, w, b);
        REQUIRE(a == b);
        const double difference = model.score(b, v, unused) - exact.score(a, v, unused);
        sum += std::abs(difference) / 3000;
      }
    }
    CHECK(sum < 2.0 / (1 << bits));
    CHECK(sum < before / 4);
    before = sum;
  }
}

TEST_CASE("quantised weights are the means of bins of as many values", "[lm]") {
  lm::Quantizer quantizer;
  for (const float v : {32.0f, 0.0f, 12.0f, 2.0f, 20.0f, 10.0f, 22.0f, 30.0f}) quantizer.add(v);
  quantizer.finish(2, false);
  CHECK(quantizer.centres() == std::vector<float>{1, 11, 21, 31});
  CHECK(quantizer.code(15) == 1);
  CHECK(quantizer.code(17) == 2);
  CHECK(quantizer.code(-5) == 0);
  CHECK(quantizer.code(50) == 3);
  // No more different ones than there are codes: each is its own, however often it is there.
  lm::Quantizer exact;
  for (const float v : {5.0f, 1.0f, 1.0f, 9.0f, 1.0f, 2.0f, 1.0f}) exact.add(v);
  exact.finish(2, false);
  CHECK(exact.centres() == std::vector<float>{1, 2, 5, 9});
  lm::Quantizer with_zero;
  for (const float v : {-4.0f, 0.0f, -3.0f, 0.0f, -2.0f, -1.0f, 1.0f, 3.0f}) with_zero.add(v);
  with_zero.finish(2, true);
  CHECK(with_zero.centres() == std::vector<float>{-3.5f, -1.5f, 0, 2});
}

TEST_CASE("states are as short as they can be", "[lm]") {
  const LanguageModel m = LanguageModel::parse(small, "small");
  CHECK(m.order() == 2);
  CHECK(m.words() == 5);  // <unk> among them
  CHECK(m.states() == 3);
  LanguageModel::State next = 9;
  CHECK(m.score(m.begin_sentence(), m.word("b"), next) == -1.25);
  CHECK(next == m.empty_context());  // nothing follows b, and it has no back-off weight
  CHECK(m.score(m.empty_context(), m.word("c"), next) == -100);
  CHECK(m.word("c") == LanguageModel::unknown);
  CHECK(m.text(m.word("b")) == "b");
  CHECK(m.end_score(m.empty_context()) == -1);
}

namespace {

using Ngram = std::vector<std::string>;

// The n-grams of a model, each with log10 p and its back-off weight, and what they say of a word.
struct Definition {
  std::vector<std::map<Ngram, std::pair<double, double>>> orders;

  double score(const Ngram& before, const std::string& word) const {
    const size_t longest = std::min(before.size(), orders.size() - 1);
    double total = 0;
    for (size_t n = longest;; --n) {
      const Ngram context(before.end() - static_cast<ptrdiff_t>(n), before.end());
      Ngram whole = context;
      whole.push_back(word);
      const auto found = orders[n].find(whole);
      if (found != orders[n].end()) return total + found->second.first;
      if (n == 0) return total + orders[0].at({"<unk>"}).first;
      const auto backoff = orders[n - 1].find(context);
      if (backoff != orders[n - 1].end()) total += backoff->second.second;
    }
  }
  std::string arpa() const {
    std::string text = "\\data\\\n";
    for (size_t n = 1; n <= orders.size(); ++n)
      text += str("ngram ", n, "=", orders[n - 1].size(), "\n");
    for (size_t n = 1; n <= orders.size(); ++n) {
      text += str("\n\\", n, "-grams:\n");
      for (const auto& [words, weights] : orders[n - 1]) {
        text += str(weights.first, "\t");
        for (size_t i = 0; i < n; ++i) text += (i > 0 ? " " : "") + words[i];
        if (n < orders.size() && weights.second != 0) text += str("\t", weights.second);
        text += "\n";
      }
    }
    return text + "\n\\end\\\n";
  }
};

// Few words, so that n-grams repeat a word, begin like others and lack those between; weights are
// multiples of 1/8, whose sums are exact.
Definition random_model(int order, std::mt19937& random) {
  const auto weight = [&](int least) {
    return least / 8.0 + static_cast<double>(random() % 17) / 8;
  };
  const std::vector<std::string> words = {"a", "b", "c", "<unk>"};
  Definition d;
  d.orders.resize(static_cast<size_t>(order));
  for (const char* word : {"<s>", "</s>", "a", "b", "c", "<unk>"})
    d.orders[0][{word}] = {weight(-24), random() % 3 == 0 ? 0 : weight(-12)};
  d.orders[0][{"<s>"}].first = -99;
  for (size_t n = 1; n < d.orders.size(); ++n) {
    for (const auto& [context, unused] : d.orders[n - 1]) {
      if (context.back() == "</s>") continue;
      for (const char* word : {"a", "b", "c", "<unk>", "</s>"}) {
        if (random() % 3 != 0) continue;
        Ngram longer = context;
        longer.push_back(word);
        d.orders[n][longer] = {weight(-24), random() % 3 == 0 ? 0 : weight(-12)};
      }
    }
  }
  return d;
}

}  // namespace

TEST_CASE("scores are those of the definition, whatever n-grams there are", "[lm]") {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  const std::vector<std::string> said = {"a", "b", "c", "elsewhere", "</s>"};
  for (int round = 0; round < 40; ++round) {
    const int order = 1 + round % 4;
    const Definition d = random_model(order, random);
    const std::string arpa = d.arpa();
    INFO(arpa);
    build_language_model(folder.write("m.arpa", arpa), folder.path("m.lm"), 0);
    for (const LanguageModel& m :
         {LanguageModel::parse(arpa, "m"), LanguageModel::open(folder.path("m.lm"))}) {
      REQUIRE(m.order() == order);
      int wrong = 0;
      // Sentences of every four words, and what may begin in their middle.
      for (int n = 0; n < 5 * 5 * 5 * 5; ++n) {
        for (const bool begins : {true, false}) {
          LanguageModel::State state = begins ? m.begin_sentence() : m.empty_context();
          Ngram before = begins ? Ngram{"<s>"} : Ngram{};
          for (int i = 0, rest = n; i < 4; ++i, rest /= 5) {
            const std::string& word = said[static_cast<size_t>(rest % 5)];
            const std::string known = word == "elsewhere" ? "<unk>" : word;
            wrong += m.end_score(state) != d.score(before, "</s>");
            wrong += m.score(state, m.word(word), state) != d.score(before, known);
            before.push_back(known);
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("every word of many is found, and no other", "[lm]") {
  std::string unigrams;
  constexpr int words = 1000;
  for (int i = 0; i < words; ++i) unigrams += str("-", 1 + i % 7, "\tw", i, "\n");
  const LanguageModel m =
      LanguageModel::parse(str("\\data\\\nngram 1=", words + 2,
                               "\n\\1-grams:\n-99\t<s>\n-2\t</s>\n", unigrams, "\\end\\\n"),
                           "m");
  CHECK(m.order() == 1);
  CHECK(m.words() == words + 3);
  LanguageModel::State state = m.begin_sentence();
  for (int i = 0; i < words; ++i) {
    const std::string text = str("w", i);
    CHECK(m.text(m.word(text)) == text);
    CHECK(m.score(state, m.word(text), state) == -(1 + i % 7));
    CHECK(m.word(str("w", i, "w")) == LanguageModel::unknown);
  }
  CHECK(m.word("") == LanguageModel::unknown);
  CHECK(m.end_score(state) == -2);
}

TEST_CASE("compressed files and files of other systems are read", "[lm]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("m.arpa.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, small.data(), static_cast<unsigned>(small.size()));
  gzclose(file);
  CHECK(LanguageModel::open(path).states() == 3);
  const std::string whole = read_text_file(path);
  folder.write("short.gz", whole.substr(0, whole.size() - 12));
  CHECK_THROWS_WITH(
      LanguageModel::open(folder.path("short.gz")),
      Catch::Contains("short.gz: cannot be read: the compressed file ends too early"));
  std::string crlf;
  for (const char c : small) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  CHECK(LanguageModel::parse(crlf, "crlf").states() == 3);
  // SRILM's spaces, KenLM's tabs between words, <UNK>, an order without n-grams.
  const LanguageModel m = LanguageModel::parse(
      with(with(with(small, "ngram 1=4\nngram 2=2", "ngram 1 =   5\nngram 2=2\nngram 3=0"),
                "-0.75\tb", "-0.75 b\n-3 <UNK>"),
           "\n\\end\\", "\\3-grams:\n\\end\\"),
      "m");
  CHECK(m.order() == 3);
  LanguageModel::State next;
  CHECK(m.score(0, m.word("nobody"), next) == -3);
}

// One model as several programs spell it: <s> never follows anything, so its p is of no account.
TEST_CASE("ARPA files of other programs' spelling score equally", "[lm]") {
  const std::string with_unknown =
      with(with(small, "ngram 1=4", "ngram 1=5"), "-0.75\tb", "-0.75\tb\n-2\t<unk>");
  std::string crlf;
  for (const char c : with_unknown) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  for (const std::string& spelled :
       {with_unknown, with(with_unknown, "<unk>", "<UNK>"), crlf,
        with(with_unknown, "-99\t<s>", "-inf\t<s>"),
        with(with_unknown, "-99\t<s>", "-Infinity\t<s>"), with(with_unknown, "-99\t<s>", "+0\t<s>"),
        with(with_unknown, "-99\t<s>", "0\t<s>")}) {
    INFO(spelled);
    const LanguageModel m = LanguageModel::parse(spelled, "m.arpa");
    LanguageModel::State state = m.begin_sentence();
    CHECK(m.score(state, m.word("a"), state) == -0.125);
    CHECK(m.score(state, m.word("nobody"), state) == -2.25);
    CHECK(m.score(state, m.word("b"), state) == -0.75);
    CHECK(m.end_score(state) == -1);
  }
}

TEST_CASE("the unknown word may stand in any n-gram, by either name", "[lm]") {
  const std::string lower =
      "\\data\\\nngram 1=4\nngram 2=2\nngram 3=1\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n-2\t<unk>\t"
      "-0.25\n-0.5\ta\t-1\n\\2-grams:\n-0.125\ta <unk>\t-2\n-0.75\t<unk> a\n\\3-grams:\n"
      "-0.0625\ta <unk> </s>\n\\end\\\n";
  std::string upper = lower;
  for (size_t at = 0; (at = upper.find("<unk>", at)) != std::string::npos;)
    upper.replace(at, 5, "<UNK>");
  for (const std::string& spelled : {lower, upper}) {
    const LanguageModel m = LanguageModel::parse(spelled, "m.arpa");
    LanguageModel::State state = m.empty_context();
    CHECK(m.score(state, m.word("nobody"), state) == -2);
    CHECK(m.score(state, m.word("a"), state) == -0.75);
    CHECK(m.score(state, m.word("somebody"), state) == -0.125);
    CHECK(m.end_score(state) == -0.0625);
    CHECK(m.score(state, m.word("else"), state) == -2 - 0.25 - 2);
  }
}

TEST_CASE("-inf counts as -99, wherever it stands", "[lm]") {
  LanguageModel::State next;
  const auto score = [&](const std::string& from, const std::string& to, const char* context,
                         const char* word) {
    const LanguageModel m = LanguageModel::parse(with(small, from, to), "m.arpa");
    LanguageModel::State state = m.empty_context();
    m.score(state, m.word(context), state);
    return m.score(state, m.word(word), next);
  };
  CHECK(score("-0.75\tb", "-inf\tb", "b", "b") == -99);
  CHECK(score("-0.5\ta\t-0.25", "-0.5\ta\t-inf", "a", "b") == -99.75);
  // And what is too small for a float as 0.
  CHECK(score("-0.75\tb", "-1e-60\tb", "b", "b") == 0);
  CHECK(score("-0.0625\ta </s>", "-inf\ta </s>", "a", "</s>") == -99);
  CHECK(message_of(with(small, "-0.75\tb", "inf\tb")) ==
        "m.arpa:11: the logarithm of the probability is 'inf', expected a number");
  CHECK(message_of(with(small, "a\t-0.25", "a\tinf")) ==
        "m.arpa:10: the back-off weight is 'inf', expected a number");
}

TEST_CASE("wrong ARPA files are refused in one sentence", "[lm]") {
  CHECK(message_of("SRILM_BINARY_NGRAM_002\n") ==
        "m.arpa:1: this is a binary of SRILM, expected ARPA (ngram -lm FILE -write-lm makes it)");
  CHECK(message_of("Qblmt 3 10 20 30\n") ==
        "m.arpa:1: this is a binary of IRSTLM, expected ARPA (compile-lm --text=yes makes it)");
  CHECK(message_of("\nmmap lm http://kheafield.com/code format version 5\n") ==
        "m.arpa:2: this is a binary of KenLM, expected ARPA here; decoding and rondo lm query take "
        "the binary as it is, uncompressed and from a file");
  const auto changed = [](const std::string& from, const std::string& to) {
    return message_of(with(small, from, to));
  };
  CHECK(message_of("") ==
        "m.arpa: is no language model: no line of an ARPA file is \\data\\, and it was written by "
        "neither rondo lm train nor rondo lm build");
  CHECK(changed("ngram 2=2", "ngram 3=2") ==
        "m.arpa:5: expected 'ngram 2=COUNT', found 'ngram 3=2'");
  CHECK(changed("ngram 1=4", "ngram 1=5") ==
        "m.arpa:13: expected 5 1-grams, of which 4 are there, found '\\2-grams:'");
  CHECK(changed("ngram 1=4", "ngram 1=3") ==
        "m.arpa:11: expected \\2-grams: after the 3 1-grams that \\data\\ promises, found "
        "'-0.75\\tb'");
  CHECK(changed("</s>", "e") ==
        "m.arpa:11: the 1-grams end here without </s>, which a model of sentences has");
  CHECK(changed("-0.75\tb", "-0.75\ta") ==
        "m.arpa:11: the word 'a' stands twice among the 1-grams");
  CHECK(changed("-0.75\tb", "0.75\tb") ==
        "m.arpa:11: the logarithm of a probability is '0.75', expected at most 0");
  CHECK(changed("-0.75\tb", "nan\tb") ==
        "m.arpa:11: the logarithm of the probability is 'nan', expected a number");
  CHECK(changed("-0.75\tb", "-0.75\tb\t-1\t2") ==
        "m.arpa:11: expected log10 p, 1 word and perhaps a back-off weight, found "
        "'-0.75\\tb\\t-1\\t2'");
  CHECK(changed("a </s>", "a </s>\n-1\tb a") ==
        "m.arpa:16: expected \\end\\ after the 2 2-grams that \\data\\ promises, found '-1\\tb a'");
  CHECK(changed("a </s>", "c </s>") == "m.arpa:15: the word 'c' is not among the 1-grams");
  CHECK(changed("-0.0625\ta </s>", "-0.0625\t<s> a") ==
        "m.arpa: the 2-gram '<s> a' stands there twice");
  CHECK(changed("\\end\\\n", "") == "m.arpa:16: the file ends here, expected \\end\\");
  const std::string trigrams = with(with(small, "ngram 2=2", "ngram 2=2\nngram 3=1"), "\\end\\",
                                    "\\3-grams:\n-1\ta b a\n\\end\\");
  CHECK(message_of(trigrams) ==
        "m.arpa:19: the words before the last, 'a b', are not among the 2-grams");
}

TEST_CASE("damaged models are refused", "[lm]") {
  const TemporaryFolder folder;
  build_language_model(folder.write("m.arpa", small), folder.path("m.lm"), 8);
  const std::string good = read_text_file(folder.path("m.lm"));
  const auto message = [&](std::string bytes) { return message_of(bytes); };
  CHECK(message(good.substr(0, 20)) ==
        "m.arpa: is damaged: it has 20 bytes, fewer than its header");
  CHECK(message(good.substr(0, good.size() - 1)) ==
        str("m.arpa: is damaged: it has ", good.size() - 1, " bytes, expected ", good.size()));
  for (size_t i = 8; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    CHECK(message(bad) != "was accepted");
  }
}
