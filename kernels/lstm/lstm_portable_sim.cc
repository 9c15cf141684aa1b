#include "kernels/lstm/lstm_portable.cu"
