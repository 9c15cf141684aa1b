#include "kernels/norm/norm.cu"
