// A CTC batch in host memory, and running one variant on it.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/base/packed_host.h"
#include "kernels/ctc/ctc.h"

namespace rondo::test {

struct CtcProblem {
  PackedHost layout;
  int64_t classes = 0;
  int32_t blank = 0;
  CtcInput input = CtcInput::logits;
  bool zero_infinity = false;
  size_t lattice_limit = ctc_lattice_limit;
  std::vector<double> logits;  // [rows, classes]
  std::vector<int32_t> labels, offsets = {0};

  // `lengths` longest first, one label list for each.
  CtcProblem(std::vector<int32_t> lengths, int64_t classes_,
             const std::vector<std::vector<int32_t>>& label_lists)
      : layout(build_packed(lengths)), classes(classes_) {
    logits.assign(static_cast<size_t>(layout.extent.rows * classes), 0.0);
    for (const auto& list : label_lists) {
      labels.insert(labels.end(), list.begin(), list.end());
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
  }

  double& logit(int32_t n, int32_t t, int64_t v) {
    return logits[static_cast<size_t>(layout.row(t, n) * classes + v)];
  }
  size_t at(int32_t n, int32_t t, int64_t v) const {
    return static_cast<size_t>(layout.row(t, n) * classes + v);
  }
  void randomise(uint64_t seed, double range) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-range, range);
    for (double& x : logits) x = uniform(random);
  }
};

struct CtcResult {
  std::vector<double> loss, grad;
};

// All but logits, results and workspace; borrows the problem's memory.
inline CtcArgs ctc_args_of(const CtcProblem& p) {
  CtcArgs args;
  args.layout = p.layout.view();
  for (size_t n = 1; n < p.offsets.size(); ++n) {
    args.max_label_length = std::max(args.max_label_length, p.offsets[n] - p.offsets[n - 1]);
  }
  args.labels = p.labels.data();
  args.label_offsets = p.offsets.data();
  args.blank = p.blank;
  args.input = p.input;
  args.zero_infinity = p.zero_infinity;
  args.lattice_limit = p.lattice_limit;
  return args;
}

// `stream`: of the simulated device, for its variants.
template <class T>
CtcResult run_ctc(const Variant& variant, const CtcProblem& p, ThreadPool& pool,
                  bool with_grad = true, Stream* stream = nullptr) {
  const Context context{variant.backend, &cpu_device(), stream, &pool};
  using Loss = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<T> logits, grad(p.logits.size());
  for (double x : p.logits) logits.push_back(static_cast<T>(x));
  std::vector<Loss> loss(p.layout.lengths.size());
  CtcArgs args = ctc_args_of(p);
  const int64_t rows = p.layout.extent.rows, sequences = p.layout.extent.sequences;
  args.logits = TensorView(logits.data(), DTypeOf<T>::value, {rows, p.classes});
  args.loss = TensorView(loss.data(), DTypeOf<Loss>::value, {sequences});
  if (with_grad) args.grad = TensorView(grad.data(), DTypeOf<T>::value, {rows, p.classes});
  Buffer workspace(cpu_device(),
                   ctc_workspace_bytes(context, args.layout.capacity, DTypeOf<T>::value, p.classes,
                                       args.max_label_length, with_grad, p.lattice_limit) +
                       64,
                   "ctc test");
  args.workspace =
      TensorView(workspace.data(), DType::u8, {static_cast<int64_t>(workspace.bytes())});
  variant.run(context, &args);
  if (stream) stream->synchronize();
  CtcResult r;
  for (Loss x : loss) r.loss.push_back(static_cast<double>(x));
  for (T x : grad) r.grad.push_back(static_cast<double>(x));
  return r;
}

// ref and what this machine's CPU can run.
inline std::vector<Variant> runnable_ctc_variants() {
  std::vector<Variant> result;
  for (const Variant& v : ctc_variants()) {
    if (v.backend != Backend::ref && v.backend != Backend::cpu) continue;
    if (!v.accepts || v.accepts({}, nullptr)) result.push_back(v);
  }
  return result;
}

}  // namespace rondo::test
