// Named ranges of the host's time, as NVIDIA's profilers (Nsight Systems) show them. Nothing in
// builds without CUDA, or with a toolkit that lacks NVTX's header; next to nothing where no
// profiler listens.
#pragma once

namespace rondo::nvtx {

// Ranges of a thread lie within each other; the name is copied.
void begin_range(const char* name);
void end_range();

}  // namespace rondo::nvtx
