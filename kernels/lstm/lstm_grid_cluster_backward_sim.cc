#include "kernels/lstm/lstm_grid_cluster_backward.cu"
