#include "kernels/conv/conv.h"

#include <algorithm>
#include <utility>

#include "kernels/conv/conv_impl.h"
#include "kernels/conv/conv_tiles.h"

namespace rondo {
namespace {

void check_axis(const char* name, const ConvAxis& a) {
  RONDO_CHECK(a.kernel >= 1 && a.stride >= 1 && a.dilation >= 1 && a.before >= 0, "conv: kernel ",
              a.kernel, ", stride ", a.stride, ", dilation ", a.dilation, ", before ", a.before,
              " along ", name);
}

void check_cols(const char* name, const TensorView& v, int64_t cols, DType t) {
  RONDO_CHECK(!v || (v.dim(v.rank - 1) == cols && v.dtype == t), "conv: ", name, " has ",
              v.dim(v.rank - 1), " columns of type ", name_of(v.dtype), ", expected ", cols, " of ",
              name_of(t));
}

// What all three have: x or dx, y or dy, the frames beside x.
void check_frames(const ConvDims& d, const PackedView& from, const PackedView& to,
                  const TensorView& x, const TensorView& y, const TensorView& before,
                  const TensorView& after, DType t) {
  RONDO_CHECK(d.in >= 1 && d.out >= 1 && d.in_height >= 1 && d.out_height >= 1, "conv: ", d.in,
              " channels ", d.in_height, " high to ", d.out, " channels ", d.out_height, " high");
  RONDO_CHECK(d.groups >= 1 && d.in % d.groups == 0 && d.out % d.groups == 0, "conv: ", d.groups,
              " groups of ", d.in, " channels to ", d.out);
  check_axis("the height", d.height);
  check_axis("time", d.time);
  RONDO_CHECK(from.capacity.sequences == to.capacity.sequences, "conv: layouts of ",
              from.capacity.sequences, " and ", to.capacity.sequences, " sequences");
  check_cols("x", x, d.in_cols(), t);
  check_cols("y", y, d.out_cols(), t);
  for (const TensorView* halo : {&before, &after}) {
    check_cols("a halo", *halo, d.in_cols(), t);
    RONDO_CHECK(!*halo || (halo->rank == 3 && halo->dim(1) == from.capacity.sequences),
                "conv: frames before or behind a part have rank ", halo->rank);
  }
}

void check_weights(const ConvDims& d, const TensorView& w, DType t) {
  const int64_t cols = d.weight_cols();
  RONDO_CHECK(w.rank == 2 && w.dim(0) == d.out && w.dim(1) == cols && w.dtype == t,
              "conv: weights of rank ", w.rank, " and type ", name_of(w.dtype), ", expected ",
              name_of(t), " [", d.out, ", ", cols, "]");
}

DType computed(const ConvArgs& a) { return a.x.dtype; }
template <class Args>
DType computed(const Args& a) {
  return a.dy.dtype;
}

// Kernels other than the reference take convolutions of one row, or the others, on machines that
// have what they need.
bool anywhere(const Context&, const void*) { return true; }
bool has_pairs(const Context& context, const void* args) {
  return isa_avx512bf16::conv_bf16_kernel != nullptr && has_avx512_bf16(context, args);
}
template <class Args, bool one_row, bool (*has)(const Context&, const void*) = anywhere>
bool takes(const Context& context, const void* args) {
  if (!has(context, args)) return false;
  if (args == nullptr) return true;
  const auto& a = *static_cast<const Args*>(args);
  const DType t = computed(a);
  if (a.dims.int8 && context.backend != Backend::cpu) return false;
  return a.dims.one_row() == one_row && (t == DType::bf16 || (t == DType::f32 && has != has_pairs));
}

template <const ConvKernel* const& kernel, class Args>
void on_cpu(const Context& context, const Args& args) {
  conv_direct(*kernel, context, args);
}

template <class Args>
std::span<const Variant> variants_of() {
  constexpr Role role = Role::standard;
  static constexpr Variant variants[] = {
      variant<Args, conv_ref>("ref", Backend::ref),
      variant<Args, conv_windows_cpu>("windows", Backend::cpu, role, takes<Args, true>),
      variant<Args, on_cpu<isa_avx512bf16::conv_bf16_kernel, Args>>(
          "avx512bf16", Backend::cpu, role, takes<Args, false, has_pairs>),
      variant<Args, on_cpu<isa_avx512::conv_kernel, Args>>("avx512", Backend::cpu, role,
                                                           takes<Args, false, has_avx512>),
      variant<Args, on_cpu<isa_avx2::conv_kernel, Args>>("avx2", Backend::cpu, role,
                                                         takes<Args, false, has_avx2>),
      variant<Args, on_cpu<isa_generic::conv_kernel, Args>>("generic", Backend::cpu, role,
                                                            takes<Args, false>),
      RONDO_GPU_VARIANTS(Args, conv_windows_gpu, "windows", role, takes<Args, true>),
      RONDO_GPU_VARIANTS(Args, conv_direct_gpu, "portable", role, takes<Args, false>)};
  return variants;
}

}  // namespace

namespace {
// What is for the forward pass of one row alone.
void check_int8(const ConvDims& d, bool has_it) {
  RONDO_CHECK(!d.int8 || has_it, "conv of 8 bits: of ", d.in_height, " rows and ", d.groups,
              " groups, expected f32 frames of one row, forward");
}
}  // namespace

void check_conv(const ConvArgs& a) {
  check_int8(a.dims, a.dims.one_row() && a.x.dtype == DType::f32);
  check_frames(a.dims, a.from, a.to, a.x, a.y, a.before, a.after, a.x.dtype);
  check_weights(a.dims, a.w, a.x.dtype);
}

void check_conv(const ConvGradInputArgs& a) {
  check_int8(a.dims, false);
  check_frames(a.dims, a.from, a.to, a.dx, a.dy, a.dbefore, a.dafter, a.dy.dtype);
  check_weights(a.dims, a.w, a.dy.dtype);
}

void check_conv(const ConvGradWeightArgs& a) {
  check_int8(a.dims, false);
  check_frames(a.dims, a.from, a.to, a.x, a.dy, a.before, a.after, a.x.dtype);
  const DType sums = a.x.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (a.dw) check_weights(a.dims, a.dw, sums);
  check_cols("dbias", a.dbias, a.dims.out, sums);
}

void conv_check_workspace(const TensorView& workspace, size_t needed) {
  RONDO_CHECK(workspace && workspace.bytes() >= needed, "conv: workspace of ",
              workspace ? workspace.bytes() : 0, " bytes, needed ", needed);
  RONDO_CHECK(reinterpret_cast<uintptr_t>(workspace.data) % 64 == 0,
              "conv: workspace is not aligned to 64 bytes");
}

ConvTaps conv_forward_taps(const ConvAxis& a) {
  return {a.kernel, a.stride, a.dilation, -a.before, 1};
}
ConvTaps conv_backward_taps(const ConvAxis& a) {
  return {a.kernel, 1, -a.dilation, a.before, a.stride};
}

ConvGather conv_forward(const ConvDims& d) {
  return {conv_forward_taps(d.height),
          conv_forward_taps(d.time),
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

ConvGather conv_backward(const ConvDims& d) {
  ConvGather g = conv_forward(d);
  g.height = conv_backward_taps(d.height);
  g.time = conv_backward_taps(d.time);
  std::swap(g.source_channels, g.target_channels);
  std::swap(g.source_pixel, g.target_pixel);
  std::swap(g.source_height, g.target_height);
  std::swap(g.source_stride, g.target_stride);
  return g;
}

ConvGather conv_unfolded(ConvGather g) {
  const bool few = g.source_pixel == 1 && g.height.count < 8;
  if (!few || g.time.count == 1 || g.time.divide != 1) return g;
  g.beside = g.time;
  g.time = {};
  g.source_channels = g.beside.count;
  g.source_stride = 1;  // channel l is column l of the kernel
  return g;
}

ConvGather conv_depthwise(ConvGather g) {
  if (g.groups == 1 || g.source_channels != 1 || g.target_channels != 1) return g;
  g.depthwise = true;
  g.source_channels = g.target_channels = g.groups;
  g.source_stride = g.target_stride;  // from a channel's weights to the next one's
  g.groups = 1;
  return g;
}

ConvGradTargets conv_grad_targets(const ConvGradInputArgs& a) {
  const auto halo = [&](ConvPart part, const TensorView& out) {
    return ConvTarget{{part, a.from, out ? out.dim(0) : 0}, out};
  };
  return {{{{ConvPart::frames, a.from, 0}, a.dx},
           halo(ConvPart::before, a.dbefore),
           halo(ConvPart::after, a.dafter)}};
}

size_t conv_workspace_bytes(const Context& context, ConvPhase phase, const ConvDims& dims,
                            DType compute, const PackedCapacity& from, const PackedCapacity& to) {
  if (context.backend == Backend::ref) return 0;
  if (dims.one_row()) return conv_windows_workspace(context, phase, dims, compute, from, to);
  if (context.backend != Backend::cpu) return 0;
  size_t bytes = 0;
  for (const ConvKernel* kernel : {isa_generic::conv_kernel, isa_avx2::conv_kernel,
                                   isa_avx512::conv_kernel, isa_avx512bf16::conv_bf16_kernel}) {
    if (kernel) bytes = std::max(bytes, conv_direct_workspace(*kernel, context, phase, dims));
  }
  return bytes;
}

std::string_view choose_conv(const Context& context, const void*, const MayRun& may_run) {
  const bool widens = context.backend == Backend::cpu && cpu_features().amx && may_run("avx512");
  return widens ? "avx512" : "";
}

std::span<const Variant> conv_variants() { return variants_of<ConvArgs>(); }
std::span<const Variant> conv_grad_input_variants() { return variants_of<ConvGradInputArgs>(); }
std::span<const Variant> conv_grad_weight_variants() { return variants_of<ConvGradWeightArgs>(); }

}  // namespace rondo
