// Binaries of KenLM: scores are its own to the last bit, and files that are wrong are refused.
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "engine/lm/kenlm/kenlm_layout.h"
#include "engine/lm/language_model.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/lm/kenlm_golden.h"

using namespace rondo;

namespace {

std::string message_of(const std::string& content) {
  try {
    LanguageModel::parse(content, "m.binary");
  } catch (const InputError& e) {
    return e.what();
  }
  return "was accepted";
}

template <class T>
std::string with(std::string bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

std::string binary_of(const char* options) {
  for (const KenlmGolden& golden : kenlm_goldens) {
    for (const KenlmBinary& b : golden.binaries) {
      if (std::string(b.options) == options) return unpacked(b);
    }
  }
  FAIL("no binary of " << options);
  return {};
}

}  // namespace

TEST_CASE("binaries of KenLM are scored as by KenLM, to the last bit", "[lm]") {
  const TemporaryFolder folder;
  for (const KenlmGolden& golden : kenlm_goldens) {
    for (const KenlmBinary& b : golden.binaries) {
      const LanguageModel model = LanguageModel::open(folder.write("m.binary", unpacked(b)));
      for (const GoldenSentence& s : golden.sentences) {
        INFO(b.options << ": " << s.words);
        std::istringstream words(std::string(s.words) + " </s>");
        LanguageModel::State state = model.begin_sentence();
        size_t at = 0;
        for (std::string word; words >> word; ++at) {
          int32_t length = 0;
          if (word == "</s>") CHECK(float(model.end_score(state)) == float(s.scores.at(at)));
          const double score = model.score(state, model.word(word), state, length);
          CHECK(float(score) == float(s.scores.at(at)));
          CHECK(length == s.lengths.at(at));
        }
        CHECK(at == s.scores.size());
      }
    }
  }
}

TEST_CASE("binaries of KenLM tell what they hold", "[lm]") {
  for (const KenlmGolden& golden : kenlm_goldens) {
    for (const KenlmBinary& b : golden.binaries) {
      INFO(b.options);
      const LanguageModel m = LanguageModel::parse(unpacked(b), "m");
      CHECK(m.bytes() == b.bytes);
      CHECK(m.ngrams(1) == m.words());
      CHECK(m.text(LanguageModel::unknown) == "<unk>");
      std::set<std::string_view> texts;
      for (LanguageModel::Word w = 0; w < m.words(); ++w) {
        CHECK(m.word(m.text(w)) == w);
        texts.insert(m.text(w));
      }
      CHECK(texts.size() == m.words());
      CHECK(texts.contains("w3"));
      CHECK(m.word("elsewhere") == LanguageModel::unknown);
      CHECK(m.word("<UNK>") == LanguageModel::unknown);
    }
  }
  const LanguageModel m = LanguageModel::parse(binary_of("-q 7 -b 2 trie"), "m");
  CHECK(m.order() == 5);
  CHECK(m.quantized_bits() == 7);
}

TEST_CASE("KenLM's binaries join the histories that the same ARPA file joins", "[lm]") {
  for (const KenlmGolden& golden : kenlm_goldens) {
    if (golden.model < 0) continue;
    const auto& arpa = golden_models[static_cast<size_t>(golden.model)];
    const LanguageModel text = LanguageModel::parse(arpa.arpa, "m.arpa");
    for (const KenlmBinary& b : golden.binaries) {
      INFO(b.options);
      const LanguageModel binary = LanguageModel::parse(unpacked(b), "m.binary");
      REQUIRE(binary.words() == text.words());
      const bool is_exact = binary.quantized_bits() == 0;
      std::map<LanguageModel::State, LanguageModel::State> met;  // the text's for the binary's
      std::vector<LanguageModel::State> open;
      const auto meet = [&](LanguageModel::State of_binary, LanguageModel::State of_text) {
        const auto [at, is_new] = met.try_emplace(of_binary, of_text);
        CHECK(at->second == of_text);
        if (is_new) open.push_back(of_binary);
      };
      meet(binary.begin_sentence(), text.begin_sentence());
      while (!open.empty()) {
        const LanguageModel::State from = open.back();
        open.pop_back();
        for (LanguageModel::Word w = 0; w < binary.words(); ++w) {
          LanguageModel::State of_binary, of_text;
          const double score = binary.score(from, w, of_binary);
          const double same = text.score(met[from], text.word(binary.text(w)), of_text);
          if (is_exact) CHECK(std::abs(score - same) <= 1e-5);
          REQUIRE(of_binary < binary.states());
          meet(of_binary, of_text);
        }
      }
      std::set<LanguageModel::State> of_text;
      for (const auto& [unused, state] : met) of_text.insert(state);
      // KenLM fills in n-grams between a longer one and its words, so that a few contexts more go
      // on.
      CHECK(met.size() <= of_text.size() + 1);
    }
  }
}

TEST_CASE("several threads may query a binary of KenLM at once", "[lm]") {
  const std::string content = binary_of("-p 2.0 probing");
  const auto walk = [](const LanguageModel& m) {
    LanguageModel::State state = m.begin_sentence();
    double sum = 0;
    for (uint32_t i = 0, draw = 1; i < 3000; ++i, draw = draw * 1664525 + 1013904223)
      sum += m.score(state, (draw >> 16) % m.words(), state);
    return sum;
  };
  const double expected = walk(LanguageModel::parse(content, "m"));
  const LanguageModel shared = LanguageModel::parse(content, "m");
  double sums[4] = {};
  std::vector<std::thread> threads;
  for (double& sum : sums) threads.emplace_back([&] { sum = walk(shared); });
  for (std::thread& t : threads) t.join();
  for (const double sum : sums) CHECK(sum == expected);
}

TEST_CASE("other binaries of KenLM are refused by name", "[lm]") {
  const std::string good = binary_of("-q 8 trie"), hashes = binary_of("");
  const std::string again = ": make it anew from its ARPA file by KenLM's build_binary";
  const std::string is = "m.binary: is a binary of KenLM ";
  CHECK(message_of(with(good, 49, '4')) == is + "of version 4, expected 5" + again);
  CHECK(message_of("mmap lm http://kheafield.com/code incomplete\n") ==
        is + "that was not made to its end: run build_binary again");
  CHECK(message_of(with(good, 60, uint32_t{0x803f})) ==
        is + "of a machine with another byte order or word size" + again);
  CHECK(message_of(with(good, 96, 1)) ==
        is + "with rest costs, expected the kind probing or trie" + again + " without -r");
  CHECK(message_of(with(good, 96, 6)) == is + "of kind 6, expected probing or trie" + again);
  CHECK(message_of(with(good, 104, 2)) ==
        is + "whose kind trie is of version 2, expected 1" + again);
  CHECK(message_of(with(hashes, 100, '\0')) ==
        is + "without the texts of its words" + again + " without -v");
  CHECK(message_of(with(good, 88, '\1')) == "m.binary: is damaged: its order is 1");
}

TEST_CASE("binaries of KenLM that were cut off or changed are refused, or score as numbers",
          "[lm]") {
  const std::string good = binary_of("trie");
  CHECK(message_of(good.substr(0, 200))
            .starts_with("m.binary: is damaged: it has 200 bytes, expected at least "));
  CHECK(message_of(good.substr(0, good.size() - 1)).find("texts of its 7 words") !=
        std::string::npos);
  CHECK(message_of(good + "x") != "was accepted");
  for (const KenlmGolden& golden : kenlm_goldens) {
    for (const KenlmBinary& b : golden.binaries) {
      const std::string whole = unpacked(b);
      for (size_t size = lm::kenlm_magic.size(); size < whole.size(); size += 7)
        CHECK(message_of(whole.substr(0, size)) != "was accepted");
    }
  }
}

TEST_CASE("-inf in a binary of KenLM counts as -99, and what is no number is refused", "[lm]") {
  const std::string good = binary_of("trie");
  LanguageModel::State next;
  const LanguageModel m = LanguageModel::parse(good, "m");
  const auto p = static_cast<float>(m.score(0, m.word("w1"), next));
  const size_t at = good.find(std::string(reinterpret_cast<const char*>(&p), sizeof p));
  REQUIRE(at != std::string::npos);
  const LanguageModel none = LanguageModel::parse(with(good, at, -INFINITY), "m");
  CHECK(none.score(0, none.word("w1"), next) == -99);
  const LanguageModel bad = LanguageModel::parse(with(good, at, NAN), "m");
  CHECK_THROWS_WITH(bad.score(0, bad.word("w1"), next),
                    "m: is damaged: a weight of it is no number");
}

TEST_CASE("a back-off weight of -inf in a binary of KenLM counts as -99", "[lm]") {
  const std::string good = binary_of("trie");
  const LanguageModel m = LanguageModel::parse(good, "m");
  int backs_off = 0;
  for (LanguageModel::Word context = 0; context < m.words(); ++context) {
    LanguageModel::State after = 0, same = 0, next = 0;
    const auto p = static_cast<float>(m.score(0, context, after));
    const size_t at = good.find(std::string(reinterpret_cast<const char*>(&p), sizeof p));
    if (at == std::string::npos) continue;
    // It lies behind the word's probability.
    float back_off = 0;
    std::memcpy(&back_off, good.data() + at + sizeof p, sizeof back_off);
    if (!(back_off < -0.01F && back_off > -5)) continue;
    const LanguageModel never = LanguageModel::parse(with(good, at + sizeof p, -INFINITY), "m");
    never.score(0, context, same);
    for (LanguageModel::Word w = 0; w < m.words(); ++w) {
      const double usual = m.score(after, w, next), cut = never.score(same, w, next);
      if (cut == usual) continue;  // an n-gram of its own
      CHECK(cut == Approx(usual - static_cast<double>(back_off) - 99));
      ++backs_off;
    }
  }
  CHECK(backs_off > 0);
}
