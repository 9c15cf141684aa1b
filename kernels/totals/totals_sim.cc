#include "kernels/totals/totals.cu"
