// The variants of edge_frames and what they share, for its folder alone.
#pragma once

#include <array>

#include "kernels/conv/conv_windows.h"
#include "kernels/conv/edge_frames.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// The last frames and the first, as windows of one frame each: windows are the edge, the source is
// what it is copied from or added to. Checks the arguments. Without rows where an edge is absent.
std::array<ConvWindows, 2> edges_of(const EdgeFramesArgs& args);
std::array<ConvWindows, 2> edges_of(const EdgeFramesGradArgs& args);
template <class Args, class F>
void for_edges(const Args& args, F use) {
  for (const ConvWindows& edge : edges_of(args)) {
    if (edge.rows > 0) use(edge);
  }
}

void edge_frames_ref(const Context& context, const EdgeFramesArgs& args);
void edge_frames_grad_ref(const Context& context, const EdgeFramesGradArgs& args);
void edge_frames_cpu(const Context& context, const EdgeFramesArgs& args);
void edge_frames_grad_cpu(const Context& context, const EdgeFramesGradArgs& args);
RONDO_DECLARE_GPU(edge_frames_gpu, EdgeFramesArgs);
RONDO_DECLARE_GPU(edge_frames_grad_gpu, EdgeFramesGradArgs);

}  // namespace rondo
