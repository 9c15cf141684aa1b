#include "kernels/ctc/ctc_chunk_gpu.cu"
