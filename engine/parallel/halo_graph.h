// What cutting a graph in time does to its convolutions: for engine/parallel/sequence_graph alone,
// and for whoever wants to know how far they reach.
#pragma once

#include <vector>

#include "engine/parallel/sequence_graph.h"

namespace rondo {

// Frames of its input that a node "conv" reads before and behind those of a part.
struct ConvHalo {
  int32_t left = 0, right = 0;
};
ConvHalo conv_halo(const Node& conv);

// Gives every convolution that reads beside its own frames the nodes and values of a HaloLayer. In
// a graph with or without backward nodes. The gradient of an input keeps its value.
std::vector<HaloLayer> expose_halos(Graph& graph);

}  // namespace rondo
