// The log-space variant of ctc, and what others have of it (ctc_gpu.h). It is two launches: the
// rows' softmax statistics, and one block per sequence.
#include "kernels/ctc/gpu/ctc_log_space.h"
#include "kernels/ctc/gpu/ctc_rows_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
void log_space_as(const Context& context, const CtcArgs& a) {
  const Problem<T> p(a, CtcGpuParts::log_space);
  if (p.layout.capacity.sequences == 0) return;
  launch_prepare(context, p, false);
  launch_log_space(context, p, false);
}

__global__ void label_lengths(const int32_t* offsets, int32_t count, int32_t* out) {
  const auto n = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (n < count) out[n] = offsets[n + 1] - offsets[n];
}

}  // namespace

void ctc_label_lengths(const Context& context, const int32_t* offsets, int32_t count,
                       int32_t* out) {
  launch(context, {.kernel = "ctc label_lengths", .grid = {blocks_for(count, 128)}, .block = {128}},
         label_lengths, offsets, count, out);
}

void ctc_prepare(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? launch_prepare(context, Problem<float>(a), true)
                               : launch_prepare(context, Problem<bf16>(a), true);
}

void ctc_prepare_log_space(const Context& context, const CtcArgs& a) {
  constexpr CtcGpuParts parts = CtcGpuParts::log_space;
  a.logits.dtype == DType::f32 ? launch_prepare(context, Problem<float>(a, parts), false)
                               : launch_prepare(context, Problem<bf16>(a, parts), false);
}

void ctc_rest_in_log_space(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? launch_log_space(context, Problem<float>(a), true)
                               : launch_log_space(context, Problem<bf16>(a), true);
}

void ctc_log_space(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? log_space_as<float>(context, a) : log_space_as<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
