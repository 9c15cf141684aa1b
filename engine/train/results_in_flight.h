// The results of batches and updates that devices have not handed over yet: read in the order in
// which they were begun, counted and reported. Gradients and losses that are not finite are noticed
// here.
//
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"

namespace rondo {

class RankModel;

class ResultsInFlight {
 public:
  // All are borrowed; the counts go into setup.state.
  ResultsInFlight(const Config& config, TrainingSetup& setup, RankModel& model,
                  TrainingReport& report)
      : config_(config), setup_(setup), model_(model), report_(report) {}

  // When training began, by now_seconds(), less what the runs before took.
  void start(double started, int64_t expected_steps) {
    started_ = started;
    expected_steps_ = expected_steps;
  }

  // A batch whose forward and backward pass was begun, by its utterances.
  void expect_batch(std::vector<int64_t> utterances) {
    in_flight_.push_back({.utterances = std::move(utterances)});
  }
  // An update that was begun: its number, and what the report tells of it.
  void expect_update(int64_t step, double rate, double epoch, StepTimes times) {
    in_flight_.push_back({true, {}, step, rate, epoch, std::move(times)});
  }
  // Reads results until those of `left` batches and updates remain. Throws what
  // RankModel::collect() throws.
  void settle(size_t left);

  // Why training cannot go on: gradients that are not finite, more often than training.non_finite
  // allows.
  const std::optional<std::string>& trouble() const { return trouble_; }

 private:
  struct Expected {
    bool is_update = false;
    std::vector<int64_t> utterances = {};  // of a batch
    int64_t step = 0;                      // from here on of an update
    double rate = 0, epoch = 0;
    StepTimes times = {};
  };
  void note_update(const Expected& update, const StepResult& result);
  void note_nonfinite(const Expected& batch, const std::vector<float>& losses);
  void note_skipped(int64_t step);

  const Config& config_;
  TrainingSetup& setup_;
  RankModel& model_;
  TrainingReport& report_;
  double started_ = 0;
  int64_t expected_steps_ = 0;
  std::deque<Expected> in_flight_;
  std::vector<int64_t> since_update_;  // utterances of the batches that have been read
  std::optional<std::string> trouble_;
};

}  // namespace rondo
