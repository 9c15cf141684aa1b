// The variants of frame stacking, for their table alone.
#pragma once

#include "kernels/base/variants.h"
#include "kernels/simt/gpu_variant.h"
#include "kernels/subsample/subsample.h"

namespace rondo {
RONDO_DECLARE_KERNEL(StackFramesArgs, stack_frames)
RONDO_DECLARE_KERNEL(StackFramesGradArgs, stack_frames_grad)
RONDO_DECLARE_GPU(stack_frames_gpu, StackFramesArgs);
RONDO_DECLARE_GPU(stack_frames_grad_gpu, StackFramesGradArgs);
}  // namespace rondo
