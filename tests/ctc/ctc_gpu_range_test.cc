// How many sequences the fast lattice in f32 keeps, by kinds of logits and by how densely labels
// lie: those it does not keep are right too, but some ten times slower.
#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "tests/ctc/ctc_gpu_problem.h"

namespace rondo::test {
namespace {

enum class Kind {
  uniform,  // noise of that size
  even,     // labels at even distances ahead, blanks between them; noise of 1
  start,
  end,           // the same, labels as close as they can be at one end
  blanks,        // blanks ahead in all frames
  random_class,  // in each frame a class ahead, any of all
};

constexpr int32_t sequence_count = 8;

// What is ahead grows from `low` to `high` nats over the sequences.
struct Logits {
  Kind kind;
  double low, high;

  bool has_alignment() const {
    return kind == Kind::even || kind == Kind::start || kind == Kind::end;
  }
};

// The frame of each label. Equal neighbours have a blank between them.
std::vector<int32_t> frames_of(Kind kind, const std::vector<int32_t>& labels, int32_t frames) {
  const auto count = static_cast<int32_t>(labels.size());
  std::vector<int32_t> result;
  int32_t t = -1, before = -1;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t label = labels[static_cast<size_t>(i)];
    t += label == before ? 2 : 1;
    if (kind == Kind::even) t = std::max(t, (i + 1) * frames / count - 1);
    result.push_back(t);
    before = label;
  }
  REQUIRE(t < frames);
  if (kind == Kind::end) {
    for (int32_t& frame : result) frame += frames - 1 - t;
  }
  return result;
}

// Where frames are short no label repeats the one before.
std::vector<std::vector<int32_t>> label_lists(const CtcShape& shape, std::mt19937_64& random) {
  std::vector<std::vector<int32_t>> lists;
  for (int32_t n = 0; n < sequence_count; ++n) {
    lists.push_back(random_labels(random, shape.labels, shape.classes));
    if (shape.frames >= 2 * shape.labels) continue;
    auto& list = lists.back();
    for (size_t i = 1; i < list.size(); ++i) {
      while (list[i] == list[i - 1]) list[i] = random_labels(random, 1, shape.classes).front();
    }
  }
  return lists;
}

CtcProblem make_problem(const CtcShape& shape, const Logits& logits) {
  std::mt19937_64 random(7);
  const auto lists = label_lists(shape, random);
  CtcProblem p(std::vector<int32_t>(lists.size(), shape.frames), shape.classes, lists);
  p.randomise(3, logits.kind == Kind::uniform ? logits.high : 1);
  if (logits.kind == Kind::uniform) return p;
  for (int32_t n = 0; n < sequence_count; ++n) {
    const double lead = logits.low + (logits.high - logits.low) * n / (sequence_count - 1);
    const std::vector<int32_t>& list = lists[static_cast<size_t>(n)];
    std::vector<int32_t> best(static_cast<size_t>(shape.frames), 0);
    if (logits.has_alignment()) {
      const std::vector<int32_t> at = frames_of(logits.kind, list, shape.frames);
      for (size_t i = 0; i < at.size(); ++i) best[static_cast<size_t>(at[i])] = list[i];
    }
    for (int32_t t = 0; t < shape.frames; ++t) {
      int32_t label = best[static_cast<size_t>(t)];
      if (logits.kind == Kind::random_class) {
        label = static_cast<int32_t>(random() % static_cast<uint64_t>(shape.classes));
      }
      p.logit(n, t, label) += lead;
    }
  }
  return p;
}

// Gradients of the sequences that the lattice has kept.
void compare_kept(const CtcProblem& p, const CtcGpuResult& got) {
  ThreadPool pool(1);
  const CtcResult want = run_ctc<double>(runnable_ctc_variants().front(), p, pool);
  for (int32_t n = 0; n < sequence_count; ++n) {
    if (got.states[static_cast<size_t>(n)] != CtcState::fine) continue;
    double worst = 0;
    for (int32_t t = 0; t < p.layout.lengths[static_cast<size_t>(n)]; ++t) {
      for (int64_t v = 0; v < p.classes; ++v) {
        const double error = std::abs(got.result.grad[p.at(n, t, v)] - want.grad[p.at(n, t, v)]);
        worst = error <= worst ? worst : error;  // NaN stays
      }
    }
    INFO("sequence " << n);
    REQUIRE(worst <= 2e-6);
  }
}

// `most`: sequences of eight that may go to log space.
void check(const CtcShape& shape, const Logits& logits, int most, bool loss_alone) {
  const CtcProblem p = make_problem(shape, logits);
  INFO("T " << shape.frames << ", L " << shape.labels << ", kind " << static_cast<int>(logits.kind)
            << ", " << logits.low << " to " << logits.high);
  const CtcGpuResult whole = run_fast(p);
  CHECK(whole.left_to_log_space() <= most);
  compare_kept(p, whole);
  CHECK(run_fast(p, true, 0).left_to_log_space() <= most);
  if (loss_alone) CHECK(run_fast(p, false).left_to_log_space() <= most);
}
int most_of_blanks_by_12(const CtcShape& shape) { return shape.frames == 130 ? 6 : 0; }

// In 1, 2 and 4 pairs a lane, and in two warps.
const CtcShape shapes[] = {{40, 32, 25},   {200, 32, 25},  {70, 28, 50},   {150, 28, 50},
                           {130, 32, 100}, {220, 32, 120}, {300, 32, 100}, {250, 28, 150}};

// A trained model, sure of every frame. Where an alignment enters a lane that it was far away from
// when scales were chosen, the powers of two of its posteriors lie far below 2^-126.
TEST_CASE("ctc on GPUs: no sequence of a sure model leaves the lattice in f32", "[.][long]") {
  for (const CtcShape& shape : shapes) {
    if (shape.frames > 200) continue;
    for (Kind kind : {Kind::even, Kind::start, Kind::end}) check(shape, {kind, 15, 80}, 0, false);
  }
}

// Without posteriors there are no sums over a frame's states to tell that what was lost did not
// matter: alpha's end and beta's must agree.
TEST_CASE("ctc on GPUs: the loss alone of a model sure of a label every second frame", "[slow]") {
  for (const CtcShape& shape : {CtcShape{50, 32, 25}, CtcShape{100, 28, 50}, CtcShape{240, 28, 120},
                                CtcShape{300, 28, 150}}) {
    const CtcProblem p = make_problem(shape, {Kind::even, 25, 80});
    INFO("T " << shape.frames << ", L " << shape.labels);
    CtcGpuResult got = run_fast(p, false);
    CHECK(got.left_to_log_space() == 0);
    got.result.grad.clear();
    compare(p, got, 1e-6, 2e-6);
  }
}

// Early in training.
TEST_CASE("ctc on GPUs: few sequences of an unsure model leave the lattice in f32", "[.][long]") {
  for (const CtcShape& shape : shapes) {
    if (shape.frames > 150) continue;
    check(shape, {Kind::uniform, 10, 10}, 0, true);
    check(shape, {Kind::blanks, 12, 12}, most_of_blanks_by_12(shape), false);
  }
}

// Sure of equal labels in neighbouring frames: a path pays for two frames at least, sooner or
// later, and states before and after that count alike, in one lane. An exponent per lane holds 28
// to 32 bits above 1 and 126 below, of which a gradient needs the last 24: enough to 40 nats or so.
TEST_CASE("ctc on GPUs: an alignment that no path can take") {
  for (double lead : {30.0, 80.0}) {
    CtcProblem p = make_problem({70, 28, 50}, {Kind::even, lead, lead});
    for (int32_t n = 0; n < sequence_count; ++n) {
      int32_t* label = p.labels.data() + 50 * n + 20;
      p.logit(n, 29, label[1]) -= lead;
      label[1] = label[0];
      p.logit(n, 29, label[1]) += lead;
    }
    const CtcGpuResult got = run_fast(p);
    CHECK(got.left_to_log_space() == (lead == 30 ? 0 : sequence_count));
    compare(p, got, 1e-6, 2e-6);
  }
}

// Two ways through a lattice, too far apart for a path to change from one to the other in time,
// each of which pays for what the other has for nothing: the early one before the middle and after
// it, `frames_paid` frames of `price` nats each time, the late one in four frames between, about as
// much in all. An early path that both directions lose is missing from all sums alike: nothing
// would tell.
CtcProblem two_ways(int32_t first, int32_t between, int32_t frames_paid, double price,
                    double other_price) {
  constexpr int32_t frames = 120, labels = 31, early = 4, late = 28;
  std::vector<int32_t> list;
  for (int32_t i = 1; i <= labels; ++i) list.push_back(i);
  CtcProblem p(std::vector<int32_t>(sequence_count, frames), labels + 2,
               std::vector<std::vector<int32_t>>(sequence_count, list));
  for (int32_t n = 0; n < sequence_count; ++n) {
    for (int32_t t = 0; t < frames_paid; ++t) {
      p.logit(n, first + t, late) += price;
      p.logit(n, first + between + t, late) += price;
    }
    for (int32_t i = 1; i <= 4; ++i) p.logit(n, first + 7 * i + 1, early) += other_price + n / 2.0;
  }
  return p;
}
void check_two_ways(int32_t first, int32_t between, int32_t frames_paid, double price,
                    double other_price) {
  INFO("from frame " << first << ", " << between << " frames apart, " << price << " nats");
  const CtcProblem p = two_ways(first, between, frames_paid, price, other_price);
  // The sums of 120 frames may differ by 6e-6.
  constexpr double tolerance = 1e-5;
  compare(p, run_fast(p), 1e-6, tolerance);
  CtcGpuResult loss_alone = run_fast(p, false);
  loss_alone.result.grad.clear();
  compare(p, loss_alone, 1e-6, tolerance);
}

// The states of a whole lane fall by more than one power of two makes good.
TEST_CASE("ctc on GPUs: a lane that falls far within a chunk is not forgotten", "[slow]") {
  for (int32_t first : {40, 43, 44}) check_two_ways(first, 35, 2, 52, 48.5);
}

// e^-104 is 0 in f32, and more than what alpha is kept above.
TEST_CASE("ctc on GPUs: an emission that f32 does not hold is not forgotten", "[slow]") {
  for (int32_t between : {35, 38, 41}) {
    for (int32_t first : {38, 39, 40, 41}) check_two_ways(first, between, 1, 104, 47);
  }
  check_two_ways(41, 35, 1, 130, 62);
}

// Each with every second shape.
TEST_CASE("ctc on GPUs: all kinds of logits and the lattice in f32", "[.][long]") {
  std::vector<Logits> all;
  for (Kind kind : {Kind::even, Kind::start, Kind::end}) {
    all.insert(all.end(), {{kind, 15, 15}, {kind, 25, 60}, {kind, 40, 80}});
  }
  for (double range : {3.0, 6.0, 8.0, 10.0}) all.push_back({Kind::uniform, range, range});
  all.push_back({Kind::random_class, 8, 8});
  all.push_back({Kind::blanks, 8, 8});
  all.push_back({Kind::blanks, 12, 12});
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t s = i % 2; s < std::size(shapes); s += 2) {
      const bool far = all[i].kind == Kind::blanks && all[i].low > 8;
      check(shapes[s], all[i], far ? most_of_blanks_by_12(shapes[s]) : 0, true);
    }
  }
}

}  // namespace
}  // namespace rondo::test
