#include "kernels/optimizer/optimizer.cu"
