#include "kernels/gemm/gemm.cu"
