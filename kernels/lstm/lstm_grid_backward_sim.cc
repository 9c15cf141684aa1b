#include "kernels/lstm/lstm_grid_backward.cu"
