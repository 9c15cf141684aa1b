// The fast variant of ctc: see ctc_gpu.h, ctc_lattice_gpu.h, ctc_tile_gpu.h.
#include "kernels/ctc/gpu/ctc_lattice_gpu.h"
#include "kernels/ctc/gpu/ctc_rows_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T>
void run_as(const Context& context, const CtcArgs& a) {
  const Problem<T> p(a);
  if (p.layout.capacity.sequences == 0) return;
  ctc_prepare(context, a);
  if (p.work.in_segments) {
    ctc_lattice_in_segments(context, a);
  } else if (p.grad && p.work.tiling.warps > 1) {
    ctc_lattice_apart(context, a);
  } else if (p.grad) {
    launch_lattice(context, stored_emissions(p));
  } else {
    launch_lattice(context, gathered_emissions(p));
  }
  if (p.grad) launch_gradient(context, p);
  ctc_rest_in_log_space(context, a);
}

}  // namespace

void ctc_fast(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? run_as<float>(context, a) : run_as<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
