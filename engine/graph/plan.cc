#include "engine/graph/plan.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

TensorView matrix(void* data, DType dtype, int64_t planes, int64_t rows, int64_t cols) {
  if (planes == 1) return {data, dtype, {rows, cols}};
  return {data, dtype, {planes, rows, cols}};
}

}  // namespace

bool BatchCapacity::holds(const BatchCapacity& o) const {
  return packed.rows >= o.packed.rows && packed.frames >= o.packed.frames &&
         packed.sequences >= o.packed.sequences && max_label_length >= o.max_label_length &&
         labels >= o.labels;
}

BatchCapacity BatchCapacity::merge(const BatchCapacity& a, const BatchCapacity& b) {
  return {{std::max(a.packed.rows, b.packed.rows), std::max(a.packed.frames, b.packed.frames),
           std::max(a.packed.sequences, b.packed.sequences)},
          std::max(a.max_label_length, b.max_label_length),
          std::max(a.labels, b.labels)};
}

PackedCapacity level_capacity(const Graph& graph, const BatchCapacity& capacity, int level) {
  PackedCapacity c = capacity.packed;
  std::vector<int> chain;
  for (int l = level; l > 0; l = graph.levels.at(static_cast<size_t>(l)).parent) chain.push_back(l);
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    const int64_t factor = graph.levels[static_cast<size_t>(*it)].factor;
    // sum of ceil(len / f) <= (rows + N (f - 1)) / f
    c.rows = std::min(c.rows, (c.rows + c.sequences * (factor - 1)) / factor);
    c.frames = static_cast<int32_t>(ceil_div(c.frames, factor));
  }
  return c;
}

int64_t value_elements(const Graph& graph, const BatchCapacity& capacity, const Shape& s) {
  int64_t rows = s.rows;
  if (s.axis == Axis::frames) rows = level_capacity(graph, capacity, s.level).rows;
  if (s.axis == Axis::sequences) rows = capacity.packed.sequences;
  return s.planes * rows * s.cols;
}

const int32_t* Binder::row_count(ValueId id) const {
  const Shape& s = graph().shape(id);
  if (s.axis == Axis::fixed) return nullptr;
  const PackedView v = layout(s.axis == Axis::frames ? s.level : 0);
  return s.axis == Axis::frames ? &v.extent->rows : &v.extent->sequences;
}

BatchCapacity BatchView::extent() const {
  BatchCapacity c;
  c.packed = {layout->extent.rows, layout->extent.frames, layout->extent.sequences};
  c.labels = static_cast<int64_t>(labels.size());
  for (size_t n = 0; n + 1 < label_offsets.size(); ++n) {
    c.max_label_length = std::max(c.max_label_length, label_offsets[n + 1] - label_offsets[n]);
  }
  return c;
}

// Device copies of everything that changes from batch to batch.
struct Plan::BatchMemory {
  struct LevelMemory {
    PackedCapacity capacity;
    PackedHost host;
    Buffer extent, lengths, batch_sizes, row_offsets, row_frame, keys, first_frame;
  };
  struct InputMemory {
    ValueId id;
    Buffer buffer;
    bool read = false;  // by a node that is needed
  };
  std::vector<LevelMemory> levels;
  std::vector<InputMemory> inputs;
  std::vector<int32_t> scratch_lengths, scratch_first;
  Buffer labels, label_offsets, step_seed;
  uint64_t host_seed = 0;
  std::vector<int32_t> host_offsets;

  BatchMemory(const Graph& graph, const BatchCapacity& capacity, Device& device) {
    constexpr const char* purpose = "batch layout";
    for (size_t l = 0; l < graph.levels.size(); ++l) {
      LevelMemory m;
      m.capacity = level_capacity(graph, capacity, static_cast<int>(l));
      const auto rows = static_cast<size_t>(m.capacity.rows);
      const auto frames = static_cast<size_t>(m.capacity.frames);
      const auto sequences = static_cast<size_t>(m.capacity.sequences);
      m.extent = Buffer(device, sizeof(PackedExtent), purpose);
      m.lengths = Buffer(device, std::max<size_t>(sequences, 1) * 4, purpose);
      m.batch_sizes = Buffer(device, std::max<size_t>(frames, 1) * 4, purpose);
      m.row_offsets = Buffer(device, (frames + 1) * 4, purpose);
      m.row_frame = Buffer(device, std::max<size_t>(rows, 1) * 4, purpose);
      m.keys = Buffer(device, std::max<size_t>(sequences, 1) * 8, purpose);
      m.first_frame = Buffer(device, std::max<size_t>(sequences, 1) * 4, purpose);
      m.host.lengths.reserve(sequences);
      m.host.batch_sizes.reserve(frames);
      m.host.row_offsets.reserve(frames + 1);
      m.host.row_frame.reserve(rows);
      m.host.keys.reserve(sequences);
      m.host.first_frame.reserve(sequences);
      levels.push_back(std::move(m));
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.role != ValueRole::input) continue;
      const auto elements = static_cast<size_t>(value_elements(graph, capacity, value.shape));
      inputs.push_back(
          {static_cast<ValueId>(v),
           Buffer(device, std::max<size_t>(elements, 1) * size_of(value.dtype), "batch inputs"),
           false});
    }
    const auto sequences = static_cast<size_t>(capacity.packed.sequences);
    scratch_lengths.reserve(sequences);
    scratch_first.reserve(sequences);
    host_offsets.reserve(sequences + 1);
    labels = Buffer(device, std::max<size_t>(static_cast<size_t>(capacity.labels), 1) * 4, purpose);
    label_offsets = Buffer(device, (sequences + 1) * 4, purpose);
    step_seed = Buffer(device, 8, purpose);
  }

  size_t bytes() const {
    size_t n = labels.bytes() + label_offsets.bytes() + step_seed.bytes();
    for (const auto& l : levels) {
      n += l.extent.bytes() + l.lengths.bytes() + l.batch_sizes.bytes() + l.row_offsets.bytes() +
           l.row_frame.bytes() + l.keys.bytes() + l.first_frame.bytes();
    }
    for (const auto& i : inputs) n += i.buffer.bytes();
    return n;
  }
};

size_t plan_batch_bytes(const Graph& g, const BatchCapacity& capacity) {
  const auto sequences = static_cast<size_t>(capacity.packed.sequences);
  size_t n = static_cast<size_t>(capacity.labels) * 4 + (sequences + 1) * 4 + 8;
  for (size_t l = 0; l < g.levels.size(); ++l) {
    const PackedCapacity c = level_capacity(g, capacity, static_cast<int>(l));
    n += sizeof(PackedExtent) + sequences * 16 + static_cast<size_t>(c.frames) * 8 + 4 +
         static_cast<size_t>(c.rows) * 4;
  }
  for (const Value& v : g.values) {
    if (v.role == ValueRole::input) {
      n += static_cast<size_t>(value_elements(g, capacity, v.shape)) * size_of(v.dtype);
    }
  }
  return n;
}

Plan::Plan(const Graph& graph, const Context& context, const BatchCapacity& capacity,
           Parameters& parameters, Reuse reuse, int stage)
    : graph_(graph),
      context_(context),
      capacity_(capacity),
      parameters_(parameters),
      stage_(stage),
      memory_(plan_memory(graph, context, capacity, reuse, stage)) {
  arena_ = Buffer(*context_.device, memory_.arena_bytes, "activations");
  batch_ = std::make_unique<BatchMemory>(graph, capacity, *context_.device);
  thunks_.resize(graph.nodes.size());
  for (binding_ = 0; binding_ < graph.nodes.size(); ++binding_) {
    const Node& node = graph.nodes[binding_];
    if (!memory_.needed[binding_] || !in_stage(node, stage)) continue;
    thunks_[binding_] = rule_of(node.op).bind(*this, node);
    for (auto& in : batch_->inputs) {
      in.read =
          in.read || std::find(node.inputs.begin(), node.inputs.end(), in.id) != node.inputs.end();
    }
  }
}

Plan::~Plan() = default;

size_t Plan::node_count() const { return thunks_.size(); }
size_t Plan::batch_bytes() const { return batch_->bytes(); }

void Plan::load(const BatchView& b) {
  RONDO_CHECK(b.layout != nullptr, "a batch needs a layout");
  const BatchCapacity extent = b.extent();
  RONDO_CHECK(capacity_.holds(extent), "batch of ", extent.packed.rows, " rows, ",
              extent.packed.frames, " frames, ", extent.packed.sequences, " sequences, ",
              extent.labels, " labels (longest ", extent.max_label_length, ") exceeds the plan's ",
              capacity_.packed.rows, ", ", capacity_.packed.frames, ", ",
              capacity_.packed.sequences, ", ", capacity_.labels, " (", capacity_.max_label_length,
              ")");
  Device& device = *context_.device;
  Stream& stream = *context_.stream;
  // The host copies of the previous batch may still be on their way to the device.
  stream.synchronize();
  auto upload = [&](Buffer& to, const auto& from) {
    device.copy(stream, to.data(), from.data(), from.size() * sizeof(from[0]));
  };
  for (size_t l = 0; l < batch_->levels.size(); ++l) {
    auto& level = batch_->levels[l];
    if (l == 0) {
      level.host.assign(b.layout->lengths, b.layout->keys, b.layout->first_frame);
    } else {
      const Level& spec = graph_.levels[l];
      const PackedHost& parent = batch_->levels[static_cast<size_t>(spec.parent)].host;
      batch_->scratch_lengths.clear();
      batch_->scratch_first.clear();
      for (size_t n = 0; n < parent.lengths.size(); ++n) {
        batch_->scratch_lengths.push_back(
            static_cast<int32_t>(ceil_div(parent.lengths[n], spec.factor)));
        batch_->scratch_first.push_back(parent.first_frame[n] / spec.factor);
      }
      level.host.assign(batch_->scratch_lengths, parent.keys, batch_->scratch_first);
    }
    device.copy(stream, level.extent.data(), &level.host.extent, sizeof(PackedExtent));
    upload(level.lengths, level.host.lengths);
    upload(level.batch_sizes, level.host.batch_sizes);
    upload(level.row_offsets, level.host.row_offsets);
    upload(level.row_frame, level.host.row_frame);
    upload(level.keys, level.host.keys);
    upload(level.first_frame, level.host.first_frame);
  }
  const auto sequences = static_cast<size_t>(extent.packed.sequences);
  RONDO_CHECK(b.label_offsets.empty() || b.label_offsets.size() == sequences + 1,
              b.label_offsets.size(), " label offsets for ", sequences, " sequences");
  if (b.label_offsets.empty()) {
    batch_->host_offsets.assign(sequences + 1, 0);
  } else {
    batch_->host_offsets.assign(b.label_offsets.begin(), b.label_offsets.end());
  }
  upload(batch_->label_offsets, batch_->host_offsets);
  upload(batch_->labels, b.labels);
  batch_->host_seed = b.step_seed;
  device.copy(stream, batch_->step_seed.data(), &batch_->host_seed, 8);
  for (const BatchView::Input& in : b.inputs) {
    RONDO_CHECK(graph_.find(in.name) != no_value, "the graph has no input '", in.name, "'");
  }
  for (auto& mine : batch_->inputs) {
    const Value& value = graph_.value(mine.id);
    const auto it = std::find_if(b.inputs.begin(), b.inputs.end(),
                                 [&](const auto& in) { return in.name == value.name; });
    if (it == b.inputs.end() && !mine.read) continue;
    RONDO_CHECK(it != b.inputs.end(), "the batch lacks input '", value.name, "'");
    const auto want =
        static_cast<size_t>(live_rows(value.shape) * value.shape.cols) * size_of(value.dtype);
    RONDO_CHECK(it->bytes == want, "input '", value.name, "' has ", it->bytes, " bytes, expected ",
                want, " (", live_rows(value.shape), " rows of ", value.shape.cols, ")");
    device.copy(stream, mine.buffer.data(), it->data, it->bytes);
  }
}

void Plan::run_node(size_t i) {
  if (thunks_[i]) thunks_[i](context_);
}

void Plan::run() {
  for (size_t i = 0; i < thunks_.size(); ++i) run_node(i);
}

void Plan::run(Phase phase) {
  for (size_t i = 0; i < thunks_.size(); ++i) {
    if (graph_.nodes[i].phase == phase) run_node(i);
  }
}

void Plan::run_backward() {
  for (size_t i = 0; i < thunks_.size(); ++i) {
    if (graph_.nodes[i].phase != Phase::forward) run_node(i);
  }
}

int64_t Plan::live_rows(const Shape& s) const {
  switch (s.axis) {
    case Axis::fixed:
      return s.rows;
    case Axis::frames:
      return batch_->levels.at(static_cast<size_t>(s.level)).host.extent.rows;
    case Axis::sequences:
      return batch_->levels[0].host.extent.sequences;
  }
  return 0;
}

void Plan::read(ValueId id, void* to, size_t bytes) const {
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

void Plan::write(ValueId id, const void* from, size_t bytes) {
  const TensorView v = view(id);
  RONDO_CHECK(v, "value ", id, " has no memory");
  RONDO_CHECK(graph_.value(id).shape.planes == 1 && bytes <= v.bytes(), "value of ", v.bytes(),
              " bytes, written with ", bytes);
  context_.device->copy(*context_.stream, v.data, from, bytes);
}

TensorView Plan::view(ValueId id) const {
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
  if (v.role == ValueRole::input) {
    for (const auto& in : batch_->inputs) {
      if (in.id == id) return matrix(in.buffer.data(), v.dtype, s.planes, rows, s.cols);
    }
  }
  const size_t offset = memory_.value_offset[static_cast<size_t>(id)];
  if (offset == no_offset) return {};
  return matrix(static_cast<uint8_t*>(arena_.data()) + offset, v.dtype, s.planes, rows, s.cols);
}

PackedView Plan::layout(int level) const {
  const auto& m = batch_->levels.at(static_cast<size_t>(level));
  PackedView v;
  v.capacity = m.capacity;
  v.extent = m.extent.as<PackedExtent>();
  v.lengths = m.lengths.as<int32_t>();
  v.batch_sizes = m.batch_sizes.as<int32_t>();
  v.row_offsets = m.row_offsets.as<int32_t>();
  v.row_frame = m.row_frame.as<int32_t>();
  v.keys = m.keys.as<uint64_t>();
  v.first_frame = m.first_frame.as<int32_t>();
  return v;
}

const int32_t* Plan::labels() const { return batch_->labels.as<int32_t>(); }
const int32_t* Plan::label_offsets() const { return batch_->label_offsets.as<int32_t>(); }
const uint64_t* Plan::step_seed() const { return batch_->step_seed.as<uint64_t>(); }

TensorView Plan::workspace() const {
  const size_t bytes = memory_.workspace_bytes[binding_];
  if (bytes == 0) return {};
  return {static_cast<uint8_t*>(arena_.data()) + memory_.workspace_offset[binding_],
          DType::u8,
          {static_cast<int64_t>(bytes)}};
}

}  // namespace rondo
