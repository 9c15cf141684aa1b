#include "engine/graph/bucket.h"

#include <algorithm>

namespace rondo {

BatchCapacity bucket_of(const BatchCapacity& extent, const BatchCapacity& most) {
  int64_t frames = 16, sequences = 4;
  while (frames < extent.packed.frames) frames *= 2;
  if (frames > 16 && frames / 4 * 3 >= extent.packed.frames) frames = frames / 4 * 3;
  while (sequences < extent.packed.sequences) sequences *= 2;
  BatchCapacity bucket = most;
  bucket.packed.frames = static_cast<int32_t>(std::min<int64_t>(frames, most.packed.frames));
  bucket.packed.sequences =
      static_cast<int32_t>(std::min<int64_t>(sequences, most.packed.sequences));
  bucket.packed.rows =
      std::min(most.packed.rows, int64_t{bucket.packed.frames} * bucket.packed.sequences);
  return bucket;
}

BucketedGraphs::BucketedGraphs(const Graph& graph, const Context& context,
                               const BatchCapacity& most, Parameters& parameters, int stage) {
  all_.push_back(
      std::make_unique<BoundGraph>(graph, context, most, parameters, Reuse::by_liveness, stage));
  latest_ = all_.front().get();
}

BoundGraph& BucketedGraphs::bound_for(const BatchCapacity& extent) {
  latest_ = all_.front().get();
  if (!latest_->context().device->can_capture()) return *latest_;
  const BatchCapacity capacity = bucket_of(extent, latest_->capacity());
  for (const auto& bound : all_) {
    if (bound->capacity().packed == capacity.packed) return *(latest_ = bound.get());
  }
  if (std::find(too_large_.begin(), too_large_.end(), capacity.packed) != too_large_.end()) {
    return *latest_;
  }
  std::unique_ptr<BoundGraph> bound = BoundGraph::within(*latest_, capacity);
  if (bound) {
    latest_ = all_.emplace_back(std::move(bound)).get();
  } else {
    too_large_.push_back(capacity.packed);
  }
  return *latest_;
}

}  // namespace rondo
