// The LSTM layer against finite differences, PyTorch's numbers, and itself cut up differently.
#include "kernels/lstm/lstm.h"

#include "kernels/lstm/cpu/lstm_team.h"
#include "tests/catch.h"
#include "tests/lstm/lstm_golden.h"
#include "tests/lstm/lstm_problem.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// sum of y * dy, hn * dhn, cn * dcn: the scalar whose gradients the backward pass gives.
double loss(LstmProblem<double>& p, const Context& context) {
  p.forward(context);
  double total = 0;
  for (const char* name : {"y", "hn", "cn"}) {
    const auto& values = p.arrays[name];
    const auto& weights = p.arrays[str("d", name)];
    for (size_t i = 0; i < values.size(); ++i) total += values[i] * weights[i];
  }
  return total;
}

// Every input's gradient against central differences, whose error is O(step^2) + O(eps / step).
void check_gradients(const LstmDims& dims, const std::vector<int32_t>& lengths) {
  HostContext host(Backend::ref);
  LstmProblem<double> p(dims, lengths);
  p.randomise(17);
  p.all(host.context);
  const auto gradients = p.arrays;
  constexpr double step = 1e-5, tolerance = 1e-8;
  for (const auto& [name, shape] : p.input_shapes()) {
    if (name[0] == 'd') continue;
    const auto& gradient = gradients.at(str("d", name));
    auto& values = p.arrays[name];
    REQUIRE(gradient.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + step;
      const double above = loss(p, host.context);
      values[i] = value - step;
      const double below = loss(p, host.context);
      values[i] = value;
      const double want = (above - below) / (2 * step);
      INFO(name << "[" << i << "]: got " << gradient[i] << ", differences give " << want);
      if (!(std::abs(gradient[i] - want) <= tolerance * (1 + std::abs(want)))) FAIL();
    }
  }
}

template <class T>
void check_golden(const LstmGolden& golden, Backend backend, double tolerance) {
  HostContext host(backend);
  LstmProblem<T> p({golden.directions, golden.input, golden.hidden, golden.projection},
                   golden.lengths);
  for (const auto& [name, shape] : p.input_shapes()) {
    const auto& values = golden.values.at(name);
    p.arrays[name].assign(values.begin(), values.end());
  }
  p.all(host.context);
  int compared = 0;
  for (const auto& [name, want] : golden.values) {
    if (p.input_shapes().count(name)) continue;
    INFO(golden.name << ": " << name);
    CHECK(worst_difference(p.arrays.at(name), want) <= tolerance);
    ++compared;
  }
  CHECK(compared >= 6 + 3 * golden.directions);
}

// Copies rows of `width` elements between planes of packed arrays.
template <class T>
struct Slice {
  std::vector<T>& from;
  std::vector<T>& to;
  int64_t width;
  void copy(int64_t to_row, int64_t from_row) const {
    to.resize(std::max(to.size(), static_cast<size_t>((to_row + 1) * width)));
    for (int64_t k = 0; k < width; ++k) {
      to[static_cast<size_t>(to_row * width + k)] = from[static_cast<size_t>(from_row * width + k)];
    }
  }
};

// The part of `whole` with frames [begin_n, end_n) of each sequence, weights and dy included, but
// without states.
template <class T>
LstmProblem<T> part_of(LstmProblem<T>& whole, const std::vector<int32_t>& begin,
                       const std::vector<int32_t>& end, const std::vector<int32_t>& which) {
  std::vector<int32_t> lengths;
  for (int32_t n : which)
    lengths.push_back(end[static_cast<size_t>(n)] - begin[static_cast<size_t>(n)]);
  LstmProblem<T> part(whole.dims, lengths);
  const int64_t D = whole.dims.directions, H = whole.dims.hidden, P = whole.dims.output();
  for (const auto& [name, shape] : part.input_shapes()) {
    part.arrays[name];
    if (std::string("wrbp").find(name[0]) != std::string::npos)
      part.arrays[name] = whole.arrays[name];
  }
  using Copy = Slice<typename LstmProblem<T>::Value>;
  const Copy x{whole.arrays["x"], part.arrays["x"], whole.dims.input};
  const Copy dy{whole.arrays["dy"], part.arrays["dy"], D * P};
  for (int32_t m = 0; m < static_cast<int32_t>(which.size()); ++m) {
    const int32_t n = which[static_cast<size_t>(m)], first = begin[static_cast<size_t>(n)];
    for (int32_t t = 0; t < lengths[static_cast<size_t>(m)]; ++t) {
      x.copy(part.packed.row(t, m), whole.packed.row(first + t, n));
      dy.copy(part.packed.row(t, m), whole.packed.row(first + t, n));
    }
    for (int64_t d = 0; d < D; ++d) {
      const int64_t to = d * part.sequences() + m, from = d * whole.sequences() + n;
      for (const char* name : {"h0", "dhn"}) {
        Copy{whole.arrays[name], part.arrays[name], P}.copy(to, from);
      }
      for (const char* name : {"c0", "dcn"}) {
        Copy{whole.arrays[name], part.arrays[name], H}.copy(to, from);
      }
    }
  }
  return part;
}

// The rows of `part` in `whole`'s array `name` agree with those of `part`.
template <class T>
double row_difference(LstmProblem<T>& whole, LstmProblem<T>& part, const std::string& name,
                      int64_t width, const std::vector<int32_t>& begin,
                      const std::vector<int32_t>& which) {
  std::vector<typename LstmProblem<T>::Value> expected, got;
  for (int32_t m = 0; m < static_cast<int32_t>(which.size()); ++m) {
    const int32_t n = which[static_cast<size_t>(m)];
    for (int32_t t = 0; t < part.packed.lengths[static_cast<size_t>(m)]; ++t) {
      const int64_t from = whole.packed.row(begin[static_cast<size_t>(n)] + t, n);
      const int64_t to = part.packed.row(t, m);
      for (int64_t k = 0; k < width; ++k) {
        expected.push_back(whole.arrays[name][static_cast<size_t>(from * width + k)]);
        got.push_back(part.arrays[name][static_cast<size_t>(to * width + k)]);
      }
    }
  }
  return worst_difference(got, expected);
}

template <class T>
void check_packed_equals_single(Backend backend, double tolerance) {
  HostContext host(backend);
  const std::vector<int32_t> lengths = {7, 5, 5, 2, 1, 0};
  for (int64_t projection : {0, 5}) {
    LstmProblem<T> whole({2, 3, 9, projection}, lengths);
    whole.randomise(5);
    whole.all(host.context);
    const std::vector<int32_t> begin(lengths.size(), 0);
    std::map<std::string, std::vector<T>> sums;
    for (int32_t n = 0; n < static_cast<int32_t>(lengths.size()); ++n) {
      auto single = part_of(whole, begin, lengths, {n});
      single.all(host.context);
      INFO("projection " << projection << ", sequence " << n);
      CHECK(row_difference(whole, single, "y", 2 * whole.dims.output(), begin, {n}) <= tolerance);
      CHECK(row_difference(whole, single, "dx", 3, begin, {n}) <= tolerance);
      for (const char* name : {"dw0", "dr0", "db0", "dw1", "dr1", "db1"}) {
        auto& sum = sums[name];
        sum.resize(single.arrays[name].size());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += single.arrays[name][i];
      }
    }
    for (const auto& [name, sum] : sums) {
      INFO(name);
      CHECK(worst_difference(whole.arrays[name], sum) <= tolerance);
    }
  }
}

// Frames [0, 3) then the rest, the state handed over; gradients the other way round.
template <class T>
void check_chunked(Backend backend, double tolerance) {
  HostContext host(backend);
  const std::vector<int32_t> lengths = {8, 5, 3, 2}, none = {0, 0, 0, 0}, cut = {3, 3, 3, 2};
  const std::vector<int32_t> all = {0, 1, 2, 3};
  LstmProblem<T> whole({1, 4, 10, 0}, lengths);
  whole.randomise(6);
  whole.all(host.context);
  auto first = part_of(whole, none, cut, all), second = part_of(whole, cut, lengths, all);
  first.forward(host.context);
  second.arrays["h0"] = first.arrays["hn"];
  second.arrays["c0"] = first.arrays["cn"];
  second.forward(host.context);
  CHECK(row_difference(whole, first, "y", 10, none, all) <= tolerance);
  CHECK(row_difference(whole, second, "y", 10, cut, all) <= tolerance);
  CHECK(worst_difference(second.arrays["hn"], whole.arrays["hn"]) <= tolerance);
  CHECK(worst_difference(second.arrays["cn"], whole.arrays["cn"]) <= tolerance);

  second.backward(host.context);
  first.arrays["dhn"] = second.arrays["dh0"];
  first.arrays["dcn"] = second.arrays["dc0"];
  first.backward(host.context);
  CHECK(row_difference(whole, first, "dx", 4, none, all) <= tolerance);
  CHECK(row_difference(whole, second, "dx", 4, cut, all) <= tolerance);
  CHECK(worst_difference(first.arrays["dh0"], whole.arrays["dh0"]) <= tolerance);
  CHECK(worst_difference(first.arrays["dc0"], whole.arrays["dc0"]) <= tolerance);
  first.weight_grad(host.context);
  for (const char* name : {"dw0", "dr0", "db0"}) second.arrays[name] = first.arrays[name];
  second.weight_grad(host.context, true);
  for (const char* name : {"dw0", "dr0", "db0"}) {
    CHECK(worst_difference(second.arrays[name], whole.arrays[name]) <= tolerance);
  }
}

// As check_chunked, for a bidirectional layer: the second direction walks from the right. Each
// direction is computed when its state has arrived.
template <class T>
void check_chunked_from_both_ends(Backend backend, int threads, double tolerance) {
  HostContext host(backend, threads);
  const std::vector<int32_t> lengths = {8, 5, 3, 2}, none = {0, 0, 0, 0}, cut = {3, 3, 3, 2};
  const std::vector<int32_t> all = {0, 1, 2, 3};
  LstmProblem<T> whole({2, 4, 10, 3}, lengths);
  whole.randomise(6);
  whole.all(host.context);
  auto left = part_of(whole, none, cut, all), right = part_of(whole, cut, lengths, all);
  const auto hand_over = [](const LstmProblem<T>& from, const std::string& last, LstmProblem<T>& to,
                            const std::string& first, int direction) {
    const auto& source = from.arrays.at(last);
    auto& target = to.arrays[first];
    const size_t plane = source.size() / 2, at = static_cast<size_t>(direction) * plane;
    std::copy_n(source.begin() + static_cast<ptrdiff_t>(at), plane,
                target.begin() + static_cast<ptrdiff_t>(at));
  };
  left.forward(host.context, LstmRun::first);
  right.forward(host.context, LstmRun::second);
  for (const char* state : {"h", "c"}) {
    hand_over(left, str(state, "n"), right, str(state, "0"), 0);
    hand_over(right, str(state, "n"), left, str(state, "0"), 1);
  }
  left.forward(host.context, LstmRun::second);
  right.forward(host.context, LstmRun::first);
  CHECK(row_difference(whole, left, "y", 6, none, all) <= tolerance);
  CHECK(row_difference(whole, right, "y", 6, cut, all) <= tolerance);

  right.backward(host.context, LstmRun::first, false);
  left.backward(host.context, LstmRun::second, false);
  for (const char* state : {"h", "c"}) {
    hand_over(right, str("d", state, "0"), left, str("d", state, "n"), 0);
    hand_over(left, str("d", state, "0"), right, str("d", state, "n"), 1);
  }
  left.backward(host.context, LstmRun::first);
  right.backward(host.context, LstmRun::second);
  CHECK(row_difference(whole, left, "dx", 4, none, all) <= tolerance);
  CHECK(row_difference(whole, right, "dx", 4, cut, all) <= tolerance);
  left.weight_grad(host.context);
  const std::vector<std::string> gradients = {"dw0", "dr0", "db0", "dp0",
                                              "dw1", "dr1", "db1", "dp1"};
  for (const auto& name : gradients) right.arrays[name] = left.arrays[name];
  right.weight_grad(host.context, true);
  for (const auto& name : gradients) {
    INFO(name);
    CHECK(worst_difference(right.arrays[name], whole.arrays[name]) <= tolerance);
  }
}

// float32 against float64 over some ten steps of some twenty terms: well under 100 ulps.
constexpr double float_tolerance = 100 * 0x1p-24;

// The tiles that a row falls into depend on the rows beside it; its bits must not.
template <class T>
void check_same_bits_in_any_batch(const LstmDims& dims, const std::vector<int32_t>& lengths,
                                  const std::vector<std::vector<int32_t>>& parts) {
  HostContext host(Backend::cpu);
  const std::vector<int32_t> begin(lengths.size(), 0);
  LstmProblem<T> whole(dims, lengths);
  whole.randomise(15);
  whole.all(host.context);
  for (const std::vector<int32_t>& which : parts) {
    auto part = part_of(whole, begin, lengths, which);
    part.all(host.context);
    INFO(name_of(DTypeOf<T>::value)
         << ", H " << dims.hidden << ", P " << dims.output() << ", " << which.size()
         << " sequences from number " << which[0] << " on");
    CHECK(row_difference(whole, part, "y", dims.directions * dims.output(), begin, which) == 0);
    CHECK(row_difference(whole, part, "dx", dims.input, begin, which) == 0);
  }
}

template <class T>
void check_same_bits_on_threads(const LstmDims& dims, const std::vector<int32_t>& lengths,
                                std::initializer_list<int> counts) {
  HostContext one(Backend::cpu, 1);
  LstmProblem<T> want(dims, lengths);
  want.randomise(3);
  const auto inputs = want.arrays;
  want.all(one.context);
  for (int threads : counts) {
    HostContext several(Backend::cpu, threads);
    LstmProblem<T> got(dims, lengths);
    got.arrays = inputs;
    got.all(several.context);
    for (const auto& [name, values] : want.arrays) {
      INFO(name << ", H " << dims.hidden << ", on " << threads << " threads");
      CHECK(worst_difference(got.arrays.at(name), values) == 0);
    }
  }
}

}  // namespace

TEST_CASE("gradients equal finite differences") {
  for (int directions : {1, 2}) {
    for (int64_t projection : {0, 2}) {
      check_gradients({directions, 2, 3, projection}, {3, 2, 1, 0});
    }
  }
}

TEST_CASE("results equal PyTorch's") {
  for (const LstmGolden& golden : lstm_golden) {
    check_golden<double>(golden, Backend::ref, 1e-13);
    check_golden<float>(golden, Backend::cpu, float_tolerance);
  }
}

TEST_CASE("a packed batch equals its sequences one by one") {
  check_packed_equals_single<double>(Backend::ref, 1e-13);
  check_packed_equals_single<float>(Backend::cpu, float_tolerance);
}

TEMPLATE_TEST_CASE("a sequence has the same bits whatever it is batched with", "", float, bf16) {
  for (int64_t projection : {0, 37}) {
    check_same_bits_in_any_batch<TestType>(
        {2, 21, 70, projection}, {9, 9, 9, 8, 8, 7, 7, 6, 6, 6, 5, 3, 3, 2, 1},
        {{0}, {3, 12}, {1, 2, 9}, {0, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7, 8}});
  }
  // Every number of rows up to 33, and sums so long that a tile takes them in parts.
  std::vector<int32_t> lengths;
  std::vector<std::vector<int32_t>> one_by_one;
  for (int32_t n = 0; n < 33; ++n) {
    lengths.push_back(33 - n);
    one_by_one.push_back({n});
  }
  check_same_bits_in_any_batch<TestType>({1, 5, 270, 0}, lengths, one_by_one);
}

TEMPLATE_TEST_CASE(
    "results have the same bits on any number of threads, however they share the work", "", float,
    bf16) {
  const std::vector<int32_t> even(12, 4), ragged = {7, 7, 6, 6, 4, 4, 4, 3, 1, 1, 0};
  for (const auto& lengths : {std::vector<int32_t>{5}, even, ragged}) {
    for (int directions : {1, 2}) {
      check_same_bits_on_threads<TestType>({directions, 9, 150, 0}, lengths, {2, 3, 5});
    }
  }
  // Large enough for three threads to take both directions together, one after the other.
  check_same_bits_on_threads<TestType>({2, 9, 512, 0}, {5}, {3});
  check_same_bits_on_threads<TestType>({2, 9, 512, 70}, {5}, {3});
}

namespace {

LstmTeamProblem team_problem(int64_t hidden, int64_t batch, int directions = 1) {
  LstmTeamProblem p;
  p.directions = directions;
  p.hidden = p.output = hidden;
  p.frames = 100, p.sequences = batch, p.rows = p.frames * batch;
  p.panels = hidden / 64;
  p.products_per_ns = 110;
  return p;
}

}  // namespace

TEST_CASE("threads share a time loop as its shape suggests") {
  const auto team = [](const LstmTeamProblem& p, int threads) {
    return lstm_best_team(p, threads);
  };
  // Too little work for a meeting at each step.
  CHECK(team(team_problem(64, 1), 2).threads == 1);
  // One sequence and a large matrix: each thread keeps to its half.
  CHECK(team(team_problem(1024, 1), 2).threads == 2);
  // Many sequences: dealt, no meetings.
  CHECK(team(team_problem(256, 32), 2).splits == 2);
  CHECK(team(team_problem(256, 32), 2).threads == 1);
  CHECK(team(team_problem(512, 1, 2), 2).directions_apart);
  // Where L2 holds most of half an R, or there is a third thread: all take one, then the other.
  LstmTeamProblem large_l2 = team_problem(512, 1, 2);
  large_l2.l2_bytes = 2 << 20;
  CHECK(team(large_l2, 2).threads == 2);
  CHECK(!team(large_l2, 2).directions_apart);
  CHECK(team(team_problem(512, 1, 2), 3).threads == 3);
  CHECK(!team(team_problem(512, 1, 2), 3).directions_apart);
  for (int64_t hidden : {64, 256, 1024}) {
    for (int64_t batch : {1, 3, 64}) {
      for (int directions : {1, 2}) {
        for (int threads : {1, 2, 7, 16, 200}) {
          const auto p = team_problem(hidden, batch, directions);
          const std::vector<int32_t> lengths(static_cast<size_t>(batch), 100);
          const LstmCrew crew(p, lengths.data(), threads);
          INFO("H " << hidden << " B " << batch << " D " << directions << " on " << threads);
          CHECK(crew.threads() >= 1);
          CHECK(crew.threads() <= threads);
          CHECK(crew.team().splits <= batch);
          const int64_t* first = crew.team().first_sequences;
          CHECK(first[0] == 0);
          CHECK(first[crew.team().splits] == batch);
          for (int s = 0; s < crew.team().splits; ++s) {
            // Even lengths: the shares differ by one sequence.
            CHECK(first[s + 1] - first[s] >= batch / crew.team().splits);
            CHECK(first[s + 1] - first[s] <= batch / crew.team().splits + 1);
          }
          CHECK(lstm_step_cost(p, crew.team()) <= lstm_step_cost(p, LstmTeam{}));
        }
      }
    }
  }
}

TEST_CASE("two chunks with the state handed over equal the whole") {
  check_chunked<double>(Backend::ref, 1e-13);
  check_chunked<float>(Backend::cpu, float_tolerance);
}

TEST_CASE("directions computed one at a time, from both ends, equal the whole") {
  for (int threads : {1, 2, 4}) {
    check_chunked_from_both_ends<double>(Backend::ref, threads, 1e-13);
    check_chunked_from_both_ends<float>(Backend::cpu, threads, float_tolerance);
  }
}

TEST_CASE("saturated gates stay finite and right") {
  HostContext ref(Backend::ref), cpu(Backend::cpu);
  for (double scale : {30.0, 1e4}) {
    LstmProblem<float> want({2, 4, 17, 0}, {6, 4, 1}), got({2, 4, 17, 0}, {6, 4, 1});
    for (LstmProblem<float>* p : {&want, &got}) {
      p->randomise(9);
      for (float& w : p->arrays["w0"]) w *= static_cast<float>(scale);
      for (float& w : p->arrays["w1"]) w *= static_cast<float>(scale);
    }
    want.all(ref.context);
    got.all(cpu.context);
    // The pre-activations are up to `scale` times larger, and so is their rounding error.
    const double tolerance = 16 * 0x1p-24 * scale;
    for (const char* name : {"y", "cells", "dgates", "dr0"}) {
      INFO("scale " << scale << ", " << name);
      CHECK(worst_difference(got.arrays[name], want.arrays[name]) <= tolerance);
    }
  }
}

TEMPLATE_TEST_CASE("a NaN stays within its sequence and reaches all that depends on it", "", float,
                   bf16) {
  HostContext cpu(Backend::cpu);
  const std::vector<int32_t> lengths = {5, 4, 4};
  LstmProblem<TestType> p({1, 3, 20, 0}, lengths);
  p.randomise(10);
  constexpr int32_t sequence = 1, frame = 2;
  p.arrays["x"][static_cast<size_t>(p.packed.row(frame, sequence) * 3)] = NAN;
  p.forward(cpu.context);
  for (int32_t n = 0; n < 3; ++n) {
    for (int32_t t = 0; t < lengths[static_cast<size_t>(n)]; ++t) {
      for (int64_t u = 0; u < 20; ++u) {
        const float y = p.arrays["y"][static_cast<size_t>(p.packed.row(t, n) * 20 + u)];
        INFO("sequence " << n << ", frame " << t << ", unit " << u);
        CHECK(std::isnan(y) == (n == sequence && t >= frame));
      }
    }
  }
}

TEST_CASE("views of a wrong shape or type are refused") {
  HostContext host(Backend::cpu);
  LstmProblem<float> p({1, 3, 4, 0}, {2, 1});
  p.randomise(1);
  p.arrays["r0"].resize(4 * 4 * 4 - 1);
  CHECK_THROWS_AS(p.forward(host.context), Error);
  LstmForwardArgs args;
  args.dims = {1, 3, 4, 0};
  args.layout = p.packed.view();
  args.x = p.view("x", {3, 3});
  args.x.dtype = DType::f64;
  CHECK_THROWS_AS(lstm_forward_variants().front().run(host.context, &args), Error);
}
