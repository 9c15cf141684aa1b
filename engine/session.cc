#include "engine/session.h"

#include <filesystem>

#include "engine/io/safetensors.h"
#include "engine/rank_model.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

namespace rondo {

// A grid of one rank.
struct Session::State {
  State(const ModelFunction& function, const SessionOptions& options)
      : model(function, options, {}, Ranks(), grid) {}
  RankGrid grid;
  RankModel model;
};

Session::Session(ModelFunction model, SessionOptions options)
    : state_(std::make_unique<State>(model, options)) {}
Session::~Session() = default;

RankModel& Session::rank_model() { return state_->model; }
const RankModel& Session::rank_model() const { return state_->model; }

void Session::reserve(const BatchCapacity& capacity) { rank_model().reserve(capacity); }

void Session::enqueue(const BatchView& batch, Next next) {
  refuse_after_fork("training");
  rank_model().enqueue({&batch, 1}, next == Next::update);
}
void Session::enqueue_update() { rank_model().enqueue_update(); }
size_t Session::in_flight() const { return rank_model().in_flight(); }
const StepResult& Session::collect() { return rank_model().collect(); }

void Session::accumulate(const BatchView& batch) {
  refuse_after_fork("training");
  rank_model().accumulate({&batch, 1}, false);
}
const StepResult& Session::update() { return rank_model().update(); }
const StepResult& Session::train_step(const BatchView& batch) {
  refuse_after_fork("training");
  rank_model().accumulate({&batch, 1}, true);
  return update();
}

void Session::set_sums(Sums* sums) { rank_model().set_sums(sums); }
void Session::set_learning_rate(double rate) { rank_model().set_learning_rate(rate); }
double Session::learning_rate() const { return optimizer().learning_rate(); }

const StepResult& Session::evaluate(const BatchView& batch) { return rank_model().evaluate(batch); }
const StepResult& Session::last_result() const { return rank_model().last_result(); }
const std::vector<float>& Session::predict(const BatchView& batch) {
  return rank_model().predict(batch);
}
const std::vector<float>& Session::evaluate_and_predict(const BatchView& batch) {
  return rank_model().evaluate_and_predict(batch);
}
Shape Session::prediction_shape() const { return rank_model().prediction_shape(); }
int64_t Session::subsampling() const { return rank_model().subsampling(); }
int32_t Session::output_frames(int32_t length) const { return rank_model().output_frames(length); }

void Session::save(const std::string& path, const StringMap& metadata) const {
  const std::vector<TensorToWrite> tensors = weights_to_write(parameters());
  write_safetensors(std::filesystem::path(path), tensors, metadata);
}

void Session::load(const std::string& path) { load(SafetensorsFile(path)); }

void Session::load(const SafetensorsFile& file) {
  RankModel& model = rank_model();
  RONDO_CHECK(model.in_flight() == 0, "load() while ", model.in_flight(),
              " batches and updates are in flight: collect() them");
  RONDO_CHECK(!model.options().weights, "load() into weights that are shared");
  load_weights(file, model.parameters());
  if (model.trains()) model.optimizer().take_weights();
}

Parameters& Session::parameters() { return rank_model().parameters(); }
const Parameters& Session::parameters() const { return const_cast<Session*>(this)->parameters(); }
Update& Session::optimizer() { return rank_model().optimizer(); }
const Update& Session::optimizer() const { return const_cast<Session*>(this)->optimizer(); }
const Graph& Session::training_graph() const { return rank_model().graph(); }
const Context& Session::context() const { return rank_model().context(); }
uint64_t Session::seed() const { return rank_model().options().seed; }
int64_t Session::step() const { return rank_model().step(); }
void Session::set_step(int64_t step) { rank_model().set_step(step); }

std::shared_ptr<Parameters> Session::weights() const { return rank_model().weights_to_share(); }

void Session::trim() { rank_model().trim(); }

Session::Memory Session::predict_memory(const BatchCapacity& capacity) const {
  return rank_model().predict_memory(capacity);
}

}  // namespace rondo
