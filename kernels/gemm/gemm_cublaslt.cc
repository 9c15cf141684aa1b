// cuBLASLt works on column-major matrices, in which our row-major c is c^T [n, m]: it computes
// c^T = op(b)^T op(a)^T, so b goes first. A bias over our columns is then one over its rows, which
// its epilogue adds; in the type of c, so bf16 results with their f32 bias are made in f32, a piece
// of rows at a time, and rounded once.
//
// The number of rows really used is on the device, out of cuBLASLt's sight: it computes all of c,
// and rows past the count become garbage. Where rows are contracted, garbage would spread: those of
// a and b are zeroed first.
//
// Determinism: the algorithm depends on the shape alone, and those that sum by atomics are left
// out.
#include "kernels/gemm/gemm_cublaslt.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include "kernels/base/device.h"
#include "kernels/base/gpu/cuda_check.h"

namespace rondo {
namespace {

constexpr size_t algorithm_bytes = size_t{32} << 20;  // what NVIDIA advises for Hopper
constexpr size_t wide_rows_bytes = size_t{64} << 20;  // of f32 results on their way to bf16
constexpr size_t bias_alignment = 16;
// That of the workspace: said of the library for Hopper by those who found out, checked nowhere.
constexpr size_t workspace_alignment = 256;

struct Key {
  int64_t m, n, k, lda, ldb, ldc, batch, a_stride, b_stride, c_stride;
  bool transpose_a, transpose_b, bias, accumulates;
  DType dtype, c_dtype;
  size_t a_alignment, b_alignment, c_alignment, workspace;
  auto operator<=>(const Key&) const = default;
};

template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

struct Product {
  bool possible = false;
  Owned<cublasLtMatmulDesc_t> description;
  Owned<cublasLtMatrixLayout_t> a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
};

// The handle and the chosen algorithms of one device; never destroyed, because the driver may go
// first. Ranks as threads have a device each, so that none waits for another's calls.
struct Cache {
  std::mutex mutex;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Product> products;
};
Cache& cache_of(const CublasLt& library, int device) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<const CublasLt*, int>, Cache>;
  const std::lock_guard lock(mutex);
  return all[{&library, device}];
}

void check(const CublasLt& library, cublasStatus_t status, const char* call) {
  RONDO_CHECK(status == CUBLAS_STATUS_SUCCESS, call, ": ", library.get_status_string(status));
}

// That of every matrix of a batch.
size_t alignment_of(const void* p, int64_t stride, DType t) {
  const auto bytes = static_cast<uintptr_t>(stride) * size_of(t);
  const auto address = reinterpret_cast<uintptr_t>(p) | bytes;
  return std::min<size_t>(256, size_t{1} << std::min(8, std::countr_zero(address | 256)));
}

cudaDataType_t type_of(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

Owned<cublasLtMatrixLayout_t> make_layout(const CublasLt& l, DType dtype, int64_t rows,
                                          int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(l,
        l.layout_create(&made, type_of(dtype), static_cast<uint64_t>(rows),
                        static_cast<uint64_t>(cols), ld),
        "cublasLtMatrixLayoutCreate");
  Owned<cublasLtMatrixLayout_t> layout(made, l.layout_destroy);
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    check(l, l.layout_set(made, attribute, &value, sizeof value),
          "cublasLtMatrixLayoutSetAttribute");
  };
  if (batch > 1) {
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return layout;
}

Owned<cublasLtMatmulPreference_t> make_preference(const CublasLt& l, const Key& key) {
  cublasLtMatmulPreference_t made = nullptr;
  check(l, l.preference_create(&made), "cublasLtMatmulPreferenceCreate");
  Owned<cublasLtMatmulPreference_t> preference(made, l.preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(l, l.preference_set(made, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(key.workspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE});
  // The library's a is our b.
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.b_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.a_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.c_alignment));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.c_alignment));
  return preference;
}

Product make_product(const CublasLt& l, cublasLtHandle_t handle, const Key& key) {
  cublasLtMatmulDesc_t made = nullptr;
  check(l, l.desc_create(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  Product p{false,
            {made, l.desc_destroy},
            make_layout(l, key.dtype, key.transpose_a ? key.m : key.k,
                        key.transpose_a ? key.k : key.m, key.lda, key.batch, key.a_stride),
            make_layout(l, key.dtype, key.transpose_b ? key.k : key.n,
                        key.transpose_b ? key.n : key.k, key.ldb, key.batch, key.b_stride),
            make_layout(l, key.c_dtype, key.n, key.m, key.ldc, key.batch, key.c_stride)};
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(l, l.desc_set(made, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const auto preference = make_preference(l, key);
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status = l.get_heuristic(handle, made, p.b.get(), p.a.get(), p.c.get(),
                                                p.c.get(), preference.get(), 1, &found, &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return p;
  check(l, status, "cublasLtMatmulAlgoGetHeuristic");
  p.possible = count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
  p.algorithm = found.algo;
  return p;
}

// One call of the library. `workspace` bytes of g.workspace are its own.
class Call {
 public:
  // The cache is that of the device, locked.
  Call(const CublasLt& library, Cache& cache, const Context& context, const GemmArgs& g,
       size_t workspace)
      : library_(library), context_(context), g_(g), workspace_(workspace) {
    const Key key = {g.m,
                     g.n,
                     g.k,
                     g.lda,
                     g.ldb,
                     g.ldc,
                     g.batch,
                     g.a_stride,
                     g.b_stride,
                     g.c_stride,
                     g.transpose_a,
                     g.transpose_b,
                     static_cast<bool>(g.bias),
                     g.beta != 0,
                     g.dtype,
                     g.c_dtype,
                     alignment_of(g.a, g.a_stride, g.dtype),
                     alignment_of(g.b, g.b_stride, g.dtype),
                     alignment_of(g.c, g.c_stride, g.c_dtype),
                     workspace};
    if (cache.handle == nullptr) {
      check(library, library.create(&cache.handle), "cublasLtCreate");
    }
    handle_ = cache.handle;
    auto it = cache.products.find(key);
    if (it == cache.products.end()) {
      it = cache.products.emplace(key, make_product(library, handle_, key)).first;
    }
    product_ = &it->second;
  }

  bool possible() const { return product_->possible; }
  void run() const {
    if (g_.bias) {
      const void* bias = g_.bias.data;
      check(library_,
            library_.desc_set(product_->description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                              sizeof bias),
            "cublasLtMatmulDescSetAttribute");
    }
    check(library_,
          library_.matmul(handle_, product_->description.get(), &g_.alpha, g_.b, product_->b.get(),
                          g_.a, product_->a.get(), &g_.beta, g_.c, product_->c.get(), g_.c,
                          product_->c.get(), &product_->algorithm, g_.workspace.data, workspace_,
                          static_cast<cudaStream_t>(context_.stream->native())),
          "cublasLtMatmul");
  }

 private:
  const CublasLt& library_;
  const Context& context_;
  GemmArgs g_;
  size_t workspace_;
  cublasLtHandle_t handle_ = nullptr;
  const Product* product_ = nullptr;
};

// The workspace from its first aligned byte on.
TensorView aligned_workspace(const TensorView& w) {
  const size_t skipped = -reinterpret_cast<uintptr_t>(w.data) % workspace_alignment;
  if (!w || w.bytes() <= skipped) return {};
  return {w.as<uint8_t>() + skipped, DType::u8, {static_cast<int64_t>(w.bytes() - skipped)}};
}

size_t own_workspace(const GemmArgs& g) {
  return std::min(g.workspace ? g.workspace.bytes() : 0, algorithm_bytes);
}

// Rows of c from `row` on, as f32 in the workspace.
GemmArgs wide_piece(const GemmArgs& g, int64_t row, int64_t rows, float* results) {
  GemmArgs part = g;
  part.m = rows;
  part.a = static_cast<const bf16*>(g.a) + (g.transpose_a ? row : row * g.lda);
  part.c = results;
  part.c_dtype = DType::f32;
  part.ldc = g.n;
  part.bias = {};
  part.beta = 0;
  return part;
}

// f32 results in the workspace, rounded with their bias. False: not possible.
bool run_in_pieces(const CublasLt& library, Cache& cache, const GemmCublasLtKernels& kernels,
                   const Context& context, const GemmArgs& g) {
  const size_t row_bytes = static_cast<size_t>(g.n) * sizeof(float), own = own_workspace(g);
  const size_t wide = g.workspace ? g.workspace.bytes() - own : 0;
  const int64_t piece = std::min<int64_t>(g.m, static_cast<int64_t>(wide / row_bytes));
  if (piece == 0) return false;
  auto* results = reinterpret_cast<float*>(g.workspace.as<uint8_t>() + own);
  for (const bool runs : {false, true}) {  // all are possible before one is run
    for (int64_t row = 0; row < g.m; row += piece) {
      const int64_t rows = std::min(piece, g.m - row);
      const Call call(library, cache, context, wide_piece(g, row, rows, results), own);
      if (!call.possible()) return false;
      if (!runs) continue;
      call.run();
      kernels.add_bias(context, {results, static_cast<bf16*>(g.c) + row * g.ldc, g.ldc, rows, g.n,
                                 g.beta, g.bias.as<float>()});
    }
  }
  return true;
}

void zero_tails(const GemmCublasLtKernels& kernels, const Context& context, const GemmArgs& g) {
  kernels.zero_tail(context, {const_cast<void*>(g.a), g.dtype, g.lda, g.k, g.m, g.row_count, true});
  kernels.zero_tail(context, {const_cast<void*>(g.b), g.dtype, g.ldb, g.transpose_b ? g.n : g.k,
                              g.transpose_b ? g.k : g.n, g.row_count, !g.transpose_b});
}

// Whether the library is given the whole batch. That it takes negative strides is said nowhere;
// and what goes around its calls is for one product.
bool together(const GemmArgs& g) {
  return g.a_stride >= 0 && g.b_stride >= 0 && g.c_stride > 0 && !g.bias &&
         !(g.row_count && g.transpose_a);
}

}  // namespace

size_t gemm_cublaslt_workspace(const GemmArgs& g) {
  const bool rounds = g.dtype == DType::bf16 && g.c_dtype == DType::bf16;
  const size_t row = static_cast<size_t>(std::max<int64_t>(g.n, 1)) * sizeof(float);
  const size_t rows = static_cast<size_t>(std::max<int64_t>(g.m, 1));
  return workspace_alignment + algorithm_bytes +
         (rounds ? std::clamp(wide_rows_bytes / row, size_t{1}, rows) * row : 0);
}

void gemm_by_cublaslt(const CublasLt& library, const GemmCublasLtKernels& kernels,
                      const Context& context, const GemmArgs& args) {
  check_gemm(args);
  GemmArgs g = args;
  g.workspace = aligned_workspace(args.workspace);
  RONDO_CHECK(!g.row_count || g.spare_rows, "row_count without spare_rows");
  if (g.m == 0 || g.n == 0) return;
  if (g.batch != 1 && !together(g)) {
    return gemm_each(
        g, [&](const GemmArgs& one) { gemm_by_cublaslt(library, kernels, context, one); });
  }
  const bool aligned = !g.bias || reinterpret_cast<uintptr_t>(g.bias.data) % bias_alignment == 0;
  if (g.k == 0 || g.alpha == 0 || !aligned) return kernels.portable(context, g);
  Cache& cache = cache_of(library, context.device->index());
  const std::lock_guard lock(cache.mutex);
  if (g.row_count && g.transpose_a) zero_tails(kernels, context, g);
  if (g.bias && g.c_dtype == DType::bf16) {
    if (!run_in_pieces(library, cache, kernels, context, g)) kernels.portable(context, g);
    return;
  }
  const Call call(library, cache, context, g, own_workspace(g));
  if (!call.possible()) return kernels.portable(context, g);
  call.run();
}

bool gemm_cublaslt_accepts(const Context& context, const void* args) {
  if (find_cublaslt() == nullptr || !gemm_gpu_accepts(context, args)) return false;
  const auto* g = static_cast<const GemmArgs*>(args);
  return !g || !g->row_count || g->spare_rows;
}

std::string gemm_library() {
  std::string why;
  const CublasLt* library = find_cublaslt(&why);
  if (library == nullptr) return why;
  const size_t version = library->get_version();
  return str(library->name, ", version ", version / 10000, ".", version / 100 % 100, ".",
             version % 100);
}

void gemm_cublaslt(const Context& context, const GemmArgs& args) {
  CUDA_CHECK(cudaSetDevice(context.device->index()));
  gemm_by_cublaslt(*find_cublaslt(), {cuda::gemm_gpu, cuda::gemm_zero_tail, cuda::gemm_add_bias},
                   context, args);
}

}  // namespace rondo
