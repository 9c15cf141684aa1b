// One LSTM layer with everything it reads and writes, in host memory, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/lstm/lstm.h"

namespace rondo::test {

// T: the compute type. Arrays are kept by the names of kernels/lstm/lstm.h; weights and their
// gradients as "w0", "dw0", "r1", ... Those of bf16 are kept as the floats that they are, and are
// bf16 while an op runs.
template <class T>
struct LstmProblem {
  using Value = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  LstmDims dims;
  PackedHost packed;
  std::map<std::string, std::vector<Value>> arrays;
  bool states = true;

  LstmProblem(const LstmDims& dims_, const std::vector<int32_t>& lengths)
      : dims(dims_), packed(build_packed(lengths)) {}

  int64_t rows() const { return packed.extent.rows; }
  int64_t sequences() const { return packed.extent.sequences; }

  std::map<std::string, std::vector<int64_t>> input_shapes() const {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    std::map<std::string, std::vector<int64_t>> shapes = {
        {"x", {rows(), dims.input}}, {"h0", {D, N, P}},  {"c0", {D, N, H}},
        {"dy", {rows(), D * P}},     {"dhn", {D, N, P}}, {"dcn", {D, N, H}}};
    for (int d = 0; d < D; ++d) {
      shapes[str("w", d)] = {4 * H, dims.input};
      shapes[str("r", d)] = {4 * H, P};
      shapes[str("b", d)] = {4 * H};
      if (dims.projection) shapes[str("p", d)] = {P, H};
    }
    return shapes;
  }

  void randomise(uint32_t seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (const auto& [name, shape] : input_shapes()) {
      int64_t n = 1;
      for (int64_t dim : shape) n *= dim;
      auto& values = arrays[name];
      values.resize(static_cast<size_t>(n));
      for (Value& v : values) v = static_cast<Value>(uniform(generator));
    }
  }

  // The named array as a view; made when missing, NaN in every element.
  TensorView view(const std::string& name, std::initializer_list<int64_t> shape) {
    return view_of<T>(name, shape);
  }
  // Of biases, cells and their gradients, and of all gradients of weights.
  TensorView state_view(const std::string& name, std::initializer_list<int64_t> shape) {
    return view_of<Value>(name, shape);
  }

  LstmWeights weights(int d) {
    const int64_t H = dims.hidden, P = dims.output();
    LstmWeights w;
    w.w = view(str("w", d), {4 * H, dims.input});
    w.r = view(str("r", d), {4 * H, P});
    w.b = state_view(str("b", d), {4 * H});
    if (dims.projection) w.p = view(str("p", d), {P, H});
    return w;
  }

  LstmWeights weight_grads(int d) {
    const int64_t H = dims.hidden, P = dims.output();
    LstmWeights w;
    w.w = state_view(str("dw", d), {4 * H, dims.input});
    w.r = state_view(str("dr", d), {4 * H, P});
    w.b = state_view(str("db", d), {4 * H});
    if (dims.projection) w.p = state_view(str("dp", d), {P, H});
    return w;
  }

  void forward(const Context& context, LstmRun which = LstmRun::both) {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    LstmForwardArgs a;
    a.dims = dims;
    a.layout = packed.view();
    a.x = view("x", {rows(), dims.input});
    for (int d = 0; d < D; ++d) a.weights[d] = weights(d);
    if (states) {
      a.h0 = view("h0", {D, N, P});
      a.c0 = state_view("c0", {D, N, H});
      a.hn = view("hn", {D, N, P});
      a.cn = state_view("cn", {D, N, H});
    }
    a.y = view("y", {rows(), D * P});
    a.gates = view("gates", {D, rows(), 4 * H});
    a.cells = state_view("cells", {D, rows(), H});
    if (dims.projection) a.hidden = view("hidden", {D, rows(), H});
    a.workspace = scratch(context, LstmPhase::forward);
    a.run = which;
    run_on(context, a);
  }

  void backward(const Context& context, LstmRun which = LstmRun::both, bool with_dx = true) {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    LstmBackwardArgs a;
    a.dims = dims;
    a.layout = packed.view();
    for (int d = 0; d < D; ++d) a.weights[d] = weights(d);
    if (states) {
      a.c0 = state_view("c0", {D, N, H});
      a.dhn = view("dhn", {D, N, P});
      a.dcn = state_view("dcn", {D, N, H});
      a.dh0 = view("dh0", {D, N, P});
      a.dc0 = state_view("dc0", {D, N, H});
    }
    a.gates = view("gates", {D, rows(), 4 * H});
    a.cells = state_view("cells", {D, rows(), H});
    a.dy = view("dy", {rows(), D * P});
    a.dgates = view("dgates", {D, rows(), 4 * H});
    if (dims.projection) a.dprojected = view("dprojected", {D, rows(), P});
    if (with_dx) a.dx = view("dx", {rows(), dims.input});
    a.run = which;
    a.workspace = scratch(context, LstmPhase::backward);
    run_on(context, a);
  }

  void weight_grad(const Context& context, bool accumulate = false) {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    LstmWeightGradArgs a;
    a.dims = dims;
    a.layout = packed.view();
    a.accumulate = accumulate;
    a.x = view("x", {rows(), dims.input});
    if (states) a.h0 = view("h0", {D, N, P});
    a.y = view("y", {rows(), D * P});
    a.dgates = view("dgates", {D, rows(), 4 * H});
    if (dims.projection) {
      a.hidden = view("hidden", {D, rows(), H});
      a.dprojected = view("dprojected", {D, rows(), P});
    }
    for (int d = 0; d < D; ++d) a.grads[d] = weight_grads(d);
    a.workspace = scratch(context, LstmPhase::weight_grad);
    run_on(context, a);
  }

  void all(const Context& context) {
    forward(context);
    backward(context);
    weight_grad(context);
  }

 private:
  template <class Element>
  TensorView view_of(const std::string& name, std::initializer_list<int64_t> shape) {
    const TensorView v(nullptr, DTypeOf<Element>::value, shape);
    auto& values = arrays[name];
    if (values.empty()) values.assign(static_cast<size_t>(v.numel()), static_cast<Value>(NAN));
    if (static_cast<int64_t>(values.size()) != v.numel()) throw Error(name + " has a wrong size");
    if constexpr (std::is_same_v<Element, Value>) {
      return {values.data(), DTypeOf<Element>::value, shape};
    } else {
      auto& rounded = rounded_[name];
      rounded.clear();
      for (const Value x : values) rounded.push_back(Element(x));
      return {rounded.data(), DTypeOf<Element>::value, shape};
    }
  }

  template <class Args>
  void run_on(const Context& context, const Args& args) {
    run(context, args);
    for (const auto& [name, values] : rounded_) {
      std::transform(values.begin(), values.end(), arrays[name].begin(),
                     [](T x) { return static_cast<Value>(x); });
    }
    rounded_.clear();
  }

  TensorView scratch(const Context& context, LstmPhase phase) {
    const size_t bytes =
        lstm_workspace_bytes(context, phase, dims, DTypeOf<T>::value, packed.view().capacity);
    workspace_ = Buffer(cpu_device(), bytes, "lstm test");
    return {workspace_.data(), DType::u8, {static_cast<int64_t>(bytes)}};
  }

  std::map<std::string, std::vector<T>> rounded_;  // of bf16, for the op that is about to run
  Buffer workspace_;
};

// Contexts of the host backends, with `threads` threads.
struct HostContext {
  explicit HostContext(Backend backend, int threads = 2)
      : stream(cpu_device().make_stream()),
        pool(threads),
        context{backend, &cpu_device(), &stream, &pool} {}
  Stream stream;
  ThreadPool pool;
  Context context;
};

// The largest |a - b| over a scale of 1 + |b|; NaN in either counts as infinite.
template <class A, class B>
double worst_difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double want = static_cast<double>(b[i]);
    const double difference = std::abs(static_cast<double>(a[i]) - want) / (1 + std::abs(want));
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

}  // namespace rondo::test
