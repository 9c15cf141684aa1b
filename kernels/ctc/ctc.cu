// The log-space variant of ctc: two launches, the rows' softmax statistics and one block per
// sequence.
#include "kernels/ctc/ctc_log_space.h"
#include "kernels/ctc/ctc_rows_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
void run_as(const Context& context, const CtcArgs& a) {
  const Problem<T> p(a);
  if (p.layout.capacity.sequences == 0) return;
  launch_prepare(context, p, false);
  launch_log_space(context, p, false);
}

}  // namespace

void ctc_log_space(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? run_as<float>(context, a) : run_as<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
