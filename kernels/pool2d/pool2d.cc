#include "kernels/pool2d/pool2d.h"

#include "kernels/base/check_view.h"
#include "kernels/pool2d/pool2d_impl.h"

namespace rondo {
namespace {

void check_dims(const Pool2dDims& d, const PackedView& from, const PackedView& to) {
  RONDO_CHECK(
      d.channels >= 1 && d.rows >= 1 && d.columns >= 1 && d.columns <= 64 && d.height >= d.rows,
      "pool2d: windows of ", d.rows, " x ", d.columns, " on ", d.channels, " channels ", d.height,
      " high");
  RONDO_CHECK(from.capacity.sequences == to.capacity.sequences, "pool2d: layouts of ",
              from.capacity.sequences, " and ", to.capacity.sequences, " sequences");
}

void check_pair(const Pool2dDims& d, const PackedView& from, const PackedView& to,
                const TensorView& wide, const TensorView& narrow) {
  check_matrix("pool2d", "x", wide, wide.dtype, from.capacity.rows, d.height * d.channels);
  check_matrix("pool2d", "y", narrow, wide.dtype, to.capacity.rows, d.out_height() * d.channels);
}

}  // namespace

void check_pool2d(const Pool2dArgs& a) {
  check_dims(a.dims, a.from, a.to);
  check_pair(a.dims, a.from, a.to, a.x, a.y);
}

void check_pool2d(const Pool2dGradArgs& a) {
  check_dims(a.dims, a.from, a.to);
  check_pair(a.dims, a.from, a.to, a.dx, a.dy);
  if (a.pooling == Pooling2d::greatest) check_like("pool2d_grad", "x", a.x, a.dx);
}

std::span<const Variant> pool2d_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(Pool2dArgs, pool2d),
      RONDO_GPU_VARIANTS(Pool2dArgs, pool2d_gpu, "portable", Role::standard,
                         takes_narrow<&Pool2dArgs::x>)};
  return variants;
}

std::span<const Variant> pool2d_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(Pool2dGradArgs, pool2d_grad),
      RONDO_GPU_VARIANTS(Pool2dGradArgs, pool2d_grad_gpu, "portable", Role::standard,
                         takes_narrow<&Pool2dGradArgs::dx>)};
  return variants;
}

}  // namespace rondo
