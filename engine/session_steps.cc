// Training steps: what is enqueued, and what is read of it later.
#include <algorithm>
#include <cmath>

#include "engine/reduce/sums.h"
#include "engine/session_state.h"
#include "kernels/base/dispatch.h"

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

InFlight& Session::State::place(size_t ahead) {
  RONDO_CHECK(in_flight + ahead < ring.size(), in_flight,
              " batches and updates are in flight: collect() them");
  return ring[(oldest + in_flight + ahead) % ring.size()];
}

InFlight& Session::State::begin_item(bool is_update) {
  InFlight& item = place(0);
  item.is_update = is_update;
  return item;
}

void Session::State::end_item(InFlight& item) {
  item.done.record(stream);
  ++in_flight;
}

void Session::State::clear_gradients() {
  const TensorView g = parameters->gradients();
  device->fill_bytes(stream, g.data, 0, g.bytes());
}

void Session::State::add_to_totals(const Plan& plan, bool restart) {
  LossTotalsArgs a;
  const TensorView losses = plan.view(train.outputs.loss);
  a.losses = TensorView(losses.data, losses.dtype, {losses.numel()});
  a.row_count = plan.row_count(train.outputs.loss);
  a.extent = plan.layout(0).extent;
  a.totals = totals.as<LossTotals>();
  a.inverse_count = optimizer->inverse_count();
  a.restart = restart;
  run(context, a);
}

void Session::State::fetch_losses(const Plan& plan, InFlight& item) {
  const TensorView losses = plan.view(train.outputs.loss);
  make_room(item);
  item.losses = plan.live_rows(plan.graph().shape(train.outputs.loss));
  item.loss_dtype = losses.dtype;
  device->copy(stream, item.loss_values.data(), losses.data,
               static_cast<size_t>(item.losses) * size_of(losses.dtype));
  device->copy(stream, &item.returned().totals, totals.data(), sizeof(LossTotals));
}

// A batch without sequences.
void Session::State::add_nothing(InFlight& item) {
  if (gradients_clear) {
    clear_gradients();
    device->fill_bytes(stream, totals.data(), 0, sizeof(LossTotals));
    chunks_totals = {};
  }
  gradients_clear = false;
  item.losses = 0;
  device->copy(stream, &item.returned().totals, totals.data(), sizeof(LossTotals));
}

// Of a batch that is computed in chunks; by the time this returns on the host.
void Session::State::run_chunks(const BatchView& batch, InFlight& item) {
  if (gradients_clear) {
    clear_gradients();
    chunks_totals = {};
  }
  gradients_clear = false;
  chunked->run(batch);
  chunks_totals += chunked->totals();
  item.returned().totals = chunks_totals;  // which stays until the item has been collected
  LossTotals* const own = totals.as<LossTotals>();
  device->copy(stream, own + 1, &item.returned().totals, sizeof(LossTotals));
  run(context, CombineTotalsArgs{own + 1, 1, own, optimizer->inverse_count()});
  const std::vector<double>& losses = chunked->losses();
  item.losses = static_cast<int64_t>(losses.size());
  item.loss_dtype = DType::f64;
  const size_t bytes = losses.size() * sizeof(double);
  if (item.loss_values.bytes() < bytes) {
    item.loss_values = StagingBuffer(*device, bytes, "losses");
  }
  std::copy(losses.begin(), losses.end(), reinterpret_cast<double*>(item.loss_values.data()));
}

void Session::State::set_losses(const InFlight& item) {
  const auto n = static_cast<size_t>(item.losses);
  result.losses.resize(n);
  if (item.loss_dtype == DType::f64) {
    const auto* from = reinterpret_cast<const double*>(item.loss_values.data());
    std::transform(from, from + n, result.losses.begin(),
                   [](double x) { return static_cast<float>(x); });
  } else {
    const auto* from = reinterpret_cast<const float*>(item.loss_values.data());
    std::copy_n(from, n, result.losses.begin());
  }
}

void Session::State::run_batch(Plan& plan, bool restart, bool updates) {
  const bool marks = sums && sums->marks();
  if (marks && !sums->queued()) {  // their part is not the same every time
    if (restart) clear_gradients();
    plan.run([this](size_t node) { sums->mark(node); });
    add_to_totals(plan, restart);
    return;
  }
  // Marks belong to one Sums; a batch with them makes no update by itself.
  const size_t kind = marks ? 1 + sums_set : updates ? 1 : 0;
  plan.run_recorded(2 * kind + (restart ? 1 : 0), [&] {
    if (restart) clear_gradients();
    if (marks) {
      plan.run([this](size_t node) { sums->mark(node); });
    } else {
      plan.run();
    }
    add_to_totals(plan, restart);
    if (updates) optimizer->update();
  });
  if (marks) sums->flush();
}

void Session::enqueue(const BatchView& batch, Next next) {
  State& s = *state_;
  RONDO_CHECK(s.optimizer, "this session was made without memory for training");
  RONDO_CHECK(!s.updated, "enqueue_update() must follow the batch that announced it");
  RONDO_CHECK(batch.layout != nullptr, "a batch needs a layout");
  InFlight& item = s.begin_item(false);
  if (batch.layout->extent.sequences == 0) {
    s.add_nothing(item);
    return s.end_item(item);
  }
  if (s.chunked) {
    check_batch(s.train.graph, batch);
    s.run_chunks(batch, item);
    return s.end_item(item);
  }
  Plan& plan = s.plan_for(s.train_plans, s.train.planned, batch);
  const bool restart = s.gradients_clear;
  if (s.options.lockstep) {
    if (restart) s.clear_gradients();
    s.lockstep = std::make_unique<Lockstep>(plan, *s.parameters);
    s.lockstep->load(batch);
    s.lockstep->run();
    s.add_to_totals(plan, restart);
  } else {
    const bool updates = next == Next::update && s.sums == nullptr;
    if (updates) s.optimizer->send(s.place(1).returned().update);
    plan.load(batch);
    s.run_batch(plan, restart, updates);
    s.updated = updates;
  }
  s.fetch_losses(plan, item);
  s.gradients_clear = false;
  s.end_item(item);
}

void Session::enqueue_update() {
  State& s = *state_;
  RONDO_CHECK(!s.gradients_clear, "update() without accumulate()");
  InFlight& item = s.begin_item(true);
  InFlight::Returned& back = item.returned();
  if (!s.updated) {
    if (s.sums) {
      if (!s.sums->queued()) s.stream.synchronize();
      s.sums->finish(s.totals.as<LossTotals>(), s.optimizer->inverse_count());
    }
    s.device->copy(s.stream, &back.totals, s.totals.data(), sizeof(LossTotals));
    s.optimizer->send(back.update);
    s.update_recording.run(s.context, [&s] { s.optimizer->update(); });
  } else {
    s.device->copy(s.stream, &back.totals, s.totals.data(), sizeof(LossTotals));
  }
  s.optimizer->fetch(back.update);
  s.optimizer->spread();
  ++s.step;
  s.gradients_clear = true;
  s.updated = false;
  s.end_item(item);
}

size_t Session::in_flight() const { return state_->in_flight; }

const StepResult& Session::collect() {
  State& s = *state_;
  RONDO_CHECK(s.in_flight > 0, "nothing is in flight");
  InFlight& item = s.ring[s.oldest];
  s.oldest = (s.oldest + 1) % s.ring.size();
  --s.in_flight;
  item.done.synchronize();
  StepResult& r = s.result;
  const InFlight::Returned& back = item.returned();
  set_totals(r, back.totals);
  r.gradient_norm = 0;
  r.skipped = false;
  if (item.is_update) {
    const Update::Result applied = s.optimizer->finish(back.update);
    r.gradient_norm = applied.gradient_norm;
    r.skipped = applied.skipped;
    if (s.sums) s.sums->applied();
  } else {
    s.set_losses(item);
  }
  return r;
}

void Session::accumulate(const BatchView& batch) {
  state_->require_idle("accumulate()");
  enqueue(batch);
  collect();
}

const StepResult& Session::update() {
  state_->require_idle("update()");
  enqueue_update();
  return collect();
}

const StepResult& Session::train_step(const BatchView& batch) {
  state_->require_idle("train_step()");
  enqueue(batch, Next::update);
  enqueue_update();
  collect();
  return collect();
}

}  // namespace rondo
