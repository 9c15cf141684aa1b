#include "engine/session.h"

#include <algorithm>
#include <cmath>

#include "engine/graph/lockstep.h"
#include "engine/io/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace rondo {
namespace {

struct Model {
  Graph graph;
  Outputs outputs;
};

Model build(const ModelFunction& function, DType compute, bool training) {
  Model m;
  m.graph.compute = compute;
  m.graph.training = training;
  m.outputs = function(m.graph);
  return m;
}

Backend backend_of(DeviceKind kind, bool reference) {
  if (reference) return Backend::ref;
  switch (kind) {
    case DeviceKind::cpu:
      return Backend::cpu;
    case DeviceKind::sim:
      return Backend::sim;
    case DeviceKind::cuda:
      return Backend::cuda;
  }
  return Backend::cpu;
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

TensorToWrite tensor_to_write(std::string name, const TensorView& view, Device& device) {
  TensorToWrite t;
  t.name = std::move(name);
  t.dtype = view.dtype;
  for (int i = 0; i < view.rank; ++i) t.shape.push_back(view.dim(i));
  t.fill = [view, device = &device](uint64_t offset, std::span<std::byte> into) {
    Stream stream = device->make_stream();
    device->copy(stream, into.data(), static_cast<const std::byte*>(view.data) + offset,
                 into.size());
    stream.synchronize();
  };
  return t;
}

std::vector<TensorToWrite> weights_to_write(const Parameters& parameters) {
  std::vector<TensorToWrite> tensors;
  for (const auto& e : parameters.entries()) {
    tensors.push_back(tensor_to_write(e.name, parameters.weight(e.name), parameters.device()));
  }
  return tensors;
}

struct Session::State {
  SessionOptions options;
  Model train, evaluate, infer;
  Device* device = nullptr;
  Stream stream;
  std::unique_ptr<ThreadPool> pool;
  Context context;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Plan> train_plan, evaluate_plan, infer_plan;
  std::unique_ptr<Lockstep> lockstep;
  GradientReducer* reducer = nullptr;
  StepResult result;
  std::vector<float> prediction;
  std::vector<bf16> narrow;
  std::vector<double> wide;
  int64_t step = 0;
  bool gradients_clear = true;

  Plan& plan_for(std::unique_ptr<Plan>& plan, const Graph& graph, const BatchView& batch) {
    const BatchCapacity need = batch.extent();
    if (!plan || !plan->capacity().holds(need)) {
      const BatchCapacity capacity = plan ? BatchCapacity::merge(plan->capacity(), need) : need;
      plan.reset();
      plan = std::make_unique<Plan>(graph, context, capacity, *parameters);
    }
    return *plan;
  }

  // Reads a value's live part as f32 into `out`.
  void read_floats(const Plan& plan, ValueId id, std::vector<float>& out) {
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

  void count_losses(const Plan& plan, ValueId loss) {
    read_floats(plan, loss, result.losses);
    for (float l : result.losses) {
      if (std::isfinite(l)) {
        result.loss += static_cast<double>(l);
      } else if (std::isinf(l) && l > 0) {
        ++result.infeasible;
      } else {
        ++result.nonfinite;
      }
    }
  }
};

Session::Session(ModelFunction model, SessionOptions options) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.options = options;
  s.train = build(model, options.compute, true);
  s.evaluate = build(model, options.compute, false);
  RONDO_CHECK(s.train.outputs.loss != no_value, "the model function returned no loss");
  check_same_parameters(s.train.graph, s.evaluate.graph);
  append_backward(s.train.graph, s.train.outputs.loss);
  s.infer = s.evaluate;
  s.evaluate.graph.keep(s.evaluate.outputs.loss);
  if (s.evaluate.outputs.prediction != no_value) {
    s.evaluate.graph.keep(s.evaluate.outputs.prediction);
    s.infer.graph.keep(s.infer.outputs.prediction);
  }
  std::string why;
  s.device = find_device(options.device, &why);
  if (s.device == nullptr)
    fail_input("device ", name_of(options.device), " is not available: ", why);
  s.stream = s.device->make_stream();
  s.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : usable_cpus());
  s.context = {backend_of(options.device, options.reference), s.device, &s.stream, s.pool.get()};
  s.parameters = std::make_unique<Parameters>(s.train.graph, *s.device);
  s.parameters->initialize(options.seed);
  s.optimizer = std::make_unique<Optimizer>(options.optimizer, *s.parameters);
  if (s.optimizer->averages()) s.optimizer->reset_average(s.context);
}

Session::~Session() = default;

void Session::reserve(const BatchCapacity& capacity) {
  State& s = *state_;
  s.result.losses.reserve(static_cast<size_t>(capacity.packed.sequences));
  if (s.train_plan && s.train_plan->capacity().holds(capacity)) return;
  s.train_plan.reset();
  s.train_plan = std::make_unique<Plan>(s.train.graph, s.context, capacity, *s.parameters);
}

void Session::accumulate(const BatchView& batch) {
  State& s = *state_;
  if (s.gradients_clear) {
    const TensorView g = s.parameters->gradients();
    s.device->fill_bytes(s.stream, g.data, 0, g.bytes());
    s.result.loss = s.result.gradient_norm = 0;
    s.result.sequences = s.result.frames = s.result.infeasible = s.result.nonfinite = 0;
    s.result.skipped = false;
    s.gradients_clear = false;
  }
  if (batch.layout->extent.sequences == 0) {
    s.result.losses.clear();
    return;
  }
  Plan& plan = s.plan_for(s.train_plan, s.train.graph, batch);
  if (s.options.lockstep) {
    s.lockstep = std::make_unique<Lockstep>(plan, *s.parameters);
    s.lockstep->load(batch);
    s.lockstep->run();
  } else {
    plan.load(batch);
    plan.run();
  }
  s.count_losses(plan, s.train.outputs.loss);
  s.result.sequences += batch.layout->extent.sequences;
  s.result.frames += batch.layout->extent.rows;
}

const StepResult& Session::update() {
  State& s = *state_;
  StepResult& r = s.result;
  RONDO_CHECK(!s.gradients_clear, "update() without accumulate()");
  double counts[count_sums] = {static_cast<double>(r.sequences), static_cast<double>(r.frames),
                               static_cast<double>(r.infeasible), static_cast<double>(r.nonfinite),
                               r.loss};
  if (s.reducer) s.reducer->reduce(s.parameters->gradients(), counts);
  r.sequences = static_cast<int64_t>(counts[0]);
  r.frames = static_cast<int64_t>(counts[1]);
  r.infeasible = static_cast<int64_t>(counts[2]);
  r.nonfinite = static_cast<int64_t>(counts[3]);
  r.loss = counts[4];
  const double counted = static_cast<double>(r.sequences - r.infeasible);
  const Optimizer::Result applied = s.optimizer->apply(s.context, std::max(counted, 1.0));
  r.gradient_norm = applied.gradient_norm;
  r.skipped = applied.skipped;
  ++s.step;
  s.gradients_clear = true;
  return r;
}

const StepResult& Session::train_step(const BatchView& batch) {
  accumulate(batch);
  return update();
}

void Session::set_reducer(GradientReducer* reducer) { state_->reducer = reducer; }
void Session::set_learning_rate(double rate) { state_->optimizer->set_learning_rate(rate); }
double Session::learning_rate() const { return state_->optimizer->learning_rate(); }

const StepResult& Session::evaluate(const BatchView& batch) {
  State& s = *state_;
  Plan& plan = s.plan_for(s.evaluate_plan, s.evaluate.graph, batch);
  plan.load(batch);
  plan.run();
  StepResult& r = s.result;
  r.loss = r.gradient_norm = 0;
  r.infeasible = r.nonfinite = 0;
  r.skipped = false;
  r.sequences = batch.layout->extent.sequences;
  r.frames = batch.layout->extent.rows;
  s.count_losses(plan, s.evaluate.outputs.loss);
  return r;
}

const StepResult& Session::last_result() const { return state_->result; }

const std::vector<float>& Session::evaluate_and_predict(const BatchView& batch) {
  evaluate(batch);
  State& s = *state_;
  RONDO_CHECK(s.evaluate.outputs.prediction != no_value, "the model has no prediction");
  s.read_floats(*s.evaluate_plan, s.evaluate.outputs.prediction, s.prediction);
  return s.prediction;
}

const std::vector<float>& Session::predict(const BatchView& batch) {
  State& s = *state_;
  RONDO_CHECK(s.infer.outputs.prediction != no_value, "the model has no prediction");
  Plan& plan = s.plan_for(s.infer_plan, s.infer.graph, batch);
  plan.load(batch);
  plan.run();
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

void Session::save(const std::string& path, const StringMap& metadata) const {
  const std::vector<TensorToWrite> tensors = weights_to_write(*state_->parameters);
  write_safetensors(std::filesystem::path(path), tensors, metadata);
}

void Session::load(const std::string& path) { load(SafetensorsFile(path)); }

void Session::load(const SafetensorsFile& file) {
  State& s = *state_;
  for (const auto& e : s.parameters->entries()) {
    const int64_t shape[] = {e.rows, e.cols};
    s.parameters->write(e.name, file.at(e.name, s.parameters->dtype(), shape).bytes.data());
  }
  for (const auto& t : file.tensors()) {
    if (!s.parameters->has(t.name)) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
  if (s.optimizer->averages()) s.optimizer->reset_average(s.context);
}

Parameters& Session::parameters() { return *state_->parameters; }
const Parameters& Session::parameters() const { return *state_->parameters; }
Optimizer& Session::optimizer() { return *state_->optimizer; }
const Optimizer& Session::optimizer() const { return *state_->optimizer; }
const Graph& Session::training_graph() const { return state_->train.graph; }
const Graph& Session::evaluation_graph() const { return state_->evaluate.graph; }
const Context& Session::context() const { return state_->context; }
uint64_t Session::seed() const { return state_->options.seed; }
int64_t Session::step() const { return state_->step; }
void Session::set_step(int64_t step) { state_->step = step; }

Session::Memory Session::predict_memory(const BatchCapacity& capacity) const {
  const State& s = *state_;
  Memory m;
  m.weights = s.parameters->weights().bytes();
  m.gradients = s.parameters->gradients().bytes();
  m.optimizer = Optimizer::state_bytes(s.options.optimizer, s.parameters->flat_size());
  m.activations = plan_memory(s.train.graph, s.context, capacity).arena_bytes;
  m.batch = plan_batch_bytes(s.train.graph, capacity);
  return m;
}

}  // namespace rondo
