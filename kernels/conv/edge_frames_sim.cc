#include "kernels/conv/edge_frames.cu"
