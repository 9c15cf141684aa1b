#include "kernels/loss/loss.cu"
