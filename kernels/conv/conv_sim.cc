#include "kernels/conv/conv.cu"
