#include "kernels/lstm/lstm_grid_forward.cu"
