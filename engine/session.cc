#include "engine/session.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/lstm/lstm_stack.h"
#include "engine/session_state.h"
#include "kernels/devices.h"

namespace rondo {
namespace {

Model build(const ModelFunction& function, DType compute, bool training) {
  Model m;
  m.graph.compute = compute;
  m.graph.training = training;
  m.outputs = function(m.graph);
  return m;
}

void check_same_parameters(const Graph& training, const Graph& evaluation) {
  std::vector<std::pair<std::string, Shape>> a, b;
  for (const Value& v : training.values) {
    if (v.role == ValueRole::parameter) a.emplace_back(v.name, v.shape);
  }
  for (const Value& v : evaluation.values) {
    if (v.role == ValueRole::parameter) b.emplace_back(v.name, v.shape);
  }
  RONDO_CHECK(a == b, "the model function made different parameters for training and evaluation");
}

}  // namespace

void Session::State::read_floats(const Plan& plan, ValueId id, std::vector<float>& out) {
  const Value& v = plan.graph().value(id);
  const auto n = static_cast<size_t>(v.shape.planes * plan.live_rows(v.shape) * v.shape.cols);
  out.resize(n);
  if (v.dtype == DType::f32) {
    plan.read(id, out.data(), n * 4);
  } else if (v.dtype == DType::bf16) {
    narrow.resize(n);
    plan.read(id, narrow.data(), n * 2);
    std::transform(narrow.begin(), narrow.end(), out.begin(),
                   [](bf16 x) { return static_cast<float>(x); });
  } else {
    wide.resize(n);
    plan.read(id, wide.data(), n * 8);
    std::transform(wide.begin(), wide.end(), out.begin(),
                   [](double x) { return static_cast<float>(x); });
  }
}

Session::Session(ModelFunction model, SessionOptions options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = options;
  s.train = build(model, options.compute, true);
  s.evaluate = build(model, options.compute, false);
  RONDO_CHECK(s.train.outputs.loss != no_value, "the model function returned no loss");
  check_same_parameters(s.train.graph, s.evaluate.graph);
  if (options.fuse_output_from > 0 && options.tbptt == 0 && !options.lockstep) {
    fuse_loss(s.train.graph, s.train.outputs.loss, options.fuse_output_from);
  }
  // What has no parameters, and is not for training, has no gradients either.
  if (options.training || s.train.graph.value(s.train.outputs.loss).needs_gradient)
    append_backward(s.train.graph, s.train.outputs.loss);
  s.infer = s.evaluate;
  s.evaluate.graph.keep(s.evaluate.outputs.loss);
  if (s.evaluate.outputs.prediction != no_value) {
    s.evaluate.graph.keep(s.evaluate.outputs.prediction);
    s.infer.graph.keep(s.infer.outputs.prediction);
  }
  const Shape& loss = s.train.graph.shape(s.train.outputs.loss);
  RONDO_CHECK(loss.planes == 1 && loss.cols == 1, "the loss is ", to_string(loss),
              ", expected one number per row");
  s.device = &require_device(options.device, options.device_index);
  s.stream = s.device->make_stream();
  s.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : usable_cpus());
  s.context = {options.reference ? Backend::ref : backend_of(options.device), s.device, &s.stream,
               s.pool.get()};
  for (Model* made : {&s.train, &s.evaluate, &s.infer}) {
    made->planned = made->graph;
    stack_lstm_layers(made->planned, s.context);
  }
  s.parameters = std::make_unique<Parameters>(
      s.train.graph, *s.device, -1,
      options.training ? Parameters::Gradients::allocated : Parameters::Gradients::absent);
  s.parameters->initialize(options.seed);
  if (!options.training) return;
  s.optimizer =
      std::make_unique<Update>(options.optimizer, *s.parameters, s.context, options.ranks);
  if (options.tbptt > 0) {
    s.chunked =
        std::make_unique<ChunkedTraining>(s.train.graph, s.train.outputs.loss, s.context,
                                          *s.parameters, options.tbptt, StateGradients::cut);
  }
  s.totals = Buffer(*s.device, 2 * sizeof(LossTotals), "sums of losses");
  for (InFlight& item : s.ring) {
    item.done = s.device->make_event();
    item.fixed = StagingBuffer(*s.device, sizeof(InFlight::Returned), "results");
    new (item.fixed.data()) InFlight::Returned();
  }
}

Session::~Session() {
  // What is in flight still uses the memory.
  if (state_->in_flight == 0) return;
  try {
    state_->stream.synchronize();
  } catch (...) {  // nobody is left to tell
  }
}

const StepResult& Session::evaluate(const BatchView& batch) {
  State& s = *state_;
  s.require_idle("evaluate()");
  Plan& plan = s.plan_for(s.evaluate_plans, s.evaluate.planned, batch);
  plan.load(batch);
  plan.run_recorded(0, [&] { plan.run(); });
  StepResult& r = s.result;
  r.gradient_norm = 0;
  r.skipped = false;
  s.read_floats(plan, s.evaluate.outputs.loss, r.losses);
  set_totals(r, totals_of(batch, r.losses));
  return r;
}

const StepResult& Session::last_result() const { return state_->result; }

const std::vector<float>& Session::evaluate_and_predict(const BatchView& batch) {
  evaluate(batch);
  State& s = *state_;
  RONDO_CHECK(s.evaluate.outputs.prediction != no_value, "the model has no prediction");
  s.read_floats(s.evaluate_plans->latest(), s.evaluate.outputs.prediction, s.prediction);
  return s.prediction;
}

const std::vector<float>& Session::predict(const BatchView& batch) {
  State& s = *state_;
  RONDO_CHECK(s.infer.outputs.prediction != no_value, "the model has no prediction");
  s.require_idle("predict()");
  Plan& plan = s.plan_for(s.infer_plans, s.infer.planned, batch);
  plan.load(batch);
  plan.run_recorded(0, [&] { plan.run(); });
  s.read_floats(plan, s.infer.outputs.prediction, s.prediction);
  return s.prediction;
}

Shape Session::prediction_shape() const {
  const Model& m = state_->evaluate;
  RONDO_CHECK(m.outputs.prediction != no_value, "the model has no prediction");
  return m.graph.shape(m.outputs.prediction);
}

int64_t Session::subsampling() const {
  return state_->evaluate.graph.total_factor(prediction_shape().level);
}

int32_t Session::output_frames(int32_t length) const {
  return state_->evaluate.graph.frames_at(prediction_shape().level, length);
}

void Session::set_sums(Sums* sums) {
  state_->sums = sums;
  if (sums) ++state_->sums_set;
}
void Session::set_learning_rate(double rate) {
  RONDO_CHECK(!state_->updated, "the update has been enqueued with its batch");
  optimizer().set_learning_rate(rate);
}
double Session::learning_rate() const { return optimizer().learning_rate(); }

Parameters& Session::parameters() {
  if (state_->in_flight > 0) state_->stream.synchronize();
  return *state_->parameters;
}
const Parameters& Session::parameters() const { return const_cast<Session*>(this)->parameters(); }
Update& Session::optimizer() {
  RONDO_CHECK(state_->optimizer, "this session was made without memory for training");
  return *state_->optimizer;
}
const Update& Session::optimizer() const { return const_cast<Session*>(this)->optimizer(); }
const Graph& Session::training_graph() const { return state_->train.graph; }

const Graph& Session::planned_training_graph() const { return state_->train.planned; }
ValueId Session::training_loss() const { return state_->train.outputs.loss; }
const Graph& Session::evaluation_graph() const { return state_->evaluate.graph; }
const Context& Session::context() const { return state_->context; }
uint64_t Session::seed() const { return state_->options.seed; }
int64_t Session::step() const { return state_->step; }
void Session::set_step(int64_t step) { state_->step = step; }

}  // namespace rondo
