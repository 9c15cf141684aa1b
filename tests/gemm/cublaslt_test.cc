// What we ask of cuBLASLt, by a library of our own that computes it on the simulated device: which
// matrix is which, transpositions, leading dimensions, batches, bias, alignment, spare rows.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/gemm/gemm_cublaslt.h"
#include "kernels/simt/sim/sim_device.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct FakeDescription {
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  int32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct FakeLayout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct FakePreference {
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

struct Counts {
  int heuristics = 0, products = 0, portable = 0;
  bool refuse = false;  // no algorithm for anything
};
Counts counts;

double element(const void* m, cudaDataType type, int64_t i) {
  return type == CUDA_R_16BF ? static_cast<double>(static_cast<const bf16*>(m)[i])
                             : static_cast<double>(static_cast<const float*>(m)[i]);
}
void put(void* m, cudaDataType type, int64_t i, double x) {
  if (type == CUDA_R_16BF) {
    static_cast<bf16*>(m)[i] = bf16(static_cast<float>(x));
  } else {
    static_cast<float*>(m)[i] = static_cast<float>(x);
  }
}

// d = alpha op(a) op(b) + beta c + bias, column-major.
void multiply(const FakeDescription& d, double alpha, double beta, const void* a,
              const FakeLayout& la, const void* b, const FakeLayout& lb, void* c,
              const FakeLayout& lc) {
  const bool ta = d.transpose_a == CUBLAS_OP_T, tb = d.transpose_b == CUBLAS_OP_T;
  const auto rows = static_cast<int64_t>(lc.rows), cols = static_cast<int64_t>(lc.cols);
  const auto inner = static_cast<int64_t>(ta ? la.rows : la.cols);
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t p = 0; p < inner; ++p) {
        sum += element(a, la.type, ta ? p + i * la.ld : i + p * la.ld) *
               element(b, lb.type, tb ? j + p * lb.ld : p + j * lb.ld);
      }
      double value = alpha * sum;
      if (beta != 0) value += beta * element(c, lc.type, i + j * lc.ld);
      if (d.epilogue == CUBLASLT_EPILOGUE_BIAS) value += element(d.bias, lc.type, i);
      put(c, lc.type, i + j * lc.ld, value);
    }
  }
}

template <class Fake, class Handle>
Fake* fake(Handle handle) {
  return reinterpret_cast<Fake*>(handle);
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t la, const void* b,
                      cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                      cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                      const cublasLtMatmulAlgo_t*, void* workspace, size_t, cudaStream_t stream) {
  if (c != d || lc != ld) return CUBLAS_STATUS_INVALID_VALUE;
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  ++counts.products;
  // Copies: the caller may change the description after the call.
  auto* queue = reinterpret_cast<detail::StreamImpl*>(stream);
  queue->enqueue([=, description = *fake<FakeDescription>(description),
                  x = *static_cast<const float*>(alpha), y = *static_cast<const float*>(beta),
                  sa = *fake<FakeLayout>(la), sb = *fake<FakeLayout>(lb),
                  sc = *fake<FakeLayout>(lc)] {
    const auto matrix = [](const void* p, const FakeLayout& l, int64_t i) {
      return static_cast<const char*>(p) + i * l.stride * (l.type == CUDA_R_16BF ? 2 : 4);
    };
    for (int64_t i = 0; i < sc.batch; ++i) {
      multiply(description, static_cast<double>(x), static_cast<double>(y), matrix(a, sa, i), sa,
               matrix(b, sb, i), sb, const_cast<char*>(matrix(d, sc, i)), sc);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get_heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t la,
                             cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc,
                             cublasLtMatrixLayout_t, cublasLtMatmulPreference_t preference, int,
                             cublasLtMatmulHeuristicResult_t* results, int* count) {
  ++counts.heuristics;
  const auto &a = *fake<FakeLayout>(la), &b = *fake<FakeLayout>(lb), &c = *fake<FakeLayout>(lc);
  const bool ta = fake<FakeDescription>(d)->transpose_a == CUBLAS_OP_T;
  const bool tb = fake<FakeDescription>(d)->transpose_b == CUBLAS_OP_T;
  const bool fits = (ta ? a.cols : a.rows) == c.rows && (tb ? b.rows : b.cols) == c.cols &&
                    (ta ? a.rows : a.cols) == (tb ? b.cols : b.rows) &&
                    a.ld >= static_cast<int64_t>(a.rows) && b.ld >= static_cast<int64_t>(b.rows) &&
                    c.ld >= static_cast<int64_t>(c.rows) && a.batch == c.batch &&
                    b.batch == c.batch && a.stride >= 0 && b.stride >= 0 && c.stride >= 0;
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  // Sums in place are made by atomics, in no fixed order.
  if (fake<FakePreference>(preference)->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *count = counts.refuse ? 0 : 1;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return counts.refuse ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

CublasLt fake_library() {
  CublasLt l;
  l.create = [](cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(new int);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.get_status_string = [](cublasStatus_t) { return "refused by the test"; };
  l.desc_create = [](cublasLtMatmulDesc_t* d, cublasComputeType_t, cudaDataType_t) {
    *d = reinterpret_cast<cublasLtMatmulDesc_t>(new FakeDescription);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.desc_destroy = [](cublasLtMatmulDesc_t d) {
    delete fake<FakeDescription>(d);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.desc_set = [](cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                  const void* value, size_t size) {
    auto& f = *fake<FakeDescription>(d);
    const auto set = [&](auto& to) {
      if (size != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(&to, value, size);
      return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(f.transpose_a);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(f.transpose_b);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(f.epilogue);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(f.bias);
      default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
  };
  l.layout_create = [](cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                       uint64_t cols, int64_t ld) {
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{type, rows, cols, ld});
    return CUBLAS_STATUS_SUCCESS;
  };
  l.layout_destroy = [](cublasLtMatrixLayout_t layout) {
    delete fake<FakeLayout>(layout);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.layout_set = [](cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                    const void* value, size_t size) {
    auto& f = *fake<FakeLayout>(layout);
    const bool batch = attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    const bool stride = attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
    if (!(batch && size == sizeof f.batch) && !(stride && size == sizeof f.stride)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(batch ? static_cast<void*>(&f.batch) : &f.stride, value, size);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.preference_create = [](cublasLtMatmulPreference_t* p) {
    *p = reinterpret_cast<cublasLtMatmulPreference_t>(new FakePreference);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.preference_destroy = [](cublasLtMatmulPreference_t p) {
    delete fake<FakePreference>(p);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.preference_set = [](cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a,
                        const void* value, size_t size) {
    if (a != CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return CUBLAS_STATUS_SUCCESS;
    std::memcpy(&fake<FakePreference>(p)->reductions, value, size);
    return CUBLAS_STATUS_SUCCESS;
  };
  l.get_heuristic = get_heuristic;
  l.matmul = matmul;
  return l;
}

struct Shape {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::f32, c_dtype = DType::f32;
  bool bias = false;
  float beta = 0;
  int64_t rows = -1;  // really used; by each further product of the batch one less
  int64_t batch = 1;
  bool backwards = false;  // each b before the one of the product before
  size_t workspace = size_t{1} << 20;
};

std::string name_of_shape(const Shape& s) {
  return str(s.m, "x", s.n, "x", s.k, s.transpose_a ? " t" : " n", s.transpose_b ? "t " : "n ",
             name_of(s.dtype), " ", name_of(s.c_dtype), s.bias ? " bias" : "", " beta ", s.beta,
             " rows ", s.rows, " batch ", s.batch, s.backwards ? " backwards" : "");
}

// A buffer of the simulated device, filled with f32 numbers rounded to its type.
Buffer matrix(DType dtype, int64_t n, std::mt19937& random) {
  Buffer b(sim_device(), static_cast<size_t>(n) * size_of(dtype), "matrix");
  std::uniform_real_distribution<float> uniform(-1, 1);
  const cudaDataType type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  for (int64_t i = 0; i < n; ++i) put(b.data(), type, i, static_cast<double>(uniform(random)));
  return b;
}

void copy_matrix(const Buffer& from, Buffer& to) {
  std::memcpy(to.data(), from.data(), from.bytes());
}

void set_nan(const Buffer& b, DType dtype, int64_t first, int64_t n) {
  const cudaDataType type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  for (int64_t i = first; i < first + n; ++i) put(b.data(), type, i, std::nan(""));
}

// What lies past the rows in use of the batch's i-th product.
void spoil_rows(const Shape& s, const GemmArgs& g, const Buffer& a, const Buffer& b, int64_t i) {
  const int64_t a_rows = s.transpose_a ? s.k : s.m, b_rows = s.transpose_b ? s.n : s.k;
  const int64_t rows = std::max<int64_t>(s.rows - i, 0), a0 = i * a_rows * g.lda;
  const int64_t b0 = i * b_rows * g.ldb;
  set_nan(a, s.dtype, a0 + rows * g.lda, (a_rows - rows) * g.lda);
  if (s.transpose_a && !s.transpose_b) {
    set_nan(b, s.dtype, b0 + rows * g.ldb, (b_rows - rows) * g.ldb);
  }
  if (s.transpose_a && s.transpose_b) {
    for (int64_t j = 0; j < b_rows; ++j) set_nan(b, s.dtype, b0 + j * g.ldb + rows, g.ldb - rows);
  }
}

// Runs the shape through the fake library and through the reference; compares the rows in use.
void check_shape(const Shape& s) {
  INFO(name_of_shape(s));
  static const CublasLt library = fake_library();
  std::mt19937 random(7);
  Stream stream = sim_device().make_stream();
  const Context context{Backend::sim, &sim_device(), &stream, nullptr};
  GemmArgs g;
  g.m = s.m, g.n = s.n, g.k = s.k;
  g.transpose_a = s.transpose_a, g.transpose_b = s.transpose_b;
  g.dtype = s.dtype, g.c_dtype = s.c_dtype;
  g.lda = (s.transpose_a ? s.m : s.k) + 3;
  g.ldb = (s.transpose_b ? s.k : s.n) + 1;
  g.ldc = s.n + 2;
  g.alpha = 0.5f, g.beta = s.beta;
  const int64_t a_rows = s.transpose_a ? s.k : s.m, b_rows = s.transpose_b ? s.n : s.k;
  g.batch = s.batch;
  g.a_stride = a_rows * g.lda, g.b_stride = b_rows * g.ldb, g.c_stride = s.m * g.ldc;
  const Buffer a = matrix(s.dtype, s.batch * g.a_stride, random);
  const Buffer b = matrix(s.dtype, s.batch * g.b_stride, random);
  const Buffer bias = matrix(DType::f32, s.n, random);
  const Buffer c = matrix(s.c_dtype, s.batch * g.c_stride, random);
  Buffer want(sim_device(), c.bytes(), "want");
  copy_matrix(c, want);
  const Buffer row_counts(sim_device(), static_cast<size_t>(s.batch) * 4, "counts");
  if (s.rows >= 0) {
    g.row_count = row_counts.as<int32_t>();
    g.row_count_stride = 1;
    g.spare_rows = true;
    for (int64_t i = 0; i < s.batch; ++i) {
      row_counts.as<int32_t>()[i] = static_cast<int32_t>(std::max<int64_t>(s.rows - i, 0));
      spoil_rows(s, g, a, b, i);
    }
  }
  g.a = a.data(), g.b = b.data(), g.c = want.data();
  if (s.backwards) {
    g.b = static_cast<const char*>(g.b) +
          static_cast<size_t>((s.batch - 1) * g.b_stride) * size_of(s.dtype);
    g.b_stride = -g.b_stride;
  }
  if (s.bias) g.bias = TensorView(bias.data(), DType::f32, {s.n});
  gemm_ref({Backend::ref, &cpu_device(), nullptr, nullptr}, g);
  g.c = c.data();
  // Aligned to no more than 64 bytes; the library is to see s.workspace bytes aligned to 256.
  const Buffer workspace(sim_device(), s.workspace + 256, "workspace");
  g.workspace = TensorView(workspace.as<uint8_t>() + 64, DType::u8,
                           {static_cast<int64_t>(s.workspace) + 192});
  const GemmCublasLtKernels kernels = {[](const Context& x, const GemmArgs& y) {
                                         ++counts.portable;
                                         sim::gemm_gpu(x, y);
                                       },
                                       sim::gemm_zero_tail, sim::gemm_add_bias};
  gemm_by_cublaslt(library, kernels, context, g);
  stream.synchronize();
  const cudaDataType type = s.c_dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  int wrong = 0;
  for (int64_t i = 0; i < s.batch * s.m; ++i) {
    if (s.rows >= 0 && !s.transpose_a && i % s.m >= s.rows - i / s.m) continue;
    for (int64_t j = 0; j < g.ldc; ++j) {
      const double x = element(c.data(), type, i * g.ldc + j);
      const double y = element(want.data(), type, i * g.ldc + j);
      const double ulps = s.c_dtype == DType::bf16 ? 0x1p-7 : 0x1p-20;
      if (!(std::abs(x - y) <= ulps * std::abs(y) + 1e-6)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("cuBLASLt is given the right matrices") {
  counts = {};
  int shapes = 0;
  for (int bits = 0; bits < 64; ++bits) {
    Shape s{17, 11, 9, (bits & 1) != 0, (bits & 2) != 0};
    s.dtype = bits & 4 ? DType::bf16 : DType::f32;
    s.c_dtype = bits & 4 && bits & 8 ? DType::bf16 : DType::f32;
    s.bias = bits & 16;
    s.beta = bits & 32 ? -0.5f : 0.0f;
    // Room for the library's part and four rows of f32 results.
    if (s.bias && s.c_dtype == DType::bf16) s.workspace = (size_t{32} << 20) + 4 * 11 * 4;
    check_shape(s);
    ++shapes;
  }
  CHECK(counts.portable == 0);
  CHECK(counts.products > shapes);  // bf16 with bias: in pieces
}

TEST_CASE("rows past the count reach no result through cuBLASLt") {
  counts = {};
  for (int bits = 0; bits < 16; ++bits) {
    for (int64_t rows : {0, 1, 13}) {
      Shape s{17, 11, 17, (bits & 1) != 0, (bits & 2) != 0};
      s.dtype = bits & 4 ? DType::bf16 : DType::f32;
      s.beta = bits & 8 ? 1.0f : 0.0f;
      s.rows = rows;
      check_shape(s);
    }
  }
  CHECK(counts.portable == 0);
}

TEST_CASE("cuBLASLt computes a batch at once") {
  counts = {};
  for (int bits = 0; bits < 16; ++bits) {
    Shape s{17, 11, 9, (bits & 1) != 0, (bits & 2) != 0};
    s.dtype = bits & 4 ? DType::bf16 : DType::f32;
    s.beta = bits & 8 ? -0.5f : 0.0f;
    s.batch = 3;
    if (!s.transpose_a) s.rows = 2;
    check_shape(s);
  }
  CHECK(counts.products == 16);
  // One by one: negative strides, a bias, contracted rows of which some are spare.
  Shape s{17, 11, 9};
  s.batch = 2, s.backwards = true;
  check_shape(s);
  s.backwards = false, s.bias = true;
  check_shape(s);
  s.bias = false, s.transpose_a = true, s.rows = 5;
  check_shape(s);
  CHECK(counts.products == 16 + 3 * 2);
  CHECK(counts.portable == 0);
}

TEST_CASE("what cuBLASLt does not take, our own kernel does") {
  counts = {};
  counts.refuse = true;
  check_shape({40, 24, 16});
  CHECK(counts.portable == 1);
  Shape rounded{41, 24, 16, false, false, DType::bf16, DType::bf16, true};
  rounded.workspace = (size_t{32} << 20) + 4096;
  check_shape(rounded);
  CHECK(counts.portable == 2);
  counts.refuse = false;
  rounded.m = 42;
  rounded.workspace = 64;  // no room for a row
  check_shape(rounded);
  check_shape({43, 24, 0});  // nothing to contract
  CHECK(counts.portable == 4);
  CHECK(counts.products == 0);
}

TEST_CASE("an algorithm is chosen once per shape") {
  counts = {};
  check_shape({50, 24, 16});
  CHECK(counts.heuristics == 1);
  for (int i = 0; i < 3; ++i) check_shape({50, 24, 16});
  CHECK(counts.products == 4);
  // Buffers may be aligned otherwise, which is another choice.
  CHECK(counts.heuristics <= 2);
  check_shape({51, 24, 16});
  CHECK(counts.heuristics >= 2);
}

TEST_CASE("products in f64 and of 8 bits are not for cuBLASLt") {
  const auto accepted = [](DType dtype, bool int8) {
    GemmArgs g;
    g.dtype = dtype;
    g.int8 = int8;
    return gemm_cublaslt_accepts({}, &g);
  };
  CHECK(accepted(DType::f32, false) == (find_cublaslt() != nullptr));
  CHECK(!accepted(DType::f64, false));
  CHECK(!accepted(DType::f32, true));
}

TEST_CASE("a missing cuBLASLt is named") {
  std::string why;
  if (const CublasLt* library = find_cublaslt(&why)) {
    CHECK(library->matmul != nullptr);
    CHECK(library->get_version() / 10000 == CUBLAS_VER_MAJOR);
  } else {
    CHECK_THAT(why, Catch::Contains("cuBLASLt"));
    CHECK_THAT(why, Catch::Contains("RONDO_CUBLASLT"));
  }
}
