#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "kernels/base/cpu.h"
#include "kernels/base/error.h"
#include "kernels/gemm/gemm_blocked.h"
#include "kernels/gemm/gemm_impl.h"
#include "kernels/gemm/int8.h"

namespace rondo {

void check_gemm(const GemmArgs& a) {
  RONDO_CHECK(a.m >= 0 && a.n >= 0 && a.k >= 0, "gemm of ", a.m, "x", a.n, "x", a.k);
  RONDO_CHECK(a.batch >= 0, "gemm of a batch of ", a.batch);
  RONDO_CHECK(!a.packed_b || a.batch == 1, "packed weights for a batch of ", a.batch);
  RONDO_CHECK(!a.packed_b || !a.transpose_a || !a.row_count,
              "packed weights of so many rows as *row_count says");
  if (a.int8) {
    RONDO_CHECK(a.dtype == DType::f32 && a.alpha == 1 && a.beta == 0 && a.batch == 1 &&
                    !a.transpose_a && a.k <= int8_most_k,
                "gemm of 8 bits: ", name_of(a.dtype), ", alpha ", a.alpha, ", beta ", a.beta,
                ", batch ", a.batch, ", a ", a.transpose_a ? "transposed" : "as it is", ", k ",
                a.k);
  }
  RONDO_CHECK(is_floating(a.dtype), "gemm inputs are ", name_of(a.dtype));
  RONDO_CHECK(a.c_dtype == a.dtype || (a.dtype == DType::bf16 && a.c_dtype == DType::f32),
              "gemm of ", name_of(a.dtype), " into ", name_of(a.c_dtype));
  const int64_t a_cols = a.transpose_a ? a.m : a.k, b_cols = a.transpose_b ? a.k : a.n;
  RONDO_CHECK(a.lda >= a_cols && a.ldb >= b_cols && a.ldc >= a.n, "leading dimensions ", a.lda,
              ", ", a.ldb, ", ", a.ldc, " for rows of ", a_cols, ", ", b_cols, ", ", a.n);
  if (a.bias) {
    const DType want = a.dtype == DType::f64 ? DType::f64 : DType::f32;
    RONDO_CHECK(a.bias.dtype == want && a.bias.numel() == a.n, "bias is ", name_of(a.bias.dtype),
                "[", a.bias.numel(), "], expected ", name_of(want), "[", a.n, "]");
  }
}

GemmArgs gemm_of_batch(const GemmArgs& args, int64_t i) {
  const auto moved = [&](const void* p, int64_t stride, DType t) {
    const auto bytes = static_cast<int64_t>(size_of(t));
    return p ? static_cast<const char*>(p) + i * stride * bytes : nullptr;
  };
  GemmArgs one = args;
  one.batch = 1;
  one.a = moved(args.a, args.a_stride, args.dtype);
  one.b = moved(args.b, args.b_stride, args.dtype);
  one.c = const_cast<char*>(moved(args.c, args.c_stride, args.c_dtype));
  if (args.row_count) one.row_count = args.row_count + i * args.row_count_stride;
  return one;
}

GemmExtent gemm_extent(const GemmArgs& a) {
  check_gemm(a);
  GemmExtent e{a.m, a.n, a.k};
  if (a.row_count) {
    int64_t& limited = a.transpose_a ? e.k : e.m;
    RONDO_CHECK(*a.row_count >= 0 && *a.row_count <= limited, "row count ", *a.row_count,
                ", capacity ", limited);
    limited = *a.row_count;
  }
  return e;
}

namespace {

struct CpuVariant {
  const GemmKernel* const* kernel;
  bool f32;  // takes f32 inputs; all take bf16
  bool CpuFeatures::*feature;
};
constexpr CpuVariant amx = {&isa_amx::gemm_amx_kernel, false, &CpuFeatures::amx};
constexpr CpuVariant avx512_bf16 = {&isa_avx512bf16::gemm_bf16_kernel, false,
                                    &CpuFeatures::avx512_bf16};
constexpr CpuVariant avx512 = {&isa_avx512::gemm_f32_kernel, true, &CpuFeatures::avx512};
constexpr CpuVariant avx2 = {&isa_avx2::gemm_f32_kernel, true, &CpuFeatures::avx2};
constexpr CpuVariant generic = {&isa_generic::gemm_f32_kernel, true, nullptr};

template <const CpuVariant& v>
bool accepts(const Context&, const void* args) {
  if (*v.kernel == nullptr || (v.feature && !(cpu_features().*v.feature))) return false;
  if (args == nullptr) return true;
  const auto* g = static_cast<const GemmArgs*>(args);
  return !g->int8 && (g->dtype == DType::bf16 || (g->dtype == DType::f32 && v.f32));
}

template <const CpuVariant& v>
void run_blocked(const Context& context, const GemmArgs& args) {
  gemm_each(args, [&](const GemmArgs& one) { gemm_blocked(context, one, **v.kernel); });
}

template <const CpuVariant& v>
constexpr Variant blocked(const char* name) {
  return variant<GemmArgs, run_blocked<v>>(name, Backend::cpu, Role::standard, accepts<v>);
}

struct Int8Variant {
  const Int8Kernel* const* kernel;
  bool CpuFeatures::*feature;
};
constexpr Int8Variant int8_vnni = {&isa_avx512vnni::gemm_int8_kernel, &CpuFeatures::avx512_vnni};
constexpr Int8Variant int8_avx2 = {&isa_avx2::gemm_int8_kernel, &CpuFeatures::avx2};
constexpr Int8Variant int8_generic = {&isa_generic::gemm_int8_kernel, nullptr};

template <const Int8Variant& v>
bool accepts_int8(const Context&, const void* args) {
  if (*v.kernel == nullptr || (v.feature && !(cpu_features().*v.feature))) return false;
  return !args || static_cast<const GemmArgs*>(args)->int8;
}

template <const Int8Variant& v>
void run_int8(const Context& context, const GemmArgs& args) {
  gemm_int8(context, args, **v.kernel);
}

template <const Int8Variant& v>
constexpr Variant eight_bits(const char* name) {
  return variant<GemmArgs, run_int8<v>>(name, Backend::cpu, Role::standard, accepts_int8<v>);
}

#ifdef RONDO_WITH_SIM
bool gemm_all_rows_accepts(const Context& context, const void* args) {
  if (!gemm_gpu_accepts(context, args)) return false;
  const auto* g = static_cast<const GemmArgs*>(args);
  return !g || !g->row_count || g->spare_rows;
}
#endif

}  // namespace

#ifdef RONDO_WITH_SIM
namespace sim {
// As libraries that cannot see row_count: rows past it are computed too, from whatever is there.
// By name, for tests of what calls products with spare rows.
static void gemm_all_rows(const Context& context, const GemmArgs& args) {
  GemmArgs all = args;
  if (!args.transpose_a) all.row_count = nullptr;
  gemm_gpu(context, all);
}
}  // namespace sim
#endif

size_t gemm_workspace_bytes(const Context& context, const GemmArgs& args) {
  size_t bytes = 0;
#ifdef RONDO_WITH_CUBLASLT
  if (context.backend == Backend::cuda) return gemm_cublaslt_workspace(args);
#endif
  if (context.backend != Backend::cpu || args.dtype == DType::f64) return bytes;
  if (args.int8) {
    for (const Int8Variant* v : {&int8_vnni, &int8_avx2, &int8_generic}) {
      if (*v->kernel) bytes = std::max(bytes, gemm_int8_workspace(args, **v->kernel));
    }
    return bytes;
  }
  for (const CpuVariant* v : {&amx, &avx512_bf16, &avx512, &avx2, &generic}) {
    if (*v->kernel) bytes = std::max(bytes, gemm_blocked_workspace(context, args, **v->kernel));
  }
  return bytes;
}

#ifndef RONDO_WITH_CUBLASLT
std::string gemm_library() { return "this program was built without cuBLASLt"; }
#endif

std::span<const Variant> gemm_variants() {
  static constexpr Variant variants[] = {
      variant<GemmArgs, gemm_ref>("ref", Backend::ref),
      blocked<amx>("amx"),
      blocked<avx512_bf16>("avx512bf16"),
      blocked<avx512>("avx512"),
      blocked<avx2>("avx2"),
      blocked<generic>("generic"),
      eight_bits<int8_vnni>("int8_vnni"),
      eight_bits<int8_avx2>("int8_avx2"),
      eight_bits<int8_generic>("int8_generic"),
      variant<GemmArgs, gemm_f64>("f64", Backend::cpu, Role::standard, gemm_f64_accepts),
#ifdef RONDO_WITH_CUBLASLT
      variant<GemmArgs, gemm_cublaslt>("cublaslt", Backend::cuda, Role::standard,
                                       gemm_cublaslt_accepts),
#endif
      RONDO_GPU_VARIANTS(GemmArgs, gemm_gpu, "portable", Role::standard, gemm_gpu_accepts),
      RONDO_SIM_VARIANT(GemmArgs, gemm_all_rows, "all_rows", Role::named, gemm_all_rows_accepts),
  };
  return variants;
}

}  // namespace rondo
