// Forced alignment beside the dense trellis, written out as a textbook has it, and beside all
// paths.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "engine/decode/align/forced_alignment.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr double never = -std::numeric_limits<double>::infinity();

struct Scores {
  int32_t frames = 0, classes = 0;
  std::vector<float> values;
  float at(int64_t t, int32_t c) const { return values[static_cast<size_t>(t * classes + c)]; }
};

// `steps`: scores are whole multiples of it, so that many paths are equally good; 0: any.
Scores random_scores(int32_t frames, int32_t classes, std::mt19937& random, float step = 0) {
  std::normal_distribution<float> normal(0, 2);
  Scores s{frames, classes, {}};
  for (int32_t i = 0; i < frames * classes; ++i) {
    const float v = normal(random);
    s.values.push_back(step > 0 ? std::round(v / step) * step : v);
  }
  return s;
}

std::vector<int32_t> random_labels(size_t count, int32_t classes, int32_t blank,
                                   std::mt19937& random) {
  std::uniform_int_distribution<int32_t> any(0, classes - 2);
  std::vector<int32_t> labels;
  for (size_t i = 0; i < count; ++i) {
    const int32_t c = any(random);
    labels.push_back(c + (c >= blank));
  }
  return labels;
}

struct Path {
  std::vector<TimedLabel> labels;
  double score = never;
};

// The dense trellis: a row of 2 L + 1 states for each frame, in double.
Path dense_path(const Scores& s, const std::vector<int32_t>& labels, int32_t blank) {
  const size_t states = 2 * labels.size() + 1;
  const auto class_of = [&](size_t i) { return i % 2 ? labels[i / 2] : blank; };
  std::vector<double> best(states, never);
  std::vector<std::vector<int>> back;
  for (int32_t t = 0; t < s.frames; ++t) {
    std::vector<double> next(states, never);
    auto& from = back.emplace_back(states, 0);
    for (size_t i = 0; i < states; ++i) {
      next[i] = t == 0 ? (i < 2 ? 0 : never) : best[i];
      const bool skips = i % 2 && i >= 3 && labels[i / 2] != labels[i / 2 - 1];
      if (t > 0 && i >= 1 && best[i - 1] > next[i]) next[i] = best[i - 1], from[i] = 1;
      if (t > 0 && skips && best[i - 2] > next[i]) next[i] = best[i - 2], from[i] = 2;
      next[i] += static_cast<double>(s.at(t, class_of(i)));
    }
    best = next;
  }
  size_t at = states - 1;
  if (states > 1 && best[at - 1] >= best[at]) --at;
  Path p;
  p.score = best[at];
  if (p.score == never) return p;
  for (int32_t t = s.frames; t-- > 0;) {
    if (at % 2) {
      const bool goes_on = !p.labels.empty() && p.labels.front().first_frame == t + 1 &&
                           back[static_cast<size_t>(t + 1)][at] == -1;
      if (!goes_on) p.labels.insert(p.labels.begin(), {labels[at / 2], t, t + 1});
      p.labels.front().first_frame = t;
    }
    const int step = back[static_cast<size_t>(t)][at];
    if (t > 0 && step == 0) back[static_cast<size_t>(t)][at] = -1;  // stayed
    at -= static_cast<size_t>(step);
  }
  return p;
}

AlignmentUnit unit(std::vector<std::vector<int32_t>> spellings) { return {std::move(spellings)}; }

UnitAlignment align(const Scores& s, const std::vector<AlignmentUnit>& units,
                    const AlignmentOptions& o) {
  return align_units(s.values.data(), s.frames, s.classes, units, o);
}

// The best of all combinations of spellings, each by the dense trellis of its own.
Path best_combination(const Scores& s, const std::vector<AlignmentUnit>& units, int32_t blank) {
  Path best;
  std::vector<size_t> chosen(units.size(), 0);
  for (;;) {
    std::vector<int32_t> labels;
    for (size_t u = 0; u < units.size(); ++u) {
      const auto& spelling = units[u].spellings[chosen[u]];
      labels.insert(labels.end(), spelling.begin(), spelling.end());
    }
    const Path p = dense_path(s, labels, blank);
    if (p.score > best.score) best = p;
    size_t u = 0;
    while (u < units.size() && ++chosen[u] == units[u].spellings.size()) chosen[u++] = 0;
    if (u == units.size()) return best;
  }
}

}  // namespace

TEST_CASE("in blocks, pruned or not, the path is the dense trellis's", "[alignment]") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int32_t classes = 2 + static_cast<int32_t>(random() % 6) +
                            (round % 3 == 0 ? 40 : 0);  // also more than fit into registers
    const auto count = static_cast<size_t>(random() % (round % 10 == 0 ? 200 : 40));
    const int32_t frames = 1 + static_cast<int32_t>(count) +
                           static_cast<int32_t>(random() % (round % 7 == 0 ? 500 : 60));
    const auto blank = static_cast<int32_t>(random() % static_cast<unsigned>(classes));
    // Half of them with ties, which have to be broken alike.
    const Scores s = random_scores(frames, classes, random, round % 2 ? 1.0f : 0.0f);
    const auto labels = random_labels(count, classes, blank, random);
    const Path expected = dense_path(s, labels, blank);
    INFO("round " << round << ": " << frames << " frames, " << count << " labels");
    for (const int64_t block : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{200}}) {
      AlignmentOptions o;
      o.blank = blank;
      o.block_frames = block;
      if (expected.score == never) {
        CHECK_THROWS_AS(align(s, {unit({labels})}, o), InputError);
        continue;
      }
      const UnitAlignment found = align(s, {unit({labels})}, o);
      CHECK(found.labels == expected.labels);
      CHECK(found.score == expected.score);
    }
  }
}

TEST_CASE("a long text, pruned by a bound", "[slow][alignment]") {
  std::mt19937 random(2);
  const int32_t frames = 12000, classes = 20;
  const auto labels = random_labels(1500, classes, 0, random);
  for (const float certainty : {12.0f, 5.0f, 0.0f}) {  // 0: the bound proves next to nothing
    Scores s = random_scores(frames, classes, random);
    for (size_t t = 0; t < static_cast<size_t>(frames); ++t) {
      if (t % 8 != 3) s.values[t * static_cast<size_t>(classes)] += certainty;
    }
    for (size_t n = 0; n < labels.size(); ++n) {
      // A stretch that says something else makes the beam that looks for a bound go wrong.
      const bool other = n > 700 && n < 900;
      const int32_t c = other ? 1 + static_cast<int32_t>(n % 19) : labels[n];
      s.values[(8 * n + 3) * static_cast<size_t>(classes) + static_cast<size_t>(c)] += certainty;
    }
    const Path expected = dense_path(s, labels, 0);
    AlignmentOptions o;
    for (const bool prune : {true, false}) {
      o.prune = prune;
      const UnitAlignment found = align(s, {unit({labels})}, o);
      INFO("certainty " << certainty << " prune " << prune << " visited " << found.states_visited);
      CHECK(found.labels == expected.labels);
      CHECK(found.score == expected.score);
      if (prune && certainty == 12) CHECK(found.states_visited < found.states_dense / 2);
      if (!prune) CHECK(found.states_visited > found.states_dense * 9 / 10);
    }
  }
}

TEST_CASE("of several spellings the best is chosen, and words may be missing", "[alignment]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const int32_t classes = 4, frames = 12 + static_cast<int32_t>(random() % 20);
    const Scores s = random_scores(frames, classes, random);
    std::vector<AlignmentUnit> units;
    for (size_t u = 0; u < 1 + random() % 5; ++u) {
      AlignmentUnit& one = units.emplace_back();
      for (size_t n = 0; n < 1 + random() % 3; ++n) {
        one.spellings.push_back(random_labels(random() % 4, classes, 0, random));
      }
    }
    const Path expected = best_combination(s, units, 0);
    for (const int64_t block : {int64_t{0}, int64_t{5}}) {
      AlignmentOptions o;
      o.block_frames = block;
      INFO("round " << round << " block " << block);
      if (expected.score == never) {
        CHECK_THROWS_AS(align(s, units, o), InputError);
        continue;
      }
      const UnitAlignment found = align(s, units, o);
      CHECK(found.labels == expected.labels);
      CHECK(found.score == expected.score);
      // What it says of the spellings agrees with the labels.
      std::vector<int32_t> spelled, unit_of;
      for (size_t u = 0; u < units.size(); ++u) {
        REQUIRE(found.spelling[u] >= 0);
        for (const int32_t l : units[u].spellings.at(static_cast<size_t>(found.spelling[u]))) {
          spelled.push_back(l);
          unit_of.push_back(static_cast<int32_t>(u));
        }
      }
      CHECK(spelled == labels_of(found.labels));
      CHECK(unit_of == found.unit_of);
    }
  }
}

TEST_CASE("a wildcard takes what the text does not have", "[alignment]") {
  // "1 ? 2": between them the model is sure of 3s, which cost 0.5 a frame under the wildcard.
  Scores s{9, 4, std::vector<float>(36, -9.0f)};
  const int said[] = {1, 0, 3, 3, 0, 3, 0, 2, 0};
  for (size_t t = 0; t < 9; ++t) s.values[t * 4 + static_cast<size_t>(said[t])] = -0.1f;
  AlignmentOptions o;
  const UnitAlignment found = align(s, {unit({{1}}), unit({{wildcard_label}}), unit({{2}})}, o);
  CHECK(found.labels == std::vector<TimedLabel>{{1, 0, 1}, {wildcard_label, 2, 6}, {2, 7, 8}});
  CHECK(found.score == Approx(9 * -0.1 - 4 * 0.5));
  // With a wildcard that costs more than a misspelling, one frame is all it gets.
  o.wildcard_cost = 40;
  const UnitAlignment dear = align(s, {unit({{1}}), unit({{wildcard_label}}), unit({{2}})}, o);
  CHECK(dear.labels.at(1).end_frame - dear.labels.at(1).first_frame == 1);
}

TEST_CASE("a bias is added to the scores of a class", "[alignment]") {
  std::mt19937 random(4);
  const Scores s = random_scores(40, 5, random);
  const std::vector<float> bias = {-3, 0.5f, 1, 0, -0.25f};
  Scores changed = s;
  for (size_t i = 0; i < changed.values.size(); ++i) changed.values[i] += bias[i % 5];
  const auto labels = random_labels(12, 5, 0, random);
  AlignmentOptions o;
  o.bias = bias;
  const UnitAlignment found = align(s, {unit({labels})}, o);
  const Path expected = dense_path(changed, labels, 0);
  CHECK(found.labels == expected.labels);
  CHECK(found.labels != dense_path(s, labels, 0).labels);
  CHECK(found.score == expected.score);
}

TEST_CASE("units that cannot be aligned", "[alignment]") {
  std::mt19937 random(5);
  const Scores s = random_scores(3, 3, random);
  CHECK_THROWS_AS(align(s, {unit({})}, {}), Error);
  CHECK_THROWS_WITH(align(s, {unit({{1, 1}, {1, 1, 1}}), unit({{1}})}, {}),
                    Catch::Contains("3 frames have no alignment with 3 labels"));
  CHECK(align(s, {unit({{1, 1}, {}}), unit({{1}})}, {}).spelling == std::vector<int32_t>{1, 0});
  const Scores none{0, 3, {}};
  CHECK(align(none, {unit({{1}, {}})}, {}).spelling == std::vector<int32_t>{1});
  CHECK_THROWS_AS(align(none, {unit({{1}})}, {}), InputError);
  Scores infinite = s;
  infinite.values[4] = std::numeric_limits<float>::infinity();
  CHECK_THROWS_WITH(align(infinite, {}, {}), Catch::Contains("frame 1"));
}

TEST_CASE("the bound leaves room for rounding", "[alignment]") {
  // The text is what the model would choose itself, so the bound is as large as the path's score;
  // and most frames score so little beside others that sums from the front and from behind differ.
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 2);
  const size_t frames = 12000, classes = 20;
  std::vector<float> scores(frames * classes);
  std::vector<int32_t> text;
  std::vector<TimedLabel> expected;
  for (size_t t = 0; t < frames; ++t) {
    const bool spoken = t % 8 == 3;
    const int32_t said = spoken ? 1 + static_cast<int32_t>(random() % 19) : 0;
    float* row = &scores[t * classes];
    for (size_t c = 0; c < classes; ++c) row[c] = normal(random);
    row[said] = spoken ? 90.0f : 20 + 1e-5f * static_cast<float>(random() % 1000);
    for (size_t c = 0; c < classes; ++c) row[c] = std::ldexp(row[c], t % 5 ? -40 : 0);
    if (!spoken) continue;
    text.push_back(said);
    expected.push_back({said, static_cast<int32_t>(t), static_cast<int32_t>(t) + 1});
  }
  const AlignmentUnit unit_of_text{{text}};
  CHECK(align_units(scores.data(), frames, classes, {&unit_of_text, 1}, {}).labels == expected);
}
