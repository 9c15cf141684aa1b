#include "kernels/reduce/reduce.cu"
