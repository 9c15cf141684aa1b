#include "kernels/pointwise/pointwise.cu"
