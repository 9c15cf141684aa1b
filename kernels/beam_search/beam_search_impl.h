// The variants of beam_search, for their table alone, and what they share.
#pragma once

#include "kernels/base/carver.h"
#include "kernels/beam_search/beam_search.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

void beam_search_ref(const Context& context, const BeamSearchArgs& args);
RONDO_DECLARE_GPU(beam_search_gpu, BeamSearchArgs);

void check_beam_search(const BeamSearchArgs& args);

// A prefix as the last of those before it and a label more. Number 0 is the empty one; those that
// frame t brought into the beam begin at 1 + t * beam.
struct BeamNode {
  int32_t parent, label;
};

struct BeamSearchWorkspace {
  BeamSearchWorkspace(void* memory, const PackedCapacity& capacity, int64_t classes, int32_t beam)
      : nodes_per_sequence(1 + int64_t{capacity.frames} * beam) {
    Carver carver(memory);
    carver.take(probabilities, capacity.rows * classes);
    carver.take(nodes, capacity.sequences * nodes_per_sequence);
    bytes = carver.used();
  }

  int64_t nodes_per_sequence;
  double* probabilities = nullptr;  // [rows, V], of each frame's classes; NaN where it has none
  BeamNode* nodes = nullptr;        // [N, nodes_per_sequence]
  size_t bytes = 0;
};

}  // namespace rondo
