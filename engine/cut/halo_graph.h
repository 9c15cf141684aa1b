// What cutting a graph in time does to its windows (convolutions): for
// engine/cut/sequence_graph alone.
#pragma once

#include <vector>

#include "engine/cut/sequence_graph.h"

namespace rondo {

// Gives every window that reads beside its own frames the nodes and values of a HaloLayer. In
// a graph with or without backward nodes. The gradient of an input keeps its value.
std::vector<HaloLayer> expose_halos(Graph& graph);

}  // namespace rondo
