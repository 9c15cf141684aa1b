// The variants of conv2d and what they share, for its folder alone.
#pragma once

#include "kernels/base/host_device.h"
#include "kernels/base/variants.h"
#include "kernels/conv/conv_windows.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// Check what conv2d.h says of the arguments that the host can see.
void check_conv2d(const Conv2dArgs& args);
void check_conv2d(const Conv2dGradInputArgs& args);
void check_conv2d(const Conv2dGradWeightArgs& args);

// A convolution as sums over what each pixel of the result is made of: y of x forward, dx of dy for
// the gradient. Weight (target o, source c, row k, column l) of a group is the group's w[o *
// target_stride + c * source_stride + k * row_stride + l].
struct Conv2dGather {
  ConvTaps height, time;
  int64_t source_channels = 0, target_channels = 0;  // of a group
  int64_t source_pixel = 0, target_pixel = 0;        // of all groups
  int32_t source_height = 0, target_height = 0;
  int64_t source_stride = 0, target_stride = 0, row_stride = 0;
  int64_t groups = 1;
  // Frames of the source that count as channels of one (conv2d_unfolded): of frame t and channel l,
  // frame t * multiply + l * step + offset.
  ConvTaps beside;
  // Each channel of the target is made of the same one of the source alone (conv2d_depthwise):
  // weights are those of source c, whatever o.
  bool depthwise = false;

  RONDO_HOST_DEVICE int64_t target_cols() const { return target_height * target_pixel; }
  // Weights of a group.
  RONDO_HOST_DEVICE int64_t group_weights() const {
    return source_channels * target_channels * height.count * time.count;
  }
};
Conv2dGather conv2d_forward(const Conv2dDims& dims);
Conv2dGather conv2d_backward(const Conv2dDims& dims);
// The same, where a window has too few terms one below the other for a register tile (of images
// with one channel): its columns become channels. Others are returned as they are.
Conv2dGather conv2d_unfolded(Conv2dGather gather);
// The same as one group, where groups have one channel on either side; others as they are.
Conv2dGather conv2d_depthwise(Conv2dGather gather);

ConvSource conv2d_source(const PackedView& layout, const TensorView& rows, const TensorView& before,
                         const TensorView& after);

// Frames that are wanted, and where they go.
struct Conv2dTarget {
  ConvTargets frames;
  void* out = nullptr;
};
struct Conv2dGradTargets {
  Conv2dTarget parts[3];  // dx, dbefore, dafter
};
Conv2dGradTargets conv2d_grad_targets(const Conv2dGradInputArgs& args);

void conv2d_ref(const Context& context, const Conv2dArgs& args);
void conv2d_grad_input_ref(const Context& context, const Conv2dGradInputArgs& args);
void conv2d_grad_weight_ref(const Context& context, const Conv2dGradWeightArgs& args);

struct Conv2dKernel;
void conv2d_with(const Conv2dKernel& kernel, const Context& context, const Conv2dArgs& args);
void conv2d_with(const Conv2dKernel& kernel, const Context& context,
                 const Conv2dGradInputArgs& args);
void conv2d_with(const Conv2dKernel& kernel, const Context& context,
                 const Conv2dGradWeightArgs& args);
size_t conv2d_cpu_workspace(const Conv2dKernel& kernel, const Context& context, Conv2dPhase phase,
                            const Conv2dDims& dims);

RONDO_DECLARE_GPU(conv2d_gpu, Conv2dArgs);
RONDO_DECLARE_GPU(conv2d_grad_input_gpu, Conv2dGradInputArgs);
RONDO_DECLARE_GPU(conv2d_grad_weight_gpu, Conv2dGradWeightArgs);

}  // namespace rondo
