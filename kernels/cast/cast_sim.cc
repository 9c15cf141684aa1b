#include "kernels/cast/cast.cu"
