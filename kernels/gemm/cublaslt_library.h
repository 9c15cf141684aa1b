// cuBLASLt, looked for when the first product on a GPU wants it: the program starts without it.
// Only in builds whose toolkit has its header.
#pragma once

#include <cublasLt.h>

#include <string>

namespace rondo {

// The functions that are used. Tests put their own here.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  std::string name;  // the file it came from
};

// nullptr when there is none, with what was looked for in *why; CudaLibrary says where,
// once per process, with RONDO_CUBLASLT for a file of one's own.
const CublasLt* find_cublaslt(std::string* why = nullptr);

}  // namespace rondo
