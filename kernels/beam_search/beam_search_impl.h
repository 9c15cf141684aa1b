// The variants of beam_search, for their table alone, and what they share.
#pragma once

#include <cstring>

#include "kernels/base/carver.h"
#include "kernels/base/host_device.h"
#include "kernels/beam_search/beam_search.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void beam_search_ref(const Context& context, const BeamSearchArgs& args);
RONDO_DECLARE_GPU(beam_search_gpu, BeamSearchArgs);

void check_beam_search(const BeamSearchArgs& args);

// Of the power of two that probabilities are divided by when the best is this; 0: they are not.
RONDO_HOST_DEVICE inline int32_t scale_of(double best) {
  uint64_t bits;
  memcpy(&bits, &best, sizeof bits);
  // best is in [0.5, 1) times 2^exponent; what is below 2^-1021 gets there in two frames.
  const int32_t exponent = static_cast<int32_t>(bits >> 52) - 1022;
  if (exponent > -32 && exponent < 32) return 0;
  return exponent < -1021 ? -1021 : exponent;
}
// 2^-exponent, for what scale_of() says.
RONDO_HOST_DEVICE inline double inverse_power(int32_t exponent) {
  const uint64_t bits = static_cast<uint64_t>(1023 - exponent) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

// A prefix: another one and a label behind it. Those that a frame brought into the beam are in its
// row.
struct BeamNode {
  int32_t parent, label;  // the number of the other, row * beam + place; -1: the empty one
};

struct BeamSearchWorkspace {
  BeamSearchWorkspace(void* memory, int64_t rows, int64_t classes, int32_t beam) {
    Carver carver(memory);
    carver.take(probabilities, rows * classes);
    carver.take(tops, rows);
    carver.take(nodes, rows * beam);
    bytes = carver.used();
  }

  double* probabilities = nullptr;  // [rows, V], of each frame's classes; NaN where it has none
  int32_t* tops = nullptr;          // [rows], the most probable class that may extend; -1: none may
  BeamNode* nodes = nullptr;        // [rows, W]
  size_t bytes = 0;
};

}  // namespace rondo
