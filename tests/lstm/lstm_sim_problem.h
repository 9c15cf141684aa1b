// One LSTM layer in bf16, or f32, for the variants of the simulated GPU, one by one. All arrays are
// drawn anew from a seed; outputs are NaN until something is written.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/dispatch.h"
#include "kernels/base/packed_host.h"
#include "kernels/lstm/lstm.h"
#include "kernels/simt/sim/sim_device.h"

namespace rondo::test {

struct LstmSimProblem {
  LstmDims dims;
  DType compute;
  bool wants_dx = false;
  PackedHost packed;
  // By the names of kernels/lstm/lstm.h; what is of the compute dtype is in narrow, or for f32 in
  // wide.
  std::map<std::string, std::vector<bf16>> narrow;
  std::map<std::string, std::vector<float>> wide;
  Stream stream = sim_device().make_stream();
  Context context{Backend::sim, &sim_device(), &stream, nullptr};

  LstmSimProblem(const LstmDims& dims_, const std::vector<int32_t>& lengths, uint32_t seed = 7,
                 DType compute_ = DType::bf16)
      : dims(dims_), compute(compute_), packed(build_packed(lengths)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    const auto draw = [&](auto& array, int64_t n) {
      array.resize(static_cast<size_t>(n));
      for (auto& v : array) v = std::remove_reference_t<decltype(v)>(uniform(random));
    };
    const auto draw_typed = [&](const std::string& name, int64_t n) {
      compute == DType::f32 ? draw(wide[name], n) : draw(narrow[name], n);
    };
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    draw_typed("x", rows() * dims.input);
    draw_typed("h0", D * N * P);
    draw(wide["c0"], D * N * H);
    draw_typed("dy", rows() * D * P);
    draw_typed("dhn", D * N * P);
    for (int d = 0; d < D; ++d) {
      draw_typed(str("w", d), 4 * H * dims.input);
      draw_typed(str("r", d), 4 * H * P);
      if (dims.projection) draw_typed(str("p", d), P * H);
    }
    const auto nothing = []<class T>(std::vector<T>& array, int64_t n) {
      array.assign(static_cast<size_t>(n), T(NAN));
    };
    const auto nothing_typed = [&](const std::string& name, int64_t n) {
      compute == DType::f32 ? nothing(wide[name], n) : nothing(narrow[name], n);
    };
    nothing_typed("y", rows() * D * P);
    nothing_typed("hn", D * N * P);
    nothing_typed("gates", D * rows() * 4 * H);
    nothing(wide["cells"], D * rows() * H);
    nothing_typed("dgates", D * rows() * 4 * H);
    nothing_typed("dh0", D * N * P);
    nothing_typed("dx", rows() * dims.input);
    if (!dims.projection) return;
    nothing_typed("hidden", D * rows() * H);
    nothing_typed("dprojected", D * rows() * P);
  }

  int64_t rows() const { return packed.extent.rows; }
  int64_t sequences() const { return packed.extent.sequences; }

  // Runs both passes by the variant of that name.
  void forward(const std::string& variant, LstmRun run = LstmRun::both) {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    LstmForwardArgs a;
    a.dims = dims;
    a.layout = packed.view();
    a.x = view("x", {rows(), dims.input});
    set_weights(a.weights);
    a.h0 = view("h0", {D, N, P});
    a.c0 = view("c0", {D, N, H});
    a.y = view("y", {rows(), D * P});
    a.hn = view("hn", {D, N, P});
    a.gates = view("gates", {D, rows(), 4 * H});
    a.cells = view("cells", {D, rows(), H});
    if (dims.projection) a.hidden = view("hidden", {D, rows(), H});
    a.run = run;
    finish(a, LstmPhase::forward, lstm_forward_variants(), variant);
  }
  void backward(const std::string& variant, LstmRun run = LstmRun::both) {
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    LstmBackwardArgs a;
    a.dims = dims;
    a.layout = packed.view();
    set_weights(a.weights);
    a.c0 = view("c0", {D, N, H});
    a.gates = view("gates", {D, rows(), 4 * H});
    a.cells = view("cells", {D, rows(), H});
    a.dy = view("dy", {rows(), D * P});
    a.dhn = view("dhn", {D, N, P});
    a.dgates = view("dgates", {D, rows(), 4 * H});
    a.dh0 = view("dh0", {D, N, P});
    if (dims.projection) a.dprojected = view("dprojected", {D, rows(), P});
    if (wants_dx) a.dx = view("dx", {rows(), dims.input});
    a.run = run;
    finish(a, LstmPhase::backward, lstm_backward_variants(), variant);
  }

 private:
  // In memory of the simulated device, where the instrumented simulator counts.
  TensorView view(const std::string& name, std::initializer_list<int64_t> shape) {
    const auto put = [&](auto& values, DType dtype) {
      const size_t bytes = values.size() * sizeof values[0];
      Buffer& b = device_[name] = Buffer(sim_device(), bytes, name.c_str());
      std::memcpy(b.data(), values.data(), bytes);
      return TensorView(b.data(), dtype, shape);
    };
    if (auto it = wide.find(name); it != wide.end()) return put(it->second, DType::f32);
    return put(narrow.at(name), DType::bf16);
  }
  void take_back() {
    for (auto& [name, b] : device_) {
      void* to = wide.count(name) ? static_cast<void*>(wide[name].data()) : narrow[name].data();
      std::memcpy(to, b.data(), b.bytes());
    }
    device_.clear();
  }
  void set_weights(LstmWeights (&weights)[2]) {
    for (int d = 0; d < dims.directions; ++d) {
      weights[d].w = view(str("w", d), {4 * dims.hidden, dims.input});
      weights[d].r = view(str("r", d), {4 * dims.hidden, dims.output()});
      if (dims.projection) weights[d].p = view(str("p", d), {dims.projection, dims.hidden});
    }
  }
  template <class Args>
  void finish(Args& a, LstmPhase phase, std::span<const Variant> variants,
              const std::string& name) {
    const size_t bytes =
        lstm_workspace_bytes(context, phase, dims, compute, packed.view().capacity);
    const Buffer workspace(sim_device(), bytes, "lstm sim problem");
    a.workspace = {workspace.data(), DType::u8, {static_cast<int64_t>(bytes)}};
    for (const Variant& v : variants) {
      if (v.backend != Backend::sim || name != v.name) continue;
      RONDO_CHECK(v.accepts(context, &a), name, " does not take this problem");
      v.run(context, &a);
      stream.synchronize();
      take_back();
      return;
    }
    throw Error("no variant " + name);
  }

  std::map<std::string, Buffer> device_;
};

}  // namespace rondo::test
