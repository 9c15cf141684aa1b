// A model that is spread over pipeline stages as if it were in one place: for evaluation, and for
// checkpoints and model files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/parallel/pipeline_trainer.h"
#include "engine/train/evaluation.h"

namespace rondo {

// Evaluates on the ranks of a replica together. Borrows the trainer.
class PipelineModel final : public EvaluatedModel {
 public:
  explicit PipelineModel(PipelineTrainer& trainer) : trainer_(trainer) {}
  Shape prediction_shape() const override { return trainer_.prediction_shape(); }
  int64_t subsampling() const override { return trainer_.subsampling(); }
  const std::vector<float>& predict(const BatchView& batch) override {
    return trainer_.evaluate_and_predict(batch);
  }
  const std::vector<float>& evaluate_and_predict(const BatchView& batch) override {
    return trainer_.evaluate_and_predict(batch);
  }
  const StepResult& last_result() const override { return trainer_.last_result(); }

 private:
  PipelineTrainer& trainer_;
};

// Weights and optimiser state, gathered in the host memory of rank 0; elsewhere nothing.
class WholeModel {
 public:
  enum class Parts : uint8_t { weights, weights_and_optimizer };
  // Called by all ranks. The trainer must outlive this.
  WholeModel(PipelineTrainer& trainer, Parts parts);

  // To write, on rank 0, while this lives.
  std::vector<TensorToWrite> weights() const;
  std::vector<TensorToWrite> slots() const;  // flat arrays over the whole model

 private:
  const std::vector<Parameters::Entry>& entries_;
  std::map<std::string, std::vector<float>> arrays_;  // "": the weights
};

// The weights of a model file as one flat array of `entries`. InputError when they are another
// model's.
std::vector<float> flat_weights(const SafetensorsFile& file,
                                const std::vector<Parameters::Entry>& entries, int64_t flat_size);

}  // namespace rondo
