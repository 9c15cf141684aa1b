// Training on recordings that are too long for one device: chunk by chunk, in the memory of one.
//
// Two passes. From left to right each chunk is computed forward, and of it only what crosses its
// right border is kept: the states of the layers and CTC's alpha. From right to left each chunk is
// computed forward once more, and backward: CTC's beta and log p come from the right.
//
//   exact    StateGradients::carried: the gradients of the states go left as well. The result is
//   that of
//            the whole sequence but for the order of summation; only memory and time differ.
//   cut      truncated backpropagation through time (Williams & Peng 1990): no gradient flows
//            through a layer's state from one chunk into the one before.
// The forward pass, the loss, and the gradient with respect to the logits are exact in both.
//
// Memory: the activations of a chunk, and per cut the states and 2L + 1 states of CTC (16 bytes
// each, twice). Time: all chunks but the last are computed forward twice. A backward pass of a
// shorter chunk sees shorter dependencies when they are cut: K frames at most.
//
// For unidirectional layers, host or device memory. One thread at a time. Throws InputError for
// models that cannot be cut (engine/cut/sequence_graph.h).
#pragma once

#include <memory>
#include <vector>

#include "engine/cut/chunk_runner.h"
#include "engine/cut/sequence_cut.h"
#include "kernels/totals/totals.h"

namespace rondo {

class ChunkedTraining {
 public:
  // `training`: with its backward nodes. `chunk_frames`: of the input, rounded up to whole blocks.
  // Borrows all arguments but the numbers.
  ChunkedTraining(const Graph& training, ValueId loss, const Context& context,
                  Parameters& parameters, int32_t chunk_frames, StateGradients states);

  // Lays out memory for batches of up to `batch`; run() does so by itself for what does not fit.
  void reserve(const BatchCapacity& batch);
  // The capacity of a chunk of such batches, and what the activations of one take.
  BatchCapacity chunk_capacity(const BatchCapacity& batch) const;
  size_t activation_bytes(const BatchCapacity& chunk) const;

  // Forward and backward of a batch; gradients are added to those of the parameters.
  void run(const BatchView& batch);

  // The results of the last run().
  const LossTotals& totals() const { return totals_; }
  const std::vector<double>& losses() const { return losses_; }  // by sequence (ctc) or frame
  int32_t chunk_frames() const { return chunk_frames_; }
  size_t arena_bytes() const { return runner_ ? runner_->arena_bytes() : 0; }

 private:
  BatchSlice slice_of(const BatchView& batch, int32_t index) const;
  void collect(bool leftmost);

  const Graph& training_;
  const ValueId loss_;
  const Context context_;
  Parameters& parameters_;
  const StateGradients states_;
  int32_t chunk_frames_;

  ChunkGraph chunk_;
  BatchCapacity capacity_;  // of chunks
  std::unique_ptr<ChunkRunner> runner_;
  LossTotals totals_;
  std::vector<double> losses_;
};

}  // namespace rondo
