// The model that a run trains, wherever its parts are: for evaluation, and for checkpoints and
// model files.
//
// Weights are laid out as one flat array over the whole model (Parameters::entries_of). Members
// that take ranks are called by all of them; rank 0 is the one that has files. One thread at a
// time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/parallel/pipeline_trainer.h"
#include "engine/reduce/ranks.h"
#include "engine/session.h"
#include "engine/train/recognition/evaluation.h"

namespace rondo {

// Where a run that goes on finds the optimiser's state. Rank 0 reads.
class ReadSlot {
 public:
  virtual ~ReadSlot() = default;
  // Whether there is anything to read; the same on all ranks.
  virtual bool resumes() const = 0;
  // Fills a whole array, or leaves it as it is. InputError when it cannot be read.
  virtual void operator()(const Update::Slot& slot) const = 0;
  // For those who read parameter by parameter: InputError unless all of the slot can be read; after
  // that entry() does not fail.
  virtual void require(const std::string& slot) const = 0;
  virtual void entry(const std::string& slot, const Parameters::Entry& entry,
                     std::span<float> into) const = 0;
};

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;

  virtual const std::vector<Parameters::Entry>& entries() const = 0;
  virtual int64_t flat_size() const = 0;
  int64_t trainable() const;  // weights
  int64_t frozen() const;     // those of them that keep their values
  virtual const Context& context() const = 0;
  // "on cpu with 2 threads", for `ranks` of them.
  virtual std::string describe(int ranks) const = 0;

  // Of this rank's weights.
  virtual Update& optimizer() = 0;
  // A run that goes on calls this after set_weights().
  virtual void set_steps(int64_t steps, int64_t optimizer_steps) = 0;

  // What rank 0 reads becomes the weights of all ranks, and their moving average, if there is one.
  // `read` is called there, for each of entries(), and must not throw.
  virtual void set_weights(const Ranks& ranks, const ReadEntry& read) = 0;
  // Starting weights are rank 0's.
  virtual void share_weights(const Ranks& ranks) = 0;
  // On rank 0 `write` is called with the weights, wherever they are; all ranks go on when it has
  // returned, or stop with its message.
  virtual void write_weights(const Ranks& ranks, const PipelineTrainer::WriteTensors& write) = 0;
  // What this rank writes where each stage writes its own part of a checkpoint; nothing where the
  // model is in one place.
  virtual std::optional<StagePart> part() const { return std::nullopt; }

  // For checkpoints: whole flat arrays of the optimiser's state, at least on rank 0; valid until
  // the next update.
  virtual std::vector<Update::Slot> gather_state(const Ranks& ranks) = 0;
  // The other way.
  virtual void restore(const Ranks& ranks, const ReadSlot& read) = 0;

  virtual EvaluatedModel& evaluated() = 0;
  // Those who share out the batches of an evaluation by `ranks`: each has a whole model, with
  // others or alone.
  virtual const Ranks& sharers(const Ranks& ranks) const = 0;
  // Whether any of the ranks that evaluate the same batches wants to stop.
  virtual bool any(bool stop) const = 0;
};

// In one place. Borrows the session.
class SessionModelInTraining final : public TrainedModel {
 public:
  explicit SessionModelInTraining(Session& session) : session_(session), evaluated_(session) {}

  const std::vector<Parameters::Entry>& entries() const override;
  int64_t flat_size() const override { return session_.parameters().flat_size(); }
  const Context& context() const override { return session_.context(); }
  std::string describe(int ranks) const override;
  Update& optimizer() override { return session_.optimizer(); }
  void set_steps(int64_t steps, int64_t optimizer_steps) override;
  void set_weights(const Ranks& ranks, const ReadEntry& read) override;
  void share_weights(const Ranks& ranks) override;
  void write_weights(const Ranks& ranks, const PipelineTrainer::WriteTensors& write) override;
  std::vector<Update::Slot> gather_state(const Ranks& ranks) override;
  void restore(const Ranks& ranks, const ReadSlot& read) override;
  EvaluatedModel& evaluated() override { return evaluated_; }
  const Ranks& sharers(const Ranks& ranks) const override { return ranks; }
  bool any(bool stop) const override { return stop; }

 private:
  Session& session_;
  SessionModel evaluated_;
};

// Spread over the stages of pipelines.
class PipelineModelInTraining final : public TrainedModel {
 public:
  // `stages`: the ranks of this one's pipeline; `replicas`: those with the same stages. Borrows the
  // trainer.
  PipelineModelInTraining(PipelineTrainer& trainer, const Ranks& stages, const Ranks& replicas)
      : trainer_(trainer), evaluated_(trainer), stages_(stages), replicas_(replicas) {}

  const std::vector<Parameters::Entry>& entries() const override { return trainer_.entries(); }
  int64_t flat_size() const override { return trainer_.flat_size(); }
  const Context& context() const override { return trainer_.context(); }
  std::string describe(int ranks) const override;
  Update& optimizer() override { return trainer_.optimizer(); }
  void set_steps(int64_t steps, int64_t optimizer_steps) override;
  void set_weights(const Ranks& ranks, const ReadEntry& read) override;
  // They are made from the seed and the names of parameters.
  void share_weights(const Ranks&) override {}
  void write_weights(const Ranks& ranks, const PipelineTrainer::WriteTensors& write) override;
  std::vector<Update::Slot> gather_state(const Ranks& ranks) override;
  void restore(const Ranks& ranks, const ReadSlot& read) override;
  std::optional<StagePart> part() const override;
  EvaluatedModel& evaluated() override { return evaluated_; }
  const Ranks& sharers(const Ranks&) const override { return replicas_; }
  bool any(bool stop) const override;

 private:
  class Evaluated final : public EvaluatedModel {
   public:
    explicit Evaluated(PipelineTrainer& trainer) : trainer_(trainer) {}
    Shape prediction_shape() const override { return trainer_.prediction_shape(); }
    int32_t output_frames(int32_t length) const override { return trainer_.output_frames(length); }
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

  PipelineTrainer& trainer_;
  Evaluated evaluated_;
  const Ranks stages_, replicas_;
  std::vector<std::vector<float>> whole_;  // rank 0: the optimiser's state, while it is written
};

// Which row of another model's output layer each class takes; -1: none, it is new. Empty: as it is.
struct OutputRows {
  std::vector<int64_t> from;
  int64_t others = 0;  // classes of the other model
  int64_t blanks = 1;  // of both: rows before those of symbols
};
// By symbol, behind the blank, class 0 of both, if there is one.
OutputRows same_symbols(const std::vector<std::string>& others,
                        const std::vector<std::string>& symbols, int64_t blanks = 1);

// InputError unless the file holds the weights of `entries`, and no others.
void require_weights(const SafetensorsFile& file, const std::vector<Parameters::Entry>& entries,
                     const OutputRows& rows = {});
// Reads entries from a file with these weights, which is borrowed. The weights of new classes are
// the mean of the other model's symbols, and what is drawn with the seed, uniformly up to
// 1 / sqrt(inputs); their biases are the mean.
ReadEntry weights_of(const SafetensorsFile& file, OutputRows rows = {}, uint64_t seed = 0);

}  // namespace rondo
