#include "kernels/lstm/lstm.cu"
