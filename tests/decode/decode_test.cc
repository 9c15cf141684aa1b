// Decoders and forced alignment beside all alignments that there are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "engine/decode/align/forced_alignment.h"
#include "engine/decode/decoder.h"
#include "engine/decode/transcript/transcript.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct Scores {
  int32_t frames = 0, classes = 0;
  std::vector<float> values;

  double log_probability(int32_t t, int32_t c) const {
    const float* row = &values[static_cast<size_t>(t * classes)];
    double sum = 0;
    for (int32_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(row[k]));
    return row[c] - std::log(sum);
  }
};

Scores random_scores(int32_t frames, int32_t classes, unsigned seed, float spread = 2) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Scores s{frames, classes, {}};
  for (int32_t i = 0; i < frames * classes; ++i) s.values.push_back(normal(random));
  return s;
}

// Calls `take` with every alignment and its log-probability.
template <class Take>
void for_each_path(const Scores& s, const Take& take) {
  std::vector<int32_t> path(static_cast<size_t>(s.frames));
  for (;;) {
    double log_probability = 0;
    for (int32_t t = 0; t < s.frames; ++t)
      log_probability += s.log_probability(t, path[static_cast<size_t>(t)]);
    take(path, log_probability);
    size_t at = 0;
    while (at < path.size() && ++path[at] == s.classes) path[at++] = 0;
    if (at == path.size()) return;
  }
}

std::map<std::vector<int32_t>, double> all_texts(const Scores& s, bool sum, int32_t blank) {
  std::map<std::vector<int32_t>, double> probabilities;
  for_each_path(s, [&](const std::vector<int32_t>& path, double log_probability) {
    double& p = probabilities[labels_of(collapse_ctc(path, blank))];
    const double of_path = std::exp(log_probability);
    p = sum ? p + of_path : std::max(p, of_path);
  });
  return probabilities;
}

DecoderOptions options(int32_t beam, int32_t nbest, bool sum = true) {
  DecoderOptions o;
  o.beam = beam;
  o.nbest = nbest;
  o.sum = sum;
  return o;
}

// Classes that are called "a", "b", ..., without words; the blank has no name.
Vocabulary letters(int32_t classes, int32_t blank = 0) {
  std::vector<std::string> tokens;
  for (int32_t c = 0; c < classes; ++c)
    tokens.push_back(c == blank ? "<blank>" : std::string(1, static_cast<char>('a' + c)));
  return Vocabulary(tokens, {}, "none", "test");
}

std::vector<DecodedText> search(const Scores& s, const DecoderOptions& o, int32_t blank = 0) {
  return Decoder(letters(s.classes, blank), o).decode(s.values.data(), s.frames);
}

}  // namespace

TEST_CASE("a beam that holds everything finds every text with its exact probability", "[beam]") {
  for (unsigned seed = 0; seed < 24; ++seed) {
    // From one frame on, and from a model of nothing but the blank.
    const int32_t classes = seed < 12 ? 3 : 1 + static_cast<int32_t>(seed % 4);
    const Scores s = random_scores(1 + static_cast<int32_t>(seed % 5), classes, seed);
    for (const bool sum : {true, false}) {
      const int32_t blank = static_cast<int32_t>(seed % static_cast<unsigned>(classes));
      const auto expected = all_texts(s, sum, blank);
      const auto found = search(s, options(100000, 100000, sum), blank);
      INFO("seed " << seed << " sum " << sum);
      REQUIRE(found.size() == expected.size());
      double before = std::numeric_limits<double>::infinity();
      for (const DecodedText& h : found) {
        REQUIRE(expected.count(h.labels) == 1);
        CHECK(h.log_probability == Approx(std::log(expected.at(h.labels))).epsilon(1e-9));
        CHECK(h.log_probability <= before);
        before = h.log_probability;
      }
      CHECK(search(s, options(100000, 1, sum), blank).front().labels == found.front().labels);
    }
  }
}

TEST_CASE("a narrow beam gives lower bounds, and what it gives is there", "[slow][beam]") {
  int as_good = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Scores s = random_scores(7, 4, seed, 3);
    const auto expected = all_texts(s, true, 0);
    const auto found = search(s, options(8, 8));
    REQUIRE(found.size() == 8);
    for (const DecodedText& h : found)
      CHECK(h.log_probability <= std::log(expected.at(h.labels)) + 1e-9);
    const auto best = std::max_element(expected.begin(), expected.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    as_good += found.front().labels == best->first;
  }
  CHECK(as_good >= 38);
}

TEST_CASE(
    "of equal prefixes the beam holds as many as it has room for, those that were there first",
    "[beam]") {
  // One frame: each class is a text, and all are as probable; the empty text was there.
  const Scores even{1, 5, std::vector<float>(5, 0.25F)};
  for (int32_t beam = 1; beam <= 6; ++beam) {
    const auto found = search(even, options(beam, 10));
    REQUIRE(static_cast<int32_t>(found.size()) == std::min(beam, 5));
    CHECK(found[0].labels.empty());
    for (size_t i = 1; i < found.size(); ++i)
      CHECK(found[i].labels == std::vector<int32_t>{static_cast<int32_t>(i)});
  }
  // Some are better than the equal ones.
  const Scores some{1, 5, {0, 1, 2, 1, 1}};
  CHECK(search(some, options(3, 10)).size() == 3);
  CHECK(search(some, options(3, 10))[0].labels == std::vector<int32_t>{2});
  CHECK(search(some, options(3, 10))[2].labels == std::vector<int32_t>{3});
}

TEST_CASE("the sum over alignments can prefer what no best alignment does", "[beam]") {
  // Two frames, each 0.6 blank and 0.4 "1": the best alignment is empty (0.36), but "1" has
  // 0.4 * 0.6 * 2 + 0.16 = 0.64 (Graves et al. 2006, section 3.2).
  const float blank = std::log(0.6f), label = std::log(0.4f);
  const Scores s{2, 2, {blank, label, blank, label}};
  const auto summed = search(s, options(4, 2));
  CHECK(summed.at(0).labels == std::vector<int32_t>{1});
  CHECK(std::exp(summed.at(0).log_probability) == Approx(0.64));
  CHECK(search(s, options(4, 1, false)).at(0).labels.empty());
}

TEST_CASE("a floor leaves classes out of single frames, repeats stay", "[beam]") {
  const Scores s = random_scores(6, 5, 3);
  DecoderOptions o = options(1000, 1000);
  o.token_floor = std::log(0.15);
  const auto all = all_texts(s, true, 0);
  const auto found = search(s, o);
  CHECK(found.size() < all.size() / 2);
  for (const DecodedText& h : found) CHECK(h.log_probability <= std::log(all.at(h.labels)) + 1e-9);
}

TEST_CASE("nothing to hear, and scores that are none", "[beam]") {
  const auto none = Decoder(letters(3), {}).decode(nullptr, 0);
  REQUIRE(none.size() == 1);
  CHECK(none[0].labels.empty());
  CHECK(none[0].log_probability == 0);
  Scores s = random_scores(4, 3, 1);
  s.values[7] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(search(s, {}), Catch::Contains("frame 2"));
  CHECK_THROWS_WITH(forced_alignment(s.values.data(), 4, 3, {}), Catch::Contains("frame 2"));
  s.values[7] = -std::numeric_limits<float>::infinity();  // a probability of 0 is one
  CHECK_NOTHROW(search(s, {}));
  CHECK_THROWS_AS(search(s, options(0, 1)), Error);
  CHECK_THROWS_AS(search(s, options(1, 0)), Error);
}

TEST_CASE("a forced alignment is the most probable of all that spell the text", "[alignment]") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    const int32_t blank = static_cast<int32_t>(seed % 2);
    const Scores s = random_scores(6, 3, seed);
    std::map<std::vector<int32_t>, double> best;
    for_each_path(s, [&](const std::vector<int32_t>& path, double log_probability) {
      const auto [at, is_new] = best.emplace(labels_of(collapse_ctc(path, blank)), log_probability);
      if (!is_new) at->second = std::max(at->second, log_probability);
    });
    for (const auto& [labels, log_probability] : best) {
      const auto timed = forced_alignment(s.values.data(), 6, 3, labels, blank);
      REQUIRE(labels_of(timed) == labels);
      std::vector<int32_t> path(6, blank);
      for (const TimedLabel& l : timed) {
        REQUIRE(l.first_frame < l.end_frame);
        std::fill(path.begin() + l.first_frame, path.begin() + l.end_frame, l.label);
      }
      CHECK(labels_of(collapse_ctc(path, blank)) == labels);
      double own = 0;
      for (int32_t t = 0; t < 6; ++t) own += s.log_probability(t, path[static_cast<size_t>(t)]);
      CHECK(own == Approx(log_probability).epsilon(1e-9));
    }
  }
}

TEST_CASE("what cannot be aligned is refused", "[alignment]") {
  const Scores s = random_scores(3, 3, 1);
  const std::vector<int32_t> repeated = {1, 1, 2}, outside = {3}, blank = {0};
  CHECK_THROWS_WITH(forced_alignment(s.values.data(), 3, 3, repeated),
                    Catch::Contains("3 frames have no alignment with 3 labels"));
  CHECK_THROWS_AS(forced_alignment(s.values.data(), 3, 3, outside), Error);
  CHECK_THROWS_AS(forced_alignment(s.values.data(), 3, 3, blank), Error);
  CHECK(forced_alignment(nullptr, 0, 3, {}).empty());
}

TEST_CASE("a transcript of a line from right to left has its words in the order of the text",
          "[decode]") {
  // Read from the right edge: alef, a space, a number from its last digit, a space, bet and gimel.
  const std::string alef = "\xd7\x90", bet = "\xd7\x91", gimel = "\xd7\x92";
  Transcript t;
  t.text = alef + " 21 " + bet + gimel;
  double at = 0;
  for (const std::string& c :
       {alef, std::string(" "), std::string("2"), std::string("1"), std::string(" "), bet, gimel}) {
    t.characters.push_back({c, at, at + 1, c == "2" ? 0.5 : 0.9});
    at += 2;
  }
  t.words = {{"made of", 0, 1, 1}, {"the labels", 2, 3, 1}};
  t.alternatives.emplace_back();
  static_cast<TimedText&>(t.alternatives.back()) = t;
  turn_leftwards(t);
  CHECK(t.text == alef + " 12 " + bet + gimel);
  CHECK(t.alternatives[0].text == t.text);
  REQUIRE(t.alternatives[0].words.size() == t.words.size());
  CHECK(t.alternatives[0].words[0].text == t.words[0].text);
  REQUIRE(t.words.size() == 3);
  CHECK((t.words[1].text == "12" && t.words[1].begin == 4 && t.words[1].end == 7));
  CHECK(t.words[1].probability == Approx(0.7));
  CHECK((t.words[2].text == bet + gimel && t.words[2].begin == 10 && t.words[2].end == 13));
  CHECK((t.characters[2].text == "1" && t.characters[2].begin == 6 && t.characters[3].begin == 4));
  // A mark is one sign.
  Transcript noisy;
  for (const std::string& c : {alef, std::string(" "), std::string("[noise]")})
    noisy.text += noisy.characters.emplace_back(TimedText::Token{c, 0, 1, 1}).text;
  turn_leftwards(noisy);
  CHECK(noisy.text == alef + " [noise]");
}
