#include "kernels/lstm/lstm_grid_cluster_forward.cu"
