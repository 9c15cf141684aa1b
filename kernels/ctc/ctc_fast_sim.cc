#include "kernels/ctc/ctc_fast.cu"
