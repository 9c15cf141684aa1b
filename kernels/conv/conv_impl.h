// The variants of conv and what they share, for its folder alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/conv_places.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// Check what conv.h says of the arguments that the host can see.
void check_conv(const ConvArgs& args);
void check_conv(const ConvGradInputArgs& args);
void check_conv(const ConvGradWeightArgs& args);

ConvTaps conv_forward_taps(const ConvAxis& axis);
ConvTaps conv_backward_taps(const ConvAxis& axis);

// A convolution as sums over what each pixel of the result is made of: y of x forward, dx of dy for
// the gradient. Weight (target o, source c, row k, column l) of a group is the group's w[o *
// target_stride + c * source_stride + k * row_stride + l].
struct ConvGather {
  ConvTaps height, time;
  int64_t source_channels = 0, target_channels = 0;  // of a group
  int64_t source_pixel = 0, target_pixel = 0;        // of all groups
  int32_t source_height = 0, target_height = 0;
  int64_t source_stride = 0, target_stride = 0, row_stride = 0;
  int64_t groups = 1;
  // Frames of the source that count as channels of one (conv_unfolded): of frame t and channel l,
  // frame t * multiply + l * step + offset.
  ConvTaps beside;
  // Each channel of the target is made of the same one of the source alone (conv_depthwise):
  // weights are those of source c, whatever o.
  bool depthwise = false;

  RONDO_HOST_DEVICE int64_t target_cols() const { return target_height * target_pixel; }
  // Weights of a group.
  RONDO_HOST_DEVICE int64_t group_weights() const {
    return source_channels * target_channels * height.count * time.count;
  }
};
ConvGather conv_forward(const ConvDims& dims);
ConvGather conv_backward(const ConvDims& dims);
// The same, where a window has too few terms one below the other for a register tile (of images
// with one channel): its columns become channels. Others are returned as they are.
ConvGather conv_unfolded(ConvGather gather);
// The same as one group, where groups have one channel on either side; others as they are.
ConvGather conv_depthwise(ConvGather gather);

// Throws unless it holds so much, aligned.
void conv_check_workspace(const TensorView& workspace, size_t needed);

// Frames that are wanted, and where they go.
struct ConvTarget {
  ConvTargets frames;
  TensorView out;
};
struct ConvGradTargets {
  ConvTarget parts[3];  // dx, dbefore, dafter
};
ConvGradTargets conv_grad_targets(const ConvGradInputArgs& args);

void conv_ref(const Context& context, const ConvArgs& args);
void conv_ref(const Context& context, const ConvGradInputArgs& args);
void conv_ref(const Context& context, const ConvGradWeightArgs& args);

// By windows, of one row.
size_t conv_windows_workspace(const Context& context, ConvPhase phase, const ConvDims& dims,
                              DType compute, const PackedCapacity& from, const PackedCapacity& to);
void conv_windows_cpu(const Context& context, const ConvArgs& args);
void conv_windows_cpu(const Context& context, const ConvGradInputArgs& args);
void conv_windows_cpu(const Context& context, const ConvGradWeightArgs& args);
RONDO_DECLARE_GPU(conv_windows_gpu, ConvArgs);
RONDO_DECLARE_GPU(conv_windows_gpu, ConvGradInputArgs);
RONDO_DECLARE_GPU(conv_windows_gpu, ConvGradWeightArgs);

// Directly.
struct ConvKernel;
size_t conv_direct_workspace(const ConvKernel& kernel, const Context& context, ConvPhase phase,
                             const ConvDims& dims);
void conv_direct(const ConvKernel& kernel, const Context& context, const ConvArgs& args);
void conv_direct(const ConvKernel& kernel, const Context& context, const ConvGradInputArgs& args);
void conv_direct(const ConvKernel& kernel, const Context& context, const ConvGradWeightArgs& args);
RONDO_DECLARE_GPU(conv_direct_gpu, ConvArgs);
RONDO_DECLARE_GPU(conv_direct_gpu, ConvGradInputArgs);
RONDO_DECLARE_GPU(conv_direct_gpu, ConvGradWeightArgs);

}  // namespace rondo
