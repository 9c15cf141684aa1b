// One LSTM layer in bf16 for the variants of the simulated GPU, one by one. All arrays are drawn
// anew from a seed; outputs are NaN until something is written.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/packed_host.h"
#include "kernels/lstm/lstm.h"
#include "kernels/ops.h"
#include "kernels/simt/sim_device.h"

namespace rondo::test {

struct LstmSimProblem {
  LstmDims dims;
  bool wants_dx = false;
  PackedHost packed;
  std::map<std::string, std::vector<bf16>> narrow;  // by the names of kernels/lstm/lstm.h
  std::map<std::string, std::vector<float>> wide;
  Stream stream = sim_device().make_stream();
  Context context{Backend::sim, &sim_device(), &stream, nullptr};

  LstmSimProblem(const LstmDims& dims_, const std::vector<int32_t>& lengths, uint32_t seed = 7)
      : dims(dims_), packed(build_packed(lengths)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    const auto draw = [&](auto& array, int64_t n) {
      array.resize(static_cast<size_t>(n));
      for (auto& v : array) v = std::remove_reference_t<decltype(v)>(uniform(random));
    };
    const int64_t D = dims.directions, H = dims.hidden, P = dims.output(), N = sequences();
    draw(narrow["x"], rows() * dims.input);
    draw(narrow["h0"], D * N * P);
    draw(wide["c0"], D * N * H);
    draw(narrow["dy"], rows() * D * P);
    draw(narrow["dhn"], D * N * P);
    for (int d = 0; d < D; ++d) {
      draw(narrow[str("w", d)], 4 * H * dims.input);
      draw(narrow[str("r", d)], 4 * H * P);
      if (dims.projection) draw(narrow[str("p", d)], P * H);
    }
    const auto nothing = []<class T>(std::vector<T>& array, int64_t n) {
      array.assign(static_cast<size_t>(n), T(NAN));
    };
    nothing(narrow["y"], rows() * D * P);
    nothing(narrow["hn"], D * N * P);
    nothing(narrow["gates"], D * rows() * 4 * H);
    nothing(wide["cells"], D * rows() * H);
    nothing(narrow["dgates"], D * rows() * 4 * H);
    nothing(narrow["dh0"], D * N * P);
    nothing(narrow["dx"], rows() * dims.input);
    if (!dims.projection) return;
    nothing(narrow["hidden"], D * rows() * H);
    nothing(narrow["dprojected"], D * rows() * P);
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
        lstm_workspace_bytes(context, phase, dims, DType::bf16, packed.view().capacity);
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
