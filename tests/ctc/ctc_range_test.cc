// Sequences made to leave the range of linear-space arithmetic, and the variant that has none.
#include <algorithm>
#include <cmath>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/device.h"
#include "kernels/ctc/ctc_impl.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {
namespace {

void compare(const CtcProblem& p, ThreadPool& pool, double loss_tolerance, double grad_tolerance) {
  const std::vector<Variant> variants = runnable_ctc_variants();
  const CtcResult want = run_ctc<double>(variants.front(), p, pool);
  for (const Variant& variant : variants) {
    for (bool with_grad : {true, false}) {
      const CtcResult got = run_ctc<float>(variant, p, pool, with_grad);
      for (size_t n = 0; n < want.loss.size(); ++n) {
        INFO(variant.name << " sequence " << n << " got " << got.loss[n] << " want "
                          << want.loss[n]);
        REQUIRE(std::abs(got.loss[n] - want.loss[n]) <= loss_tolerance * (1 + want.loss[n]));
      }
      if (!with_grad) continue;
      for (size_t i = 0; i < want.grad.size(); ++i) {
        INFO(variant.name << " element " << i << " got " << got.grad[i] << " want "
                          << want.grad[i]);
        REQUIRE(std::abs(got.grad[i] - want.grad[i]) <= grad_tolerance);
      }
    }
  }
}

// Three places where blanks are cheap: 7 frames at the start, 7 at the end, and in the middle,
// most. The best alignment takes those in the middle; when the scales are set in the 6th frame from
// either end, its alpha, or beta, is e^-480 of the largest in the same tile of 8 labels, and is
// clipped. With 7 blanks in all every alignment that counts is clipped at one end at least; with
// 14, one that has blanks at both ends is clipped nowhere, and is e^-56 of the right answer.
TEST_CASE("ctc: an alignment that looks hopeless from both ends is not lost") {
  ThreadPool pool(1);
  for (int32_t spare : {7, 14}) {
    for (int32_t labels : {40, 44, 46, 47, 86}) {
      const int32_t frames = labels + spare;
      std::vector<int32_t> list;
      for (int32_t i = 0; i < labels; ++i) list.push_back(1 + i % 2);
      for (int32_t middle = frames / 2 - 9; middle <= frames / 2; middle += 3) {
        CtcProblem p({frames}, 3, {list});
        p.randomise(1, 0.5);
        for (int32_t t = 0; t < frames; ++t) {
          const bool end = t < 7 || t >= frames - 7;
          const bool best = t >= middle && t < middle + spare;
          p.logit(0, t, 0) += best ? 84 : end ? 80 : 0;
        }
        compare(p, pool, 1e-5, 1e-3);
      }
    }
  }
}

// As a trained model sees a wrong transcript: every label's probability is tiny at every frame.
TEST_CASE("ctc: confident logits under wrong labels", "[slow]") {
  ThreadPool pool(2);
  for (double lead : {20.0, 40.0, 85.0, 300.0}) {
    CtcProblem p({300, 200}, 8, {std::vector<int32_t>(60, 3), std::vector<int32_t>(40, 5)});
    p.randomise(2, 1);
    for (size_t i = 1; i < p.labels.size(); i += 2) p.labels[i] = 1 + static_cast<int32_t>(i % 7);
    for (int32_t t = 0; t < 300; ++t) {
      p.logit(0, t, t % 11 == 0 ? 7 : 0) += lead;
      if (t < 200) p.logit(1, t, t % 5 == 0 ? 6 : 0) += lead;
    }
    compare(p, pool, 1e-5, 1e-3);
  }
}

void run_wide(const Context& context, const CtcArgs& args) {
  using namespace isa_generic;
  ctc_run(context, args, {ctc_rows, ctc_grad_rows, ctc_wide});
}

// The fallback on ordinary input, where everything else is right too.
TEST_CASE("ctc: the lattice with an exponent per state equals the reference") {
  CtcProblem p({70, 40, 33}, 9, {{1, 2, 2, 3, 8, 7, 7, 1, 4, 5, 6}, {}, {3, 3, 3, 1, 8, 2, 1, 5}});
  p.randomise(5, 3);
  ThreadPool pool(2);
  const Variant ref = runnable_ctc_variants().front();
  const Variant wide = variant<CtcArgs, run_wide>("wide", Backend::cpu);
  for (CtcInput input : {CtcInput::logits, CtcInput::log_softmax}) {
    p.input = input;
    const CtcResult want = run_ctc<double>(ref, p, pool), got = run_ctc<double>(wide, p, pool);
    const CtcResult loss_only = run_ctc<double>(wide, p, pool, false);
    for (size_t n = 0; n < 3; ++n) {
      REQUIRE(std::abs(got.loss[n] - want.loss[n]) <= 1e-11 * (1 + std::abs(want.loss[n])));
      REQUIRE(loss_only.loss[n] == got.loss[n]);
    }
    for (size_t i = 0; i < want.grad.size(); ++i) {
      REQUIRE(std::abs(got.grad[i] - want.grad[i]) <= 1e-11);
    }
  }
}

const Variant* named(const std::vector<Variant>& variants, const std::string& name) {
  const auto it = std::find_if(variants.begin(), variants.end(),
                               [&](const Variant& v) { return v.name == name; });
  return it == variants.end() ? nullptr : &*it;
}

// Two of three sequences, or all, would take more than the limit and are walked in segments. They
// get the bits of a lattice that is kept, on one thread or on a thread for each direction; without
// blanks ahead, or with blanks so far ahead that values are clipped in most columns.
TEST_CASE("ctc: a sequence whose lattice is not kept has the bits of one that is") {
  CtcProblem p({300, 200, 30}, 9, {std::vector<int32_t>(60, 3), std::vector<int32_t>(40, 5), {2}});
  for (size_t i = 1; i + 1 < p.labels.size(); i += 2) p.labels[i] = 1 + static_cast<int32_t>(i % 7);
  const std::vector<Variant> variants = runnable_ctc_variants();
  for (const double ahead : {0.0, 6.0}) {
    p.randomise(4, 2);
    for (int32_t n = 0; n < 3; ++n) {
      for (int32_t t = 0; t < p.layout.lengths[static_cast<size_t>(n)]; ++t)
        p.logit(n, t, 0) += ahead;
    }
    for (const char* name : {"generic", "avx2", "avx512"}) {
      const Variant* variant = named(variants, name);
      if (!variant) continue;
      const Variant* wide = named(variants, std::string("wide_") + name);
      REQUIRE(wide != nullptr);
      ThreadPool alone(1);
      p.lattice_limit = ctc_lattice_limit;
      const CtcResult kept = run_ctc<float>(*variant, p, alone);
      const CtcResult apart = run_ctc<float>(*wide, p, alone);
      CHECK(kept.grad != apart.grad);  // or ctc_wide might have done it all
      for (const size_t limit : {size_t{256} << 10, size_t{0}}) {
        p.lattice_limit = limit;
        for (const int threads : {1, 2, 5}) {
          INFO(name << ", ahead by " << ahead << ", limit " << limit << ", threads " << threads);
          ThreadPool pool(threads);
          const CtcResult got = run_ctc<float>(*variant, p, pool);
          CHECK(got.loss == kept.loss);
          CHECK(std::equal(got.grad.begin(), got.grad.end(), kept.grad.begin(), kept.grad.end()));
        }
      }
    }
  }
}

TEST_CASE("ctc: an hour's lattice needs little more than its limit, or its checkpoints") {
  ThreadPool pool(1);
  const Context context{Backend::cpu, &cpu_device(), nullptr, &pool};
  PackedCapacity hour;
  hour.frames = 100000;
  hour.rows = 100000;
  hour.sequences = 1;
  const auto bytes = [&](size_t limit) {
    return ctc_workspace_bytes(context, hour, DType::f32, 12, 14000, true, limit);
  };
  CHECK(bytes(~size_t{0}) > size_t{20} << 30);
  CHECK(bytes(size_t{1} << 32) < (size_t{1} << 30) + (size_t{32} << 20));
  CHECK(bytes(ctc_lattice_limit) < size_t{320} << 20);  // columns of 2 x 317 frames
}

}  // namespace
}  // namespace rondo::test
