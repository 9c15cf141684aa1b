#include "engine/parallel/pipeline.h"

#include <algorithm>

#include "engine/parallel/stage_messages.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;

bool is_recv(Kind k) { return k == Kind::recv_activation || k == Kind::recv_gradient; }
bool is_send(Kind k) { return k == Kind::send_activation || k == Kind::send_gradient; }
bool goes_up(Kind k) { return k == Kind::recv_activation || k == Kind::send_activation; }
bool gives_gradient(Kind k) { return k == Kind::backward || k == Kind::input_backward; }
bool frees_activations(Kind k) { return k == Kind::backward || k == Kind::weight_backward; }

bool splits_backward(const PipelineSchedule& schedule) {
  for (const auto& list : schedule.actions) {
    for (const Action& a : list) {
      if (a.kind == Kind::weight_backward) return true;
    }
  }
  return false;
}

// What the stage does not read takes no memory for batches.
void forget_unread_inputs(Graph& graph, int stage) {
  std::vector<bool> read(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (node.stage != stage) continue;
    for (ValueId id : node.inputs) {
      if (id != no_value) read[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Value& value = graph.values[v];
    if (value.role == ValueRole::input && !read[v]) value.role = ValueRole::activation;
  }
}

}  // namespace

bool runs(Kind kind, Phase phase) {
  switch (kind) {
    case Kind::forward:
      return phase == Phase::forward;
    case Kind::backward:
      return phase != Phase::forward;
    case Kind::input_backward:
      return phase == Phase::backward;
    case Kind::weight_backward:
      return phase == Phase::weight_gradient;
    default:
      return false;
  }
}

PipelineSchedule forward_only(const PipelineSchedule& schedule, int micro_batches) {
  PipelineSchedule s = schedule;
  RONDO_CHECK(micro_batches <= s.micro_batches, micro_batches, " micro-batches of a schedule of ",
              s.micro_batches);
  s.micro_batches = micro_batches;
  for (auto& list : s.actions) {
    std::erase_if(list, [&](const Action& a) {
      const bool forward = a.kind == Kind::forward || a.kind == Kind::send_activation ||
                           a.kind == Kind::recv_activation;
      return !forward || a.micro_batch >= micro_batches;
    });
  }
  return s;
}

PipelineRank::PipelineRank(const Graph& graph, const Context& context, ProcessGroup& group,
                           PipelineSchedule schedule, Parameters& parameters,
                           PipelineOptions options, StageLinks* links)
    : context_(context),
      group_(group),
      schedule_(std::move(schedule)),
      parameters_(parameters),
      options_(options),
      timeline_(options.timeline) {
  RONDO_CHECK(group.size() == schedule_.ranks(), "a schedule of ", schedule_.ranks(),
              " ranks for a group of ", group.size());
  require_neighbours(graph);
  for (int s = 0; s < schedule_.stages; ++s) {
    if (schedule_.rank_of_stage[static_cast<size_t>(s)] != group.rank()) continue;
    own_.push_back(s);
    cut(graph, s);
    assign_slots(s);
  }
  const auto& list = schedule_.actions[static_cast<size_t>(group.rank())];
  for (size_t i = 0; i < list.size(); ++i) {
    if (is_recv(list[i].kind)) recvs_.push_back(i);
  }
  const TrafficOptions traffic{options.wire, options.timeout, options.look_ahead};
  const bool on_device = context.device->kind() != DeviceKind::cpu;
  waits_for_computations_ = !on_device || (links == nullptr && group.size() > 1);
  traffic_ = waits_for_computations_
                 ? make_host_traffic(group, traffic, timeline_)
                 : make_device_traffic(context, group, links, traffic, timeline_);
}

void PipelineRank::cut(const Graph& graph, int stage) {
  Stage& s = stages_[stage];
  s.graph = graph;
  s.from_lower = crossing_values(graph, stage - 1, stage);
  s.to_lower = crossing_values(graph, stage, stage - 1);
  s.from_upper = crossing_values(graph, stage + 1, stage);
  s.to_upper = crossing_values(graph, stage, stage + 1);
  forget_unread_inputs(s.graph, stage);
  // In the order in which they run, which is the one that memory is planned for.
  if (splits_backward(schedule_)) {
    std::stable_partition(s.graph.nodes.begin(), s.graph.nodes.end(),
                          [](const Node& n) { return n.phase != Phase::weight_gradient; });
  }
}

// The lowest plan that no other micro-batch has at the time.
void PipelineRank::assign_slots(int stage) {
  Stage& s = of(stage);
  s.slot_of.assign(static_cast<size_t>(schedule_.micro_batches), 0);
  std::vector<bool> taken;
  for (const Action& a : schedule_.actions[static_cast<size_t>(group_.rank())]) {
    if (a.stage != stage || a.micro_batch < 0) continue;
    int& slot = s.slot_of[static_cast<size_t>(a.micro_batch)];
    if (a.kind == Kind::forward) {
      slot = static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
      if (static_cast<size_t>(slot) == taken.size()) taken.push_back(false);
      taken[static_cast<size_t>(slot)] = true;
    } else if (frees_activations(a.kind)) {
      taken[static_cast<size_t>(slot)] = false;
    }
  }
  s.slots = static_cast<int>(taken.size());
}

void PipelineRank::reserve(const BatchCapacity& capacity) {
  if (planned_ && capacity_.holds(capacity)) return;
  if (planned_) context_.stream->synchronize();  // the plans may be running
  planned_ = false;                              // where there is not enough memory
  capacity_ = BatchCapacity::merge(capacity_, capacity);
  for (auto& [stage, s] : stages_) {
    s.plans.clear();
    for (int i = 0; i < s.slots; ++i) {
      s.plans.emplace_back(s.graph, context_, capacity_, parameters_, stage);
    }
  }
  traffic_->reserve(most_traffic());
  planned_ = true;
}

// As if no micro-batch were empty.
StageTraffic::Most PipelineRank::most_traffic() const {
  StageTraffic::Most most;
  for (const auto& [stage, s] : stages_) {
    for (const auto* values : {&s.from_lower, &s.to_lower, &s.from_upper, &s.to_upper}) {
      most.bytes = std::max(most.bytes, traffic_->most_bytes(s.graph, capacity_, *values));
    }
  }
  size_t expected = 0, handed_over = 0, taken = 0, turn = 0;
  for (const Action& a : schedule_.actions[static_cast<size_t>(group_.rank())]) {
    if (is_recv(a.kind)) ++turn;
    expected = std::max(
        expected, std::min(recvs_.size(), turn + static_cast<size_t>(traffic_->look_ahead())));
    most.arrivals = std::max(most.arrivals, expected + handed_over - taken);
    const bool forward = a.kind == Kind::forward;
    if (!forward && !gives_gradient(a.kind)) continue;
    if (forward ? a.stage > 0 : a.stage < schedule_.stages - 1) ++taken;
    if (stages_.contains(forward ? a.stage + 1 : a.stage - 1)) ++handed_over;
    most.arrivals = std::max(most.arrivals, expected + handed_over - taken);
  }
  return most;
}

const Plan& PipelineRank::plan(int stage, int micro_batch) const {
  const Stage& s = of(stage);
  return s.plans.at(static_cast<size_t>(s.slot_of.at(static_cast<size_t>(micro_batch)))).latest();
}

BucketedPlans& PipelineRank::plans_of(const Action& a) {
  Stage& s = of(a.stage);
  return s.plans.at(static_cast<size_t>(s.slot_of.at(static_cast<size_t>(a.micro_batch))));
}

size_t PipelineRank::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& [stage, s] : stages_) {
    for (const BucketedPlans& plans : s.plans) bytes += plans.largest().arena_bytes();
  }
  return bytes;
}

size_t PipelineRank::batch_bytes() const {
  size_t bytes = 0;
  for (const auto& [stage, s] : stages_) {
    for (const BucketedPlans& plans : s.plans) bytes += plans.largest().batch_bytes();
  }
  return bytes;
}

bool PipelineRank::empty(int micro_batch) const {
  return batches_[static_cast<size_t>(micro_batch)].layout->extent.sequences == 0;
}

uint32_t PipelineRank::tag(bool up, int reader, int micro_batch) const {
  return static_cast<uint32_t>(((up ? 0 : schedule_.stages) + reader) * schedule_.micro_batches +
                               micro_batch);
}

StageMessage PipelineRank::message(const Action& a, bool up, int reader) const {
  const Stage& s = of(a.stage);
  StageMessage m;
  m.action = a;
  m.up = up;
  m.reader = reader;
  m.graph = &s.graph;
  if (reader == a.stage) {
    m.values = up ? s.from_lower : s.from_upper;
  } else {
    m.values = up ? s.to_upper : s.to_lower;
  }
  m.layout = batches_[static_cast<size_t>(a.micro_batch)].layout;
  m.tag = tag(up, reader, a.micro_batch);
  return m;
}

void PipelineRank::run(std::span<const BatchView> micro_batches, const PipelineHooks& hooks) {
  RONDO_CHECK(micro_batches.size() == static_cast<size_t>(schedule_.micro_batches),
              micro_batches.size(), " micro-batches for a schedule of ", schedule_.micro_batches);
  batches_ = micro_batches;
  BatchCapacity most;
  for (const BatchView& b : micro_batches) most = BatchCapacity::merge(most, b.extent());
  reserve(most);
  // All ranks' times have one zero then.
  if (options_.timeline) group_.barrier().wait();
  timeline_.start(schedule_.actions[static_cast<size_t>(group_.rank())].size());
  posted_ = 0;
  try {
    run_actions(hooks);
  } catch (const std::exception& e) {
    traffic_->abort(e.what());
    throw;
  }
  batches_ = {};
}

void PipelineRank::run_actions(const PipelineHooks& hooks) {
  const auto& list = schedule_.actions[static_cast<size_t>(group_.rank())];
  traffic_->begin_run();
  for (size_t i = 0; i < list.size(); ++i) {
    post_ahead(i);
    perform(list[i], hooks);
    traffic_->advance();
  }
  traffic_->end_run();
}

// Recvs whose turn has come, and the next few.
void PipelineRank::post_ahead(size_t action) {
  const auto passed =
      static_cast<size_t>(std::upper_bound(recvs_.begin(), recvs_.end(), action) - recvs_.begin());
  const size_t until =
      std::min(recvs_.size(), passed + static_cast<size_t>(traffic_->look_ahead()));
  for (; posted_ < until; ++posted_) {
    const Action& a = schedule_.actions[static_cast<size_t>(group_.rank())][recvs_[posted_]];
    if (!empty(a.micro_batch)) traffic_->expect(message(a, goes_up(a.kind), a.stage));
  }
}

void PipelineRank::perform(const Action& a, const PipelineHooks& hooks) {
  if (a.kind == Kind::reduce) {
    const size_t place = timeline_.add(a);
    timeline_.set_start(place, CommClock::now());
    if (hooks.reduce) hooks.reduce(a.stage);
    timeline_.set_end(place, CommClock::now());
  } else if (!empty(a.micro_batch)) {
    if (is_send(a.kind)) {
      const bool up = goes_up(a.kind);
      traffic_->send(message(a, up, up ? a.stage + 1 : a.stage - 1), plan_of(a));
    } else if (!is_recv(a.kind)) {
      compute(a, hooks);
    }
  }
}

void PipelineRank::compute(const Action& a, const PipelineHooks& hooks) {
  if (a.kind == Kind::forward) {
    load(a);
    if (hooks.loaded) hooks.loaded(a.stage, a.micro_batch, plan_of(a));
  }
  receive_inputs(a);
  const size_t place = timeline_.add(a);
  note_time(place, false);
  run_nodes(a, hooks);
  if (waits_for_computations_) context_.stream->synchronize();
  note_time(place, true);
  hand_over(a);
  const bool has_losses = hooks.loss_in_backward ? gives_gradient(a.kind) : a.kind == Kind::forward;
  if (has_losses && a.stage == schedule_.stages - 1 && hooks.after_loss) {
    hooks.after_loss(a.micro_batch, plan_of(a));
  }
}

// When the stream comes here.
void PipelineRank::note_time(size_t place, bool end) {
  if (!timeline_.records()) return;
  const auto note = [this, place, end] {
    const auto now = CommClock::now();
    end ? timeline_.set_end(place, now) : timeline_.set_start(place, now);
  };
  waits_for_computations_ ? note() : context_.stream->enqueue(note);
}

void PipelineRank::load(const Action& a) {
  BatchView batch = batches_[static_cast<size_t>(a.micro_batch)];
  inputs_.clear();
  for (const BatchView::Input& in : batch.inputs) {
    if (of(a.stage).graph.find(in.name) != no_value) inputs_.push_back(in);
  }
  batch.inputs = inputs_;
  plans_of(a).plan_for(batch.extent()).load(batch);
}

void PipelineRank::run_nodes(const Action& a, const PipelineHooks& hooks) {
  const Graph& graph = of(a.stage).graph;
  Plan& plan = plan_of(a);
  const bool last = a.micro_batch == schedule_.micro_batches - 1 && a.kind != Kind::forward;
  PipelineHooks::NodeDone done;
  if (last && hooks.after_node) done = [&](size_t node) { hooks.after_node(a.stage, node); };
  if (hooks.run_nodes) return hooks.run_nodes(a, done);
  const auto pass = [&] {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.stage != a.stage || !runs(a.kind, node.phase)) continue;
      plan.run_node(i);
      if (done) done(i);
    }
  };
  if (done) return pass();  // which is not the same every time
  plan.run_recorded(static_cast<size_t>(a.kind), pass);
}

void PipelineRank::receive_inputs(const Action& a) {
  const bool up = a.kind == Kind::forward;
  if (!up && !gives_gradient(a.kind)) return;
  const bool at_the_end = up ? a.stage == 0 : a.stage == schedule_.stages - 1;
  if (at_the_end) return;
  const StageMessage m = message(a, up, a.stage);
  RONDO_CHECK(traffic_->expects(m), describe(a), " has no input");
  traffic_->take(m, plan_of(a));
}

// To a stage of the same rank.
void PipelineRank::hand_over(const Action& a) {
  const bool up = a.kind == Kind::forward;
  if (!up && !gives_gradient(a.kind)) return;
  const int reader = up ? a.stage + 1 : a.stage - 1;
  if (stages_.contains(reader)) traffic_->hand_over(message(a, up, reader), plan_of(a));
}

}  // namespace rondo
