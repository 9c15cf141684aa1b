// CTC against its definition: every path of a tiny lattice, derivatives by differences, identities.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// AddressSanitizer has its own and objects to a mixture; there the count stays 0.
#if !defined(__SANITIZE_ADDRESS__)
void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace rondo::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// What a path spells: repeats merged, then blanks removed.
std::vector<int32_t> spelled(const std::vector<int32_t>& path, int32_t blank) {
  std::vector<int32_t> out;
  for (size_t t = 0; t < path.size(); ++t) {
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) out.push_back(path[t]);
  }
  return out;
}

// Every sequence of `count` digits below `base`.
void for_each_word(int32_t base, int32_t count,
                   const std::function<void(const std::vector<int32_t>&)>& f) {
  std::vector<int32_t> word(static_cast<size_t>(count), 0);
  for (;;) {
    f(word);
    int32_t i = 0;
    while (i < count && ++word[static_cast<size_t>(i)] == base) word[static_cast<size_t>(i++)] = 0;
    if (i == count) return;
  }
}

struct Enumerated {
  double loss;
  std::vector<double> grad;  // [frames, classes]
};

// The definition: all V^T paths of sequence 0.
Enumerated enumerate(const CtcProblem& p) {
  const int32_t frames = p.layout.lengths[0];
  const auto classes = static_cast<int32_t>(p.classes);
  const auto cell = [&](int32_t t, int32_t v) { return static_cast<size_t>(t * classes + v); };
  std::vector<double> prob(p.logits.size());
  for (int32_t t = 0; t < frames; ++t) {
    double sum = 0;
    for (int32_t v = 0; v < classes; ++v) sum += std::exp(p.logits[cell(t, v)]);
    for (int32_t v = 0; v < classes; ++v) prob[cell(t, v)] = std::exp(p.logits[cell(t, v)]) / sum;
  }
  double total = 0;
  std::vector<double> posterior(prob.size(), 0.0);
  for_each_word(classes, frames, [&](const std::vector<int32_t>& path) {
    if (spelled(path, p.blank) != p.labels) return;
    double product = 1;
    for (int32_t t = 0; t < frames; ++t) product *= prob[cell(t, path[static_cast<size_t>(t)])];
    total += product;
    for (int32_t t = 0; t < frames; ++t)
      posterior[cell(t, path[static_cast<size_t>(t)])] += product;
  });
  Enumerated e{-std::log(total), std::vector<double>(prob.size(), 0.0)};
  if (total > 0) {
    for (size_t i = 0; i < prob.size(); ++i) e.grad[i] = prob[i] - posterior[i] / total;
  }
  return e;
}

void require_close(double got, double want, double tolerance) {
  if (std::isinf(want)) {
    REQUIRE(got == want);
  } else {
    INFO("got " << got << ", want " << want << ", allowed " << tolerance);
    REQUIRE(std::abs(got - want) <= tolerance);
  }
}

TEST_CASE("ctc: loss and gradient are those of the enumeration of all paths") {
  ThreadPool pool(2);
  for (const Variant& variant : runnable_ctc_variants()) {
    uint64_t seed = 0;
    for (int32_t frames = 1; frames <= 5; ++frames) {
      for (int32_t count = 0; count <= 3; ++count) {
        for_each_word(2, count, [&](const std::vector<int32_t>& word) {
          for (int32_t blank = 0; blank < 3; ++blank) {
            std::vector<int32_t> labels;
            for (int32_t w : word) labels.push_back(w + (w >= blank));
            CtcProblem p({frames}, 3, {labels});
            p.blank = blank;
            p.randomise(++seed, 2);
            const Enumerated want = enumerate(p);
            INFO(variant.name << " T " << frames << " L " << count << " blank " << blank);
            const CtcResult got = run_ctc<double>(variant, p, pool);
            require_close(got.loss[0], want.loss, 1e-12);
            for (size_t i = 0; i < want.grad.size(); ++i) {
              require_close(got.grad[i], want.grad[i], 1e-12);
            }
            const CtcResult single = run_ctc<float>(variant, p, pool);
            require_close(single.loss[0], want.loss, 1e-5);
            for (size_t i = 0; i < want.grad.size(); ++i) {
              require_close(single.grad[i], want.grad[i], 2e-6);
            }
          }
        });
      }
    }
  }
}

CtcProblem ragged_problem(double range) {
  CtcProblem p({23, 17, 9}, 6, {{1, 1, 2, 5, 3, 3}, {4, 2, 4, 2, 1, 5, 5, 3, 1}, {}});
  p.randomise(7, range);
  return p;
}

TEST_CASE("ctc: the gradient is the derivative of the loss (f64, central differences)") {
  ThreadPool pool(2);
  for (const Variant& variant : runnable_ctc_variants()) {
    for (CtcInput input : {CtcInput::logits, CtcInput::log_softmax}) {
      CtcProblem p = ragged_problem(2);
      p.input = input;
      const CtcResult at = run_ctc<double>(variant, p, pool);
      constexpr double step = 1e-5;
      for (size_t i = 0; i < p.logits.size(); i += 3) {
        const double x = p.logits[i];
        const auto total = [&](double value) {
          p.logits[i] = value;
          double sum = 0;
          for (double l : run_ctc<double>(variant, p, pool, false).loss) sum += l;
          return sum;
        };
        const double slope = (total(x + step) - total(x - step)) / (2 * step);
        p.logits[i] = x;
        INFO(variant.name << " element " << i);
        require_close(at.grad[i], slope, 1e-8);
      }
    }
  }
}

TEST_CASE("ctc: each gradient row sums to 0 for logits, to -1 for log-probabilities") {
  ThreadPool pool(3);
  for (const Variant& variant : runnable_ctc_variants()) {
    for (CtcInput input : {CtcInput::logits, CtcInput::log_softmax}) {
      CtcProblem p = ragged_problem(6);
      p.input = input;
      const CtcResult r = run_ctc<float>(variant, p, pool);
      for (int64_t row = 0; row < p.layout.extent.rows; ++row) {
        double sum = 0;
        for (int64_t v = 0; v < p.classes; ++v) {
          sum += r.grad[static_cast<size_t>(row * p.classes + v)];
        }
        INFO(variant.name << " row " << row);
        require_close(sum, input == CtcInput::logits ? 0 : -1, 1e-6);
      }
    }
  }
}

TEST_CASE("ctc: log-probabilities in give the loss of the logits they came from") {
  ThreadPool pool(2);
  for (const Variant& variant : runnable_ctc_variants()) {
    CtcProblem p = ragged_problem(3);
    const CtcResult want = run_ctc<double>(variant, p, pool);
    for (int64_t row = 0; row < p.layout.extent.rows; ++row) {
      double sum = 0;
      double* x = p.logits.data() + row * p.classes;
      for (int64_t v = 0; v < p.classes; ++v) sum += std::exp(x[v]);
      for (int64_t v = 0; v < p.classes; ++v) x[v] -= std::log(sum);
    }
    p.input = CtcInput::log_softmax;
    const CtcResult got = run_ctc<double>(variant, p, pool);
    for (size_t n = 0; n < want.loss.size(); ++n) require_close(got.loss[n], want.loss[n], 1e-11);
  }
}

TEST_CASE("ctc: nothing is allocated by the cpu variants") {
  ThreadPool pool(2);
  for (const Variant& variant : runnable_ctc_variants()) {
    if (variant.backend != Backend::cpu) continue;
    const CtcProblem p = ragged_problem(3);
    const Context context{variant.backend, &cpu_device(), nullptr, &pool};
    std::vector<float> logits(p.logits.begin(), p.logits.end()), loss(3);
    CtcArgs args;
    args.layout = p.layout.view();
    args.max_label_length = 9;
    args.labels = p.labels.data();
    args.label_offsets = p.offsets.data();
    args.logits = args.grad =
        TensorView(logits.data(), DType::f32, {p.layout.extent.rows, p.classes});
    args.loss = TensorView(loss.data(), DType::f32, {3});
    Buffer workspace(
        cpu_device(),
        ctc_workspace_bytes(context, args.layout.capacity, DType::f32, p.classes, 9, true),
        "ctc test");
    args.workspace =
        TensorView(workspace.data(), DType::u8, {static_cast<int64_t>(workspace.bytes())});
    const int64_t before = allocations;
    variant.run(context, &args);
    REQUIRE(allocations == before);

    args.workspace.dims[0] -= 1;
    REQUIRE_THROWS_AS(variant.run(context, &args), Error);
  }
}

TEST_CASE("ctc: fewest frames are the labels and one more for each repeat") {
  const std::vector<int32_t> labels = {3, 3, 3, 1, 2, 2};
  REQUIRE(ctc_min_frames(labels) == 9);
  REQUIRE(ctc_min_frames({}) == 0);
}

TEST_CASE("ctc: bad labels are named with the utterance") {
  const auto message = [](std::vector<int32_t> labels) -> std::string {
    try {
      validate_ctc_labels(labels, 5, 2, "take 7");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  REQUIRE(message({0, 1, 3, 4}).empty());
  REQUIRE(message({0, 5}) == "take 7: label 2 is 5, expected 0 to 4");
  REQUIRE(message({-1}) == "take 7: label 1 is -1, expected 0 to 4");
  REQUIRE(message({4, 4, 2}) == "take 7: label 3 is 2, which is the blank");
  const int32_t one = 1;  // the others are not read
  const std::span<const int32_t> too_many(&one, size_t{1} << 27);
  REQUIRE_THROWS_WITH(validate_ctc_labels(too_many, 5, 2, "take 7"),
                      "take 7: 134217728 labels, expected at most 134217727");
}

TEST_CASE("ctc: infeasible and impossible sequences have loss +inf and gradient 0") {
  ThreadPool pool(2);
  for (const Variant& variant : runnable_ctc_variants()) {
    for (bool zero : {false, true}) {
      CtcProblem p({4, 3, 2}, 4, {{1, 1, 2}, {2, 3}, {3, 3}});
      p.randomise(3, 1);
      p.zero_infinity = zero;
      for (int32_t t = 0; t < 3; ++t) p.logit(1, t, 3) = -infinity;  // a label that cannot be
      const CtcResult r = run_ctc<float>(variant, p, pool);
      INFO(variant.name);
      REQUIRE(std::isfinite(r.loss[0]));
      REQUIRE(r.loss[1] == (zero ? 0 : infinity));
      REQUIRE(r.loss[2] == (zero ? 0 : infinity));
      for (int32_t t = 0; t < 3; ++t) {
        for (int64_t v = 0; v < 4; ++v) REQUIRE(r.grad[p.at(1, t, v)] == 0);
      }
      REQUIRE(r.grad[p.at(2, 1, 3)] == 0);
      REQUIRE(r.grad[p.at(0, 3, 2)] != 0);
    }
  }
}

}  // namespace
}  // namespace rondo::test
