#include "kernels/dropout/dropout.cu"
