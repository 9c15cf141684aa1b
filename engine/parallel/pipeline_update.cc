// The update of a model that is spread over pipeline stages: sums over the replicas, the norm over
// the stages, the optimiser.
#include <algorithm>

#include "engine/parallel/pipeline_trainer.h"
#include "engine/reduce/device_bucket_reducer.h"
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

void PipelineTrainer::make_reducer() {
  ProcessGroup& replicas = grid_.same_stages();
  const bool on_device = device_->kind() != DeviceKind::cpu;
  int64_t bytes = settings_.bucket_bytes;
  if (sums_) {
    connect(*sums_);
    if (bytes == 0) bytes = bucket_bytes_for(measure_link(*sums_, replicas));
  } else if (bytes == 0 && !on_device) {
    bytes = bucket_bytes_for(measure_link(replicas));
  }
  const Graph& graph = pipeline_->stage_graph();
  if (sums_) {
    reducer_ = std::make_unique<DeviceBucketReducer>(replicas, *sums_, context_, graph,
                                                     *parameters_, bytes);
  } else if (!on_device) {
    reducer_ = std::make_unique<BucketReducer>(replicas, graph, *parameters_, bytes);
  } else {
    reducer_ = std::make_unique<GroupReducer>(replicas);
    gradients_on_host_ = HostArray(parameters_->gradients(), *device_, "gradients of replicas");
  }
}

void PipelineTrainer::or_abort(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& e) {
    if (!sums_) throw;
    sums_->abort(e.what());
    try {
      stream_.synchronize();
      sums_->stream().synchronize();
    } catch (const std::exception&) {  // the first error is the one to tell
    }
    throw;
  }
}

// Sums of gradients over the replicas, and of losses, which only the last stage has.
LossTotals PipelineTrainer::reduce() {
  if (shards_) device_->copy(stream_, totals_.data(), &shard_totals_, sizeof shard_totals_);
  LossTotals t;
  const auto fetch = [&] {
    device_->copy(stream_, &t, totals_.data(), sizeof t);
    stream_.synchronize();
  };
  if (reducer_ && reducer_->enqueues()) {
    reducer_->enqueue(parameters_->gradients(), totals_.as<LossTotals>(), nullptr);
    fetch();
    reducer_->applied();
    return t;
  }
  fetch();
  if (!reducer_) return t;
  double sums[Session::count_sums] = {t.sequences, t.frames, t.infeasible, t.nonfinite, t.loss};
  if (device_->kind() == DeviceKind::cpu) {
    reducer_->reduce(parameters_->gradients(), sums);
  } else {
    gradients_on_host_.fetch(stream_);
    const std::span<float> values = gradients_on_host_.values();
    reducer_->reduce(TensorView(values.data(), DType::f32, {static_cast<int64_t>(values.size())}),
                     sums);
    gradients_on_host_.store(stream_);
  }
  return {.loss = sums[4],
          .sequences = sums[0],
          .frames = sums[1],
          .infeasible = sums[2],
          .nonfinite = sums[3]};
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
  double counts[Session::count_sums] = {t.sequences, t.frames, t.infeasible, t.nonfinite, t.loss};
  // Only the last stage has counts.
  grid_.pipeline()
      .all_reduce(TensorView(counts, DType::f64, {Session::count_sums}), Reduction::sum)
      .wait();
  result_ = {};
  set_totals(result_, {counts[4], counts[0], counts[1], counts[2], counts[3]});
  const double count = std::max(counts[0] - counts[2], 1.0);
  const Update::Result applied = update_->apply(count);
  result_.gradient_norm = applied.gradient_norm;
  result_.skipped = applied.skipped;
}

}  // namespace rondo
