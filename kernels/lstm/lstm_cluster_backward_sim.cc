#include "kernels/lstm/lstm_cluster_backward.cu"
