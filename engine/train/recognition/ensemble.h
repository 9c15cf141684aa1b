// Several models as one: the mean of what they say of each frame.
//
// Probabilities are averaged, not logits: p(k | t) = 1/K sum over models of softmax(logits)(k),
// each model with the same weight. What comes out are the logarithms of these means, which are
// logits of the mean, so that the loss and confidences need not know; the text of ctc models is
// what they agree on (engine/train/recognition/agreement.h), for which each() has what each says.
// Of regression the numbers themselves are averaged. (Averaging posteriors: Hansen and Salamon,
// "Neural network ensembles", 1990.)
//
// One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/model.h"

namespace rondo {

// A model, and what computes with its weights.
struct RunningModel {
  RunningModel(const Model& model, int threads);

  const ModelDescription& description() const { return model.description(); }
  const std::string& file() const { return model.file(); }

  Model model;
  std::unique_ptr<Session> session;
};

// Throws InputError, naming both files, unless the two read the same features, write the same
// classes, and make a frame of equally many: only then can their outputs be averaged.
void require_alike(const RunningModel& first, const RunningModel& other);

class Ensemble final : public EvaluatedModel {
 public:
  // At least one, borrowed; all alike. Batches are normalised for the first; what the statistics of
  // the others differ by is made up for here.
  explicit Ensemble(const std::vector<RunningModel>& models);
  Ensemble(const Ensemble&) = delete;
  Ensemble& operator=(const Ensemble&) = delete;

  Shape prediction_shape() const override { return first().prediction_shape(); }
  int32_t output_frames(int32_t length) const override { return first().output_frames(length); }
  const std::vector<float>& predict(const BatchView& batch) override;
  // The loss is that of the mean.
  const std::vector<float>& evaluate_and_predict(const BatchView& batch) override;
  const StepResult& last_result() const override;
  std::span<const std::vector<float>> each() const override { return each_; }

 private:
  Session& first() const { return *models_.front().session; }
  BatchView normalized(const BatchView& batch, const ModelDescription& other);

  const std::vector<RunningModel>& models_;
  std::vector<float> features_;
  BatchView::Input input_;
  std::vector<float> mean_;
  std::vector<std::vector<float>> each_;  // of ctc
  std::unique_ptr<Session> loss_;         // scores -> loss, made when it is first asked for
};

}  // namespace rondo
