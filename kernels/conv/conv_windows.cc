// Convolutions of one row: windows are gathered, some rows at a time, and multiplied. The driver is
// one for all devices, which do the pieces beside the products (conv_windows.h): of CPUs here.
#include "kernels/conv/conv_windows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/base/carver.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/conv/conv_impl.h"
#include "kernels/gemm/gemm.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

// The taps that reach frames j * stride + frame of x, as windows of dy around frame j: `first`,
// first + period and so on. None: taps.count is 0.
struct StrideTaps {
  ConvTaps taps;
  int32_t first = 0, period = 1;
};

StrideTaps stride_taps(const ConvAxis& a, int32_t frame) {
  const int32_t common = std::gcd(a.dilation, a.stride);
  StrideTaps s;
  s.period = a.stride / common;
  const int64_t at = int64_t{frame} + a.before;
  while (s.first < s.period && (at - int64_t{s.first} * a.dilation) % a.stride != 0) ++s.first;
  s.taps.count = 0;
  if (s.first >= s.period || s.first >= a.kernel) return s;
  s.taps.count = (a.kernel - 1 - s.first) / s.period + 1;
  s.taps.step = -a.dilation / common;
  s.taps.offset = static_cast<int32_t>((at - int64_t{s.first} * a.dilation) / a.stride);  // divides
  return s;
}

// The most rows that there are windows of, in one of the arrays.
int64_t target_capacity(ConvPhase phase, const ConvDims& d, const PackedCapacity& from,
                        const PackedCapacity& to) {
  if (phase != ConvPhase::grad_input) return to.rows;
  return std::max(from.rows, (d.time.span() - 1) * from.sequences);
}

const char* at(const TensorView& v, int64_t row) {
  return static_cast<const char*>(v.data) +
         static_cast<size_t>(row * v.dim(v.rank - 1)) * size_of(v.dtype);
}

class Call {
 public:
  // Of nowhere, where its memory is only counted.
  Call(const Context& context, ConvPhase phase, const ConvDims& dims, DType t,
       const PackedCapacity& from, const PackedCapacity& to, void* memory = nullptr,
       const ConvDevice& device = {})
      : device_(device), context_(context), phase_(phase), dims_(dims), dtype_(t) {
    choose_rows(target_capacity(phase, dims, from, to));
    Carver carver(memory);
    const auto elements = static_cast<size_t>(dims.in * dims.out * dims.time.kernel);
    const bool strides = phase == ConvPhase::grad_input && dims.time.stride > 1;
    weights_ = carver.take(elements * size_of(phase == ConvPhase::grad_weight ? DType::f32 : t));
    windows_ = carver.take(static_cast<size_t>(rows_ * dims.time.kernel * cols()) * size_of(t));
    results_ = strides ? carver.take(static_cast<size_t>(rows_ * dims.in) * size_of(t)) : nullptr;
    count_ = static_cast<int32_t*>(carver.take(sizeof(int32_t)));
    size_t bytes = gemm_workspace_bytes(context, product(rows_, dims.time.kernel));
    for (int32_t f = 0; strides && f < dims.time.stride; ++f) {
      const int32_t taps = stride_taps(dims.time, f).taps.count;
      bytes = std::max(bytes, gemm_workspace_bytes(context, product(rows_, taps)));
    }
    gemm_ = {carver.take(bytes), DType::u8, {static_cast<int64_t>(bytes)}};
    bytes_ = carver.used();
  }
  template <class Args>
  Call(const ConvDevice& device, const Context& context, ConvPhase phase, const Args& a, DType t)
      : Call(context, phase, a.dims, t, a.from.capacity, a.to.capacity, a.workspace.data, device) {
    conv_check_workspace(a.workspace, bytes_);
  }

  size_t bytes() const { return bytes_; }

  // [out, in, kernel] -> [taps, in, out] forward, [taps, out, in] for the gradient: of taps
  // `first`, first + period, ...
  void arrange_weights(const TensorView& w, int64_t taps, int64_t first, int64_t period) const {
    const int64_t kernel = dims_.time.kernel, row = dims_.in * kernel;
    const void* from =
        static_cast<const char*>(w.data) + static_cast<size_t>(first) * size_of(dtype_);
    const bool forward = phase_ == ConvPhase::forward;
    ConvPermute p{from, weights_, dtype_, {taps, dims_.out, dims_.in}, {period, row, kernel}};
    if (forward) p = {from, weights_, dtype_, {taps, dims_.in, dims_.out}, {period, kernel, row}};
    device_.permute(context_, p);
  }
  void arrange_weights(const TensorView& w) const { arrange_weights(w, dims_.time.kernel, 0, 1); }

  // dw (+)= the sums, [out, kernel, in] -> [out, in, kernel].
  void finish_weights(const TensorView& dw, bool accumulate) const {
    const int64_t in = dims_.in, kernel = dims_.time.kernel;
    device_.permute(
        context_,
        {weights_, dw.data, DType::f32, {dims_.out, in, kernel}, {in * kernel, 1, in}, accumulate});
  }

  // out = windows times the arranged weights; by way of `scatter` where there is one.
  void multiply(const ConvTargets& targets, const ConvSource& source, const ConvTaps& taps,
                const TensorView& bias, const TensorView& out, ConvScatter* scatter = nullptr,
                PackedWeights* packed = nullptr) const {
    for_windows(targets, source, taps, [&](GemmArgs& g, int64_t first) {
      g.a = windows_;
      g.b = weights_;
      g.c = scatter ? results_ : const_cast<char*>(at(out, first));
      g.bias = bias;
      g.packed_b = packed;
      run(context_, g);
      if (scatter == nullptr) return;
      scatter->results = results_, scatter->first = first, scatter->rows = g.m;
      device_.scatter(context_, *scatter);
    });
  }

  // dx, frames 0, stride, 2 * stride ... first, then 1, stride + 1, ...
  void multiply_strides(const ConvGradInputArgs& a) const {
    for (int32_t frame = 0; frame < dims_.time.stride; ++frame) {
      const StrideTaps s = stride_taps(dims_.time, frame);
      ConvScatter scatter{a.to, a.from, dims_.time.stride, frame, dims_.in, dtype_};
      scatter.rows = a.to.capacity.rows;
      scatter.out = a.dx.data;
      if (s.taps.count == 0) {
        device_.scatter(context_, scatter);
        continue;
      }
      arrange_weights(a.w, s.taps.count, s.first, s.period);
      multiply({ConvPart::frames, a.to, 0}, conv_source(a.to, a.dy), s.taps, {}, {}, &scatter);
    }
  }

  // The sums of dy^T windows.
  void multiply_transposed(const ConvTargets& targets, const ConvSource& source,
                           const ConvTaps& taps, const TensorView& dy) const {
    for_windows(targets, source, taps, [&](GemmArgs& g, int64_t first) {
      g.a = at(dy, first);
      g.b = windows_;
      g.c = weights_;
      g.beta = first == 0 ? 0 : 1;
      run(context_, g);
    });
  }

 private:
  // Columns of the frames that windows are made of.
  int64_t cols() const { return phase_ == ConvPhase::grad_input ? dims_.out : dims_.in; }

  // Rows of windows that are made at a time: few enough to still be in a CPU's cache when they are
  // multiplied, enough for a product to be worth its preparations. (In the simulator so few that
  // tests see several.) It depends on the shape alone, and with it the order of the sums over rows.
  void choose_rows(int64_t capacity) {
    const int64_t window = dims_.time.kernel * cols() * static_cast<int64_t>(size_of(dtype_));
    const bool gpu = context_.backend == Backend::cuda;
    const int64_t bytes = gpu ? 64 << 20 : 2 << 20, least = gpu ? 4096 : 512;
    rows_ = std::clamp<int64_t>(capacity, 1, std::max(bytes / window / 64 * 64, least));
  }

  // c [rows, n] = windows [rows, window] b [window, n], or c [m, window] (+)= dy^T windows.
  GemmArgs product(int64_t rows, int64_t taps) const {
    GemmArgs g;
    g.dtype = g.c_dtype = dtype_;
    if (phase_ == ConvPhase::grad_weight) {
      g.m = dims_.out, g.n = dims_.in * taps, g.k = rows;
      g.transpose_a = true;
      g.lda = dims_.out;
      g.c_dtype = DType::f32;
    } else {
      g.m = rows, g.n = phase_ == ConvPhase::forward ? dims_.out : dims_.in, g.k = cols() * taps;
      g.lda = g.k;
    }
    g.ldb = g.ldc = g.n;
    g.spare_rows = true;
    g.int8 = dims_.int8;
    return g;
  }

  // use(product, first row) for windows of all targets, some at a time; at least once.
  template <class F>
  void for_windows(const ConvTargets& targets, const ConvSource& source, const ConvTaps& taps,
                   F use) const {
    const bool host = context_.backend == Backend::cpu;
    const int64_t capacity = targets.capacity();
    const int64_t end = host ? conv_target_rows(targets) : capacity;
    for (int64_t first = 0; first == 0 || first < end; first += rows_) {
      const int64_t rows = std::min(rows_, capacity - first);
      device_.windows(context_,
                      {targets, source, taps, cols(), dtype_, first, rows, windows_, count_});
      GemmArgs g = product(rows, taps.count);
      g.row_count = count_;
      g.workspace = gemm_;
      use(g, first);
    }
  }

  const ConvDevice device_;
  const Context& context_;
  const ConvPhase phase_;
  const ConvDims dims_;
  const DType dtype_;
  int64_t rows_ = 0;
  size_t bytes_ = 0;
  void* weights_;  // arranged for the product: of the compute dtype, or f32 sums
  void* windows_;
  void* results_;  // of one stride, before they go to their frames; absent without strides
  int32_t* count_;
  TensorView gemm_;
};

// ---- the pieces on CPUs ----

// Bytes of copying that are worth waking a thread for.
int64_t grain(int64_t row_bytes) { return (64 << 10) / (row_bytes + 1) + 1; }

// Only sums in f32 are accumulated.
template <class T>
void permute_as(const Context& context, const ConvPermute& p) {
  const int64_t plane = p.dims[1] * p.dims[2];
  context.pool->for_range(p.dims[0] * p.dims[1], grain(p.dims[2] * static_cast<int64_t>(sizeof(T))),
                          [&](int64_t begin, int64_t end) {
                            for (int64_t i = begin; i < end; ++i) {
                              const int64_t a = i / p.dims[1], b = i % p.dims[1];
                              const T* from = static_cast<const T*>(p.from) + a * p.strides[0] +
                                              b * p.strides[1];
                              T* to = static_cast<T*>(p.to) + a * plane + b * p.dims[2];
                              for (int64_t c = 0; c < p.dims[2]; ++c) {
                                const T value = from[c * p.strides[2]];
                                if constexpr (std::is_same_v<T, float>) {
                                  to[c] = p.accumulate ? to[c] + value : value;
                                } else {
                                  to[c] = value;
                                }
                              }
                            }
                          });
}

// Only sums in f32 are accumulated.
void permute(const Context& context, const ConvPermute& p) {
  if (p.dtype == DType::f32) return permute_as<float>(context, p);
  RONDO_CHECK(p.dtype == DType::bf16 && !p.accumulate, "sums of ", name_of(p.dtype));
  permute_as<uint16_t>(context, p);
}

void scatter(const Context& context, const ConvScatter& s) {
  const auto bytes = static_cast<size_t>(s.cols) * size_of(s.dtype);
  context.pool->for_range(
      conv_scatter_count(s), grain(static_cast<int64_t>(bytes)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t row = conv_scatter_row(s, s.first + r);
          if (row < 0) continue;
          char* to = static_cast<char*>(s.out) + static_cast<size_t>(row) * bytes;
          if (s.results) {
            std::memcpy(to, static_cast<const char*>(s.results) + static_cast<size_t>(r) * bytes,
                        bytes);
          } else {
            std::memset(to, 0, bytes);
          }
        }
      });
}

constexpr ConvDevice cpu{conv_copy_windows, permute, scatter};

}  // namespace

void conv_copy_windows(const Context& context, const ConvWindows& w) {
  const int64_t count = conv_window_count(w);
  const auto bytes = static_cast<size_t>(w.cols) * size_of(w.dtype);
  if (w.count) *w.count = static_cast<int32_t>(count);
  context.pool->for_range(
      count, grain(static_cast<int64_t>(bytes) * w.taps.count), [&](int64_t begin, int64_t end) {
        char* to = static_cast<char*>(w.windows) +
                   static_cast<size_t>(begin) * static_cast<size_t>(w.taps.count) * bytes;
        for (int64_t r = begin; r < end; ++r) {
          for (int32_t k = 0; k < w.taps.count; ++k, to += bytes) {
            const ConvPlace place = conv_window_place(w, w.first + r, k);
            if (place.part == ConvPart::none) {
              std::memset(to, 0, bytes);
            } else {
              const auto* from = static_cast<const char*>(conv_array(w.source, place.part));
              std::memcpy(to, from + static_cast<size_t>(place.row) * bytes, bytes);
            }
          }
        }
      });
}

size_t conv_windows_workspace(const Context& context, ConvPhase phase, const ConvDims& dims,
                              DType compute, const PackedCapacity& from, const PackedCapacity& to) {
  const size_t bytes = Call(context, phase, dims, compute, from, to).bytes();
  if (phase != ConvPhase::grad_weight) return bytes;
  // The bias's gradient follows in the same scratch.
  return std::max(bytes, reduce_rows_workspace_bytes(context, to.rows, dims.out));
}

void conv_with(const ConvDevice& device, const Context& context, const ConvArgs& a) {
  check_conv(a);
  if (a.to.capacity.rows == 0) return;
  const Call call(device, context, ConvPhase::forward, a, a.x.dtype);
  call.arrange_weights(a.w);
  call.multiply({ConvPart::frames, a.to, 0}, conv_source(a.from, a.x, a.before, a.after),
                conv_forward_taps(a.dims.time), a.bias, a.y, nullptr,
                a.dims.int8 ? a.packed_w : nullptr);
}

void conv_with(const ConvDevice& device, const Context& context, const ConvGradInputArgs& a) {
  check_conv(a);
  if (target_capacity(ConvPhase::grad_input, a.dims, a.from.capacity, a.to.capacity) == 0) return;
  const Call call(device, context, ConvPhase::grad_input, a, a.dy.dtype);
  const bool by_stride =
      a.whole_strides && a.dims.time.stride > 1 && a.dx && a.to.capacity.rows > 0;
  if (by_stride) call.multiply_strides(a);
  call.arrange_weights(a.w);
  for (const ConvTarget& target : conv_grad_targets(a).parts) {
    if (!target.out || target.out.numel() == 0) continue;
    if (by_stride && target.frames.part == ConvPart::frames) continue;
    call.multiply(target.frames, conv_source(a.to, a.dy), conv_backward_taps(a.dims.time), {},
                  target.out);
  }
}

void conv_with(const ConvDevice& device, const Context& context, const ConvGradWeightArgs& a) {
  check_conv(a);
  if (a.dw) {
    const Call call(device, context, ConvPhase::grad_weight, a, a.x.dtype);
    call.multiply_transposed({ConvPart::frames, a.to, 0},
                             conv_source(a.from, a.x, a.before, a.after),
                             conv_forward_taps(a.dims.time), a.dy);
    call.finish_weights(a.dw, a.accumulate);
  }
  if (a.dbias)
    run(context, ReduceRowsArgs{a.dy, a.dbias, a.accumulate, &a.to.extent->rows, a.workspace});
}

void conv_windows_cpu(const Context& context, const ConvArgs& a) { conv_with(cpu, context, a); }
void conv_windows_cpu(const Context& context, const ConvGradInputArgs& a) {
  conv_with(cpu, context, a);
}
void conv_windows_cpu(const Context& context, const ConvGradWeightArgs& a) {
  conv_with(cpu, context, a);
}

}  // namespace rondo
