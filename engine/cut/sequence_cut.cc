#include "engine/cut/sequence_cut.h"

#include <algorithm>
#include <numeric>

#include "engine/graph/time_rule.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {

int32_t uncut_frames(const Graph& g) {
  int64_t block = 1;
  for (size_t l = 0; l < g.levels.size(); ++l) {
    block = std::lcm(block, g.total_factor(static_cast<int>(l)));
  }
  return static_cast<int32_t>(block);
}

// Frames of its input that a window reads beside those at its own cut, at the most on one
// side.
int32_t halo_blocks(const Graph& g) {
  const int64_t block = uncut_frames(g);
  int64_t least = 1;
  for (const Node& node : g.nodes) {
    const TimeRule& rule = time_rule_of(node);
    if (node.gradient_of != no_value || rule.kind != TimeKind::window) continue;
    const Halo halo = rule.halo(node);
    const int64_t frames =
        int64_t{std::max(halo.left, halo.right)} * g.total_factor(g.shape(node.inputs[0]).level);
    least = std::max(least, (frames + block - 1) / block);
  }
  return static_cast<int32_t>(least);
}

// At most ceil(blocks / shards) blocks of each sequence; or fewer than 2 * least, where a sequence
// is cut into fewer parts.
BatchCapacity shard_capacity(const BatchCapacity& whole, int32_t block, int shards, int32_t least) {
  BatchCapacity c = whole;
  const auto most = [&](int64_t frames, int64_t sequences) {
    int64_t even = (frames + sequences * (block - 1)) / shards + sequences * block;
    if (least > 1) even += sequences * (2 * least - 1) * block;
    return std::min(even, frames);
  };
  c.packed.frames = static_cast<int32_t>(most(whole.packed.frames, 1));
  c.packed.rows = most(whole.packed.rows, whole.packed.sequences);
  return c;
}

FrameRange shard_frames(int32_t length, int32_t block, int shard, int shards, int32_t least) {
  const int64_t blocks = (int64_t{length} + block - 1) / block;
  const int64_t parts = least > 1 ? std::clamp<int64_t>(blocks / least, 1, shards) : shards;
  const auto at = [&](int64_t s) {
    return static_cast<int32_t>(
        std::min<int64_t>(blocks * std::min(s, parts) / parts * block, length));
  };
  return {at(shard), at(int64_t{shard} + 1)};
}

BatchSlice::BatchSlice(const BatchView& whole, const Graph& graph,
                       const std::vector<FrameRange>& ranges, int64_t logits_factor)
    : step_seed_(whole.step_seed) {
  const PackedHost& all = *whole.layout;
  const size_t sequences = all.lengths.size();
  RONDO_CHECK(ranges.size() == sequences, ranges.size(), " ranges for ", sequences, " sequences");
  std::vector<int32_t> sizes, lengths, first, totals;
  for (const FrameRange& r : ranges) sizes.push_back(r.size());
  order_ = longest_first(sizes);
  std::vector<uint64_t> keys;
  label_offsets_ = {0};
  for (int32_t n : order_) {
    const auto at = static_cast<size_t>(n);
    lengths.push_back(sizes[at]);
    first.push_back(all.first_frame[at] + ranges[at].begin);
    keys.push_back(all.keys[at]);
    totals.push_back(static_cast<int32_t>((all.lengths[at] + logits_factor - 1) / logits_factor));
    if (whole.label_offsets.empty()) continue;
    const auto labels = whole.labels.subspan(
        static_cast<size_t>(whole.label_offsets[at]),
        static_cast<size_t>(whole.label_offsets[at + 1] - whole.label_offsets[at]));
    labels_.insert(labels_.end(), labels.begin(), labels.end());
    label_offsets_.push_back(static_cast<int32_t>(labels_.size()));
  }
  if (whole.label_offsets.empty()) label_offsets_.clear();
  layout_ = build_packed(lengths, keys, first);
  for (const BatchView::Input& input : whole.inputs) add_input(whole, graph, input, ranges);
  if (graph.find(total_frames_input) != no_value) {
    std::vector<std::byte> bytes(totals.size() * sizeof(int32_t));
    copy_bytes(bytes.data(), totals.data(), bytes.size());
    stored_.push_back({total_frames_input, std::move(bytes)});
  }
  for (const Stored& s : stored_) inputs_.push_back({s.name, s.bytes.data(), s.bytes.size()});
}

// Rows of one input. Those on the axis of frames must be of level 0, as batches give them.
void BatchSlice::add_input(const BatchView& whole, const Graph& graph,
                           const BatchView::Input& input, const std::vector<FrameRange>& ranges) {
  const ValueId id = graph.find(input.name);
  RONDO_CHECK(id != no_value, "the graph has no input '", input.name, "'");
  const Value& value = graph.value(id);
  RONDO_CHECK(value.shape.axis != Axis::frames || value.shape.level == 0, "input '", value.name,
              "' is of frames after subsampling: it cannot be cut");
  const size_t row = static_cast<size_t>(value.shape.cols) * size_of(value.dtype);
  const auto* from = static_cast<const std::byte*>(input.data);
  Stored stored{value.name, {}};
  const auto take = [&](int64_t index) {
    RONDO_CHECK(static_cast<size_t>(index + 1) * row <= input.bytes, "input '", value.name,
                "' has ", input.bytes, " bytes, too few");
    stored.bytes.insert(stored.bytes.end(), from + static_cast<size_t>(index) * row,
                        from + static_cast<size_t>(index + 1) * row);
  };
  if (value.shape.axis == Axis::sequences) {
    for (int32_t n : order_) take(n);
  } else if (value.shape.axis == Axis::frames) {
    stored.bytes.reserve(static_cast<size_t>(layout_.extent.rows) * row);
    for (int32_t t = 0; t < layout_.extent.frames; ++t) {
      for (int32_t i = 0; i < layout_.batch_sizes[static_cast<size_t>(t)]; ++i) {
        const int32_t n = order_[static_cast<size_t>(i)];
        take(whole.layout->row(ranges[static_cast<size_t>(n)].begin + t, n));
      }
    }
  } else {
    stored.bytes.assign(from, from + input.bytes);
  }
  stored_.push_back(std::move(stored));
}

BatchView BatchSlice::view() const {
  BatchView v;
  v.layout = &layout_;
  v.labels = labels_;
  v.label_offsets = label_offsets_;
  v.inputs = inputs_;
  v.step_seed = step_seed_;
  return v;
}

}  // namespace rondo
