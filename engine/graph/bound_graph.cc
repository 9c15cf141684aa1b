#include "engine/graph/bound_graph.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/graph/trace.h"
#include "kernels/base/arithmetic.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

TensorView matrix(void* data, DType dtype, int64_t planes, int64_t rows, int64_t cols) {
  if (planes == 1) return {data, dtype, {rows, cols}};
  return {data, dtype, {planes, rows, cols}};
}

// What the activations' memory is for, in words: the first thing to look at when there is too
// little of it.
std::string activations_purpose(const Graph& graph, const BatchCapacity& capacity,
                                const MemoryLayout& memory) {
  size_t most = 0;
  const Value* largest = nullptr;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (memory.value_offset[v] == no_offset) continue;
    const Value& value = graph.values[v];
    const auto elements = static_cast<size_t>(value_elements(graph, capacity, value.shape));
    if (elements * size_of(value.dtype) > most) {
      most = elements * size_of(value.dtype);
      largest = &value;
    }
  }
  return str("the activations of a batch of ", capacity.packed.rows, " frames in ",
             capacity.packed.sequences, " sequences",
             largest ? str(" (the largest, '", largest->name, "', has ", most, ")") : "");
}

}  // namespace

PackedCapacity level_capacity(const Graph& graph, const BatchCapacity& capacity, int level) {
  PackedCapacity c = capacity.packed;
  for (const Level& l : graph.path_to(level)) {
    if (l.column > 0) {
      constexpr int64_t most = std::numeric_limits<int32_t>::max();
      if (c.rows > most / l.column) {
        fail_input("a batch of ", c.rows, " columns of ", l.column, " pixels, expected at most ",
                   most, " pixels");
      }
      c = {c.rows * l.column, l.column, static_cast<int32_t>(c.rows)};
      continue;
    }
    // sum of ceil(len / f) <= (rows + N (f - 1)) / f
    const int64_t spare = l.whole ? 0 : c.sequences * (int64_t{l.factor} - 1);
    c.rows = std::min(c.rows, (c.rows + spare) / l.factor);
    c.frames = l.frames(c.frames);
  }
  return c;
}

int64_t value_elements(const Graph& graph, const BatchCapacity& capacity, const Shape& s) {
  int64_t rows = s.rows;
  if (s.axis == Axis::frames) rows = level_capacity(graph, capacity, s.level).rows;
  if (s.axis == Axis::sequences) rows = capacity.packed.sequences;
  return s.planes * rows * value_columns(capacity, s);
}

int64_t value_columns(const BatchCapacity& capacity, const Shape& s) {
  return s.by_label ? s.cols * (int64_t{capacity.max_label_length} + 1) : s.cols;
}

const int32_t* Binder::row_count(ValueId id) const {
  const Shape& s = graph().shape(id);
  if (s.axis == Axis::fixed) return nullptr;
  const PackedView v = layout(s.axis == Axis::frames ? s.level : 0);
  return s.axis == Axis::frames ? &v.extent->rows : &v.extent->sequences;
}

BoundGraph::BoundGraph(const Graph& graph, const Context& context, const BatchCapacity& capacity,
                       Parameters& parameters, Reuse reuse, int stage)
    : BoundGraph(graph, context, capacity, parameters, reuse, stage,
                 lay_out_memory(graph, context, capacity, reuse, stage), nullptr) {}

BoundGraph::BoundGraph(const Graph& graph, const Context& context, const BatchCapacity& capacity,
                       Parameters& parameters, Reuse reuse, int stage, MemoryLayout memory,
                       std::shared_ptr<Held> held)
    : graph_(graph),
      context_(context),
      capacity_(capacity),
      parameters_(parameters),
      reuse_(reuse),
      stage_(stage),
      memory_(std::move(memory)),
      held_(std::move(held)),
      thunks_(graph.nodes.size()),
      reads_(graph.values.size(), false) {
  if (!held_) {
    const std::string purpose = activations_purpose(graph, capacity, memory_);
    held_.reset(new Held{{*context.device, memory_.arena_bytes, purpose.c_str()},
                         {graph, capacity, *context.device}});
  }
  for (; binding_ < graph.nodes.size(); ++binding_) {
    const Node& node = graph.nodes[binding_];
    if (!memory_.needed[binding_] || !in_stage(node, stage)) continue;
    thunks_[binding_] = rule_of(node.op).bind(*this, node);
    if (rule_of(node.op).label_classes && reads_labels_.empty()) reads_labels_ = node.op;
    for (ValueId id : node.inputs) {
      if (id != no_value) reads_[static_cast<size_t>(id)] = true;
    }
  }
}

std::unique_ptr<BoundGraph> BoundGraph::within(const BoundGraph& whole,
                                               const BatchCapacity& capacity) {
  RONDO_CHECK(whole.capacity_.holds(capacity), "a bound graph within a smaller one");
  MemoryLayout memory =
      lay_out_memory(whole.graph_, whole.context_, capacity, whole.reuse_, whole.stage_);
  if (memory.arena_bytes > whole.memory_.arena_bytes) return nullptr;
  return std::unique_ptr<BoundGraph>(new BoundGraph(whole.graph_, whole.context_, capacity,
                                                    whole.parameters_, whole.reuse_, whole.stage_,
                                                    std::move(memory), whole.held_));
}

size_t BoundGraph::node_count() const { return thunks_.size(); }

void BoundGraph::load(const BatchView& b) {
  const BatchCapacity extent = b.extent();
  // Without this a forgotten text would train towards blanks alone.
  if (!reads_labels_.empty() && b.label_offsets.empty() && extent.packed.sequences > 0) {
    fail_input("a batch of ", extent.packed.sequences, " sequences has no label offsets, and ",
               reads_labels_, " reads them; expected ", extent.packed.sequences + 1,
               " (two equal ones for an empty text)");
  }
  RONDO_CHECK(capacity_.holds(extent), "batch of ", extent.packed.rows, " rows, ",
              extent.packed.frames, " frames, ", extent.packed.sequences, " sequences, ",
              extent.labels, " labels (longest ", extent.max_label_length,
              ") exceeds the capacity of ", capacity_.packed.rows, ", ", capacity_.packed.frames,
              ", ", capacity_.packed.sequences, ", ", capacity_.labels, " (",
              capacity_.max_label_length, ")");
  held_->batch.load(b, *context_.stream, reads_);
}

void BoundGraph::run_node(size_t i) {
  if (!thunks_[i]) return;
  const Span span(*this, i);
  thunks_[i](context_);
}

Thunk BoundGraph::bind_part(size_t index, const Node& as) {
  binding_ = index;
  Thunk part = rule_of(as.op).bind(*this, as);
  binding_ = graph_.nodes.size();
  return part;
}

void BoundGraph::run() {
  for (size_t i = 0; i < thunks_.size(); ++i) run_node(i);
}

void BoundGraph::run(const std::function<void(size_t)>& after) {
  for (size_t i = 0; i < thunks_.size(); ++i) {
    run_node(i);
    after(i);
  }
}

void BoundGraph::run(Phase phase) {
  for (size_t i = 0; i < thunks_.size(); ++i) {
    if (graph_.nodes[i].phase == phase) run_node(i);
  }
}

void BoundGraph::run_backward() {
  for (size_t i = 0; i < thunks_.size(); ++i) {
    if (graph_.nodes[i].phase != Phase::forward) run_node(i);
  }
}

int64_t BoundGraph::live_rows(const Shape& s) const { return held_->batch.live_rows(s); }

void append_floats(std::span<const std::byte> values, DType dtype, std::vector<float>& to) {
  const size_t n = values.size() / size_of(dtype), at = to.size();
  to.resize(at + n);
  visit_floating(dtype, [&]<class T>(T) {
    const T* const from = reinterpret_cast<const T*>(values.data());
    std::transform(from, from + n, to.data() + at, [](T x) { return static_cast<float>(x); });
  });
}

void BoundGraph::append_floats(ValueId id, std::vector<float>& to) const {
  const Value& value = graph_.value(id);
  const auto n =
      static_cast<size_t>(value.shape.planes * live_rows(value.shape) * value.shape.cols);
  if (value.dtype != DType::f32) {
    std::vector<std::byte> values(n * size_of(value.dtype));
    read(id, values.data(), values.size());
    return rondo::append_floats(values, value.dtype, to);
  }
  const size_t at = to.size();
  to.resize(at + n);
  read(id, to.data() + at, n * sizeof(float));
}

void BoundGraph::read(ValueId id, void* to, size_t bytes) const {
  const TensorView v = view(id);
  const Value& value = graph_.value(id);
  RONDO_CHECK(v, "value ", id, " '", value.name, "' is not kept");
  const size_t row = static_cast<size_t>(value.shape.cols) * size_of(value.dtype);
  const size_t live = static_cast<size_t>(live_rows(value.shape)) * row;
  const auto planes = static_cast<size_t>(value.shape.planes);
  RONDO_CHECK(bytes == live * planes, "value '", value.name, "' has ", live * planes,
              " live bytes, the buffer ", bytes);
  const size_t plane = v.bytes() / planes;
  for (size_t p = 0; p < planes; ++p) {
    context_.device->copy(*context_.stream, static_cast<uint8_t*>(to) + p * live,
                          static_cast<const uint8_t*>(v.data) + p * plane, live);
  }
  context_.stream->synchronize();
}

void BoundGraph::write(ValueId id, const void* from, size_t bytes) {
  const TensorView v = view(id);
  RONDO_CHECK(v, "value ", id, " has no memory");
  const auto planes = static_cast<size_t>(graph_.value(id).shape.planes);
  RONDO_CHECK(bytes % planes == 0 && bytes <= v.bytes(), "value of ", v.bytes(),
              " bytes, written with ", bytes);
  for (size_t p = 0; p < planes; ++p) {
    context_.device->copy(*context_.stream, static_cast<uint8_t*>(v.data) + p * v.bytes() / planes,
                          static_cast<const uint8_t*>(from) + p * bytes / planes, bytes / planes);
  }
}

TensorView BoundGraph::view(ValueId id) const {
  if (id == no_value) return {};
  const Value& v = graph_.value(id);
  if (v.role == ValueRole::parameter) return parameters_.weight(v.name);
  if (v.role == ValueRole::gradient) {
    return parameters_.gradient(std::string_view(v.name).substr(0, v.name.size() - 5));
  }
  const Shape& s = v.shape;
  int64_t rows = s.rows;
  if (s.axis == Axis::frames) rows = level_capacity(graph_, capacity_, s.level).rows;
  if (s.axis == Axis::sequences) rows = capacity_.packed.sequences;
  const int64_t cols = value_columns(capacity_, s);
  if (v.role == ValueRole::input) {
    for (const auto& in : held_->batch.places().inputs) {
      if (in.id == id)
        return matrix(held_->batch.at<uint8_t>(in.piece), v.dtype, s.planes, rows, cols);
    }
  }
  const size_t offset = memory_.value_offset[static_cast<size_t>(id)];
  if (offset == no_offset) return {};
  return matrix(static_cast<uint8_t*>(held_->arena.data()) + offset, v.dtype, s.planes, rows, cols);
}

PackedView BoundGraph::layout(int level) const {
  const BatchPlaces::Level& m = held_->batch.places().levels.at(static_cast<size_t>(level));
  PackedView v;
  v.capacity = level_capacity(graph_, capacity_, level);  // not m's: `within` it
  v.extent = held_->batch.at<PackedExtent>(m.extent);
  v.lengths = held_->batch.at<int32_t>(m.lengths);
  v.batch_sizes = held_->batch.at<int32_t>(m.batch_sizes);
  v.row_offsets = held_->batch.at<int32_t>(m.row_offsets);
  v.row_frame = held_->batch.at<int32_t>(m.row_frame);
  v.keys = held_->batch.at<uint64_t>(m.keys);
  v.first_frame = held_->batch.at<int32_t>(m.first_frame);
  return v;
}

const int32_t* BoundGraph::labels() const {
  return held_->batch.at<int32_t>(held_->batch.places().labels);
}
const int32_t* BoundGraph::label_offsets() const {
  return held_->batch.at<int32_t>(held_->batch.places().label_offsets);
}
const uint64_t* BoundGraph::step_seed() const {
  return held_->batch.at<uint64_t>(held_->batch.places().step_seed);
}

PackedWeights* BoundGraph::packed(ValueId id) const {
  if (id == no_value) return nullptr;
  for (const Node& n : graph_.nodes) {
    if (n.outputs.at(0) == id && rule_of(n.op).converts) id = n.inputs.at(0);
  }
  const Value& v = graph_.value(id);
  return v.role == ValueRole::parameter ? parameters_.packed(v.name) : nullptr;
}

TensorView BoundGraph::workspace() const {
  const size_t bytes = memory_.workspace_bytes[binding_];
  if (bytes == 0) return {};
  return {static_cast<uint8_t*>(held_->arena.data()) + memory_.workspace_offset[binding_],
          DType::u8,
          {static_cast<int64_t>(bytes)}};
}

}  // namespace rondo
