// The driver that the variants share: windows are gathered, some rows at a time, and multiplied.
#include <algorithm>
#include <numeric>

#include "kernels/base/carver.h"
#include "kernels/base/dispatch.h"
#include "kernels/conv/conv_impl.h"
#include "kernels/gemm/gemm.h"

namespace rondo {
namespace {

// Rows of windows that are made at a time: few enough to still be in a CPU's cache when they are
// multiplied, enough for a product to be worth its preparations. (In the simulator so few that
// tests see several.) It depends on the shape alone, and with it the order of the sums over rows.
int64_t window_rows(const Context& context, int64_t window, DType dtype, int64_t capacity) {
  const bool gpu = context.backend == Backend::cuda;
  const int64_t bytes = gpu ? 64 << 20 : 2 << 20, least = gpu ? 4096 : 512;
  const int64_t fit = bytes / (window * static_cast<int64_t>(size_of(dtype))) / 64 * 64;
  return std::clamp<int64_t>(capacity, 1, std::max(fit, least));
}

struct Space {
  void* weights;  // arranged for the product: of the compute dtype, or f32 sums
  void* windows;
  void* results;  // of one stride, before they go to their frames; absent without strides
  int32_t* count;
  TensorView gemm;
};

// c [rows, n] = windows [rows, window] b [window, n], or c [m, window] (+)= dy^T windows.
GemmArgs product(ConvPhase phase, const ConvDims& d, DType t, int64_t rows, int64_t taps) {
  GemmArgs g;
  g.dtype = g.c_dtype = t;
  if (phase == ConvPhase::grad_weight) {
    g.m = d.out, g.n = d.in * taps, g.k = rows;
    g.transpose_a = true;
    g.lda = d.out, g.ldb = g.ldc = g.n;
    g.c_dtype = DType::f32;
  } else {
    const bool forward = phase == ConvPhase::forward;
    g.m = rows, g.n = forward ? d.out : d.in, g.k = (forward ? d.in : d.out) * taps;
    g.lda = g.k, g.ldb = g.ldc = g.n;
  }
  g.spare_rows = true;
  return g;
}

int64_t window_cols(ConvPhase phase, const ConvDims& d) {
  return phase == ConvPhase::grad_input ? d.out : d.in;
}

// The most rows that there are windows of, in one of the arrays.
int64_t target_capacity(ConvPhase phase, const ConvDims& d, const PackedCapacity& from,
                        const PackedCapacity& to) {
  if (phase != ConvPhase::grad_input) return to.rows;
  return std::max(from.rows, (d.span() - 1) * from.sequences);
}

Space carve(Carver& carver, const Context& context, ConvPhase phase, const ConvDims& d, DType t,
            int64_t rows) {
  Space s;
  const auto elements = static_cast<size_t>(d.in * d.out * d.kernel);
  s.weights = carver.take(elements * size_of(phase == ConvPhase::grad_weight ? DType::f32 : t));
  s.windows =
      carver.take(static_cast<size_t>(rows * d.kernel * window_cols(phase, d)) * size_of(t));
  const bool strides = phase == ConvPhase::grad_input && d.stride > 1;
  s.results = strides ? carver.take(static_cast<size_t>(rows * d.in) * size_of(t)) : nullptr;
  s.count = static_cast<int32_t*>(carver.take(sizeof(int32_t)));
  size_t bytes = gemm_workspace_bytes(context, product(phase, d, t, rows, d.kernel));
  for (int32_t f = 0; strides && f < d.stride; ++f) {
    const int32_t taps = conv_stride_taps(d, f).taps.count;
    bytes = std::max(bytes, gemm_workspace_bytes(context, product(phase, d, t, rows, taps)));
  }
  s.gemm = {carver.take(bytes), DType::u8, {static_cast<int64_t>(bytes)}};
  return s;
}

const char* at(const TensorView& v, int64_t row) {
  return static_cast<const char*>(v.data) +
         static_cast<size_t>(row * v.dim(v.rank - 1)) * size_of(v.dtype);
}

class Call {
 public:
  Call(const ConvDevice& device, const Context& context, ConvPhase phase, const ConvDims& dims,
       DType t, const PackedView& from, const PackedView& to, const TensorView& workspace)
      : device_(device), context_(context), phase_(phase), dims_(dims), dtype_(t) {
    const int64_t most = target_capacity(phase, dims, from.capacity, to.capacity);
    rows_ = window_rows(context, dims.kernel * window_cols(phase, dims), t, most);
    Carver carver(workspace.data);
    space_ = carve(carver, context, phase, dims, t, rows_);
    RONDO_CHECK(workspace && workspace.bytes() >= carver.used(), "conv: workspace of ",
                workspace ? workspace.bytes() : 0, " bytes, needed ", carver.used());
    RONDO_CHECK(reinterpret_cast<uintptr_t>(workspace.data) % 64 == 0,
                "conv: workspace is not aligned to 64 bytes");
  }

  void* weights() const { return space_.weights; }

  // [out, in, kernel] -> [taps, in, out] forward, [taps, out, in] for the gradient: of taps
  // `first`, first + period, ...
  void arrange_weights(const TensorView& w, int64_t taps, int64_t first, int64_t period) const {
    const int64_t row = dims_.in * dims_.kernel;
    ConvPermute p;
    p.from = static_cast<const char*>(w.data) + static_cast<size_t>(first) * size_of(dtype_);
    p.to = space_.weights;
    p.dtype = dtype_;
    const bool forward = phase_ == ConvPhase::forward;
    set(p.dims, taps, forward ? dims_.in : dims_.out, forward ? dims_.out : dims_.in);
    set(p.strides, period, forward ? dims_.kernel : row, forward ? row : dims_.kernel);
    device_.permute(context_, p);
  }
  void arrange_weights(const TensorView& w) const { arrange_weights(w, dims_.kernel, 0, 1); }

  // dw (+)= the sums, [out, kernel, in] -> [out, in, kernel].
  void finish_weights(const TensorView& dw, bool accumulate) const {
    ConvPermute p;
    p.from = space_.weights;
    p.to = dw.data;
    p.accumulate = accumulate;
    set(p.dims, dims_.out, dims_.in, dims_.kernel);
    set(p.strides, dims_.in * dims_.kernel, 1, dims_.in);
    device_.permute(context_, p);
  }

  // use(product, first row) for windows of all targets, some at a time; at least once.
  template <class F>
  void for_windows(const ConvTargets& targets, const ConvSource& source, const ConvTaps& taps,
                   F use) const {
    const bool host = context_.backend == Backend::cpu;
    const int64_t capacity = targets.part == ConvPart::frames
                                 ? targets.layout.capacity.rows
                                 : targets.halo_frames * targets.layout.capacity.sequences;
    const int64_t end = host ? conv_target_rows(targets) : capacity;
    for (int64_t first = 0; first == 0 || first < end; first += rows_) {
      ConvWindows w;
      w.targets = targets;
      w.source = source;
      w.taps = taps;
      w.cols = window_cols(phase_, dims_);
      w.dtype = dtype_;
      w.first = first;
      w.rows = std::min(rows_, capacity - first);
      w.windows = space_.windows;
      w.count = space_.count;
      device_.windows(context_, w);
      GemmArgs g = product(phase_, dims_, dtype_, w.rows, taps.count);
      g.row_count = space_.count;
      g.workspace = space_.gemm;
      use(g, first);
    }
  }

  // out = windows times the arranged weights.
  void multiply(const ConvTargets& targets, const ConvSource& source, const ConvTaps& taps,
                const TensorView& bias, const TensorView& out) const {
    for_windows(targets, source, taps, [&](GemmArgs& g, int64_t first) {
      g.a = space_.windows;
      g.b = space_.weights;
      g.c = const_cast<char*>(at(out, first));
      g.bias = bias;
      rondo::run(context_, g);
    });
  }

  // dx, frames 0, stride, 2 * stride ... first, then 1, stride + 1, ...
  void multiply_strides(const ConvGradInputArgs& a) const {
    for (int32_t frame = 0; frame < dims_.stride; ++frame) {
      const ConvStrideTaps s = conv_stride_taps(dims_, frame);
      ConvScatter to;
      to.results_layout = a.to, to.layout = a.from;
      to.stride = dims_.stride, to.frame = frame;
      to.cols = dims_.in, to.dtype = dtype_;
      to.out = a.dx.data;
      if (s.taps.count == 0) {
        to.rows = a.to.capacity.rows;
        device_.scatter(context_, to);
        continue;
      }
      arrange_weights(a.w, s.taps.count, s.first, s.period);
      to.results = space_.results;
      for_windows({ConvPart::frames, a.to, 0}, conv_source(a.to, a.dy, {}, {}), s.taps,
                  [&](GemmArgs& g, int64_t first) {
                    g.a = space_.windows;
                    g.b = space_.weights;
                    g.c = space_.results;
                    rondo::run(context_, g);
                    to.first = first, to.rows = g.m;
                    device_.scatter(context_, to);
                  });
    }
  }

  // The sums of dy^T windows.
  void multiply_transposed(const ConvTargets& targets, const ConvSource& source,
                           const ConvTaps& taps, const TensorView& dy) const {
    for_windows(targets, source, taps, [&](GemmArgs& g, int64_t first) {
      g.a = at(dy, first);
      g.b = space_.windows;
      g.c = space_.weights;
      g.beta = first == 0 ? 0 : 1;
      rondo::run(context_, g);
    });
  }

 private:
  static void set(int64_t (&to)[3], int64_t a, int64_t b, int64_t c) {
    to[0] = a, to[1] = b, to[2] = c;
  }

  const ConvDevice& device_;
  const Context& context_;
  const ConvPhase phase_;
  const ConvDims dims_;
  const DType dtype_;
  int64_t rows_;
  Space space_;
};

void check_dims(const ConvDims& d, const PackedView& from, const PackedView& to,
                const TensorView& in, int64_t in_cols, const TensorView& out, int64_t out_cols) {
  RONDO_CHECK(
      d.in >= 1 && d.out >= 1 && d.kernel >= 1 && d.stride >= 1 && d.dilation >= 1 && d.left >= 0,
      "conv: in ", d.in, ", out ", d.out, ", kernel ", d.kernel, ", stride ", d.stride,
      ", dilation ", d.dilation, ", left ", d.left);
  RONDO_CHECK(from.capacity.sequences == to.capacity.sequences, "conv: layouts of ",
              from.capacity.sequences, " and ", to.capacity.sequences, " sequences");
  RONDO_CHECK(!in || in.dim(in.rank - 1) == in_cols, "conv: ", in.dim(in.rank - 1),
              " columns, expected ", in_cols);
  RONDO_CHECK(!out || out.dim(out.rank - 1) == out_cols, "conv: ", out.dim(out.rank - 1),
              " columns, expected ", out_cols);
}

void check_halo(const ConvDims& d, const PackedView& from, const TensorView& halo, DType t) {
  if (!halo) return;
  RONDO_CHECK(halo.rank == 3 && halo.dim(1) == from.capacity.sequences && halo.dim(2) == d.in &&
                  halo.dtype == t,
              "conv: frames before or behind a part have rank ", halo.rank, " and type ",
              name_of(halo.dtype));
}

void check_weights(const ConvDims& d, const TensorView& w, DType t) {
  RONDO_CHECK(w && w.rank == 2 && w.dim(0) == d.out && w.dim(1) == d.in * d.kernel && w.dtype == t,
              "conv: weights of rank ", w.rank, " and type ", name_of(w.dtype));
}

}  // namespace

void check_conv(const ConvArgs& a) {
  check_dims(a.dims, a.from, a.to, a.x, a.dims.in, a.y, a.dims.out);
  check_halo(a.dims, a.from, a.before, a.x.dtype);
  check_halo(a.dims, a.from, a.after, a.x.dtype);
  check_weights(a.dims, a.w, a.x.dtype);
}

void check_conv(const ConvGradInputArgs& a) {
  check_dims(a.dims, a.from, a.to, a.dx, a.dims.in, a.dy, a.dims.out);
  check_halo(a.dims, a.from, a.dbefore, a.dy.dtype);
  check_halo(a.dims, a.from, a.dafter, a.dy.dtype);
  check_weights(a.dims, a.w, a.dy.dtype);
}

void check_conv(const ConvGradWeightArgs& a) {
  check_dims(a.dims, a.from, a.to, a.x, a.dims.in, a.dy, a.dims.out);
  check_halo(a.dims, a.from, a.before, a.x.dtype);
  check_halo(a.dims, a.from, a.after, a.x.dtype);
  check_weights(a.dims, a.dw, a.x.dtype == DType::f64 ? DType::f64 : DType::f32);
}

ConvTaps conv_forward_taps(const ConvDims& d) {
  return {d.kernel, d.stride, d.dilation, -d.left, 1};
}
ConvTaps conv_backward_taps(const ConvDims& d) {
  return {d.kernel, 1, -d.dilation, d.left, d.stride};
}

ConvStrideTaps conv_stride_taps(const ConvDims& d, int32_t frame) {
  const int32_t common = std::gcd(d.dilation, d.stride);
  ConvStrideTaps s;
  s.period = d.stride / common;
  const int64_t at = int64_t{frame} + d.left;
  while (s.first < s.period && (at - int64_t{s.first} * d.dilation) % d.stride != 0) ++s.first;
  s.taps.count = 0;
  if (s.first >= s.period || s.first >= d.kernel) return s;
  s.taps.count = (d.kernel - 1 - s.first) / s.period + 1;
  s.taps.step = -d.dilation / common;
  s.taps.offset = static_cast<int32_t>((at - int64_t{s.first} * d.dilation) / d.stride);  // divides
  return s;
}

ConvSource conv_source(const PackedView& layout, const TensorView& rows, const TensorView& before,
                       const TensorView& after) {
  return {layout,    before ? before.dim(0) : 0, after ? after.dim(0) : 0, rows.data, before.data,
          after.data};
}

ConvGradParts conv_grad_parts(const ConvGradInputArgs& a) {
  const auto halo = [&](ConvPart part, const TensorView& out) {
    return ConvGradPart{{part, a.from, out ? out.dim(0) : 0}, out};
  };
  return {{{{ConvPart::frames, a.from, 0}, a.dx},
           halo(ConvPart::before, a.dbefore),
           halo(ConvPart::after, a.dafter)}};
}

void conv_with(const ConvDevice& device, const Context& context, const ConvArgs& a) {
  check_conv(a);
  if (a.to.capacity.rows == 0) return;
  const Call call(device, context, ConvPhase::forward, a.dims, a.x.dtype, a.from, a.to,
                  a.workspace);
  call.arrange_weights(a.w);
  call.multiply({ConvPart::frames, a.to, 0}, conv_source(a.from, a.x, a.before, a.after),
                conv_forward_taps(a.dims), a.bias, a.y);
}

void conv_with(const ConvDevice& device, const Context& context, const ConvGradInputArgs& a) {
  check_conv(a);
  if (target_capacity(ConvPhase::grad_input, a.dims, a.from.capacity, a.to.capacity) == 0) return;
  const Call call(device, context, ConvPhase::grad_input, a.dims, a.dy.dtype, a.from, a.to,
                  a.workspace);
  const bool by_stride = a.whole_strides && a.dims.stride > 1 && a.dx && a.to.capacity.rows > 0;
  if (by_stride) call.multiply_strides(a);
  call.arrange_weights(a.w);
  for (const ConvGradPart& part : conv_grad_parts(a).parts) {
    if (!part.out || part.out.numel() == 0) continue;
    if (by_stride && part.targets.part == ConvPart::frames) continue;
    call.multiply(part.targets, conv_source(a.to, a.dy, {}, {}), conv_backward_taps(a.dims), {},
                  part.out);
  }
}

void conv_with(const ConvDevice& device, const Context& context, const ConvGradWeightArgs& a) {
  check_conv(a);
  const Call call(device, context, ConvPhase::grad_weight, a.dims, a.x.dtype, a.from, a.to,
                  a.workspace);
  call.multiply_transposed({ConvPart::frames, a.to, 0}, conv_source(a.from, a.x, a.before, a.after),
                           conv_forward_taps(a.dims), a.dy);
  call.finish_weights(a.dw, a.accumulate);
}

size_t conv_workspace_bytes(const Context& context, ConvPhase phase, const ConvDims& dims,
                            DType compute, const PackedCapacity& from, const PackedCapacity& to) {
  if (context.backend == Backend::ref) return 0;
  const int64_t most = target_capacity(phase, dims, from, to);
  Carver carver(nullptr);
  carve(carver, context, phase, dims, compute,
        window_rows(context, dims.kernel * window_cols(phase, dims), compute, most));
  return carver.used();
}

std::span<const Variant> conv_variants() {
  static constexpr Variant variants[] = {
      variant<ConvArgs, conv_ref>("ref", Backend::ref),
      variant<ConvArgs, conv_cpu>("windows", Backend::cpu),
      RONDO_GPU_VARIANTS(ConvArgs, conv_gpu, "portable", Role::standard,
                         takes_narrow<&ConvArgs::x>)};
  return variants;
}

std::span<const Variant> conv_grad_input_variants() {
  static constexpr Variant variants[] = {
      variant<ConvGradInputArgs, conv_grad_input_ref>("ref", Backend::ref),
      variant<ConvGradInputArgs, conv_grad_input_cpu>("windows", Backend::cpu),
      RONDO_GPU_VARIANTS(ConvGradInputArgs, conv_grad_input_gpu, "portable", Role::standard,
                         takes_narrow<&ConvGradInputArgs::dy>)};
  return variants;
}

std::span<const Variant> conv_grad_weight_variants() {
  static constexpr Variant variants[] = {
      variant<ConvGradWeightArgs, conv_grad_weight_ref>("ref", Backend::ref),
      variant<ConvGradWeightArgs, conv_grad_weight_cpu>("windows", Backend::cpu),
      RONDO_GPU_VARIANTS(ConvGradWeightArgs, conv_grad_weight_gpu, "portable", Role::standard,
                         takes_narrow<&ConvGradWeightArgs::x>)};
  return variants;
}

}  // namespace rondo
