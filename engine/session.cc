#include "engine/session.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/graph/lockstep.h"
#include "engine/io/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/totals/totals.h"

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

BatchCapacity scaled(const BatchCapacity& c, double factor) {
  const auto part = [factor](auto n) {
    return static_cast<decltype(n)>(std::ceil(factor * static_cast<double>(n)));
  };
  return {{std::max<int64_t>(part(c.packed.rows), c.packed.frames), c.packed.frames,
           part(c.packed.sequences)},
          c.max_label_length,
          part(c.labels)};
}

// What to do when there is no memory for a plan.
std::string advice(const Graph& graph, const Context& context, const BatchCapacity& capacity) {
  const size_t free = context.device->free_memory();
  if (free == 0) return "";
  const auto fits = [&](int64_t thousandths) {
    const BatchCapacity c = scaled(capacity, static_cast<double>(thousandths) / 1000);
    const size_t bytes = plan_memory(graph, context, c).arena_bytes +
                         plan_batch_bytes(graph, c, context.device->kind());
    return static_cast<double>(bytes) < 0.98 * static_cast<double>(free);  // pieces have gaps
  };
  if (!fits(1)) {
    return str("; not even its longest sequence, of ", capacity.packed.frames,
               " frames, would fit alone");
  }
  int64_t low = 1, high = 1000;  // low fits, high does not
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return str("; a batch of ", scaled(capacity, static_cast<double>(low) / 1000).packed.rows,
             " frames would fit (data.batch_frames)");
}

// A batch or an update that was enqueued, and what comes back from the device.
struct InFlight {
  struct Returned {
    LossTotals totals;
    Optimizer::Staging update;
  };
  Event done;
  bool is_update = false;
  int64_t losses = 0;  // how many
  DType loss_dtype = DType::f32;
  StagingBuffer fixed, loss_values;

  Returned& returned() const { return *reinterpret_cast<Returned*>(fixed.data()); }
};

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
  Buffer totals;
  std::array<InFlight, most_in_flight> ring;
  size_t oldest = 0, in_flight = 0;

  std::unique_ptr<Plan> make_plan(const Graph& graph, const BatchCapacity& capacity) {
    try {
      auto plan = std::make_unique<Plan>(graph, context, capacity, *parameters);
      plan->record_runs();
      return plan;
    } catch (const OutOfMemory& e) {
      throw OutOfMemory(e.what() + advice(graph, context, capacity));
    }
  }

  Plan& plan_for(std::unique_ptr<Plan>& plan, const Graph& graph, const BatchView& batch) {
    const BatchCapacity need = batch.extent();
    if (!plan || !plan->capacity().holds(need)) {
      const BatchCapacity capacity = plan ? BatchCapacity::merge(plan->capacity(), need) : need;
      replace(plan, graph, capacity);
    }
    return *plan;
  }

  void replace(std::unique_ptr<Plan>& plan, const Graph& graph, const BatchCapacity& capacity) {
    if (plan) stream.synchronize();  // it may be running
    plan.reset();
    plan = make_plan(graph, capacity);
    if (&graph != &train.graph) return;
    for (size_t i = in_flight; i < ring.size(); ++i) make_room(ring[(oldest + i) % ring.size()]);
  }

  void make_room(InFlight& item) {
    const Value& loss = train.graph.value(train.outputs.loss);
    const auto bytes =
        static_cast<size_t>(value_elements(train.graph, train_plan->capacity(), loss.shape)) *
        size_of(loss.dtype);
    if (item.loss_values.bytes() < bytes) {
      item.loss_values = StagingBuffer(*device, bytes, "losses");
    }
  }

  // The next free place of the ring.
  InFlight& begin_item(bool is_update) {
    RONDO_CHECK(in_flight < ring.size(), in_flight,
                " batches and updates are in flight: collect() them");
    InFlight& item = ring[(oldest + in_flight) % ring.size()];
    item.is_update = is_update;
    return item;
  }
  void end_item(InFlight& item) {
    item.done.record(stream);
    ++in_flight;
  }

  void add_to_totals(const Plan& plan, bool restart) {
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

  void fetch_losses(const Plan& plan, InFlight& item) {
    const TensorView losses = plan.view(train.outputs.loss);
    make_room(item);
    item.losses = plan.live_rows(plan.graph().shape(train.outputs.loss));
    item.loss_dtype = losses.dtype;
    device->copy(stream, item.loss_values.data(), losses.data,
                 static_cast<size_t>(item.losses) * size_of(losses.dtype));
    device->copy(stream, &item.returned().totals, totals.data(), sizeof(LossTotals));
  }

  // A batch without sequences.
  void add_nothing(InFlight& item) {
    if (gradients_clear) device->fill_bytes(stream, totals.data(), 0, sizeof(LossTotals));
    gradients_clear = false;
    item.losses = 0;
    device->copy(stream, &item.returned().totals, totals.data(), sizeof(LossTotals));
  }

  void set_totals(const LossTotals& t) {
    result.loss = t.loss;
    result.sequences = static_cast<int64_t>(t.sequences);
    result.frames = static_cast<int64_t>(t.frames);
    result.infeasible = static_cast<int64_t>(t.infeasible);
    result.nonfinite = static_cast<int64_t>(t.nonfinite);
  }

  // Sums over ranks; what the sums are to be divided by.
  double reduce(LossTotals& t) {
    double counts[count_sums] = {t.sequences, t.frames, t.infeasible, t.nonfinite, t.loss};
    reducer->reduce(parameters->gradients(), counts);
    t = {counts[4], counts[0], counts[1], counts[2], counts[3]};
    return std::max(t.sequences - t.infeasible, 1.0);
  }

  void require_idle(const char* what) const {
    RONDO_CHECK(in_flight == 0, what, " while ", in_flight,
                " batches and updates are in flight: collect() them");
  }

  void run_plan(Plan& plan) {
    if (reducer && device->kind() == DeviceKind::cpu) {
      plan.run([this](size_t node) { reducer->after_node(node); });
    } else {
      plan.run();
    }
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
  const Shape& loss = s.train.graph.shape(s.train.outputs.loss);
  RONDO_CHECK(loss.planes == 1 && loss.cols == 1, "the loss is ", to_string(loss),
              ", expected one number per row");
  std::string why;
  s.device = find_device(options.device, &why, options.device_index);
  if (s.device == nullptr)
    fail_input("device ", name_of(options.device), " is not available: ", why);
  s.stream = s.device->make_stream();
  s.pool = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : usable_cpus());
  s.context = {backend_of(options.device, options.reference), s.device, &s.stream, s.pool.get()};
  s.parameters = std::make_unique<Parameters>(
      s.train.graph, *s.device, -1,
      options.training ? Parameters::Gradients::allocated : Parameters::Gradients::absent);
  s.parameters->initialize(options.seed);
  if (!options.training) return;
  s.optimizer = std::make_unique<Optimizer>(options.optimizer, *s.parameters);
  if (s.optimizer->averages()) s.optimizer->reset_average(s.context);
  s.totals = Buffer(*s.device, sizeof(LossTotals), "sums of losses");
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

void Session::reserve(const BatchCapacity& capacity) {
  State& s = *state_;
  s.result.losses.reserve(static_cast<size_t>(capacity.packed.sequences));
  if (s.train_plan && s.train_plan->capacity().holds(capacity)) return;
  s.replace(s.train_plan, s.train.graph, capacity);
}

void Session::enqueue(const BatchView& batch) {
  State& s = *state_;
  RONDO_CHECK(s.optimizer, "this session was made without memory for training");
  InFlight& item = s.begin_item(false);
  if (s.gradients_clear) {
    const TensorView g = s.parameters->gradients();
    s.device->fill_bytes(s.stream, g.data, 0, g.bytes());
  }
  if (batch.layout->extent.sequences == 0) {
    s.add_nothing(item);
    return s.end_item(item);
  }
  Plan& plan = s.plan_for(s.train_plan, s.train.graph, batch);
  if (s.options.lockstep) {
    s.lockstep = std::make_unique<Lockstep>(plan, *s.parameters);
    s.lockstep->load(batch);
    s.lockstep->run();
  } else {
    plan.load(batch);
    s.run_plan(plan);
  }
  s.add_to_totals(plan, s.gradients_clear);
  s.fetch_losses(plan, item);
  s.gradients_clear = false;
  s.end_item(item);
}

void Session::enqueue_update() {
  State& s = *state_;
  RONDO_CHECK(!s.gradients_clear, "update() without accumulate()");
  InFlight& item = s.begin_item(true);
  InFlight::Returned& back = item.returned();
  double count = 0;  // the device knows
  s.device->copy(s.stream, &back.totals, s.totals.data(), sizeof(LossTotals));
  if (s.reducer) {
    s.stream.synchronize();
    count = s.reduce(back.totals);
  }
  s.optimizer->enqueue(s.context, back.update, count);
  ++s.step;
  s.gradients_clear = true;
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
  s.set_totals(back.totals);
  r.gradient_norm = 0;
  r.skipped = false;
  if (item.is_update) {
    const Optimizer::Result applied = s.optimizer->finish(back.update);
    r.gradient_norm = applied.gradient_norm;
    r.skipped = applied.skipped;
    return r;
  }
  const auto n = static_cast<size_t>(item.losses);
  r.losses.resize(n);
  if (item.loss_dtype == DType::f64) {
    const auto* from = reinterpret_cast<const double*>(item.loss_values.data());
    std::transform(from, from + n, r.losses.begin(),
                   [](double x) { return static_cast<float>(x); });
  } else {
    const auto* from = reinterpret_cast<const float*>(item.loss_values.data());
    std::copy_n(from, n, r.losses.begin());
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
  accumulate(batch);
  return update();
}

void Session::set_reducer(GradientReducer* reducer) { state_->reducer = reducer; }
void Session::set_learning_rate(double rate) { optimizer().set_learning_rate(rate); }
double Session::learning_rate() const { return optimizer().learning_rate(); }

const StepResult& Session::evaluate(const BatchView& batch) {
  State& s = *state_;
  s.require_idle("evaluate()");
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
  s.require_idle("predict()");
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
  const std::vector<TensorToWrite> tensors = weights_to_write(parameters());
  write_safetensors(std::filesystem::path(path), tensors, metadata);
}

void Session::load(const std::string& path) { load(SafetensorsFile(path)); }

void Session::load(const SafetensorsFile& file) {
  State& s = *state_;
  s.require_idle("load()");
  for (const auto& e : s.parameters->entries()) {
    const int64_t shape[] = {e.rows, e.cols};
    s.parameters->write(e.name, file.at(e.name, s.parameters->dtype(), shape).bytes.data());
  }
  for (const auto& t : file.tensors()) {
    if (!s.parameters->has(t.name)) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
  if (s.optimizer && s.optimizer->averages()) s.optimizer->reset_average(s.context);
}

Parameters& Session::parameters() {
  if (state_->in_flight > 0) state_->stream.synchronize();
  return *state_->parameters;
}
const Parameters& Session::parameters() const { return const_cast<Session*>(this)->parameters(); }
Optimizer& Session::optimizer() {
  RONDO_CHECK(state_->optimizer, "this session was made without memory for training");
  return *state_->optimizer;
}
const Optimizer& Session::optimizer() const { return const_cast<Session*>(this)->optimizer(); }
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
  m.gradients = m.weights;
  m.optimizer = Optimizer::state_bytes(s.options.optimizer, s.parameters->flat_size());
  m.activations = plan_memory(s.train.graph, s.context, capacity).arena_bytes;
  m.batch = plan_batch_bytes(s.train.graph, capacity, s.device->kind());
  return m;
}

}  // namespace rondo
