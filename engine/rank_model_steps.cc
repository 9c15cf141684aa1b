// Updates: batches and updates that are enqueued, and what is read of them later.
#include <algorithm>

#include "engine/graph/trace.h"
#include "engine/rank_model.h"
#include "engine/steps/stage_messages.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/totals/totals.h"

namespace rondo {

void set_totals(StepResult& result, const LossTotals& t) {
  result.loss = t.loss;
  result.sequences = static_cast<int64_t>(t.sequences);
  result.frames = static_cast<int64_t>(t.frames);
  result.infeasible = static_cast<int64_t>(t.infeasible);
  result.nonfinite = static_cast<int64_t>(t.nonfinite);
}

LossTotals totals_of(const BatchView& batch, std::span<const float> losses) {
  LossTotals t;
  t.sequences = batch.layout->extent.sequences;
  t.frames = static_cast<double>(batch.layout->extent.rows);
  for (float loss : losses) count_loss(t, static_cast<double>(loss));
  return t;
}

void RankModel::require_idle(const char* what) const {
  RONDO_CHECK(in_flight_ == 0, what, " while ", in_flight_,
              " batches and updates are in flight: collect() them");
}

RankModel::InFlight& RankModel::place_in_ring(size_t ahead) {
  RONDO_CHECK(in_flight_ + ahead < ring_.size(), in_flight_,
              " batches and updates are in flight: collect() them");
  return ring_[(oldest_ + in_flight_ + ahead) % ring_.size()];
}

RankModel::InFlight& RankModel::begin_item(bool is_update) {
  InFlight& item = place_in_ring(0);
  item.is_update = is_update;
  return item;
}

void RankModel::end_item(InFlight& item) {
  item.done.record(stream_);
  ++in_flight_;
}

size_t RankModel::lag() const {
  const bool waits = !whole() || (sums_ ? !sums_->queued() : device_->kind() == DeviceKind::cpu);
  return waits ? 0 : 2;
}

void RankModel::clear_gradients() {
  const Span span(context_, "clear gradients");
  const TensorView g = parameters_->gradients();
  device_->fill_bytes(stream_, g.data, 0, g.bytes());
}

void RankModel::clear() {
  if (!clear_) return;
  clear_ = false;
  clear_gradients();
  device_->fill_bytes(stream_, totals_.data(), 0, sizeof(LossTotals));
  host_totals_ = {};
}

// Rethrows what the action that queued sums of ranks on devices has thrown.
void RankModel::abort_sums(const std::exception& error) {
  if (!made_devices_) throw;
  made_devices_->abort(error.what());
  try {
    stream_.synchronize();
    made_devices_->stream().synchronize();
  } catch (const std::exception&) {  // the first error is the one to tell
  }
  throw;
}

void RankModel::enqueue(std::span<const BatchView> parts, bool last) {
  const Span span("forward and backward");
  RONDO_CHECK(update_, "this session was made without memory for training");
  RONDO_CHECK(!updated_, "an update must follow the batch that announced it");
  for (const BatchView& batch : parts) RONDO_CHECK(batch.layout, "a batch needs a layout");
  InFlight& item = begin_item(false);
  try {
    whole() ? run_whole(item, parts, last) : run_stages(item, parts, last);
  } catch (const std::exception& e) {
    abort_sums(e);
  }
  end_item(item);
}

void RankModel::run_stages(InFlight& item, std::span<const BatchView> parts, bool last) {
  clear();
  StepHooks hooks;
  if (sums_ && last) {
    sums_->last_batch();
    if (sums_->marks()) {
      hooks.after_node = [this](size_t node) {
        sums_->mark(node);
        sums_->flush(node);
      };
    }
  }
  if (shards_) return run_shards(item, parts, std::move(hooks));
  expect_losses(item, parts);
  hooks.with_loss = [this](int, const BoundGraph& bound) { add_to_totals(bound, false); };
  hooks.after_loss = [&](int m, const BoundGraph& bound) {
    fetch_losses(item, static_cast<size_t>(m), bound);
  };
  item.returned().totals = {};
  runner_->run(parts, hooks);
}

void RankModel::run_shards(InFlight& item, std::span<const BatchView> parts, StepHooks hooks) {
  BatchCapacity most;
  for (const BatchView& batch : parts) most = BatchCapacity::merge(most, batch.extent());
  reserve(most);
  std::vector<std::vector<double>> losses(parts.size());
  hooks.after_loss = [&](int m, const BoundGraph&) {
    runner_->add_losses(m, host_totals_, losses.at(static_cast<size_t>(m)));
  };
  shards_->start(settings_.options.timeout);
  runner_->run(parts, hooks);
  shards_->finish();
  put_losses(item, losses);
}

void RankModel::run_whole(InFlight& item, std::span<const BatchView> parts, bool last) {
  for (const BatchView& batch : parts) {  // before memory is laid out by what they claim
    if (batch.layout->extent.sequences > 0) check_batch(training_.graph, batch);
  }
  std::vector<std::vector<double>> losses;  // of batches in chunks
  if (!chunked_) expect_losses(item, parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const BatchView& batch = parts[i];
    const bool ends = last && i + 1 == parts.size();
    if (ends && sums_) sums_->last_batch();
    if (batch.layout->extent.sequences == 0) {
      clear();
    } else if (chunked_) {
      losses.push_back(run_chunks(batch));
    } else if (options_.lockstep) {
      run_lockstep(item, i, batch);
    } else {
      run_batch(item, i, batch, ends && !sums_);
    }
    if (tree_) tree_->take(share().own.begin + static_cast<int>(i));
  }
  if (chunked_) return put_losses(item, losses);
  device_->copy(stream_, &item.returned().totals, totals_.data(), sizeof(LossTotals));
}

// Where the losses of the last stage will lie.
void RankModel::expect_losses(InFlight& item, std::span<const BatchView> parts) {
  item.at.assign(1, 0);
  if (!last_stage()) return;
  const Value& loss = training_.graph.value(training_.loss);
  item.dtype = loss.dtype;
  for (const BatchView& batch : parts) {
    const auto rows = static_cast<size_t>(live_rows(training_.graph, *batch.layout, loss.shape));
    item.at.push_back(item.at.back() + rows * size_of(loss.dtype));
  }
  make_room(item, item.at.back());
}

void RankModel::fetch_losses(InFlight& item, size_t micro_batch, const BoundGraph& bound) {
  const size_t at = item.at[micro_batch];
  device_->copy(stream_, item.losses.data() + at, bound.view(training_.loss).data,
                item.at[micro_batch + 1] - at);
}

void RankModel::put_losses(InFlight& item, const std::vector<std::vector<double>>& losses) {
  item.at.assign(1, 0);
  item.dtype = DType::f64;
  for (const auto& of : losses) item.at.push_back(item.at.back() + of.size() * sizeof(double));
  make_room(item, item.at.back());
  for (size_t m = 0; m < losses.size(); ++m) {
    std::copy(losses[m].begin(), losses[m].end(),
              reinterpret_cast<double*>(item.losses.data() + item.at[m]));
  }
  item.returned().totals = host_totals_;  // which stays until the item has been collected
  LossTotals* const own = totals_.as<LossTotals>();
  device_->copy(stream_, own + 1, &item.returned().totals, sizeof(LossTotals));
  rondo::run(context_, CombineTotalsArgs{own + 1, 1, own, update_->inverse_count()});
}

void RankModel::add_to_totals(const BoundGraph& bound, bool restart) {
  LossTotalsArgs a;
  const Span span(context_, "sum losses");
  const TensorView losses = bound.view(training_.loss);
  a.losses = TensorView(losses.data, losses.dtype, {losses.numel()});
  a.row_count = bound.row_count(training_.loss);
  a.extent = bound.layout(0).extent;
  a.totals = totals_.as<LossTotals>();
  a.inverse_count = update_->inverse_count();
  a.restart = restart;
  rondo::run(context_, a);
}

// With fresh gradients or sums of several batches, with the update or without it: each is recorded
// by itself.
void RankModel::run_batch(InFlight& item, size_t part, const BatchView& batch, bool updates) {
  reserve(batch.extent());
  const bool restart = clear_;
  const bool marks = sums_ && sums_->marks();
  // Hooks that are references to locals fit into their functions, so a step allocates nothing.
  const auto with_loss = [&](const BoundGraph& bound) { add_to_totals(bound, restart); };
  const auto after_loss = [&](const BoundGraph& bound) {
    if (marks && sums_->queued()) sums_->flush();
    fetch_losses(item, part, bound);
  };
  StepHooks hooks;
  hooks.with_loss = [&with_loss](int, const BoundGraph& bound) { with_loss(bound); };
  hooks.after_loss = [&after_loss](int, const BoundGraph& bound) { after_loss(bound); };
  if (restart) hooks.before = [this] { clear_gradients(); };
  if (marks) hooks.after_node = [this](size_t node) { sums_->mark(node); };
  if (updates) {
    update_->send(place_in_ring(1).returned().update);
    hooks.after = [this] { update_->update(); };
  }
  // Marks belong to one Sums, and are the same every time where they are queued.
  const size_t kind = marks ? 1 + sums_set_ : updates ? 1 : 0;
  if (!marks || sums_->queued()) hooks.recording = 2 * kind + (restart ? 1 : 0);
  runner_->run({&batch, 1}, hooks);
  clear_ = false;
  updated_ = updates;
}

void RankModel::run_lockstep(InFlight& item, size_t part, const BatchView& batch) {
  reserve(batch.extent());
  BoundGraph& bound = runner_->bound_for(batch.extent());
  const bool restart = clear_;
  if (restart) clear_gradients();
  lockstep_ = std::make_unique<Lockstep>(bound, *parameters_);
  lockstep_->load(batch);
  lockstep_->run();
  add_to_totals(bound, restart);
  fetch_losses(item, part, bound);
  clear_ = false;
}

// Of a batch that is computed in chunks; by the time this returns on the host.
std::vector<double> RankModel::run_chunks(const BatchView& batch) {
  clear();
  chunked_->run(batch);
  host_totals_ += chunked_->totals();
  return chunked_->losses();
}

// Sums over the ranks with the same stage, of gradients, totals and votes.
void RankModel::finish_sums(const Votes& votes) {
  const Span span("sum gradients over ranks");
  reduce_began_ = runner_->seconds_since_start();
  if (sums_) {
    if (!sums_->queued()) stream_.synchronize();
    sums_->finish(totals_.as<LossTotals>(), stages() > 1 ? nullptr : update_->inverse_count());
    if (!votes.ballot.empty()) std::ranges::copy(sums_->votes(), votes.ballot.begin());
  }
  reduce_ended_ = runner_->seconds_since_start();
}

// Only the last stage has counts. Returns that of the sequences by which gradients are divided.
double RankModel::count_over_stages(InFlight& item) {
  LossTotals t;
  device_->copy(stream_, &t, totals_.data(), sizeof t);
  stream_.synchronize();
  double counts[] = {t.sequences, t.frames, t.infeasible, t.nonfinite, t.loss};
  grid_.pipeline()->all_reduce(TensorView(counts, DType::f64, {5}), Reduction::sum).wait();
  item.returned().totals = {counts[4], counts[0], counts[1], counts[2], counts[3]};
  return std::max(counts[0] - counts[2], 1.0);
}

void RankModel::vote(const Votes& votes) {
  if (!sums_) {
    if (votes.failed) throw UpdateWithdrawn();
    return;
  }
  RONDO_CHECK(whole() || !votes.failed, "a rank of a pipeline cannot fail apart from the others");
  if (!votes.ballot.empty()) {
    RONDO_CHECK(sums_->votes().size() == votes.ballot.size(), "a ballot of ", votes.ballot.size());
    std::ranges::copy(votes.ballot, sums_->votes().begin());
  }
  if (votes.failed) sums_->withdraw();
}

void RankModel::enqueue_update(const Votes& votes) {
  vote(votes);
  RONDO_CHECK(!clear_, "update() without accumulate()");
  InFlight& item = begin_item(true);
  InFlight::Returned& back = item.returned();
  try {
    if (!updated_) finish_sums(votes);
    double count = 0;  // the device has it
    if (stages() > 1) {
      count = count_over_stages(item);
    } else {
      device_->copy(stream_, &back.totals, totals_.data(), sizeof(LossTotals));
    }
    if (!updated_) {
      update_->send(back.update, count);
      update_recording_.run(context_, [this] { update_->update(); });
    }
    update_->fetch(back.update);
    update_->spread();
  } catch (const std::exception& e) {
    abort_sums(e);
  }
  ++step_;
  clear_ = true;
  updated_ = false;
  end_item(item);
}

const StepResult& RankModel::collect() {
  RONDO_CHECK(in_flight_ > 0, "nothing is in flight");
  const Span span("wait for results");
  InFlight& item = ring_[oldest_];
  oldest_ = (oldest_ + 1) % ring_.size();
  --in_flight_;
  item.done.synchronize();
  StepResult& r = result_;
  const InFlight::Returned& back = item.returned();
  set_totals(r, back.totals);
  r.gradient_norm = 0;
  r.skipped = false;
  if (item.is_update) {
    const Update::Result applied = update_->finish(back.update);
    r.gradient_norm = applied.gradient_norm;
    r.skipped = applied.skipped;
    if (sums_) sums_->applied();
  } else {
    r.losses.clear();
    append_floats(std::span<const std::byte>(item.losses.data(), item.at.back()), item.dtype,
                  r.losses);
  }
  return r;
}

const StepResult& RankModel::accumulate(std::span<const BatchView> parts, bool last) {
  require_idle("accumulate()");
  enqueue(parts, last);
  return collect();
}

const StepResult& RankModel::update() {
  require_idle("update()");
  enqueue_update();
  return collect();
}

}  // namespace rondo
