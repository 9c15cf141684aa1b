// The tiles of floats, compiled once per instruction set (kernels/base/cpu/simd.h).
#include <utility>

#include "kernels/base/cpu/simd_rows.h"
#include "kernels/conv2d/conv2d_tiles.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int depth = 1;

#include "kernels/conv2d/conv2d_depthwise.h"

using Dot = FloatDot;

#include "kernels/conv2d/conv2d_micro.h"

}  // namespace

const Conv2dKernel* const conv2d_kernel = &kernel;

}  // namespace rondo::RONDO_ISA
