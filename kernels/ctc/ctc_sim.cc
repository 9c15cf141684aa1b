#include "kernels/ctc/ctc.cu"
