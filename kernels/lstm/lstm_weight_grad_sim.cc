#include "kernels/lstm/lstm_weight_grad.cu"
