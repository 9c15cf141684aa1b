// The fast variant of ctc, and the one without stages: see ctc_gpu.h, ctc_lattice_gpu.h,
// ctc_tile_gpu.h.
#include "kernels/ctc/gpu/ctc_lattice_gpu.h"
#include "kernels/ctc/gpu/ctc_rows_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// `apart`: the lattice where several warps walk.
template <class T>
void run_as(const Context& context, const CtcArgs& a,
            void (*apart)(const Context&, const CtcArgs&)) {
  const Problem<T> p(a);
  if (p.layout.capacity.sequences == 0) return;
  ctc_prepare(context, a);
  if (p.work.in_segments) {
    ctc_lattice_in_segments(context, a);
  } else if (p.grad && p.work.tiling.warps > 1) {
    apart(context, a);
  } else if (p.grad) {
    launch_lattice(context, stored_emissions(p));
  } else {
    launch_lattice(context, gathered_emissions(p));
  }
  if (p.grad) launch_gradient(context, p);
  ctc_rest_in_log_space(context, a);
}

void run(const Context& context, const CtcArgs& a, void (*apart)(const Context&, const CtcArgs&)) {
  a.logits.dtype == DType::f32 ? run_as<float>(context, a, apart) : run_as<bf16>(context, a, apart);
}

}  // namespace

void ctc_fast(const Context& context, const CtcArgs& a) { run(context, a, ctc_lattice_apart); }

void ctc_without_stages(const Context& context, const CtcArgs& a) {
  run(context, a, ctc_lattice_without_stages);
}

}  // namespace rondo::RONDO_GPU
