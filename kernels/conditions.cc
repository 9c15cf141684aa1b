#include "kernels/conditions.h"

#include "kernels/lstm/lstm_conditions.h"

namespace rondo {
namespace {

// Beside the time loops of the LSTM, which have a table of their own (lstm_conditions.h). The first
// row that fits tells. An op stands for all that begin with it, a name likewise.
struct Row {
  std::string_view op, name;
  bool gpu;  // sim and cuda; else ref and cpu
  std::string_view words;
};

constexpr Row rows[] = {
    {"lstm_weight_grad", "portable", true, "f32 or bf16; any H"},
    {"lstm_stack", "wavefront", true,
     "2 to 8 layers of one H, as cluster_split takes it; frames for two chunks"},
    {"ctc", "fast", true, "f32 or bf16; any labels; what leaves f32's range goes on in log space"},
    {"gemm", "cublaslt", true,
     "cuBLASLt is there; f32 or bf16; rows counted on the GPU only with spare ones"},
    {"gemm", "all_rows", true, "f32 or bf16; rows counted on the GPU only with spare ones"},
    {"gemm", "f64", false, "f64"},
    {"gemm", "int8_vnni", false, "AVX-512 with VNNI; operands of 8 bits"},
    {"gemm", "int8_avx2", false, "AVX2; operands of 8 bits"},
    {"gemm", "int8", false, "any CPU; operands of 8 bits"},
    {"beam_search", "block", true, "f32 or bf16; a beam of 128 at most; 1024 classes at most"},
    {"loss_totals", "", true, "f32 losses"},
    {"", "", true, "f32 or bf16"},
    {"", "amx", false, "AMX with bf16; bf16"},
    {"", "avx512bf16", false, "AVX-512 with bf16; bf16"},
    {"", "avx512vnni", false, "AVX-512 with VNNI; operands of 8 bits"},
    {"", "avx512", false, "AVX-512"},
    {"", "avx2", false, "AVX2"},
    {"", "generic", false, "any CPU"},
    {"", "wide_avx512", false, "AVX-512; an exponent per state"},
    {"", "wide_avx2", false, "AVX2; an exponent per state"},
    {"", "wide_generic", false, "any CPU; an exponent per state"},
    {"", "", false, "any CPU"},
};

bool is_lstm_loop(const Variant& v) {
  const std::string_view op = v.op;
  return op == LstmForwardArgs::op || op == LstmBackwardArgs::op;
}

}  // namespace

std::string condition_of(const Variant& variant) {
  if (variant.accepts == nullptr) return "always";
  const bool gpu = variant.backend == Backend::sim || variant.backend == Backend::cuda;
  if (gpu && is_lstm_loop(variant)) {
    if (const LstmConditions* c = find_lstm_conditions(variant.name)) {
      return lstm_conditions_in_words(*c, variant.backend);
    }
  }
  for (const Row& row : rows) {
    if (row.gpu == gpu && std::string_view(variant.op).starts_with(row.op) &&
        std::string_view(variant.name).starts_with(row.name)) {
      return std::string(row.words);
    }
  }
  return "";
}

}  // namespace rondo
