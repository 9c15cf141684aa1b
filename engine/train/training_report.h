// What a training run tells: progress on the terminal, log.jsonl, TensorBoard, pictures.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/report/jsonl.h"
#include "engine/report/progress.h"
#include "engine/report/tensorboard.h"
#include "engine/train/evaluation.h"
#include "engine/train/training_state.h"

namespace rondo {

struct SampleHypothesis {
  int64_t utterance = 0;
  std::string name, reference, hypothesis;
};

// "WER 3.21%", "error 3.21%" or "loss 0.123".
std::string metric_text(Task task, double metric);

class TrainingReport {
 public:
  TrainingReport(const Config& config, std::FILE* out);

  void begin(const Session& session, const ManifestDataset& train, const ManifestDataset* dev,
             const TrainingState& state, bool resumed);
  void problems(const ManifestDataset& data, const std::string& manifest);
  void step(const TrainingState& state, const StepResult& result, double rate, double epoch,
            int64_t expected_steps, double waited);
  void validation(const TrainingState& state, const Evaluation& e, Task task, bool best,
                  std::vector<SampleHypothesis> samples);
  void test(const TrainingState& state, const Evaluation& e, Task task);
  void message(const std::string& text) { bar_.message(text); }
  void end();

 private:
  const Config& config_;
  ProgressBar bar_;
  JsonlWriter log_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  Progress progress_;
  std::string log_path_;
  // Sums since the last logged step.
  double loss_sum_ = 0, logged_at_ = 0, waited_before_ = 0;
  int64_t sequences_ = 0, frames_ = 0;
  // For the time that remains: since this start.
  double started_ = 0;
  int64_t first_step_ = -1;
};

}  // namespace rondo
