// What crosses from a pipeline stage to a neighbour, packed into one message per micro-batch and
// direction.
//
// Pure functions and plain data; see engine/steps/step_runner.h.
#pragma once

#include <span>
#include <vector>

#include "comm/group/process_group.h"
#include "engine/graph/bound_graph.h"

namespace rondo {

// The stage whose nodes produce each value; -1 for inputs and parameters.
std::vector<int> producing_stages(const Graph& graph);

// Throws Error when a value crosses between stages that are not neighbours, or a parameter is used
// by another stage than its own.
void require_neighbours(const Graph& graph);

// Values that stage `from` produces and stage `to` reads, in order of their ids.
std::vector<ValueId> crossing_values(const Graph& graph, int from, int to);

// Rows of a value that a batch fills.
int64_t live_rows(const Graph& graph, const PackedHost& layout, const Shape& shape);

// Bytes of a message of these values for a batch. `wire`: bf16 halves f32 values.
size_t message_bytes(const Graph& graph, const PackedHost& layout, std::span<const ValueId> values,
                     Wire wire);

// Live rows of all planes, value after value. `message`, in host memory, is as long as
// message_bytes() says; values are where the graph's device has them, and copies to and from there
// are waited for. bf16 on the wire is rounded to nearest, ties to even.
void pack_values(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                 std::span<std::byte> message);
void unpack_values(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                   std::span<const std::byte> message);

// The same for messages in the memory of the graph's device: enqueued on the graph's stream,
// rounded by kernels. Each plane's rows begin at a multiple of device_message_alignment bytes.
inline constexpr size_t device_message_alignment = 256;
size_t device_message_bytes(const Graph& graph, const PackedHost& layout,
                            std::span<const ValueId> values, Wire wire);
// The bytes of the longest message of a batch within the capacity.
size_t most_device_message_bytes(const Graph& graph, const BatchCapacity& capacity,
                                 std::span<const ValueId> values, Wire wire);
void pack_on_device(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                    std::byte* message);
void unpack_on_device(const BoundGraph& bound, std::span<const ValueId> values, Wire wire,
                      const std::byte* message);

}  // namespace rondo
