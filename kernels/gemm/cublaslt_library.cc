#include "kernels/gemm/cublaslt_library.h"

#include <dlfcn.h>

#include "kernels/base/error.h"
#include "kernels/base/library_candidates.h"

namespace rondo {
namespace {

const std::string& file_name() {
  static const std::string name = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
  return name;
}

template <class Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool bind_all(void* l, CublasLt& f) {
  return bind(l, "cublasLtCreate", f.create) && bind(l, "cublasLtGetVersion", f.get_version) &&
         bind(l, "cublasLtGetStatusString", f.get_status_string) &&
         bind(l, "cublasLtMatmulDescCreate", f.desc_create) &&
         bind(l, "cublasLtMatmulDescDestroy", f.desc_destroy) &&
         bind(l, "cublasLtMatmulDescSetAttribute", f.desc_set) &&
         bind(l, "cublasLtMatrixLayoutCreate", f.layout_create) &&
         bind(l, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
         bind(l, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
         bind(l, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
         bind(l, "cublasLtMatmulPreferenceSetAttribute", f.preference_set) &&
         bind(l, "cublasLtMatmulAlgoGetHeuristic", f.get_heuristic) &&
         bind(l, "cublasLtMatmul", f.matmul);
}

struct Search {
  CublasLt library;
  bool found = false;
  std::string why;

  Search() {
    std::string tried;
    for (const std::string& file : library_candidates(file_name(), "RONDO_CUBLASLT")) {
      void* opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (opened == nullptr) {
        tried += str(tried.empty() ? "" : ", ", file);
        continue;
      }
      library.name = file;
      found = bind_all(opened, library);
      if (found) return;
      why = str(file, " lacks functions of cuBLASLt ", CUBLAS_VER_MAJOR);
      dlclose(opened);
    }
    if (why.empty()) {
      why = str("cuBLASLt ", CUBLAS_VER_MAJOR, " was not found (tried ", tried,
                "); install CUDA's cuBLAS or set RONDO_CUBLASLT to its file");
    }
  }
};

}  // namespace

const CublasLt* find_cublaslt(std::string* why) {
  static const Search search;
  if (!search.found && why) *why = search.why;
  return search.found ? &search.library : nullptr;
}

}  // namespace rondo
