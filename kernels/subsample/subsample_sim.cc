#include "kernels/subsample/subsample.cu"
