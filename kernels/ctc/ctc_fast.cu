// The fast variant of ctc: see ctc_gpu.h, ctc_lattice_gpu.h, ctc_tile_gpu.h.
#include "kernels/ctc/ctc_lattice_gpu.h"
#include "kernels/ctc/ctc_log_space.h"
#include "kernels/ctc/ctc_rows_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

template <class T, class Emissions>
LatticeArgs<Emissions> lattice_args(const Problem<T>& p, const Emissions& emissions) {
  return {p.layout,  p.labels, p.label_offsets, p.loss, p.zero_infinity ? 0.0f : INFINITY,
          emissions, p.work};
}

template <class T>
void run_as(const Context& context, const CtcArgs& a) {
  const Problem<T> p(a);
  if (p.layout.capacity.sequences == 0) return;
  launch_prepare(context, p, true);
  if (p.grad) {
    launch_lattice(
        context, lattice_args(p, StoredEmissions{
                                     p.work.label_emission,
                                     static_cast<uint32_t>(p.work.emission_stride * sizeof(float)),
                                     p.work.emission}));
    launch_gradient(context, p);
  } else {
    launch_lattice(
        context,
        lattice_args(p, GatheredEmissions<T>{p.logits, static_cast<uint32_t>(p.classes * sizeof(T)),
                                             p.work.emission}));
  }
  launch_log_space(context, p, true);
}

}  // namespace

void ctc_fast(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? run_as<float>(context, a) : run_as<bf16>(context, a);
}

}  // namespace rondo::RONDO_GPU
