// The variants of beam_search, for their table alone, and what they share.
#pragma once

#include "kernels/base/carver.h"
#include "kernels/beam_search/beam_search.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void beam_search_ref(const Context& context, const BeamSearchArgs& args);
RONDO_DECLARE_GPU(beam_search_gpu, BeamSearchArgs);

void check_beam_search(const BeamSearchArgs& args);

// A prefix: another one and a label behind it. Those that a frame brought into the beam are in its
// row.
struct BeamNode {
  int32_t parent, label;  // the number of the other, row * beam + place; -1: the empty one
};

struct BeamSearchWorkspace {
  BeamSearchWorkspace(void* memory, int64_t rows, int64_t classes, int32_t beam) {
    Carver carver(memory);
    carver.take(probabilities, rows * classes);
    carver.take(nodes, rows * beam);
    bytes = carver.used();
  }

  double* probabilities = nullptr;  // [rows, V], of each frame's classes; NaN where it has none
  BeamNode* nodes = nullptr;        // [rows, W]
  size_t bytes = 0;
};

}  // namespace rondo
