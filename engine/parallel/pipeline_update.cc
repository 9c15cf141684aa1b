// The update of a model that is spread over pipeline stages: sums over the replicas, the norm over
// the stages, the optimiser.
#include <algorithm>

#include "engine/parallel/pipeline_trainer.h"
#include "engine/reduce/device_bucket_sums.h"
#include "kernels/base/error.h"
#include "kernels/totals/totals.h"

namespace rondo {
namespace {

// A first sum: devices that are connected by it would wait for each other in the middle of a batch.
void connect(DeviceGroup& sums) {
  const int64_t elements = 64 * sums.size();
  const Buffer memory(sums.device(), static_cast<size_t>(elements) * sizeof(float), "a first sum");
  sums.device().fill_bytes(sums.stream(), memory.data(), 0, memory.bytes());
  sums.all_reduce(TensorView(memory.data(), DType::f32, {elements}), Reduction::sum).wait();
}

}  // namespace

void PipelineTrainer::make_sums() {
  ProcessGroup& replicas = grid_.same_stages();
  const bool on_device = device_->kind() != DeviceKind::cpu;
  int64_t bytes = settings_.bucket_bytes;
  if (replica_devices_) {
    connect(*replica_devices_);
    if (bytes == 0) bytes = bucket_bytes_for(measure_link(*replica_devices_, replicas));
  } else if (bytes == 0 && !on_device) {
    bytes = bucket_bytes_for(measure_link(replicas));
  }
  const Graph& graph = pipeline_->stage_graph();
  if (replica_devices_) {
    sums_ = std::make_unique<DeviceBucketSums>(replicas, *replica_devices_, context_, graph,
                                               *parameters_, bytes);
  } else if (!on_device) {
    sums_ = std::make_unique<BucketSums>(replicas, graph, *parameters_, bytes);
  } else {
    sums_ = std::make_unique<GroupSums>(replicas, *parameters_);
  }
}

void PipelineTrainer::or_abort(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& e) {
    if (!replica_devices_) throw;
    replica_devices_->abort(e.what());
    try {
      stream_.synchronize();
      replica_devices_->stream().synchronize();
    } catch (const std::exception&) {  // the first error is the one to tell
    }
    throw;
  }
}

// Sums of gradients over the replicas, and of losses, which only the last stage has.
LossTotals PipelineTrainer::reduce() {
  if (shards_) device_->copy(stream_, totals_.data(), &shard_totals_, sizeof shard_totals_);
  if (sums_) {
    if (!sums_->queued()) stream_.synchronize();
    sums_->finish(totals_.as<LossTotals>(), nullptr);
  }
  LossTotals t;
  device_->copy(stream_, &t, totals_.data(), sizeof t);
  stream_.synchronize();
  if (sums_) sums_->applied();
  return t;
}

const StepResult& PipelineTrainer::update() {
  RONDO_CHECK(!clear_, "update() without accumulate()");
  or_abort([this] { apply_update(); });
  return result_;
}

void PipelineTrainer::apply_update() {
  clear_ = true;
  reduce_began_ = pipeline_->seconds_since_start();
  const LossTotals t = reduce();
  reduce_ended_ = pipeline_->seconds_since_start();
  double counts[] = {t.sequences, t.frames, t.infeasible, t.nonfinite, t.loss};
  // Only the last stage has counts.
  grid_.pipeline().all_reduce(TensorView(counts, DType::f64, {5}), Reduction::sum).wait();
  result_ = {};
  set_totals(result_, {counts[4], counts[0], counts[1], counts[2], counts[3]});
  const double count = std::max(counts[0] - counts[2], 1.0);
  const Update::Result applied = update_->apply(count);
  result_.gradient_norm = applied.gradient_norm;
  result_.skipped = applied.skipped;
}

}  // namespace rondo
