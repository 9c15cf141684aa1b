// The tiles of floats, compiled once per instruction set (kernels/base/cpu/simd.h).
#include <utility>

#include "kernels/base/cpu/simd_rows.h"
#include "kernels/conv/conv_tiles.h"

namespace rondo::RONDO_ISA {
namespace {

constexpr int depth = 1;

#include "kernels/conv/conv_depthwise.h"

using Dot = FloatDot;

#include "kernels/conv/conv_micro.h"

}  // namespace

const ConvKernel* const conv_kernel = &kernel;

}  // namespace rondo::RONDO_ISA
