#include "kernels/pack/pack.cu"
