#include "kernels/softmax/softmax.cu"
