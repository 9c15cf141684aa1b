// What an op does to the frames of its sequences.
//
// A rule says it for those who cut sequences in time (shards over ranks, truncated backpropagation,
// streams), place nodes on ranks (pipelines) or predict how long they take (the planner). None of
// them knows an op by its name: an op whose rule says nothing is refused (require_time_rules).
//
// "Places" are positions among a node's inputs or outputs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "engine/graph/graph.h"
#include "kernels/pool/pool.h"

namespace rondo {

enum class TimeKind {
  unstated,   // says nothing
  rows,       // makes each row by itself; its sums over rows (weight gradients) add up over parts
  recurrent,  // states pass from frame to frame
  window,     // makes a frame of neighbouring ones
  pooled,     // makes one row per sequence of all its frames
  whole,      // makes each frame of all frames of its sequence, in another way: not to be cut
  loss,       // a loss of all frames of a sequence, by recursions that pass from frame to frame
  part,       // stands in graphs that are cut already, or not to be cut
};

// Where a node of a recurrent op, forward or backward, has the states that cross a cut: a place for
// each state (h, then c), no_place where the op or this node has not that one. The values are
// [directions, N, columns]; plane 0 runs from the first frame on and plane 1 from the last frame
// back, and their gradients run the other way.
inline constexpr int no_place = -1;
using StatePlaces = std::array<int, 2>;
struct RecurrentPlaces {
  StatePlaces initial = {no_place, no_place};           // inputs: before the first frame
  StatePlaces final = {no_place, no_place};             // outputs: after the last frame
  StatePlaces final_gradient = {no_place, no_place};    // inputs of the backward node
  StatePlaces initial_gradient = {no_place, no_place};  // outputs of the backward node
};

// Frames of its input that a window reads before and behind those of a part.
struct Halo {
  int32_t left = 0, right = 0;
};

// The two inputs, or outputs, that hold the frames before and behind a part, or their gradients.
// The values are [frames, N, columns], and absent where there are none.
struct HaloPlaces {
  int before = no_place, after = no_place;
};

// The i32 input [N, 1] of whole lengths, in frames of the logits, that a graph with a cut loss has.
inline constexpr const char* total_frames_input = "sequence.total_frames";

// A loss over time as two nodes that each see a part of every sequence: `forward` carries its
// recursion on from the part before, `backward` from the part behind, and makes loss and gradient.
struct CutLoss {
  Node forward, backward;
  ValueId forward_in = no_value, forward_out = no_value;
  ValueId backward_in = no_value, backward_out = no_value;
};

struct TimeRule {
  TimeKind kind = TimeKind::unstated;
  // recurrent
  RecurrentPlaces states = {};
  // The node for one direction of two alone. The gradient of the input, which is made of both,
  // comes with the later one.
  Node (*one_direction)(const Node& node, int direction, bool later) = nullptr;
  // window: in the forward node
  Halo (*halo)(const Node& node) = nullptr;
  // window: where the forward node, and that of the weights' gradient, read the halo; where that of
  // the input's gradient writes the halo's.
  HaloPlaces halo_inputs = {};
  HaloPlaces halo_gradients = {};
  // pooled: how the parts' results make the whole one
  Pooling (*pooling)(const Node& node) = nullptr;
  // loss: adds the inputs and values of the two nodes to `graph`, not the nodes.
  // `max_label_length`: of the capacity.
  CutLoss (*cut)(Graph& graph, const Node& node, int32_t max_label_length) = nullptr;
};

const TimeRule& time_rule_of(const Node& node);

// Throws InputError that names an op whose rule does not say what it does to time; `purpose` ends
// the sentence: "so a model with it cannot ...". Throws Error for a graph that is cut already, or
// not to be cut.
void require_time_rules(const Graph& graph, std::string_view purpose);

// Whether a node is the cast of a parameter to the dtype it is computed in.
bool prepares_weights(const Graph& graph, const Node& node);
// The parameter that `id` is a cast of, otherwise `id`.
ValueId parameter_behind(const Graph& graph, ValueId id);

}  // namespace rondo
