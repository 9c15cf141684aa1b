// CTC batches for the fast variant on the simulated device, and what became of their sequences.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/base/cpu/parallel.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/devices.h"
#include "tests/catch.h"
#include "tests/ctc/ctc_problem.h"

namespace rondo::test {

struct CtcGpuResult {
  CtcResult result;
  size_t lattice_bytes = 0;
  std::vector<CtcState> states;

  int left_to_log_space() const {
    int count = 0;
    for (CtcState state : states) count += state == CtcState::log_space;
    return count;
  }
};

inline CtcGpuResult run_fast(const CtcProblem& p, bool with_grad = true,
                             size_t lattice_limit = ctc_lattice_limit,
                             std::string_view variant = "fast") {
  std::string why;
  Device* device = find_device(DeviceKind::sim, &why);
  REQUIRE(device != nullptr);
  Stream stream = device->make_stream();
  const Context context{Backend::sim, device, &stream, nullptr};
  std::vector<float> logits(p.logits.begin(), p.logits.end()), grad(p.logits.size());
  std::vector<float> loss(p.layout.lengths.size());
  CtcArgs args = ctc_args_of(p);
  args.lattice_limit = lattice_limit;
  const int64_t rows = p.layout.extent.rows, sequences = p.layout.extent.sequences;
  args.logits = TensorView(logits.data(), DType::f32, {rows, p.classes});
  args.loss = TensorView(loss.data(), DType::f32, {sequences});
  if (with_grad) args.grad = TensorView(grad.data(), DType::f32, {rows, p.classes});
  Buffer workspace(*device,
                   ctc_workspace_bytes(context, args.layout.capacity, DType::f32, p.classes,
                                       args.max_label_length, with_grad, lattice_limit),
                   "ctc test");
  // Nothing may be read that was not written; an earlier call may have left the right values.
  std::memset(workspace.data(), 0xff, workspace.bytes());
  args.workspace =
      TensorView(workspace.data(), DType::u8, {static_cast<int64_t>(workspace.bytes())});
  int ran = 0;
  for (const Variant& v : ctc_variants()) {
    if (v.backend != Backend::sim || v.name != variant) continue;
    REQUIRE((!v.accepts || v.accepts(context, &args)));
    v.run(context, &args);
    ++ran;
  }
  REQUIRE(ran == 1);
  stream.synchronize();
  CtcGpuResult r;
  r.result.loss.assign(loss.begin(), loss.end());
  r.result.grad.assign(grad.begin(), grad.end());
  CtcGpuWorkspace work(args.layout.capacity, args.max_label_length, with_grad, lattice_limit);
  work.place(workspace.as<std::byte>());
  r.states.assign(work.state, work.state + sequences);
  r.lattice_bytes = work.lattice_bytes;
  return r;
}

inline std::vector<int32_t> random_labels(std::mt19937_64& random, int32_t count, int64_t classes) {
  std::vector<int32_t> labels;
  for (int32_t i = 0; i < count; ++i) {
    labels.push_back(1 + static_cast<int32_t>(random() % static_cast<uint64_t>(classes - 1)));
  }
  return labels;
}

inline void compare(const CtcProblem& p, const CtcGpuResult& got, double loss_tolerance,
                    double grad_tolerance, const Variant& truth = runnable_ctc_variants().front()) {
  ThreadPool pool(1);
  const CtcResult want = run_ctc<double>(truth, p, pool);
  for (size_t n = 0; n < want.loss.size(); ++n) {
    INFO("sequence " << n << ": got " << got.result.loss[n] << ", want " << want.loss[n]);
    REQUIRE(std::abs(got.result.loss[n] - want.loss[n]) <= loss_tolerance * (1 + want.loss[n]));
  }
  for (size_t i = 0; i < got.result.grad.size(); ++i) {
    INFO("element " << i << ": got " << got.result.grad[i] << ", want " << want.grad[i]);
    REQUIRE(std::abs(got.result.grad[i] - want.grad[i]) <= grad_tolerance);
  }
}

struct CtcShape {
  int32_t frames, classes, labels;
};

}  // namespace rondo::test
