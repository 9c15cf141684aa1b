#include "kernels/gemm/cublaslt_library.h"

#include "kernels/base/cuda_library.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

bool bind_all(void* l, CublasLt& f) {
  return find_function(l, "cublasLtCreate", f.create) &&
         find_function(l, "cublasLtGetVersion", f.get_version) &&
         find_function(l, "cublasLtGetStatusString", f.get_status_string) &&
         find_function(l, "cublasLtMatmulDescCreate", f.desc_create) &&
         find_function(l, "cublasLtMatmulDescDestroy", f.desc_destroy) &&
         find_function(l, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
         find_function(l, "cublasLtMatrixLayoutCreate", f.layout_create) &&
         find_function(l, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
         find_function(l, "cublasLtMatrixLayoutSetAttribute", f.layout_set) &&
         find_function(l, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
         find_function(l, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
         find_function(l, "cublasLtMatmulPreferenceSetAttribute", f.preference_set) &&
         find_function(l, "cublasLtMatmulAlgoGetHeuristic", f.get_heuristic) &&
         find_function(l, "cublasLtMatmul", f.matmul);
}

struct Search {
  CublasLt library;
  bool found = false;
  std::string why;

  Search() {
    const std::string file = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
    void* opened = open_cuda_library(file, "RONDO_CUBLASLT", &library.name);
    found = opened && bind_all(opened, library);
    if (found) return;
    why = opened ? str(library.name, " lacks functions of cuBLASLt ", CUBLAS_VER_MAJOR)
                 : str("cuBLASLt ", CUBLAS_VER_MAJOR, " was not found (tried ", library.name,
                       "); install CUDA's cuBLAS or set RONDO_CUBLASLT to its file");
  }
};

}  // namespace

const CublasLt* find_cublaslt(std::string* why) {
  static const Search search;
  if (!search.found && why) *why = search.why;
  return search.found ? &search.library : nullptr;
}

}  // namespace rondo
