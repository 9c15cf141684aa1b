#include "kernels/ctc/ctc.h"

#include "kernels/base/check_view.h"
#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {

void validate_ctc_labels(std::span<const int32_t> labels, int64_t classes, int32_t blank,
                         std::string_view utterance) {
  if (labels.size() > static_cast<size_t>(ctc_most_labels)) {
    fail_input(utterance, ": ", labels.size(), " labels, expected at most ", ctc_most_labels);
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= classes) {
      fail_input(utterance, ": label ", i + 1, " is ", labels[i], ", expected 0 to ", classes - 1);
    }
    if (labels[i] == blank) {
      fail_input(utterance, ": label ", i + 1, " is ", blank, ", which is the blank");
    }
  }
}

int64_t ctc_min_frames(std::span<const int32_t> labels) {
  auto frames = static_cast<int64_t>(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) frames += labels[i] == labels[i - 1];
  return frames;
}

void check_ctc(const CtcArgs& a) {
  const int64_t rows = a.layout.capacity.rows, sequences = a.layout.capacity.sequences;
  RONDO_CHECK(is_floating(a.logits.dtype) && a.logits.rank == 2, "ctc: logits are ",
              name_of(a.logits.dtype), " of rank ", a.logits.rank);
  const int64_t classes = a.logits.dim(1);
  check_matrix("ctc", "logits", a.logits, a.logits.dtype, rows, classes);
  if (a.grad) check_like("ctc", "grad", a.grad, a.logits);
  check_elements("ctc", "loss", a.loss, sequences);
  if (a.grad_scale) check_elements("ctc", "grad_scale", a.grad_scale, sequences);
  RONDO_CHECK(a.blank >= 0 && a.blank < classes, "ctc: blank ", a.blank, " of ", classes,
              " classes");
  RONDO_CHECK(a.max_label_length >= 0 && a.max_label_length <= ctc_most_labels,
              "ctc: labels of at most ", a.max_label_length);
  RONDO_CHECK(sequences == 0 || a.label_offsets != nullptr, "ctc: label_offsets are absent");
  // What is carved out of it is as aligned as it is itself.
  RONDO_CHECK(reinterpret_cast<uintptr_t>(a.workspace.data) % 64 == 0,
              "ctc: the workspace is not aligned to 64 bytes");
}

size_t ctc_workspace_bytes(const Context& context, const PackedCapacity& capacity, DType dtype,
                           int64_t classes, int32_t max_label_length, bool with_grad,
                           size_t lattice_limit) {
  switch (context.backend) {
    case Backend::ref:
      return 0;
    case Backend::cpu:
      return ctc_cpu_workspace_bytes(context, capacity, dtype, classes, max_label_length, with_grad,
                                     lattice_limit);
    case Backend::sim:
    case Backend::cuda:
      return CtcGpuWorkspace(capacity, max_label_length, with_grad, lattice_limit).bytes;
  }
  return 0;
}

}  // namespace rondo
