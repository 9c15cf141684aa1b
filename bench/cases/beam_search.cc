#include <cmath>

#include "bench/cases/check/check.h"
#include "kernels/beam_search/beam_search.h"

namespace rondo::check {
namespace {

enum class Scores : uint8_t {
  uniform,  // in [-3, 3]
  peaked,   // one class leads by 8, half the time the blank
  even,     // all alike: probabilities are powers of two, and nearly all are equal
  holed,    // uniform, three in four -inf
  stuck,    // as uniform, but in frame 5 only a label that the automaton forbids
  bad,      // as uniform, but in one sequence's frame 3 a NaN, in another's nothing but -inf
};

struct Setup {
  std::vector<int32_t> lengths = {9, 7, 1};
  int32_t classes = 5, beam = 8, blank = 0;
  Scores scores = Scores::uniform;
  DType dtype = DType::f32;
  bool sum = true, extends = false;
  double floor = 0, range = 0;
  int32_t states = 0;  // of an automaton
};

std::vector<double> make_scores(Case& c, const Setup& s, const PackedView& layout) {
  std::vector<double> values(static_cast<size_t>(layout.capacity.rows * s.classes), nan);
  size_t row = 0;
  for (int32_t t = 0; !s.lengths.empty() && t < s.lengths.front(); ++t) {
    for (size_t n = 0; n < s.lengths.size() && s.lengths[n] > t; ++n, ++row) {
      const auto peak = c.random(2) == 0 ? s.blank : static_cast<int32_t>(c.random(s.classes));
      for (int32_t v = 0; v < s.classes; ++v) {
        double x = s.scores == Scores::even ? 0 : c.random_real(-3, 3);
        if (s.scores == Scores::peaked && v == peak) x += 8;
        if (s.scores == Scores::holed && c.random(4) != 0 && v != peak) x = -infinity;
        if (s.scores == Scores::stuck && t == 5 && v != (s.blank + 1) % s.classes) x = -infinity;
        if (s.scores == Scores::bad && t == 3) {
          if (n == 0 && v == s.classes - 1) x = nan;
          if (n == 1) x = -infinity;
          if (n == 2 && v == 1) x = infinity;
        }
        values[row * static_cast<size_t>(s.classes) + static_cast<size_t>(v)] = x;
      }
    }
  }
  return values;
}

BeamAutomaton make_automaton(Case& c, const Setup& s) {
  BeamAutomaton a;
  if (s.states == 0) return a;
  std::vector<double> gains;
  std::vector<int32_t> next;
  for (int32_t state = 0; state < s.states; ++state) {
    for (int32_t v = 0; v < s.classes; ++v) {
      const bool forbidden = c.random(6) == 0 || v == (s.blank + 1) % s.classes;
      gains.push_back(forbidden ? 0 : std::exp(c.random_real(-3, 1)));
      next.push_back(static_cast<int32_t>(c.random(s.states)));
    }
  }
  a.gains = c.input_values({s.states, s.classes}, DType::f64, gains).as<double>();
  a.next = c.ints(next);
  a.start = s.states / 2;
  a.most_gain = std::exp(1);
  return a;
}

void beam_search_case(Case& c, BeamSearchArgs& a, const Setup& s) {
  a.layout = c.packed(s.lengths, 3, 1);
  const PackedCapacity& capacity = a.layout.capacity;
  a.scores = c.input_values({capacity.rows, s.classes}, s.dtype, make_scores(c, s, a.layout));
  a.blank = s.blank;
  a.beam = s.beam;
  a.sum = s.sum;
  a.floor = s.floor;
  a.range = s.range;
  if (s.extends) {
    std::vector<double> may(static_cast<size_t>(s.classes), 1);
    may[static_cast<size_t>(s.blank)] = 0;
    may[static_cast<size_t>((s.blank + 2) % s.classes)] = 0;
    a.extends = c.input_values({s.classes}, DType::u8, may).as<uint8_t>();
  }
  a.automaton = make_automaton(c, s);
  const int64_t n = capacity.sequences;
  const auto ints = [&](const char* name, std::initializer_list<int64_t> dims) {
    return c.output(name, dims, DType::i32, Tolerance::exact());
  };
  a.counts = ints("counts", {n});
  a.stopped = ints("stopped", {n});
  a.exponents = ints("exponents", {n});
  a.lengths = ints("lengths", {n, s.beam});
  a.states = ints("states", {n, s.beam});
  a.labels = ints("labels", {capacity.rows, s.beam});
  // Each frame's softmax has sums of V terms and an exp() on either side, and both go into a chain
  // of as many products as there are frames.
  const double frames = s.lengths.empty() ? 1 : s.lengths.front() + 1;
  Tolerance t = Tolerance::ulps(DType::f64, 4 * frames * (4 + s.classes));
  t.absolute = 0;
  a.probabilities = c.output("probabilities", {n, s.beam}, DType::f64, t);
  a.workspace = c.workspace(beam_search_workspace_bytes(capacity.rows, s.classes, s.beam));
  c.work(0, static_cast<double>(a.scores.bytes()));
}

}  // namespace

void beam_search_cases(Suite& suite) {
  const auto add = [&](const std::string& label, const Setup& s) {
    suite.add(label, beam_search_case, s);
  };
  add("batch/empty", {.lengths = {}});
  add("batch/no frames", {.lengths = {0, 0}});
  add("batch/one frame", {.lengths = {1}});
  add("batch/ragged", {.lengths = {40, 33, 12, 12, 2, 1, 0}, .classes = 7, .beam = 16});
  for (const auto& [beam, classes] : every({1, 2, 3, 31, 32, 33, 100, 128}, {1, 2, 32, 33}))
    add(str("beam ", beam, "/", classes), {.lengths = {12, 5}, .classes = classes, .beam = beam});
  add("beam 8/1024", {.lengths = {4, 3}, .classes = 1024, .beam = 8});
  add("beam 100/300", {.lengths = {6, 3}, .classes = 300, .beam = 100});
  // What the beam has and what falls out of it and comes back: many frames, few labels, small beam.
  add("returning", {.lengths = {60, 59, 58, 57}, .classes = 3, .beam = 5});
  add("blank last", {.classes = 6, .beam = 10, .blank = 5});
  add("max", {.lengths = {20, 3}, .beam = 20, .sum = false});
  add("bf16", {.lengths = {20, 3}, .beam = 20, .dtype = DType::bf16});
  add("peaked", {.lengths = {50, 31}, .classes = 32, .beam = 32, .scores = Scores::peaked});
  add("even/4", {.lengths = {7, 2}, .classes = 4, .beam = 30, .scores = Scores::even});
  add("even/32", {.lengths = {4, 2}, .classes = 32, .beam = 100, .scores = Scores::even});
  add("holed/short", {.lengths = {3, 2, 2, 1}, .classes = 9, .beam = 128, .scores = Scores::holed});
  add("holed", {.lengths = {30, 29, 11}, .classes = 9, .beam = 40, .scores = Scores::holed});
  add("bad", {.lengths = {8, 7, 6, 5}, .beam = 20, .scores = Scores::bad});
  add("floor", {.lengths = {20, 9}, .classes = 9, .beam = 40, .floor = 0.1});
  add("range", {.lengths = {20, 9}, .classes = 9, .beam = 40, .range = 0.25});
  add("range/peaked", {.lengths = {30, 9}, .beam = 40, .scores = Scores::peaked, .range = 0.001});
  add("some extend", {.lengths = {20, 9}, .classes = 9, .beam = 40, .extends = true});
  for (const auto& [states, beam] : every({1, 2, 300}, {10, 32, 64, 100}))
    add(str("automaton ", states, "/", beam),
        {.lengths = {20, 9}, .classes = 9, .beam = beam, .states = states});
  add("automaton, stuck",
      {.lengths = {9, 7, 6, 5}, .beam = 20, .scores = Scores::stuck, .states = 3});
  suite.add_bench("64x500x32/100", beam_search_case,
                  {.lengths = std::vector<int32_t>(64, 500),
                   .classes = 32,
                   .beam = 100,
                   .scores = Scores::peaked});
}

}  // namespace rondo::check
