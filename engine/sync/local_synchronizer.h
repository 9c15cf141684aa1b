// Ranks that update weights of their own, and average them every so many updates.
//
// Local SGD: S. U. Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. With an
// outer step, which takes the mean of the differences since the last average for a gradient: K.
// Chen, Q. Huo, "Scalable training of deep learning machines by incremental block training with
// intra-block parallel optimization and blockwise model-update filtering", ICASSP 2016; with
// Nesterov's momentum as in A. Douillard et al., "DiLoCo: Distributed Low-Communication Training of
// Language Models", 2023:
//   d = mean over ranks of (weights - weights at the last average)
//   v = momentum v + d
//   weights = weights at the last average + rate (d + momentum v)
//
// A rank counts in the mean as much as the utterances it has trained on since the last average; so
// ranks that ran out of batches, or skipped updates, do not hold the others back, and one step of
// SGD per average is the step of a batch that all ranks share. The optimiser's state is averaged
// with the same shares (moving averages of the weights stay what they are: they are linear in
// them), so that where ranks have met, one state stands for all.
//
// Averages are made in host memory. Memory there: a second copy of weights and optimiser state (the
// last average), an array of the size of the weights, and with devices one copy more.
#pragma once

#include "engine/reduce/rank_average.h"
#include "engine/sync/synchronizer.h"

namespace rondo {

struct OuterStep {
  double rate = 1, momentum = 0;
  bool none() const { return rate == 1 && momentum == 0; }
};

class LocalSynchronizer final : public SessionSynchronizer {
 public:
  // Ranks meet every `every` updates. Borrows the ranks' group.
  LocalSynchronizer(Session& session, const Ranks& ranks, int every, const OuterStep& outer);

  DataShare share() const override;
  void accumulate(const BatchView& batch, int shard, bool last) override;
  bool apply(const Update& update) override;
  bool meet(const Update& update) override;
  bool roll_back() override;
  std::vector<Optimizer::Slot> state() override;
  void restart() override { last_.take(); }
  RankReducer::Times times() const override { return times_; }
  // "staleness": this rank's updates between the last two averages; "divergence": the distance of
  // its weights from the mean then, divided by the mean's norm.
  std::vector<LogValue> log_values() const override;

 private:
  void average(double utterances_of_all);
  void step_outwards(std::span<float> difference);

  const Ranks ranks_;
  const int every_;
  const OuterStep outer_;
  TrainedState last_;
  std::vector<float> momentum_;  // v
  int64_t pending_ = 0;          // sequences accumulated
  bool applied_ = false;
  int updates_ = 0;        // since the last average
  double utterances_ = 0;  // trained on since then
  RankReducer::Times times_;
  double staleness_ = 0, divergence_ = 0;
};

}  // namespace rondo
