#include "kernels/ctc/ctc_segments.cu"
