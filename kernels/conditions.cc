#include "kernels/conditions.h"

namespace rondo {
namespace {

// The first row that fits tells. An op stands for all that begin with it, a name likewise.
struct Row {
  std::string_view op, name;
  bool gpu;  // sim and cuda; else ref and cpu
  std::string_view words;
};

constexpr Row rows[] = {
    {"lstm", "portable", true, "f32 or bf16; any H"},
    {"lstm", "composed", true, "f32 or bf16; any H"},
    {"lstm", "cluster", true, "bf16; H <= 512; no projection; sm_90 with a cluster that fits"},
    {"lstm", "grid_cluster", true,
     "bf16; H <= 1024, on GPUs > 512; no projection; sm_90, all blocks resident; polls"},
    {"lstm", "grid", true,
     "f32 or bf16; H <= 1024; no projection; sm_80, all blocks resident; polls"},
    {"lstm", "cudnn", true, "cuDNN is there and takes the batch"},
    {"ctc", "fast", true, "f32 or bf16; any labels; what leaves f32's range goes on in log space"},
    {"ctc", "cudnn", true,
     "cuDNN is there; f32; blank 0; 1 to 255 labels; equal lengths; with a gradient"},
    {"gemm", "cublaslt", true,
     "cuBLASLt is there; f32 or bf16; rows counted on the GPU only with spare ones"},
    {"gemm", "openblas", false, "f32 or f64; sizes and strides below 2^31"},
    {"loss_totals", "", true, "f32 losses"},
    {"", "", true, "f32 or bf16"},
    {"", "avx512bf16", false, "AVX-512 with bf16; bf16"},
    {"", "avx512", false, "AVX-512"},
    {"", "avx2", false, "AVX2"},
    {"", "generic", false, "any CPU"},
    {"", "wide_avx512", false, "AVX-512; an exponent per state"},
    {"", "wide_avx2", false, "AVX2; an exponent per state"},
    {"", "wide_generic", false, "any CPU; an exponent per state"},
    {"", "", false, "any CPU"},
};

}  // namespace

std::string_view condition_of(const Variant& variant) {
  if (variant.accepts == nullptr) return "always";
  const bool gpu = variant.backend == Backend::sim || variant.backend == Backend::cuda;
  for (const Row& row : rows) {
    if (row.gpu == gpu && std::string_view(variant.op).starts_with(row.op) &&
        std::string_view(variant.name).starts_with(row.name)) {
      return row.words;
    }
  }
  return "";
}

}  // namespace rondo
