// RONDO_HOST_DEVICE marks functions that host code and GPU kernels share.
#pragma once

#if defined(__CUDACC__)
#define RONDO_HOST_DEVICE __host__ __device__
#else
#define RONDO_HOST_DEVICE
#endif
