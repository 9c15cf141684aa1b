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

void check_ctc_labels(const Context& context, const PackedView& layout, const int32_t* labels,
                      const int32_t* label_offsets, int32_t most, int64_t classes, int32_t blank) {
  if (context.backend == Backend::sim || context.backend == Backend::cuda) return;
  RONDO_CHECK(layout.extent != nullptr, "ctc: the batch's extent is absent");
  const int32_t sequences = layout.extent->sequences;
  RONDO_CHECK(sequences >= 0 && sequences <= layout.capacity.sequences, "ctc: ", sequences,
              " sequences in a batch for ", layout.capacity.sequences);
  for (int32_t n = 0; n < sequences; ++n) {
    const int64_t count = int64_t{label_offsets[n + 1]} - label_offsets[n];
    RONDO_CHECK(count >= 0 && count <= most && label_offsets[n] >= 0, "ctc: sequence ", n, " has ",
                count, " labels from ", label_offsets[n], " on, expected at most ", most);
    RONDO_CHECK(count == 0 || labels != nullptr, "ctc: labels are absent");
    for (int64_t i = 0; i < count; ++i) {
      const int32_t label = labels[label_offsets[n] + i];
      RONDO_CHECK(label >= 0 && label < classes && label != blank, "ctc: label ", i,
                  " of sequence ", n, " is ", label, ", expected one of ", classes,
                  " classes but the blank, ", blank);
    }
  }
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
