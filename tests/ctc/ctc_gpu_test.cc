// The GPU variants of ctc on the simulated device: which sequences leave the fast lattice, and that
// what log space makes of them is right.
#include <algorithm>
#include <thread>

#include "kernels/base/cpu/parallel.h"
#include "kernels/ctc/ctc_padded.h"
#include "kernels/simt/sim/scheduler.h"
#include "tests/ctc/ctc_gpu_problem.h"

namespace rondo::test {
namespace {

// Logits in [-range, range], or noise of 1 with an even alignment of the labels ahead by `lead`.
CtcProblem make_problem(const CtcShape& shape, double range, double lead) {
  std::mt19937_64 random(7);
  const std::vector<std::vector<int32_t>> lists = {
      random_labels(random, shape.labels, shape.classes),
      random_labels(random, shape.labels / 2, shape.classes)};
  CtcProblem p({shape.frames, std::max(shape.frames - 5, 1)}, shape.classes, lists);
  p.randomise(3, range);
  if (lead == 0) return p;
  for (int32_t n = 0; n < 2; ++n) {
    const int32_t frames = p.layout.lengths[static_cast<size_t>(n)];
    const std::vector<int32_t>& list = lists[static_cast<size_t>(n)];
    const auto labels = static_cast<int32_t>(list.size());
    for (int32_t t = 0; t < frames; ++t) {
      const int32_t i = t * labels / frames;
      const bool spike = (t + 1) * labels / frames != i;
      p.logit(n, t, spike ? list[static_cast<size_t>(i)] : 0) += lead;
    }
  }
  return p;
}

// The lattice alone: log space would repair what a missing barrier breaks.
void require_same_in_other_orders(const CtcProblem& p, const CtcGpuResult& want,
                                  std::string_view variant = "fast") {
  struct Restore {
    const SimOptions before = sim_options();
    ~Restore() { set_sim_options(before); }
  } restore;
  for (SimOrder order : {SimOrder::reverse, SimOrder::shuffled}) {
    set_sim_options({order, 3});
    const CtcGpuResult got = run_fast(p, true, ctc_lattice_limit, variant);
    INFO("order " << static_cast<int>(order));
    REQUIRE(got.states == want.states);
    REQUIRE(got.result.loss == want.result.loss);
    REQUIRE(got.result.grad == want.result.grad);
  }
}

// Ordinary training must not leave the fast lattice: neither an untrained model nor a sure one, for
// every tiling.
TEST_CASE("ctc on GPUs: the lattice in f32 holds ordinary sequences", "[.][long]") {
  for (const CtcShape& shape :
       {CtcShape{200, 32, 20}, CtcShape{150, 28, 40}, CtcShape{300, 32, 100}, CtcShape{600, 5, 135},
        CtcShape{1100, 40, 520}}) {
    for (double lead : {0.0, 3.0, 15.0, 40.0}) {
      if (lead == 3 && shape.frames > 300) continue;
      const CtcProblem p = make_problem(shape, lead == 0 ? 3 : 1, lead);
      const CtcGpuResult got = run_fast(p);
      INFO("T " << shape.frames << " L " << shape.labels << " lead " << lead);
      REQUIRE(got.states == std::vector<CtcState>(2, CtcState::fine));
      // A few roundings of f32 per frame, in random directions.
      compare(p, got, 0x1p-22 * std::sqrt(shape.frames), 2e-6);
      const bool several_warps = shape.frames == 600;
      if (lead == (several_warps ? 40 : 3)) require_same_in_other_orders(p, got);
      if (lead == 15) {
        const CtcGpuResult loss_only = run_fast(p, false);
        REQUIRE(loss_only.states == got.states);
        for (size_t n = 0; n < 2; ++n) {
          REQUIRE(std::abs(loss_only.result.loss[n] - got.result.loss[n]) <=
                  1e-5 * (1 + got.result.loss[n]));
        }
      }
    }
  }
}

// Two to eight walkers of a direction, each with its helpers and without, as where blocks get less
// shared memory; from five on they are two blocks'; halves that are not whole chunks; and a short
// sequence beside a long one, of which most walkers hold nothing.
TEST_CASE("ctc on GPUs: several walkers of a direction hold ordinary sequences", "[.][long]") {
  for (const CtcShape& shape :
       {CtcShape{301, 32, 128}, CtcShape{450, 40, 255}, CtcShape{640, 28, 300},
        CtcShape{1003, 32, 511}, CtcShape{905, 32, 600}, CtcShape{1400, 32, 1023}}) {
    for (double lead : {0.0, 3.0}) {
      if (lead == 0 && (shape.labels == 300 || shape.labels > 511)) continue;
      const CtcProblem p = make_problem(shape, lead == 0 ? 3 : 1, lead);
      for (const char* variant : {"fast", "without_stages"}) {
        const CtcGpuResult got = run_fast(p, true, ctc_lattice_limit, variant);
        INFO("T " << shape.frames << " L " << shape.labels << " lead " << lead << " " << variant);
        REQUIRE(got.states == std::vector<CtcState>(2, CtcState::fine));
        compare(p, got, 0x1p-22 * std::sqrt(shape.frames), 2e-6);
        const bool two_blocks = shape.labels == 600 && variant == std::string_view("fast");
        if (shape.labels == 300 || two_blocks) require_same_in_other_orders(p, got, variant);
      }
    }
  }
}

// Spans of frames are each sequence's own, so others' lengths do not matter; and those of one frame
// meet before their first one.
TEST_CASE("ctc on GPUs: labels of two blocks have the same bits beside longer sequences",
          "[slow]") {
  std::mt19937_64 random(5);
  const std::vector<int32_t> list = random_labels(random, 530, 30);
  CtcProblem together(
      {1300, 800, 30, 1, 1}, 30,
      {random_labels(random, 640, 30), list, random_labels(random, 9, 30), {3}, {}});
  CtcProblem alone({800}, 30, {list});
  together.randomise(8, 3);
  for (int32_t t = 0; t < 800; ++t) {
    for (int32_t v = 0; v < 30; ++v) alone.logit(0, t, v) = together.logit(1, t, v);
  }
  const CtcGpuResult got = run_fast(together), want = run_fast(alone);
  CHECK(got.left_to_log_space() == 0);
  CHECK(want.left_to_log_space() == 0);
  compare(together, got, 0x1p-22 * std::sqrt(1300), 2e-6);
  REQUIRE(got.result.loss[1] == want.result.loss[0]);
  for (int32_t t = 0; t < 800; ++t) {
    const int64_t row = together.layout.row_offsets[static_cast<size_t>(t)] + 1;
    for (int64_t v = 0; v < 30; ++v) {
      const auto a = static_cast<size_t>(row * 30 + v),
                 b = static_cast<size_t>(int64_t{t} * 30 + v);
      REQUIRE(got.result.grad[a] == want.result.grad[b]);
    }
  }
}

// A row's exponentials serve its sum and its labels' emissions at once, unless the best class is so
// far above the labels that either would leave f32.
TEST_CASE("ctc on GPUs: classes far above all labels leave the lattice as it is", "[slow]") {
  for (const int32_t classes : {32, 50, 70}) {
    for (const double lead : {30.0, 50.0, 100.0}) {
      INFO("V " << classes << ", ahead by " << lead);
      std::mt19937_64 random(3);
      const std::vector<int32_t> lengths{70, 70, 70};
      CtcProblem p(lengths, classes,
                   {random_labels(random, 20, 9), random_labels(random, 9, 9), {}});
      p.randomise(4, 2);
      for (int32_t n = 0; n < 3; ++n) {
        for (int32_t t = 0; t < 70; t += n + 1) p.logit(n, t, classes - 1) += lead;
      }
      const CtcGpuResult got = run_fast(p);
      CHECK(got.left_to_log_space() == 0);
      compare(p, got, 1e-6, 2e-6);
    }
  }
}

// Columns made again have the same bits. Scales of the posteriors may be other powers of two.
TEST_CASE("ctc on GPUs: a lattice kept at some frames alone gives the same gradient", "[slow]") {
  for (const CtcShape& shape :
       {CtcShape{1, 12, 1}, CtcShape{90, 12, 20}, CtcShape{330, 28, 40}, CtcShape{300, 32, 100},
        CtcShape{700, 5, 135}, CtcShape{1100, 40, 520}}) {
    const CtcProblem p = make_problem(shape, 3, 0);
    INFO("T " << shape.frames << " L " << shape.labels);
    const CtcGpuResult whole = run_fast(p), got = run_fast(p, true, 0);
    REQUIRE(got.lattice_bytes != whole.lattice_bytes);
    REQUIRE(got.states == std::vector<CtcState>(2, CtcState::fine));
    REQUIRE(got.result.loss == whole.result.loss);
    REQUIRE(got.result.grad == whole.result.grad);
  }
}

TEST_CASE("ctc on GPUs: labels over many blocks", "[.][long]") {
  // The reference would take seconds.
  Variant truth;
  for (const Variant& v : runnable_ctc_variants()) {
    if (std::string_view(v.name) == "generic") truth = v;
  }
  for (const CtcShape& shape : {CtcShape{2500, 12, 2060}}) {
    const CtcProblem p = make_problem(shape, 3, 0);
    INFO("T " << shape.frames << " L " << shape.labels);
    const CtcGpuResult got = run_fast(p), loss_only = run_fast(p, false);
    REQUIRE(got.states == std::vector<CtcState>(2, CtcState::fine));
    REQUIRE(loss_only.states == got.states);
    compare(p, got, 0x1p-22 * std::sqrt(shape.frames), 2e-6, truth);
    for (size_t n = 0; n < 2; ++n) {
      REQUIRE(std::abs(loss_only.result.loss[n] - got.result.loss[n]) <=
              1e-5 * (1 + got.result.loss[n]));
    }
  }
}

// Memory of alpha and beta, as laid out for the capacity: T columns of two states per label, or
// those at the heads of segments and two rings; without a gradient no column of T.
TEST_CASE("ctc on GPUs: bytes of the lattice") {
  const auto lattice = [](int32_t frames, int32_t sequences, int32_t labels, bool with_grad,
                          size_t limit) {
    const PackedCapacity capacity{int64_t{frames} * sequences, frames, sequences};
    return CtcGpuWorkspace(capacity, labels, with_grad, limit).lattice_bytes;
  };
  const size_t column = 4 * 32 * 9 * sizeof(float);  // four warps of 128 labels each
  CHECK(lattice(2000, 1, 450, true, ctc_lattice_limit) == 2000 * column);
  // 42 segments of 24 frames in each half.
  CHECK(lattice(2000, 1, 450, true, 0) == 2 * (43 + 128) * column);
  CHECK(lattice(2000, 1, 450, false, 0) == 0);
  // By default, above 1 GiB: 227 sequences are 1.95 GiB.
  CHECK(lattice(2000, 116, 450, true, ctc_lattice_limit) == 116 * 2000 * column);
  CHECK(lattice(2000, 227, 450, true, ctc_lattice_limit) == 227 * 2 * (43 + 128) * column);
  // Without a gradient, labels over blocks: two columns, and what strips tell each other.
  const size_t long_column = 3 * 8 * 32 * 9 * sizeof(float);
  const size_t bytes = lattice(20000, 1, 2500, false, ctc_lattice_limit);
  CHECK(bytes >= 2 * long_column);
  CHECK(bytes <= 3 * long_column);
  CHECK(lattice(40000, 1, 2500, false, ctc_lattice_limit) == bytes);
}

// Differences of e^80 between neighbouring frames; and what ctc_range_test.cc says of alignments
// that look hopeless from both ends.
TEST_CASE("ctc on GPUs: what f32 cannot hold is noticed and left to log space") {
  const CtcGpuResult wild = run_fast(make_problem({120, 12, 30}, 80, 0));
  REQUIRE(wild.states == std::vector<CtcState>(2, CtcState::log_space));
  compare(make_problem({120, 12, 30}, 80, 0), wild, 1e-6, 1e-5);

  int left = 0;
  for (int32_t labels : {40, 47, 86}) {
    const int32_t spare = 7, frames = labels + spare;
    std::vector<int32_t> list;
    for (int32_t i = 0; i < labels; ++i) list.push_back(1 + i % 2);
    CtcProblem p({frames}, 3, {list});
    p.randomise(1, 0.5);
    for (int32_t t = 0; t < frames; ++t) {
      const int32_t middle = frames / 2 - 4;
      const bool best = t >= middle && t < middle + spare;
      p.logit(0, t, 0) += best ? 84 : t < 7 || t >= frames - 7 ? 80 : 0;
    }
    const CtcGpuResult got = run_fast(p);
    left += got.states.front() == CtcState::log_space;
    compare(p, got, 1e-5, 1e-3);
  }
  REQUIRE(left > 0);
}

// A padded batch, any order of lengths, through the simulated device: what the C API does on a GPU.
struct Padded {
  std::vector<int32_t> labels, label_lengths = {4, 30, 9, 0}, input_lengths = {11, 50, 8, 20};
  int32_t classes = 7, frames = 50;
  std::vector<float> activations, gradients, costs;

  explicit Padded(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int32_t count : label_lengths) {
      for (int32_t i = 0; i < count; ++i) labels.push_back(static_cast<int32_t>(random() % 6));
    }
    std::uniform_real_distribution<float> uniform(-3, 3);
    activations.resize(static_cast<size_t>(frames) * 4 * 7);
    for (float& x : activations) x = uniform(random);
    gradients.assign(activations.size(), NAN);
    costs.assign(4, NAN);
  }
  CtcPadded batch() {
    return {activations.data(), gradients.data(),     DType::f32,           classes,     4, 6,
            labels.data(),      label_lengths.data(), input_lengths.data(), costs.data()};
  }
  void run(const char* name, const Context& context) {
    Buffer workspace(*context.device, ctc_padded_workspace_bytes(context, batch()), "ctc test");
    for (const Variant& v : ctc_variants()) {
      if (v.backend != context.backend || std::string_view(v.name) != name) continue;
      static thread_local const Variant* chosen;
      chosen = &v;
      ctc_padded(
          context, [](const Context& c, const CtcArgs& a) { chosen->run(c, &a); }, batch(),
          workspace.data());
    }
  }
};

TEST_CASE("ctc on GPUs: padded batches, two host threads with two streams as one") {
  ThreadPool pool(1);
  Device* device = &require_device(DeviceKind::sim);
  for (const char* name : {"fast", "log_space"}) {
    Padded want(1), one(1), first(1), second(2), alone(2);
    want.run("generic", {Backend::cpu, &cpu_device(), nullptr, &pool});
    Stream stream = device->make_stream();
    one.run(name, {Backend::sim, device, &stream, nullptr});
    alone.run(name, {Backend::sim, device, &stream, nullptr});
    const auto work = [&](Padded& p) {
      Stream own = device->make_stream();
      p.run(name, {Backend::sim, device, &own, nullptr});
    };
    std::thread a(work, std::ref(first)), b(work, std::ref(second));
    a.join();
    b.join();
    REQUIRE(first.costs == one.costs);
    REQUIRE(second.costs == alone.costs);
    REQUIRE(want.costs[2] == 0);  // nine labels in eight frames
    for (size_t n = 0; n < 4; ++n) REQUIRE(std::abs(want.costs[n] - one.costs[n]) < 1e-4);
    if (std::string_view(name) == "log_space") continue;  // leaves rows past the lengths alone
    REQUIRE(first.gradients == one.gradients);
    REQUIRE(second.gradients == alone.gradients);
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      REQUIRE(std::abs(one.gradients[i] - want.gradients[i]) < 2e-6);
    }
  }
}

TEST_CASE("ctc on GPUs: rows whose bytes 32 bits cannot count are declined") {
  const Context context{Backend::sim, nullptr, nullptr, nullptr};
  CtcArgs args;
  const auto accepts = [&](int64_t classes, int32_t labels) {
    args.logits = TensorView(nullptr, DType::f32, {1, classes});
    args.max_label_length = labels;
    return ctc_gpu_accepts(context, &args);
  };
  CHECK(accepts(ctc_most_classes, ctc_most_labels));
  CHECK_FALSE(accepts(ctc_most_classes + 1, 4));
  CHECK_FALSE(accepts(5, ctc_most_labels + 1));
}

}  // namespace
}  // namespace rondo::test
