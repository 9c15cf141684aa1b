#include "engine/steps/step_runner.h"

#include <algorithm>

#include "engine/graph/trace.h"
#include "engine/steps/stage_messages.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using Kind = ActionKind;

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

// Whether an action runs the nodes of a phase.
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

}  // namespace

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

StepRunner::StepRunner(const Graph& graph, const Context& context, ProcessGroup* group,
                       PipelineSchedule schedule, Parameters& parameters, PipelineOptions options,
                       StageLinks* links, SharedSequences shared)
    : context_(context),
      group_(group),
      stage_(group ? group->rank() : 0),
      shards_(shared.shards),
      schedule_{std::move(schedule), {}, shards_ ? shards_->ranks() : 1, shared.woven},
      parameters_(parameters),
      options_(options),
      timeline_(options.timeline) {
  const PipelineSchedule& s = schedule_.schedule;
  RONDO_CHECK((group ? group->size() : 1) == s.stages(), "a schedule of ", s.stages(),
              " stages for a group of ", group ? group->size() : 0);
  RONDO_CHECK(shards_ || !schedule_.woven, "woven micro-batches of whole sequences");
  require_neighbours(graph);
  cut(graph);
  assign_slots();
  if (shards_) list_exchanges();
  steps_ = rank_steps(schedule_, stage_, shards_ ? shards_->rank() : 0);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (is_recv(steps_[i].action.kind)) recvs_.push_back(i);
  }
  const bool on_device = context.device->kind() != DeviceKind::cpu;
  waits_for_computations_ = !on_device || (links == nullptr && s.stages() > 1);
  if (!group) return;
  const TrafficOptions traffic{options.wire, options.timeout, options.look_ahead};
  traffic_ = waits_for_computations_
                 ? make_host_traffic(*group, traffic, timeline_)
                 : make_device_traffic(context, *group, links, traffic, timeline_);
}

// Whether a computation needs what a stage before or behind it has sent.
bool StepRunner::reads_message(Kind kind) const {
  if (kind == Kind::forward) return stage_ > 0;
  return gives_gradient(kind) && stage_ < schedule().stages() - 1;
}

const std::vector<Action>& StepRunner::actions() const {
  return schedule().actions[static_cast<size_t>(stage_)];
}

void StepRunner::list_exchanges() {
  schedule_.exchanges.resize(schedule().actions.size());
  for (size_t i = 0; i < shards_->exchanges().size(); ++i) {
    const SequenceShards::Exchange& e = shards_->exchanges()[i];
    const int stage = shards_->chunk().graph.nodes[e.node].stage;
    schedule_.exchanges.at(static_cast<size_t>(stage)).push_back(e.order());
    if (stage == stage_) exchanges_.push_back(i);
  }
}

void StepRunner::cut(const Graph& graph) {
  graph_ = graph;
  from_lower_ = crossing_values(graph, stage_ - 1, stage_);
  to_lower_ = crossing_values(graph, stage_, stage_ - 1);
  from_upper_ = crossing_values(graph, stage_ + 1, stage_);
  to_upper_ = crossing_values(graph, stage_, stage_ + 1);
  if (schedule().stages() > 1) forget_unread_inputs(graph_, stage_);
  // In the order in which they run, which is the one that memory is laid out for.
  if (splits_backward(schedule())) {
    std::stable_partition(graph_.nodes.begin(), graph_.nodes.end(),
                          [](const Node& n) { return n.phase != Phase::weight_gradient; });
  }
}

// The lowest slot that no other micro-batch has at the time.
void StepRunner::assign_slots() {
  slot_of_.assign(static_cast<size_t>(schedule().micro_batches), 0);
  std::vector<bool> taken;
  for (const Action& a : actions()) {
    if (a.micro_batch < 0) continue;
    int& slot = slot_of_[static_cast<size_t>(a.micro_batch)];
    if (a.kind == Kind::forward) {
      slot = static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
      if (static_cast<size_t>(slot) == taken.size()) taken.push_back(false);
      taken[static_cast<size_t>(slot)] = true;
    } else if (frees_activations(a.kind)) {
      taken[static_cast<size_t>(slot)] = false;
    }
  }
  slots_ = static_cast<int>(taken.size());
}

void StepRunner::reserve(const BatchCapacity& capacity) {
  if (reserved_ && capacity_.holds(capacity)) return;
  if (reserved_) context_.stream->synchronize();  // the graphs may be running
  capacity_ = reserved_ ? BatchCapacity::merge(capacity_, capacity) : capacity;
  reserved_ = false;  // where there is not enough memory
  passes_.clear();
  graphs_.clear();
  for (int i = 0; i < slots_; ++i) {
    graphs_.emplace_back(graph_, context_, capacity_, parameters_, stage_);
  }
  if (traffic_) traffic_->reserve(most_traffic());
  reserved_ = true;
}

// As if no micro-batch were empty.
StageTraffic::Most StepRunner::most_traffic() const {
  StageTraffic::Most most;
  for (const auto* values : {&from_lower_, &to_lower_, &from_upper_, &to_upper_}) {
    most.bytes = std::max(most.bytes, traffic_->most_bytes(graph_, capacity_, *values));
  }
  size_t expected = 0, taken = 0, turn = 0;
  for (const Action& a : actions()) {
    if (is_recv(a.kind)) ++turn;
    expected = std::max(
        expected, std::min(recvs_.size(), turn + static_cast<size_t>(traffic_->look_ahead())));
    most.arrivals = std::max(most.arrivals, expected - taken);
    if (reads_message(a.kind)) ++taken;
  }
  return most;
}

BucketedGraphs& StepRunner::graphs_of(const Action& a) {
  return graphs_.at(static_cast<size_t>(slot_of_.at(static_cast<size_t>(a.micro_batch))));
}

size_t StepRunner::arena_bytes() const {
  size_t bytes = 0;
  for (const BucketedGraphs& graphs : graphs_) bytes += graphs.largest().arena_bytes();
  return bytes;
}

size_t StepRunner::batch_bytes() const {
  size_t bytes = 0;
  for (const BucketedGraphs& graphs : graphs_) bytes += graphs.largest().batch_bytes();
  return bytes;
}

bool StepRunner::empty(int micro_batch) const {
  const auto m = static_cast<size_t>(micro_batch);
  return m >= batches_.size() || batches_[m].layout->extent.sequences == 0;
}

uint32_t StepRunner::tag(bool up, int reader, int micro_batch) const {
  return static_cast<uint32_t>(
      ((up ? 0 : schedule().stages()) + reader) * schedule().micro_batches + micro_batch);
}

StageMessage StepRunner::message(const Action& a, bool up, int reader) const {
  StageMessage m;
  m.action = a;
  m.graph = &graph_;
  if (reader == stage_) {
    m.values = up ? from_lower_ : from_upper_;
  } else {
    m.values = up ? to_upper_ : to_lower_;
  }
  m.layout = batches_[static_cast<size_t>(a.micro_batch)].layout;
  m.tag = tag(up, reader, a.micro_batch);
  return m;
}

void StepRunner::take_slices(std::span<const BatchView> micro_batches) {
  whole_ = micro_batches;
  slices_.clear();
  batches_.clear();
  if (!shards_) return batches_.assign(micro_batches.begin(), micro_batches.end());
  slices_.reserve(micro_batches.size());
  for (const BatchView& batch : micro_batches) {
    batches_.push_back(slices_.emplace_back(shards_->cut(batch)).view());
  }
}

void StepRunner::run(std::span<const BatchView> micro_batches, const StepHooks& hooks) {
  RONDO_CHECK(micro_batches.size() <= static_cast<size_t>(schedule().micro_batches),
              micro_batches.size(), " micro-batches for a schedule of ", schedule().micro_batches);
  take_slices(micro_batches);
  BatchCapacity most;
  for (const BatchView& b : batches_) most = BatchCapacity::merge(most, b.extent());
  reserve(most);
  // All ranks' times have one zero then.
  if (options_.timeline && group_) group_->barrier().wait();
  timeline_.start(actions().size());
  posted_ = 0;
  computing_.assign(static_cast<size_t>(schedule().micro_batches), std::nullopt);
  try {
    run_steps(hooks);
  } catch (const std::exception& e) {
    if (traffic_) traffic_->abort(e.what());
    throw;
  }
}

void StepRunner::run_steps(const StepHooks& hooks) {
  if (traffic_) traffic_->begin_run();
  for (size_t i = 0; i < steps_.size(); ++i) {
    const size_t end = end_of_stretch(i);
    if (traffic_) post_ahead(i);
    if (end == i) {
      perform(steps_[i], hooks);
    } else if (!empty(steps_[i].action.micro_batch)) {
      const Step both[] = {steps_[i], steps_[end]};
      compute(both, hooks);
    }
    if (end != i && traffic_) post_ahead(end);
    i = end;
    if (traffic_) traffic_->advance();
  }
  if (traffic_) traffic_->end_run();
}

// Recvs whose turn has come, and the next few.
void StepRunner::post_ahead(size_t step) {
  const auto passed =
      static_cast<size_t>(std::upper_bound(recvs_.begin(), recvs_.end(), step) - recvs_.begin());
  const size_t until =
      std::min(recvs_.size(), passed + static_cast<size_t>(traffic_->look_ahead()));
  for (; posted_ < until; ++posted_) {
    const Action& a = steps_[recvs_[posted_]].action;
    if (!empty(a.micro_batch)) traffic_->expect(message(a, goes_up(a.kind), a.stage));
  }
}

void StepRunner::perform(const Step& step, const StepHooks& hooks) {
  const Action& a = step.action;
  if (a.micro_batch >= 0 && empty(a.micro_batch)) return;
  switch (step.kind) {
    case Step::Kind::action:
      return act(a);
    case Step::Kind::expect: {
      const auto m = static_cast<size_t>(a.micro_batch);
      const size_t place = exchanges_[static_cast<size_t>(step.exchange)];
      return shards_->expect(slices_[m], m, place, step.direction);
    }
    case Step::Kind::weights:
      return run_weights(hooks);
    case Step::Kind::nodes:
    case Step::Kind::offer:
    case Step::Kind::exchange:
      return compute({&step, 1}, hooks);
  }
}

// The place of the backward pass that makes one stretch with the forward pass at this place, over
// receives, which may be posted later; or the same place.
size_t StepRunner::end_of_stretch(size_t place) const {
  const Step& forward = steps_[place];
  if (shards_ || timeline_.records() || forward.kind != Step::Kind::nodes ||
      forward.action.kind != Kind::forward) {
    return place;
  }
  size_t end = place + 1;
  while (end < steps_.size() && is_recv(steps_[end].action.kind)) ++end;
  if (end == steps_.size()) return place;
  const Step& next = steps_[end];
  const bool joins = next.kind == Step::Kind::nodes && gives_gradient(next.action.kind) &&
                     next.action.micro_batch == forward.action.micro_batch &&
                     !reads_message(next.action.kind);
  return joins ? end : place;
}

// Other ranks may wait for this one's states before they come to what it waits for.
void StepRunner::act(const Action& a) {
  if (shards_) shards_->post_leaving(SequenceShards::Leaving::all);
  if (a.kind == Kind::reduce) {
    const size_t place = timeline_.add(a);
    timeline_.set_start(place, CommClock::now());
    timeline_.set_end(place, CommClock::now());
  } else if (is_send(a.kind)) {
    const Span span("give to another stage");
    const bool up = goes_up(a.kind);
    traffic_->send(message(a, up, other_stage(a)), bound_of(a));
  }
}

// A part of a computation, or all of one or two.
void StepRunner::compute(std::span<const Step> stretch, const StepHooks& hooks) {
  const Step& step = stretch.front();
  const Action &first = step.action, &last = stretch.back().action;
  if (!computing_.at(static_cast<size_t>(first.micro_batch))) begin(first);
  NodeDone done;
  const bool told = last.micro_batch == schedule().micro_batches - 1 && last.kind != Kind::forward;
  if (told && hooks.after_node && !schedule_.woven) done = hooks.after_node;
  if (step.kind != Step::Kind::nodes) return exchange(step, done);
  run_nodes(stretch, hooks, done);
  if (step.exchange == Step::no_exchange) end(stretch, hooks);
}

void StepRunner::begin(const Action& a) {
  if (a.kind == Kind::forward) load(a);
  receive_inputs(a);
  const size_t place = timeline_.add(a);
  computing_.at(static_cast<size_t>(a.micro_batch)) = place;
  note_time(place, false);
}

// Whether the losses are there after this computation.
bool StepRunner::makes_losses(Kind kind) const {
  if (stage_ != schedule().stages() - 1) return false;
  // CTC's comes with beta, from the right.
  const bool in_backward = shards_ && shards_->chunk().ctc_grad != no_node;
  return in_backward ? gives_gradient(kind) : kind == Kind::forward;
}

void StepRunner::end(std::span<const Step> stretch, const StepHooks& hooks) {
  if (waits_for_computations_) context_.stream->synchronize();
  const Action& a = stretch.front().action;
  auto& place = computing_.at(static_cast<size_t>(a.micro_batch));
  note_time(place.value(), true);
  place.reset();
  if (makes_losses(a.kind) && hooks.after_loss) hooks.after_loss(a.micro_batch, bound_of(a));
}

// When the stream comes here.
void StepRunner::note_time(size_t place, bool end) {
  if (!timeline_.records()) return;
  const auto note = [this, place, end] {
    const auto now = CommClock::now();
    end ? timeline_.set_end(place, now) : timeline_.set_start(place, now);
  };
  waits_for_computations_ ? note() : context_.stream->enqueue(note);
}

void StepRunner::load(const Action& a) {
  const auto m = static_cast<size_t>(a.micro_batch);
  BatchView batch = batches_[m];
  inputs_.clear();
  for (const BatchView::Input& in : batch.inputs) {
    if (graph_.find(in.name) != no_value) inputs_.push_back(in);
  }
  batch.inputs = inputs_;
  BoundGraph& bound = graphs_of(a).bound_for(batch.extent());
  bound.load(batch);
  if (!shards_) return;
  const auto [pass, is_new] = passes_.try_emplace(&bound);
  if (is_new) pass->second = shards_->bind(bound, stage_);
  shards_->begin(pass->second, slices_[m], whole_[m], m);
}

// From behind the exchange before, if it is of this computation, to the one in front of which they
// are; [begin, end).
std::pair<size_t, size_t> StepRunner::nodes_of(const Step& step) const {
  const Action& a = step.action;
  const auto node_of = [&](size_t i) { return shards_->exchanges()[exchanges_[i]].node; };
  size_t first = 0, end = graph_.nodes.size(), until = exchanges_.size();
  if (step.exchange != Step::no_exchange) {
    until = static_cast<size_t>(step.exchange);
    end = node_of(until);
  }
  while (until > 0 && !runs(a.kind, graph_.nodes[node_of(until - 1)].phase)) --until;
  if (until > 0) first = node_of(until - 1) + 1;
  const auto own = [&](const Node& n) { return n.stage == stage_ && runs(a.kind, n.phase); };
  while (first < end && !own(graph_.nodes[first])) ++first;
  return {first, end};
}

void StepRunner::run_range(const Step& step, const NodeDone& done) {
  const auto [first, end] = nodes_of(step);
  BoundGraph& bound = bound_of(step.action);
  for (size_t i = first; i < end; ++i) {
    const Node& node = graph_.nodes[i];
    if (node.stage != stage_ || !runs(step.action.kind, node.phase)) continue;
    if (!shards_ || !shards_->is_duplicate(node)) bound.run_node(i);
    if (done) done(i);
  }
}

void StepRunner::run_nodes(std::span<const Step> stretch, const StepHooks& hooks,
                           const NodeDone& done) {
  const Step& step = stretch.front();
  const Action& a = step.action;
  const bool whole_computation = step.exchange == Step::no_exchange;
  const auto range = nodes_of(step);
  if (range.first == range.second && stretch.size() == 1) return;
  const double began = shards_ ? shards_->seconds() : 0;
  BoundGraph& bound = bound_of(a);
  const auto pass = [&] {
    if (hooks.before && a.kind == Kind::forward) hooks.before();
    for (const Step& part : stretch) {
      run_range(part, part.action.kind == Kind::forward ? NodeDone() : done);
    }
    if (hooks.with_loss && whole_computation && makes_losses(a.kind)) {
      hooks.with_loss(a.micro_batch, bound);
    }
    if (hooks.after && stretch.back().action.kind != Kind::forward) hooks.after();
  };
  if (done && !hooks.recording) {
    pass();  // which is not the same every time
  } else {
    // By kind, or of two kinds together; behind the exchanges' own.
    const size_t kinds = static_cast<size_t>(Kind::weight_backward) + 2;
    const size_t places = exchanges_.size() + 1;
    const size_t kind = stretch.size() > 1 ? kinds - 1 : static_cast<size_t>(a.kind);
    const size_t place = whole_computation ? exchanges_.size() : static_cast<size_t>(step.exchange);
    const size_t part = (hooks.recording.value_or(0) * kinds + kind) * places + place;
    bound.run_recorded((shards_ ? shards_->recorded_parts() : 0) + part, pass);
  }
  if (!shards_) return;
  shards_->post_leaving(SequenceShards::Leaving::arrived);
  if (!schedule_.woven) return;
  const int layer =
      whole_computation
          ? 0
          : shards_->exchanges()[exchanges_[static_cast<size_t>(step.exchange)]].stage;
  shards_->note(a.kind, layer, a.micro_batch, -1, began);
}

void StepRunner::exchange(const Step& step, const NodeDone& done) {
  const Span span("exchange between shards");
  const Action& a = step.action;
  const size_t place = exchanges_[static_cast<size_t>(step.exchange)];
  const SequenceShards::Exchange& e = shards_->exchanges()[place];
  SequenceShards::Pass& pass = pass_of(a);
  if (step.kind == Step::Kind::offer) return shards_->begin_meeting(pass, place);
  bool last = true;
  if (e.meets()) {
    shards_->end_meeting(pass, place);
  } else {
    shards_->run_direction(pass, place, step.direction);
    last = e.directions == 1 || step.direction != e.early(shards_->rank(), shards_->ranks());
  }
  if (last && done) done(e.node);
}

// Weight by weight, so that some are complete while others are still to come.
void StepRunner::run_weights(const StepHooks& hooks) {
  const std::vector<Node>& nodes = graph_.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].stage != stage_ || nodes[i].phase != Phase::weight_gradient) continue;
    const double began = shards_->seconds();
    for (int m = 0; m < schedule().micro_batches && !shards_->is_duplicate(nodes[i]); ++m) {
      if (!empty(m)) bound_of({Kind::weight_backward, stage_, m}).run_node(i);
    }
    shards_->post_leaving(SequenceShards::Leaving::arrived);
    shards_->note(Kind::weight_backward, 0, -1, -1, began);
    if (hooks.after_node) hooks.after_node(i);
  }
}

void StepRunner::add_losses(int micro_batch, LossTotals& totals, std::vector<double>& losses) {
  const Action last{Kind::forward, schedule().stages() - 1, micro_batch};
  shards_->add_losses(pass_of(last), totals, losses);
}

void StepRunner::receive_inputs(const Action& a) {
  if (!reads_message(a.kind)) return;
  if (shards_) shards_->post_leaving(SequenceShards::Leaving::all);
  const Span span("take from another stage");
  const StageMessage m = message(a, a.kind == Kind::forward, stage_);
  RONDO_CHECK(traffic_->expects(m), describe(a), " has no input");
  traffic_->take(m, bound_of(a));
}

}  // namespace rondo
