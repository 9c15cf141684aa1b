#include "kernels/ctc/ctc.h"

#include "kernels/ctc/ctc_gpu.h"
#include "kernels/ctc/ctc_impl.h"

namespace rondo {

void validate_ctc_labels(std::span<const int32_t> labels, int64_t classes, int32_t blank,
                         std::string_view utterance) {
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

size_t ctc_workspace_bytes(const Context& context, const PackedCapacity& capacity, DType dtype,
                           int64_t classes, int32_t max_label_length, bool with_grad,
                           size_t lattice_limit) {
  switch (context.backend) {
    case Backend::ref:
      return 0;
    case Backend::cpu:
      return ctc_cpu_workspace_bytes(context, capacity, dtype, classes, max_label_length,
                                     with_grad, lattice_limit);
    case Backend::sim:
    case Backend::cuda:
      return CtcGpuWorkspace(capacity, max_label_length, with_grad, lattice_limit).bytes;
  }
  return 0;
}

}  // namespace rondo
