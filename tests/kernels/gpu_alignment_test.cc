// GPU kernels read 16 bytes at once where memory allows it. Here it does not: views begin at any
// element. (The simulator refuses a wide access at an odd address, as a GPU does.)
#include <cmath>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/cast/cast.h"
#include "kernels/dropout/dropout.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/pack/pack.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/reduce/reduce.h"
#include "kernels/simt/sim/sim_device.h"
#include "kernels/softmax/softmax.h"
#include "kernels/subsample/subsample.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr int64_t rows = 6, cols = 32;

// 64-byte aligned storage of a matrix that begins `offset` elements later.
template <class T>
class Shifted {
 public:
  explicit Shifted(int offset, int64_t n = rows * cols, double seed = 0)
      : offset_(offset), n_(n), storage_(static_cast<size_t>(n) + 128) {
    const auto address = reinterpret_cast<uintptr_t>(storage_.data());
    base_ = storage_.data() + (64 - address % 64) % 64 / sizeof(T) + offset;
    for (int64_t i = 0; i < n; ++i) base_[i] = T(static_cast<float>(std::sin(seed + 0.7 * i)));
  }
  T* data() const { return base_; }
  TensorView view() const { return {base_, DTypeOf<T>::value, {n_ / cols, cols}}; }
  TensorView flat() const { return {base_, DTypeOf<T>::value, {n_}}; }
  std::vector<float> values() const {
    std::vector<float> v;
    for (int64_t i = 0; i < n_; ++i) v.push_back(static_cast<float>(base_[i]));
    return v;
  }

 private:
  int offset_;
  int64_t n_;
  std::vector<T> storage_;
  T* base_;
};

template <class Args>
void run_simulated(const Args& args) {
  Stream stream = sim_device().make_stream();
  ThreadPool pool(1);
  const Context context = {Backend::sim, &sim_device(), &stream, &pool};
  run(context, args);
  stream.synchronize();
}

// result(offset) for views that begin `offset` elements late must be result(0), but for rounding.
template <class F>
void same_at_any_offset(F result) {
  const std::vector<float> want = result(0);
  for (int offset = 1; offset < 8; ++offset) {
    const std::vector<float> got = result(offset);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("offset " << offset << ", element " << i << ": " << got[i] << " for " << want[i]);
      REQUIRE(std::abs(got[i] - want[i]) <= 1e-6f * (1 + std::abs(want[i])));
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("wide accesses: elements at any address", "", float, bf16) {
  using T = TestType;
  SECTION("pointwise") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(offset), y(offset);
      PointwiseArgs a;
      a.function = PointwiseFunction::sigmoid;
      a.x = x.view();
      a.y = y.view();
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("bias") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(0), y(0);
      const Shifted<float> z(offset, cols, 1);
      PointwiseArgs a;
      a.function = PointwiseFunction::bias;
      a.x = x.view();
      a.z = z.flat();
      a.y = y.view();
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("casts") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(0);
      const Shifted<float> y(offset);
      run_simulated(CastArgs{x.view(), y.view()});
      return y.values();
    });
  }
}

TEMPLATE_TEST_CASE("wide accesses: rows at any address", "", float, bf16) {
  using T = TestType;
  SECTION("log-softmax") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(offset), y(0);
      LogSoftmaxArgs a;
      a.x = x.view();
      a.y = y.view();
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("layer normalisation") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(0), y(0);
      const Shifted<float> gamma(offset, cols, 1), beta(0, cols, 2);
      LayerNormArgs a;
      a.x = x.view();
      a.gamma = gamma.flat();
      a.beta = beta.flat();
      a.y = y.view();
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("sums of squares") {
    same_at_any_offset([](int offset) {
      const Shifted<T> x(offset);
      std::vector<double> scratch(reduce_workspace_bytes / sizeof(double));
      double sum = 0;
      SumSquaresArgs a;
      a.x = x.flat();
      a.out = TensorView(&sum, DType::f64, {1});
      a.workspace =
          TensorView(scratch.data(), DType::u8, {static_cast<int64_t>(reduce_workspace_bytes)});
      run_simulated(a);
      return std::vector<float>{static_cast<float>(sum)};
    });
  }
}

TEMPLATE_TEST_CASE("wide accesses: packed rows at any address", "", float, bf16) {
  using T = TestType;
  const std::vector<int32_t> lengths = {3, 2, 1};
  const PackedHost packed = build_packed(lengths);
  SECTION("packing") {
    same_at_any_offset([&](int offset) {
      const Shifted<T> padded(offset, 9 * cols), y(0);
      PackArgs a;
      a.layout = packed.view();
      a.padded = TensorView(padded.data(), DTypeOf<T>::value, {3, 3, cols});
      a.packed = y.view();
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("dropout") {
    same_at_any_offset([&](int offset) {
      const Shifted<T> x(0), y(offset);
      const uint64_t seed = 5;
      DropoutArgs a;
      a.layout = packed.view();
      a.x = x.view();
      a.y = y.view();
      a.p = 0.4;
      a.step_seed = &seed;
      run_simulated(a);
      return y.values();
    });
  }
  SECTION("stacking") {
    same_at_any_offset([&](int offset) {
      const PackedHost shorter = build_packed(std::vector<int32_t>{2, 1, 1});
      const Shifted<T> x(0), y(offset, 4 * 2 * cols);
      StackFramesArgs a;
      a.stack = a.stride = 2;
      a.from = packed.view();
      a.to = shorter.view();
      a.x = x.view();
      a.y = TensorView(y.data(), DTypeOf<T>::value, {4, 2 * cols});
      run_simulated(a);
      return y.values();
    });
  }
}

TEST_CASE("wide accesses: optimiser arrays at any address") {
  same_at_any_offset([](int offset) {
    OptimizerBlock block;
    block.learning_rate = 0.1;
    block.grad_scale = block.bias_correction1 = block.bias_correction2 = 1;
    const Shifted<float> w(0), g(offset, rows * cols, 1), m(0, rows * cols, 2), v(0);
    for (int64_t i = 0; i < rows * cols; ++i) v.data()[i] = 0.5f;
    const Shifted<bf16> narrow(0);
    AdamArgs a;
    a.block = &block;
    a.weights = w.flat();
    a.gradients = g.flat();
    a.moment1 = m.flat();
    a.moment2 = v.flat();
    a.weights_bf16 = narrow.flat();
    run_simulated(a);
    return w.values();
  });
}
