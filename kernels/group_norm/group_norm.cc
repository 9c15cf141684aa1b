#include "kernels/group_norm/group_norm.h"

#include "kernels/base/check_view.h"
#include "kernels/group_norm/group_norm_impl.h"

namespace rondo {
namespace {

void check_dims(const GroupNormDims& d) {
  RONDO_CHECK(d.channels >= 1 && d.height >= 1 && d.groups >= 1 && d.channels % d.groups == 0,
              "group_norm: ", d.groups, " groups of ", d.channels, " channels, ", d.height,
              " high");
}

DType weight_dtype(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

// Absent is right as well.
void check_channels(const char* op, const char* name, const TensorView& v, const GroupNormDims& d,
                    DType t) {
  if (!v) return;
  check_elements(op, name, v, d.channels);
  RONDO_CHECK(v.dtype == weight_dtype(t), op, ": ", name, " is ", name_of(v.dtype));
}

void check_statistics(const char* op, const char* name, const TensorView& v, const GroupNormDims& d,
                      const PackedView& layout, DType t) {
  check_elements(op, name, v, int64_t{layout.capacity.sequences} * d.groups);
  RONDO_CHECK(v.dtype == weight_dtype(t), op, ": ", name, " is ", name_of(v.dtype));
}

}  // namespace

void check_group_norm(const GroupNormArgs& a) {
  const DType t = a.x.dtype;
  check_dims(a.dims);
  check_matrix("group_norm", "x", a.x, t, a.layout.capacity.rows, a.dims.height * a.dims.channels);
  check_like("group_norm", "y", a.y, a.x);
  check_elements("group_norm", "gamma", a.gamma, a.dims.channels);
  check_elements("group_norm", "beta", a.beta, a.dims.channels);
  check_channels("group_norm", "gamma", a.gamma, a.dims, t);
  check_channels("group_norm", "beta", a.beta, a.dims, t);
  if (a.mean) check_statistics("group_norm", "mean", a.mean, a.dims, a.layout, t);
  if (a.rstd) check_statistics("group_norm", "rstd", a.rstd, a.dims, a.layout, t);
}

void check_group_norm(const GroupNormGradArgs& a) {
  const DType t = a.x.dtype;
  check_dims(a.dims);
  check_matrix("group_norm_grad", "x", a.x, t, a.layout.capacity.rows,
               a.dims.height * a.dims.channels);
  check_like("group_norm_grad", "dy", a.dy, a.x);
  if (a.dx) check_like("group_norm_grad", "dx", a.dx, a.x);
  check_elements("group_norm_grad", "gamma", a.gamma, a.dims.channels);
  check_channels("group_norm_grad", "gamma", a.gamma, a.dims, t);
  check_channels("group_norm_grad", "dgamma", a.dgamma, a.dims, t);
  check_channels("group_norm_grad", "dbeta", a.dbeta, a.dims, t);
  check_statistics("group_norm_grad", "mean", a.mean, a.dims, a.layout, t);
  check_statistics("group_norm_grad", "rstd", a.rstd, a.dims, a.layout, t);
}

size_t group_norm_workspace_bytes(const Context& context, const GroupNormDims& dims,
                                  const PackedCapacity& capacity) {
  if (context.backend == Backend::ref) return 0;
  Carver carver(nullptr);
  const GroupNormSpace space(carver, dims, capacity);
  return carver.used();
}

GroupNormSpace group_norm_space(const TensorView& workspace, const GroupNormDims& dims,
                                const PackedCapacity& capacity) {
  Carver carver(workspace ? workspace.data : nullptr);
  const GroupNormSpace space(carver, dims, capacity);
  RONDO_CHECK(carver.used() == 0 || (workspace && workspace.bytes() >= carver.used()),
              "group_norm: workspace of ", workspace ? workspace.bytes() : 0, " bytes, needed ",
              carver.used());
  return space;
}

std::span<const Variant> group_norm_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(GroupNormArgs, group_norm),
      RONDO_GPU_VARIANTS(GroupNormArgs, group_norm_gpu, "portable", Role::standard,
                         takes_narrow<&GroupNormArgs::x>)};
  return variants;
}

std::span<const Variant> group_norm_grad_variants() {
  static constexpr Variant variants[] = {
      RONDO_KERNEL_VARIANTS(GroupNormGradArgs, group_norm_grad),
      RONDO_GPU_VARIANTS(GroupNormGradArgs, group_norm_grad_gpu, "portable", Role::standard,
                         takes_narrow<&GroupNormGradArgs::x>)};
  return variants;
}

}  // namespace rondo
