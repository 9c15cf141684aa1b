#include "kernels/lstm/lstm_fused.cu"
