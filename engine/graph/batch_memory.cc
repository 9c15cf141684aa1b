#include "engine/graph/batch_memory.h"

#include <algorithm>
#include <cstring>

#include "engine/graph/rules.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "kernels/ctc/ctc.h"

namespace rondo {
namespace {

constexpr size_t alignment = 256;

size_t on(int64_t count) { return static_cast<size_t>(std::max<int64_t>(count, 1)); }

template <class T>
void put(std::byte* to, const BatchPlaces::Piece& piece, std::span<const T> from) {
  RONDO_CHECK(from.size_bytes() <= piece.bytes, from.size_bytes(), " bytes for ", piece.bytes);
  copy_bytes(to + piece.offset, from.data(), from.size_bytes());
}

// What memory was laid out by (extent) against what kernels go by (lengths): a sequence longer than
// the batch would make them read past its rows.
void check_layout(const PackedHost& batch) {
  const PackedExtent& extent = batch.extent;
  if (batch.lengths.size() != static_cast<size_t>(extent.sequences)) {
    fail_input("a batch of ", extent.sequences, " sequences has ", batch.lengths.size(),
               " lengths, expected one each");
  }
  int64_t rows = 0;
  for (size_t n = 0; n < batch.lengths.size(); ++n) {
    if (batch.lengths[n] < 0 || batch.lengths[n] > extent.frames) {
      fail_input("sequence ", n, " of a batch has length ", batch.lengths[n],
                 ", expected 0 to the batch's ", extent.frames, " frames");
    }
    rows += batch.lengths[n];
  }
  if (rows != extent.rows) {
    fail_input("the lengths of a batch add up to ", rows, ", expected its ", extent.rows, " rows");
  }
}

// Kernels read where labels and their offsets point.
void check_labels(const Graph& graph, const BatchView& batch) {
  const auto sequences = static_cast<size_t>(batch.layout->extent.sequences);
  const std::span<const int32_t> offsets = batch.label_offsets;
  if (offsets.empty()) return;
  if (offsets.size() != sequences + 1) {
    fail_input("a batch has ", offsets.size(), " label offsets, expected ", sequences + 1, " for ",
               sequences, " sequences");
  }
  for (size_t n = 0; n < sequences; ++n) {
    if (offsets[n] < 0 || offsets[n + 1] < offsets[n] ||
        static_cast<size_t>(offsets[n + 1]) > batch.labels.size()) {
      fail_input("sequence ", n, " of a batch has labels ", offsets[n], " to ", offsets[n + 1],
                 ", expected a range of the batch's ", batch.labels.size());
    }
  }
  for (const Node& node : graph.nodes) {
    const auto label_classes = rule_of(node.op).label_classes;
    if (!label_classes) continue;
    const int64_t classes = label_classes(graph, node);
    const auto blank = static_cast<int32_t>(node.attributes.integer("blank"));
    for (size_t n = 0; n < sequences; ++n) {
      const auto first = static_cast<size_t>(offsets[n]);
      const auto labels = batch.labels.subspan(first, static_cast<size_t>(offsets[n + 1]) - first);
      const bool good = labels.size() <= static_cast<size_t>(ctc_most_labels) &&
                        std::all_of(labels.begin(), labels.end(), [&](int32_t label) {
                          return label >= 0 && label < classes && label != blank;
                        });
      // The name is made where one is needed: a step allocates nothing.
      if (!good) validate_ctc_labels(labels, classes, blank, str("sequence ", n, " of a batch"));
    }
  }
}

}  // namespace

void check_batch(const Graph& graph, const BatchView& batch) {
  RONDO_CHECK(batch.layout != nullptr, "a batch needs a layout");
  check_layout(*batch.layout);
  check_labels(graph, batch);
  for (const BatchView::Input& in : batch.inputs) {
    RONDO_CHECK(in.data != nullptr || in.bytes == 0, "input '", in.name, "' has ", in.bytes,
                " bytes at no address");
  }
}

BatchPlaces::BatchPlaces(const Graph& graph, const BatchCapacity& capacity) {
  const auto add = [this](size_t size) {
    const Piece piece{bytes, size};
    bytes += (size + alignment - 1) / alignment * alignment;
    return piece;
  };
  for (size_t l = 0; l < graph.levels.size(); ++l) {
    Level& m = levels.emplace_back();
    m.capacity = level_capacity(graph, capacity, static_cast<int>(l));
    const size_t sequences = on(m.capacity.sequences), frames = on(m.capacity.frames);
    m.extent = add(sizeof(PackedExtent));
    m.lengths = add(sequences * sizeof(int32_t));
    m.batch_sizes = add(frames * sizeof(int32_t));
    m.row_offsets = add((frames + 1) * sizeof(int32_t));
    m.row_frame = add(on(m.capacity.rows) * sizeof(int32_t));
    m.keys = add(sequences * sizeof(uint64_t));
    m.first_frame = add(sequences * sizeof(int32_t));
  }
  labels = add(on(capacity.labels) * sizeof(int32_t));
  label_offsets = add((on(capacity.packed.sequences) + 1) * sizeof(int32_t));
  step_seed = add(sizeof(uint64_t));
  fixed_bytes = bytes;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.role != ValueRole::input) continue;
    const size_t elements = on(value_elements(graph, capacity, value.shape));
    inputs.push_back({static_cast<ValueId>(v), add(elements * size_of(value.dtype))});
  }
}

size_t predict_batch_bytes(const Graph& graph, const BatchCapacity& capacity, DeviceKind device) {
  const size_t copies = device == DeviceKind::cpu ? 1 : 3;
  return BatchPlaces(graph, capacity).bytes * copies;
}

BatchMemory::BatchMemory(const Graph& graph, const BatchCapacity& capacity, Device& device)
    : graph_(graph), capacity_(capacity), device_(device), places_(graph, capacity) {
  const std::string purpose = str("a batch of ", capacity.packed.rows, " frames");
  memory_ = Buffer(device, places_.bytes, purpose.c_str());
  for (const auto& place : places_.levels) {
    const PackedCapacity& c = place.capacity;
    PackedHost& host = layouts_.emplace_back();
    host.lengths.reserve(static_cast<size_t>(c.sequences));
    host.batch_sizes.reserve(static_cast<size_t>(c.frames));
    host.row_offsets.reserve(static_cast<size_t>(c.frames) + 1);
    host.row_frame.reserve(static_cast<size_t>(c.rows));
    host.keys.reserve(static_cast<size_t>(c.sequences));
    host.first_frame.reserve(static_cast<size_t>(c.sequences));
  }
  size_t most = 0;
  for (const auto& place : places_.levels)
    most = std::max(most, static_cast<size_t>(place.capacity.sequences));
  level_lengths_.reserve(most);
  level_first_.reserve(most);
  input_bytes_.assign(places_.inputs.size(), 0);
  if (device.kind() == DeviceKind::cpu) return;
  for (Slot& slot : slots_) {
    slot.host = StagingBuffer(device, places_.bytes, purpose.c_str());
    // All of the fixed part is copied; what no batch has written looks like fresh device memory.
    std::memset(slot.host.data(), 0xff, places_.fixed_bytes);
    slot.landing = Buffer(device, places_.bytes, purpose.c_str());
    slot.copied = device.make_event();
    slot.consumed = device.make_event();
  }
  copies_ = device.make_stream();
}

void BatchMemory::load(const BatchView& batch, Stream& stream, const std::vector<bool>& reads) {
  if (!copies_) return write(memory_.as<std::byte>(), batch, reads);
  Slot& slot = slots_[next_slot_];
  slot.copied.synchronize();
  write(slot.host.data(), batch, reads);
  next_slot_ = (next_slot_ + 1) % slots_.size();
  upload(slot, stream);
}

void BatchMemory::upload(Slot& slot, Stream& stream) {
  const auto copy = [&](Stream& s, void* to, const void* from) {
    auto* t = static_cast<std::byte*>(to);
    const auto* f = static_cast<const std::byte*>(from);
    device_.copy(s, t, f, places_.fixed_bytes);
    for (size_t i = 0; i < places_.inputs.size(); ++i) {
      const size_t offset = places_.inputs[i].piece.offset;
      device_.copy(s, t + offset, f + offset, input_bytes_[i]);
    }
  };
  slot.consumed.wait(copies_);
  copy(copies_, slot.landing.data(), slot.host.data());
  slot.copied.record(copies_);
  slot.copied.wait(stream);
  copy(stream, memory_.data(), slot.landing.data());
  slot.consumed.record(stream);
}

void BatchMemory::write(std::byte* to, const BatchView& batch, const std::vector<bool>& reads) {
  check_batch(graph_, batch);
  write_layout(to, batch);
  const auto sequences = static_cast<size_t>(batch.layout->extent.sequences);
  put(to, places_.labels, batch.labels);
  if (batch.label_offsets.empty()) {
    std::memset(to + places_.label_offsets.offset, 0, (sequences + 1) * sizeof(int32_t));
  } else {
    put(to, places_.label_offsets, batch.label_offsets);
  }
  put(to, places_.step_seed, std::span(&batch.step_seed, 1));
  write_inputs(to, batch, reads);
}

void BatchMemory::write_layout(std::byte* to, const BatchView& batch) {
  for (size_t l = 0; l < layouts_.size(); ++l) {
    PackedHost& host = layouts_[l];
    if (l == 0) {
      host.assign(batch.layout->lengths, batch.layout->keys, batch.layout->first_frame);
    } else {
      const Level& spec = graph_.levels[l];
      const PackedHost& parent = layouts_[static_cast<size_t>(spec.parent)];
      if (spec.column > 0) {
        level_lengths_.assign(static_cast<size_t>(parent.extent.rows), spec.column);
        host.assign(level_lengths_);
      } else {
        level_lengths_.clear();
        level_first_.clear();
        for (size_t n = 0; n < parent.lengths.size(); ++n) {
          level_lengths_.push_back(spec.frames(parent.lengths[n]));
          level_first_.push_back(parent.first_frame[n] / spec.factor);
        }
        host.assign(level_lengths_, parent.keys, level_first_);
      }
    }
    const BatchPlaces::Level& place = places_.levels[l];
    put(to, place.extent, std::span(&std::as_const(host.extent), 1));
    put(to, place.lengths, std::span<const int32_t>(host.lengths));
    put(to, place.batch_sizes, std::span<const int32_t>(host.batch_sizes));
    put(to, place.row_offsets, std::span<const int32_t>(host.row_offsets));
    put(to, place.row_frame, std::span<const int32_t>(host.row_frame));
    put(to, place.keys, std::span<const uint64_t>(host.keys));
    put(to, place.first_frame, std::span<const int32_t>(host.first_frame));
  }
}

void BatchMemory::write_inputs(std::byte* to, const BatchView& batch,
                               const std::vector<bool>& reads) {
  for (const BatchView::Input& in : batch.inputs) {
    RONDO_CHECK(graph_.find(in.name) != no_value, "the graph has no input '", in.name, "'");
  }
  for (size_t i = 0; i < places_.inputs.size(); ++i) {
    const BatchPlaces::Input& place = places_.inputs[i];
    const Value& value = graph_.value(place.id);
    const auto it = std::find_if(batch.inputs.begin(), batch.inputs.end(),
                                 [&](const auto& in) { return in.name == value.name; });
    input_bytes_[i] = 0;
    if (it == batch.inputs.end() && !reads[static_cast<size_t>(place.id)]) continue;
    RONDO_CHECK(it != batch.inputs.end(), "the batch lacks input '", value.name, "'");
    const int64_t rows = live_rows(value.shape);
    const auto want = static_cast<size_t>(rows * value.shape.cols) * size_of(value.dtype);
    RONDO_CHECK(it->bytes == want, "input '", value.name, "' has ", it->bytes, " bytes, expected ",
                want, " (", rows, " rows of ", value.shape.cols, ")");
    put(to, place.piece, std::span(static_cast<const std::byte*>(it->data), it->bytes));
    input_bytes_[i] = it->bytes;
  }
}

int64_t BatchMemory::live_rows(const Shape& s) const {
  switch (s.axis) {
    case Axis::fixed:
      return s.rows;
    case Axis::frames:
      return layouts_.at(static_cast<size_t>(s.level)).extent.rows;
    case Axis::sequences:
      return layouts_.front().extent.sequences;
  }
  return 0;
}

size_t BatchMemory::bytes() const {
  size_t n = memory_.bytes();
  for (const Slot& slot : slots_) n += slot.landing.bytes();
  return n;
}

}  // namespace rondo
