// A model ready to train and to run: graph, parameters, optimiser state, device and threads. It is
// the face of a RankModel, on a grid of one rank.
//
// The whole life of a custom model:
//
//   Session session(
//       [](Graph& g) {
//         ValueId x = layers::input_frames(g, "features", 40);
//         x = layers::lstm(g, x, "encoder", {.hidden = 128, .layers = 2, .bidirectional = true});
//         ValueId logits = layers::linear(g, x, "output", 11);
//         return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
//       },
//       {.seed = 7});
//   for (const Batch& batch : batches) session.train_step(batch.view());
//   session.save("model.safetensors");
//   std::vector<float> logits = session.predict(batch.view());
//
// The model function runs twice: for training (dropout active, gradients appended) and for
// evaluation; both graphs share the parameters. It must add the same parameters both times.
//
// Memory: graphs are bound per capacity; reserve() the largest batch first and no later step
// allocates. OutOfMemory says what was asked for and, where the device knows what is left, how
// large a batch would fit. Throws Error (kernels/base/error.h). One thread at a time; several
// sessions may live in several threads.
//
// Waiting: train_step(), accumulate() and update() return results, so they wait for the device. To
// keep a GPU busy, enqueue the next step first and collect() the results of the one before:
//
//   session.enqueue(batch, Session::Next::update);  session.enqueue_update();
//   while (session.in_flight() > 2) use(session.collect());
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/batch.h"
#include "engine/graph/graph.h"
#include "engine/graph/parameters.h"
#include "engine/layers/layers.h"
#include "engine/update.h"
#include "kernels/base/op.h"

namespace rondo {

// What a model function returns. `prediction` may be on any axis.
struct Outputs {
  ValueId loss = no_value;
  ValueId prediction = no_value;
};
using ModelFunction = std::function<Outputs(Graph&)>;

struct SessionOptions {
  DeviceKind device = DeviceKind::cpu;
  int device_index = 0;  // among GPUs
  int threads = 0;       // 0: one per usable CPU
  uint64_t seed = 1;
  DType compute = DType::f32;  // storage of activations: f32, bf16; f64 with the reference kernels
  bool reference = false;      // run the reference kernels
  bool lockstep = false;       // run both and stop at the first difference
  bool training = true;        // false: no memory for gradients and optimiser
  // Of a session that does not train: those of another one of the same model, which nobody may
  // change from now on. Such sessions may run at once, each in a thread of its own.
  std::shared_ptr<Parameters> weights = {};
  // Above 0: training batches are computed in chunks of so many frames, with truncated
  // backpropagation through time (engine/cut/chunked_training.h).
  int32_t tbptt = 0;
  // Where the output layer has at least so many columns and the loss is CTC, training computes it
  // straight from that layer's inputs, tile by tile, and keeps no logits
  // (kernels/linear_ctc/linear_ctc.h). 0: never. Nor in chunks (tbptt) and lockstep, which read the
  // logits.
  int64_t fuse_output_from = 4096;
  OptimizerOptions optimizer = {};
  UpdateRanks ranks = {};  // of the optimiser's state and the norm; set_sums() is for gradients
};

struct StepResult {
  double loss = 0;        // sum over the sequences with a finite loss
  int64_t sequences = 0;  // of the global batch
  int64_t frames = 0;
  int64_t infeasible = 0;     // sequences whose loss is +inf: no gradient, not counted
  int64_t nonfinite = 0;      // sequences whose loss is NaN
  double gradient_norm = 0;   // before clipping, after division by the feasible sequences
  bool skipped = false;       // the gradient was not finite: the weights are unchanged
  std::vector<float> losses;  // of the last batch, in packed order
  double mean_loss() const {
    const int64_t counted = sequences - infeasible - nonfinite;
    return counted > 0 ? loss / static_cast<double>(counted) : 0;
  }
};

class RankModel;        // engine/rank_model.h
class SafetensorsFile;  // engine/io/safetensors.h
class Sums;             // engine/reduce/sums.h

class Session {
 public:
  explicit Session(ModelFunction model, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Lays out memory for training batches up to `capacity`.
  void reserve(const BatchCapacity& capacity);

  // One optimiser step: forward, backward, update. A batch for ctc_loss has label offsets: without
  // them it is an InputError here, in accumulate(), enqueue() and evaluate().
  const StepResult& train_step(const BatchView& batch);
  // The same in pieces: gradients of several batches are summed, divided once by the number of all
  // their sequences, and applied. A batch without sequences adds nothing.
  void accumulate(const BatchView& batch);
  const StepResult& update();
  // The same without waiting: what was enqueued is collect()ed in its order, at most
  // `most_in_flight` later. Batches are copied out of host memory at once. With sums over
  // ranks, enqueue_update() may wait for the gradients (Sums::queued()).
  static constexpr size_t most_in_flight = 8;
  // Next::update promises that enqueue_update() is the next thing to be enqueued, and with the
  // learning rate of now: where the device records work, the whole step is then one launch.
  enum class Next : uint8_t { anything, update };
  void enqueue(const BatchView& batch, Next next = Next::anything);
  void enqueue_update();
  size_t in_flight() const;
  // Waits for the oldest batch or update in flight. Of a batch: the sums since the last update, and
  // its losses; of an update: the sums, the norm and `skipped`.
  const StepResult& collect();
  // Of gradients and counts over ranks; nullptr: none. Borrowed.
  void set_sums(Sums* sums);
  // The next update() uses this learning rate.
  void set_learning_rate(double rate);
  double learning_rate() const;

  // Loss of a batch without dropout or gradients.
  const StepResult& evaluate(const BatchView& batch);
  const StepResult& last_result() const;  // of accumulate(), update(), collect() or evaluate()
  // Rows x columns of the prediction for a batch (packed order), as f32. `losses`: of the last
  // evaluate(). predict() needs neither labels nor targets; evaluate_and_predict() does both.
  const std::vector<float>& predict(const BatchView& batch);
  const std::vector<float>& evaluate_and_predict(const BatchView& batch);
  Shape prediction_shape() const;
  // Frames of the input per frame of the prediction; and how many the prediction has of a sequence
  // of so many.
  int64_t subsampling() const;
  int32_t output_frames(int32_t length) const;

  // Weights and strings as one safetensors file, replaced atomically. load() checks that names,
  // types and shapes agree and says which do not (InputError).
  void save(const std::string& path, const std::map<std::string, std::string>& metadata = {}) const;
  void load(const std::string& path);
  void load(const SafetensorsFile& file);

  // parameters() waits for what is in flight; the optimiser's state is read when nothing is.
  Parameters& parameters();
  const Parameters& parameters() const;
  std::shared_ptr<Parameters> weights() const;  // to be shared (SessionOptions::weights)
  Update& optimizer();
  const Update& optimizer() const;
  const Graph& training_graph() const;
  const Context& context() const;
  uint64_t seed() const;
  // Steps taken so far; keys dropout, so set it when resuming.
  int64_t step() const;
  void set_step(int64_t step);

  // Bytes held for a training step, as laid out.
  struct Memory {
    size_t weights = 0, gradients = 0, optimizer = 0, activations = 0, batch = 0;
    size_t total() const { return weights + gradients + optimizer + activations + batch; }
  };
  // Predicted for a capacity, without allocating anything.
  Memory predict_memory(const BatchCapacity& capacity) const;
  void trim();  // gives back the memory of evaluations and predictions, until the next one

  RankModel& rank_model();  // what does it all
  const RankModel& rank_model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
