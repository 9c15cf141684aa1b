// The variants of conv and what they share, for its folder alone.
#pragma once

#include "kernels/conv/conv.h"
#include "kernels/conv/conv_windows.h"
#include "kernels/conv/edge_frames.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// Check what conv.h says of the arguments that the host can see.
void check_conv(const ConvArgs& args);
void check_conv(const ConvGradInputArgs& args);
void check_conv(const ConvGradWeightArgs& args);

ConvTaps conv_forward_taps(const ConvDims& dims);
ConvTaps conv_backward_taps(const ConvDims& dims);
// The taps that reach frames j * stride + frame of x, as windows of dy around frame j: `first`,
// first + period and so on. None: taps.count is 0.
struct ConvStrideTaps {
  ConvTaps taps;
  int32_t first = 0, period = 1;
};
ConvStrideTaps conv_stride_taps(const ConvDims& dims, int32_t frame);
ConvSource conv_source(const PackedView& layout, const TensorView& rows, const TensorView& before,
                       const TensorView& after);
// What the three parts of the gradient of the input are: the part, its array.
struct ConvGradPart {
  ConvTargets targets;
  TensorView out;
};
struct ConvGradParts {
  ConvGradPart parts[3];
};
ConvGradParts conv_grad_parts(const ConvGradInputArgs& args);

// The pieces of work that the driver has done by a device.
struct ConvDevice {
  void (*windows)(const Context&, const ConvWindows&);
  void (*permute)(const Context&, const ConvPermute&);
  void (*scatter)(const Context&, const ConvScatter&);
};
void conv_with(const ConvDevice& device, const Context& context, const ConvArgs& args);
void conv_with(const ConvDevice& device, const Context& context, const ConvGradInputArgs& args);
void conv_with(const ConvDevice& device, const Context& context, const ConvGradWeightArgs& args);

void conv_ref(const Context& context, const ConvArgs& args);
void conv_grad_input_ref(const Context& context, const ConvGradInputArgs& args);
void conv_grad_weight_ref(const Context& context, const ConvGradWeightArgs& args);

void conv_cpu(const Context& context, const ConvArgs& args);
void conv_grad_input_cpu(const Context& context, const ConvGradInputArgs& args);
void conv_grad_weight_cpu(const Context& context, const ConvGradWeightArgs& args);

RONDO_DECLARE_GPU(conv_gpu, ConvArgs);
RONDO_DECLARE_GPU(conv_grad_input_gpu, ConvGradInputArgs);
RONDO_DECLARE_GPU(conv_grad_weight_gpu, ConvGradWeightArgs);

// The same of edge_frames.h.
void check_edge_frames(const EdgeFramesArgs& args);
void check_edge_frames(const EdgeFramesGradArgs& args);

inline bool edge_frames_grad_accepts(const Context&, const void* args) {
  if (!args) return true;
  const auto& a = *static_cast<const EdgeFramesGradArgs*>(args);
  return (a.dtail ? a.dtail : a.dhead).dtype != DType::f64;
}

void edge_frames_ref(const Context& context, const EdgeFramesArgs& args);
void edge_frames_grad_ref(const Context& context, const EdgeFramesGradArgs& args);
void edge_frames_cpu(const Context& context, const EdgeFramesArgs& args);
void edge_frames_grad_cpu(const Context& context, const EdgeFramesGradArgs& args);
RONDO_DECLARE_GPU(edge_frames_gpu, EdgeFramesArgs);
RONDO_DECLARE_GPU(edge_frames_grad_gpu, EdgeFramesGradArgs);

}  // namespace rondo
