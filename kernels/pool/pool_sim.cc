#include "kernels/pool/pool.cu"
