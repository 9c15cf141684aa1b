#include "kernels/gemm/cublaslt_library.h"

#include "kernels/base/error.h"
#include "kernels/base/gpu/cuda_library.h"

namespace rondo {
namespace {

struct Search {
  CublasLt functions;
  CudaLibrary library{str("cuBLASLt ", CUBLAS_VER_MAJOR), str("libcublasLt.so.", CUBLAS_VER_MAJOR),
                      "RONDO_CUBLASLT"};

  Search() {
    functions.name = library.file();
    library.find("cublasLtCreate", functions.create);
    library.find("cublasLtGetVersion", functions.get_version);
    library.find("cublasLtGetStatusString", functions.get_status_string);
    library.find("cublasLtMatmulDescCreate", functions.desc_create);
    library.find("cublasLtMatmulDescDestroy", functions.desc_destroy);
    library.find("cublasLtMatmulDescSetAttribute", functions.desc_set);
    library.find("cublasLtMatrixLayoutCreate", functions.layout_create);
    library.find("cublasLtMatrixLayoutDestroy", functions.layout_destroy);
    library.find("cublasLtMatrixLayoutSetAttribute", functions.layout_set);
    library.find("cublasLtMatmulPreferenceCreate", functions.preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", functions.preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", functions.preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", functions.get_heuristic);
    library.find("cublasLtMatmul", functions.matmul);
  }
};

}  // namespace

const CublasLt* find_cublaslt(std::string* why) {
  static const Search search;
  return search.library.usable(why) ? &search.functions : nullptr;
}

}  // namespace rondo
