#include "kernels/lstm/lstm.h"

#include <array>

#include "kernels/base/cpu.h"
#include "kernels/base/error.h"
#include "kernels/gemm/int8.h"
#include "kernels/lstm/lstm_cpu.h"
#include "kernels/lstm/lstm_gpu.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo {
namespace {

void check_view(const TensorView& v, const char* name, bool required, DType dtype,
                std::initializer_list<int64_t> dims) {
  if (!v) {
    RONDO_CHECK(!required || TensorView(nullptr, dtype, dims).numel() == 0, "lstm: ", name,
                " is absent");
    return;
  }
  bool same = v.dtype == dtype && v.rank == static_cast<int>(dims.size());
  int i = 0;
  for (int64_t d : dims) {
    same = same && v.dim(i) == d;
    ++i;
  }
  if (same) return;
  std::string want, got;
  for (int64_t d : dims) want += str(want.empty() ? "" : ", ", d);
  for (i = 0; i < v.rank; ++i) got += str(i ? ", " : "", v.dim(i));
  RONDO_CHECK(false, "lstm: ", name, " is ", name_of(v.dtype), " [", got, "], expected ",
              name_of(dtype), " [", want, "]");
}

void check_dims(const LstmDims& dims) {
  RONDO_CHECK(dims.directions == 1 || dims.directions == 2, "lstm: ", dims.directions,
              " directions");
  RONDO_CHECK(dims.input >= 1 && dims.hidden >= 1 && dims.projection >= 0, "lstm: input ",
              dims.input, ", hidden ", dims.hidden, ", projection ", dims.projection);
}

// What is for the forward pass of inference alone.
void check_int8(const LstmDims& dims, DType compute, bool keeps) {
  RONDO_CHECK(!dims.int8 || (compute == DType::f32 && !keeps && dims.input <= int8_most_k &&
                             dims.hidden <= int8_most_k),
              "lstm of 8 bits: of ", name_of(compute), ", input ", dims.input, ", hidden ",
              dims.hidden, keeps ? ", with what a backward pass needs" : "");
}

void check_run(LstmRun run, const LstmDims& dims) {
  RONDO_CHECK(run == LstmRun::both || dims.directions == 2,
              "lstm: one direction of a layer that has one");
}

void check_weights(const LstmWeights& w, const LstmDims& dims, DType compute, DType bias,
                   bool required) {
  check_view(w.w, "w", required, compute, {4 * dims.hidden, dims.input});
  check_view(w.r, "r", required, compute, {4 * dims.hidden, dims.output()});
  check_view(w.b, "b", false, bias, {4 * dims.hidden});
  if (dims.projection) {
    check_view(w.p, "p", required, compute, {dims.projection, dims.hidden});
  } else {
    RONDO_CHECK(!w.p, "lstm: p without a projection");
  }
}

}  // namespace

void check_lstm(const LstmForwardArgs& a) {
  check_dims(a.dims);
  check_run(a.run, a.dims);
  const DType t = a.x.dtype, s = lstm_state_dtype(t);
  const int64_t D = a.dims.directions, I = a.dims.input, H = a.dims.hidden, P = a.dims.output();
  const int64_t rows = a.layout.capacity.rows, N = a.layout.capacity.sequences;
  RONDO_CHECK(is_floating(t), "lstm: x is ", name_of(t));
  check_int8(a.dims, t, a.gates || a.cells || a.hidden);
  check_view(a.x, "x", true, t, {rows, I});
  for (int d = 0; d < D; ++d) check_weights(a.weights[d], a.dims, t, s, true);
  check_view(a.h0, "h0", false, t, {D, N, P});
  check_view(a.c0, "c0", false, s, {D, N, H});
  check_view(a.y, "y", true, t, {rows, D * P});
  check_view(a.hn, "hn", false, t, {D, N, P});
  check_view(a.cn, "cn", false, s, {D, N, H});
  check_view(a.gates, "gates", false, t, {D, rows, 4 * H});
  check_view(a.cells, "cells", static_cast<bool>(a.gates), s, {D, rows, H});
  check_view(a.hidden, "hidden", a.gates && a.dims.projection, t, {D, rows, H});
}

void check_lstm(const LstmBackwardArgs& a) {
  check_dims(a.dims);
  check_run(a.run, a.dims);
  const DType t = a.dy.dtype, s = lstm_state_dtype(t);
  const int64_t D = a.dims.directions, I = a.dims.input, H = a.dims.hidden, P = a.dims.output();
  const int64_t rows = a.layout.capacity.rows, N = a.layout.capacity.sequences;
  RONDO_CHECK(is_floating(t), "lstm: dy is ", name_of(t));
  check_int8(a.dims, t, true);
  for (int d = 0; d < D; ++d) check_weights(a.weights[d], a.dims, t, s, true);
  check_view(a.c0, "c0", false, s, {D, N, H});
  check_view(a.gates, "gates", true, t, {D, rows, 4 * H});
  check_view(a.cells, "cells", true, s, {D, rows, H});
  check_view(a.dy, "dy", true, t, {rows, D * P});
  check_view(a.dhn, "dhn", false, t, {D, N, P});
  check_view(a.dcn, "dcn", false, s, {D, N, H});
  check_view(a.dgates, "dgates", true, t, {D, rows, 4 * H});
  if (a.dims.projection) check_view(a.dprojected, "dprojected", true, t, {D, rows, P});
  check_view(a.dx, "dx", false, t, {rows, I});
  check_view(a.dh0, "dh0", false, t, {D, N, P});
  check_view(a.dc0, "dc0", false, s, {D, N, H});
}

void check_lstm(const LstmWeightGradArgs& a) {
  check_dims(a.dims);
  const DType t = a.x.dtype, s = lstm_state_dtype(t);
  const int64_t D = a.dims.directions, I = a.dims.input, H = a.dims.hidden, P = a.dims.output();
  const int64_t rows = a.layout.capacity.rows, N = a.layout.capacity.sequences;
  RONDO_CHECK(is_floating(t), "lstm: x is ", name_of(t));
  check_int8(a.dims, t, true);
  check_view(a.x, "x", true, t, {rows, I});
  check_view(a.h0, "h0", false, t, {D, N, P});
  check_view(a.y, "y", true, t, {rows, D * P});
  check_view(a.dgates, "dgates", true, t, {D, rows, 4 * H});
  if (a.dims.projection) {
    check_view(a.hidden, "hidden", true, t, {D, rows, H});
    check_view(a.dprojected, "dprojected", true, t, {D, rows, P});
  }
  for (int d = 0; d < D; ++d) check_weights(a.grads[d], a.dims, s, s, false);
}

size_t lstm_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                            DType compute, const PackedCapacity& capacity) {
  check_dims(dims);
  check_int8(dims, compute, phase != LstmPhase::forward);
  switch (context.backend) {
    case Backend::ref:
      return 0;
    case Backend::cpu:
      return lstm_cpu_workspace_bytes(context, phase, dims, compute, capacity);
    case Backend::sim:
    case Backend::cuda:
      return lstm_gpu_workspace_bytes(context, phase, dims, compute, capacity);
  }
  return 0;
}

namespace {

// One instruction set's kernels as a variant.
template <class Args, void (*kernel)(const LstmCpu&, const Context&, const Args&),
          const LstmCpu& cpu, bool (*has_isa)(const Context&, const void*)>
constexpr Variant cpu_variant(const char* name) {
  return {Args::op,
          name,
          Backend::cpu,
          Role::standard,
          [](const Context& context, const void* args) {
            kernel(cpu, context, *static_cast<const Args*>(args));
          },
          [](const Context& context, const void* args) {
            return has_isa(context, args) &&
                   (!args || cpu.of(lstm_compute_dtype(*static_cast<const Args*>(args)),
                                    static_cast<const Args*>(args)->dims));
          }};
}

bool on_any_cpu(const Context&, const void*) { return true; }

constexpr LstmCpu amx = {nullptr, &isa_amx::lstm_bf16, nullptr};
constexpr LstmCpu avx512bf16 = {nullptr, &isa_avx512bf16::lstm_bf16, nullptr};
constexpr LstmCpu avx512vnni = {nullptr, nullptr, &isa_avx512vnni::lstm_int8};
constexpr LstmCpu avx512 = {&isa_avx512::lstm_f32, &isa_avx512::lstm_bf16, nullptr};
constexpr LstmCpu avx2 = {&isa_avx2::lstm_f32, &isa_avx2::lstm_bf16, &isa_avx2::lstm_int8};
constexpr LstmCpu generic = {&isa_generic::lstm_f32, &isa_generic::lstm_bf16,
                             &isa_generic::lstm_int8};

template <class Args, void (*ref)(const Context&, const Args&),
          void (*kernel)(const LstmCpu&, const Context&, const Args&), class... Gpu>
constexpr auto variants(Gpu... gpu) {
  return std::array{
      variant<Args, ref>("ref", Backend::ref),
      cpu_variant<Args, kernel, amx, has_amx>("amx"),
      cpu_variant<Args, kernel, avx512bf16, has_avx512_bf16>("avx512bf16"),
      cpu_variant<Args, kernel, avx512vnni, has_avx512_vnni>("avx512vnni"),
      cpu_variant<Args, kernel, avx512, has_avx512>("avx512"),
      cpu_variant<Args, kernel, avx2, has_avx2>("avx2"),
      cpu_variant<Args, kernel, generic, on_any_cpu>("generic"),
      gpu...,
  };
}

}  // namespace

// The time loops on GPUs. `portable` runs where nothing else was chosen; the others are candidates
// of a trial on the device, in the order of kernels/lstm/lstm_conditions.h. `stem`: lstm_forward,
// ...
#define RONDO_LSTM_CANDIDATE(BACKEND, space, Args, function, name) \
  BACKEND(Args, function, name, Role::named, space::function##_accepts)
#define RONDO_LSTM_LOOPS_ON(BACKEND, space, Args, stem)                                  \
  BACKEND(Args, stem##_portable, "portable", Role::standard, lstm_gpu_accepts<Args>),    \
      RONDO_LSTM_CANDIDATE(BACKEND, space, Args, stem##_cluster_split, "cluster_split"), \
      RONDO_LSTM_CANDIDATE(BACKEND, space, Args, stem##_grid_cluster, "grid_cluster"),   \
      RONDO_LSTM_CANDIDATE(BACKEND, space, Args, stem##_grid, "grid")
#ifdef RONDO_WITH_CUDA
#define RONDO_LSTM_LOOPS(Args, stem)                       \
  RONDO_LSTM_LOOPS_ON(RONDO_SIM_VARIANT, sim, Args, stem), \
      RONDO_LSTM_LOOPS_ON(RONDO_CUDA_VARIANT, cuda, Args, stem)
#else
#define RONDO_LSTM_LOOPS(Args, stem) RONDO_LSTM_LOOPS_ON(RONDO_SIM_VARIANT, sim, Args, stem)
#endif

std::span<const Variant> lstm_forward_variants() {
  static constexpr auto list = variants<LstmForwardArgs, lstm_forward_ref, lstm_forward_cpu>(
      RONDO_LSTM_LOOPS(LstmForwardArgs, lstm_forward));
  return list;
}

std::span<const Variant> lstm_backward_variants() {
  static constexpr auto list = variants<LstmBackwardArgs, lstm_backward_ref, lstm_backward_cpu>(
      RONDO_LSTM_LOOPS(LstmBackwardArgs, lstm_backward));
  return list;
}

std::span<const Variant> lstm_weight_grad_variants() {
  static constexpr auto list =
      variants<LstmWeightGradArgs, lstm_weight_grad_ref, lstm_weight_grad_cpu>(
          RONDO_GPU_VARIANTS(LstmWeightGradArgs, lstm_weight_grad_gpu, "portable", Role::standard,
                             lstm_gpu_accepts<LstmWeightGradArgs>));
  return list;
}

}  // namespace rondo
