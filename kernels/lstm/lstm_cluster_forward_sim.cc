#include "kernels/lstm/lstm_cluster_forward.cu"
