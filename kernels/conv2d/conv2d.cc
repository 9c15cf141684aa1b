#include "kernels/conv2d/conv2d.h"

#include <algorithm>

#include "kernels/conv2d/conv2d_impl.h"
#include "kernels/conv2d/conv2d_tiles.h"

namespace rondo {
namespace {

void check_axis(const char* name, const Conv2dAxis& a) {
  RONDO_CHECK(a.kernel >= 1 && a.stride >= 1 && a.dilation >= 1 && a.before >= 0, "conv2d: kernel ",
              a.kernel, ", stride ", a.stride, ", dilation ", a.dilation, ", before ", a.before,
              " along ", name);
}

void check_cols(const char* name, const TensorView& v, int64_t cols, DType t) {
  RONDO_CHECK(!v || (v.dim(v.rank - 1) == cols && v.dtype == t), "conv2d: ", name, " has ",
              v.dim(v.rank - 1), " columns of type ", name_of(v.dtype), ", expected ", cols, " of ",
              name_of(t));
}

void check_dims(const Conv2dDims& d, const PackedView& from, const PackedView& to) {
  RONDO_CHECK(d.in >= 1 && d.out >= 1 && d.in_height >= 1 && d.out_height >= 1, "conv2d: ", d.in,
              " channels ", d.in_height, " high to ", d.out, " channels ", d.out_height, " high");
  RONDO_CHECK(d.groups >= 1 && d.in % d.groups == 0 && d.out % d.groups == 0, "conv2d: ", d.groups,
              " groups of ", d.in, " channels to ", d.out);
  check_axis("the height", d.height);
  check_axis("time", d.time);
  RONDO_CHECK(from.capacity.sequences == to.capacity.sequences, "conv2d: layouts of ",
              from.capacity.sequences, " and ", to.capacity.sequences, " sequences");
}

void check_halo(const Conv2dDims& d, const PackedView& from, const TensorView& halo, DType t) {
  if (!halo) return;
  check_cols("a halo", halo, d.in_height * d.in, t);
  RONDO_CHECK(halo.rank == 3 && halo.dim(1) == from.capacity.sequences,
              "conv2d: frames before or behind a part have rank ", halo.rank);
}

void check_weights(const Conv2dDims& d, const TensorView& w, DType t) {
  const int64_t cols = d.weight_cols();
  RONDO_CHECK(!w || (w.rank == 2 && w.dim(0) == d.out && w.dim(1) == cols && w.dtype == t),
              "conv2d: weights of rank ", w.rank, " and type ", name_of(w.dtype), ", expected ",
              name_of(t), " [", d.out, ", ", cols, "]");
}

ConvTaps forward_taps(const Conv2dAxis& a) {
  return {a.kernel, a.stride, a.dilation, -a.before, 1};
}
ConvTaps backward_taps(const Conv2dAxis& a) {
  return {a.kernel, 1, -a.dilation, a.before, a.stride};
}

template <const Conv2dKernel* const& kernel, class Args>
void on_cpu(const Context& context, const Args& args) {
  conv2d_with(*kernel, context, args);
}

// Accepts what the kernel for pairs of bf16 takes: `view` has the type.
template <auto view, class Args>
bool takes_pairs(const Context&, const void* args) {
  if (isa_avx512bf16::conv2d_bf16_kernel == nullptr || !cpu_features().avx512_bf16) return false;
  return args == nullptr || (static_cast<const Args*>(args)->*view).dtype == DType::bf16;
}

}  // namespace

void check_conv2d(const Conv2dArgs& a) {
  const Conv2dDims& d = a.dims;
  check_dims(d, a.from, a.to);
  check_cols("x", a.x, d.in_height * d.in, a.x.dtype);
  check_cols("y", a.y, d.out_height * d.out, a.x.dtype);
  check_halo(d, a.from, a.before, a.x.dtype);
  check_halo(d, a.from, a.after, a.x.dtype);
  check_weights(d, a.w, a.x.dtype);
}

void check_conv2d(const Conv2dGradInputArgs& a) {
  const Conv2dDims& d = a.dims;
  check_dims(d, a.from, a.to);
  check_cols("dy", a.dy, d.out_height * d.out, a.dy.dtype);
  check_cols("dx", a.dx, d.in_height * d.in, a.dy.dtype);
  check_halo(d, a.from, a.dbefore, a.dy.dtype);
  check_halo(d, a.from, a.dafter, a.dy.dtype);
  check_weights(d, a.w, a.dy.dtype);
}

void check_conv2d(const Conv2dGradWeightArgs& a) {
  const Conv2dDims& d = a.dims;
  check_dims(d, a.from, a.to);
  check_cols("x", a.x, d.in_height * d.in, a.x.dtype);
  check_cols("dy", a.dy, d.out_height * d.out, a.x.dtype);
  check_halo(d, a.from, a.before, a.x.dtype);
  check_halo(d, a.from, a.after, a.x.dtype);
  check_weights(d, a.dw, a.x.dtype == DType::f64 ? DType::f64 : DType::f32);
  check_cols("dbias", a.dbias, d.out, a.x.dtype == DType::f64 ? DType::f64 : DType::f32);
}

Conv2dGather conv2d_forward(const Conv2dDims& d) {
  return {forward_taps(d.height),
          forward_taps(d.time),
          d.in / d.groups,
          d.out / d.groups,
          d.in,
          d.out,
          d.in_height,
          d.out_height,
          d.taps(),
          d.weight_cols(),
          d.time.kernel,
          d.groups,
          {}};
}

Conv2dGather conv2d_backward(const Conv2dDims& d) {
  return {backward_taps(d.height),
          backward_taps(d.time),
          d.out / d.groups,
          d.in / d.groups,
          d.out,
          d.in,
          d.out_height,
          d.in_height,
          d.weight_cols(),
          d.taps(),
          d.time.kernel,
          d.groups,
          {}};
}

Conv2dGather conv2d_unfolded(Conv2dGather g) {
  const bool few = g.source_pixel == 1 && g.height.count < 8;
  if (!few || g.time.count == 1 || g.time.divide != 1) return g;
  g.beside = g.time;
  g.time = {};
  g.source_channels = g.beside.count;
  g.source_stride = 1;  // channel l is column l of the kernel
  return g;
}

Conv2dGather conv2d_depthwise(Conv2dGather g) {
  if (g.groups == 1 || g.source_channels != 1 || g.target_channels != 1) return g;
  g.depthwise = true;
  g.source_channels = g.target_channels = g.groups;
  g.source_stride = g.target_stride;  // from a channel's weights to the next one's
  g.groups = 1;
  return g;
}

ConvSource conv2d_source(const PackedView& layout, const TensorView& rows, const TensorView& before,
                         const TensorView& after) {
  return {layout,    before ? before.dim(0) : 0, after ? after.dim(0) : 0, rows.data, before.data,
          after.data};
}

Conv2dGradTargets conv2d_grad_targets(const Conv2dGradInputArgs& a) {
  const auto halo = [&](ConvPart part, const TensorView& out) {
    return Conv2dTarget{{part, a.from, out ? out.dim(0) : 0}, out.data};
  };
  return {{{{ConvPart::frames, a.from, 0}, a.dx.data},
           halo(ConvPart::before, a.dbefore),
           halo(ConvPart::after, a.dafter)}};
}

size_t conv2d_workspace_bytes(const Context& context, Conv2dPhase phase, const Conv2dDims& dims) {
  if (context.backend != Backend::cpu) return 0;
  size_t bytes = 0;
  for (const Conv2dKernel* kernel :
       {isa_generic::conv2d_kernel, isa_avx2::conv2d_kernel, isa_avx512::conv2d_kernel,
        isa_avx512bf16::conv2d_bf16_kernel}) {
    if (kernel) bytes = std::max(bytes, conv2d_cpu_workspace(*kernel, context, phase, dims));
  }
  return bytes;
}

#define RONDO_CONV2D_VARIANTS(Args, kernel, view)                                                \
  variant<Args, kernel##_ref>("ref", Backend::ref),                                              \
      variant<Args, on_cpu<isa_avx512bf16::conv2d_bf16_kernel, Args>>(                           \
          "avx512bf16", Backend::cpu, Role::standard, takes_pairs<&Args::view, Args>),           \
      variant<Args, on_cpu<isa_avx512::conv2d_kernel, Args>>("avx512", Backend::cpu,             \
                                                             Role::standard, has_avx512),        \
      variant<Args, on_cpu<isa_avx2::conv2d_kernel, Args>>("avx2", Backend::cpu, Role::standard, \
                                                           has_avx2),                            \
      variant<Args, on_cpu<isa_generic::conv2d_kernel, Args>>("generic", Backend::cpu),          \
      RONDO_GPU_VARIANTS(Args, kernel##_gpu, "portable", Role::standard,                         \
                         takes_narrow<&Args::view>)

std::string_view choose_conv2d(const Context& context, const void*, const MayRun& may_run) {
  const bool widens = context.backend == Backend::cpu && cpu_features().amx && may_run("avx512");
  return widens ? "avx512" : "";
}

std::span<const Variant> conv2d_variants() {
  static constexpr Variant variants[] = {RONDO_CONV2D_VARIANTS(Conv2dArgs, conv2d, x)};
  return variants;
}

std::span<const Variant> conv2d_grad_input_variants() {
  static constexpr Variant variants[] = {
      RONDO_CONV2D_VARIANTS(Conv2dGradInputArgs, conv2d_grad_input, dy)};
  return variants;
}

std::span<const Variant> conv2d_grad_weight_variants() {
  static constexpr Variant variants[] = {
      RONDO_CONV2D_VARIANTS(Conv2dGradWeightArgs, conv2d_grad_weight, x)};
  return variants;
}

}  // namespace rondo
