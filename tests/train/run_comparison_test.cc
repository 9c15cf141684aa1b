// Two models beside each other: engine/train/recognition/run_comparison.h.
#include "engine/train/recognition/run_comparison.h"

#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct Said {
  std::string reference, first, second;
  InputKind kind = InputKind::recording;
};

RunComparison comparison_of(const std::vector<Said>& all) {
  RunComparison comparison;
  for (size_t i = 0; i < all.size(); ++i) {
    comparison.add({static_cast<int64_t>(i), str("m.jsonl:", i + 1), "r.wav", "", all[i].kind, 1},
                   align_transcripts(all[i].reference, all[i].first),
                   align_transcripts(all[i].reference, all[i].second));
  }
  return comparison;
}

std::vector<int64_t> indices(const std::vector<RunComparison::Change>& changes) {
  std::vector<int64_t> all;
  for (const auto& c : changes) all.push_back(c.index);
  return all;
}

}  // namespace

TEST_CASE("what became worse and better is sorted by the change", "[analysis]") {
  const std::vector<Said> all = {{"a b c", "a b c", "a b c"},         // as before
                                 {"a b c", "x b c", "y b c"},         // other errors, as many
                                 {"a b c", "a b c", "x b c"},         // one word worse
                                 {"a b c", "a b c", "x y c"},         // two
                                 {"a b c", "x y z", "a b c"},         // three better
                                 {"abc b c", "xbc b c", "abc b c"},   // one better
                                 {"abc b c", "xyz b c", "abc b c"},   // one, of more characters
                                 {"abc b c", "xyz b c", "xbc b c"}};  // characters alone
  const RunComparison comparison = comparison_of(all);
  CHECK(indices(comparison.worse()) == std::vector<int64_t>{3, 2});
  CHECK(indices(comparison.better()) == std::vector<int64_t>{4, 6, 5, 7});
  CHECK(comparison.worse()[0].texts.second.word_edits[1].hypothesis == "y");
  CHECK(comparison.worse()[0].texts.first.words.errors() == 0);
  CHECK(comparison.utterances() == 8);
  CHECK(comparison.wrong_first() == 5);
  CHECK(comparison.wrong_second() == 4);
  const auto rates = comparison.rates();
  REQUIRE(rates.size() == 2);
  CHECK(rates[0].name == "WER");
  CHECK(rates[0].first.errors() == 7);
  CHECK(rates[0].second.errors() == 5);
  REQUIRE(rates[0].difference);
  CHECK(rates[0].difference->low < -2.0 / 24);
  CHECK(rates[0].difference->high > -2.0 / 24);
}

TEST_CASE("lines are compared by characters first, words without punctuation too", "[analysis]") {
  const auto comparison = comparison_of({{"a, b", "a, b", "x, y", InputKind::image},
                                         {"abcdef", "abcdef", "uvwxyz", InputKind::image},
                                         {"a,", "a", "a,", InputKind::image}});
  CHECK(indices(comparison.worse()) == std::vector<int64_t>{1, 0});
  const auto rates = comparison.rates();
  REQUIRE(rates.size() == 3);
  CHECK(rates[0].name == "CER");
  CHECK(rates[2].name == "WER without punctuation");
  CHECK(rates[2].first.errors() == 0);
  CHECK(rates[1].first.errors() == 1);
}

TEST_CASE("ten changes are kept, and an utterance is compared once", "[analysis]") {
  std::vector<Said> all;
  for (int i = 0; i < 30; ++i) all.push_back({"a b", "a b", i == 29 ? "x y" : "x b"});
  RunComparison comparison = comparison_of(all);
  CHECK(indices(comparison.worse()) == std::vector<int64_t>{29, 0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(comparison.better().empty());
  CHECK_THROWS_AS(
      comparison.add({0, "again", "", ""}, align_transcripts("", ""), align_transcripts("", "")),
      Error);
}
