// Optimisers over the flat arrays of Parameters: SGD, Adam, AdamW, with clipping by the global norm
// and a moving average of the weights.
//
// Formulas are PyTorch's (kernels/optimizer/optimizer.h). One thread at a time. What changes the
// state from the host (set_steps and on) wants no update under way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/graph/parameters.h"
#include "kernels/base/op.h"
#include "kernels/optimizer/optimizer.h"

namespace rondo {

struct OptimizerOptions {
  enum Kind : uint8_t { sgd, adam, adamw } kind = adamw;
  double learning_rate = 1e-3;
  double momentum = 0;                                // sgd
  bool nesterov = false;                              // sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  double weight_decay = 0;  // adamw: decoupled; otherwise added to the gradient
  double clip_norm = 0;     // of the averaged gradient; 0: no clipping
  double ema_decay = 0;     // of the averaged weights; 0: no averaging
};

class Optimizer {
 public:
  // Allocates the state on the parameters' device; zeros. Updates leave the first `frozen` elements
  // of the parameters' flat arrays as they are, and look at no gradients there.
  Optimizer(const OptimizerOptions& options, Parameters& parameters, int64_t frozen);
  Optimizer(const OptimizerOptions& options, Parameters& parameters)
      : Optimizer(options, parameters, parameters.frozen_size()) {}

  struct Result {
    double gradient_norm = 0;  // after division by the count, before clipping
    bool skipped = false;      // not finite: weights and state are unchanged
  };
  // weights -= step(gradients / count). The gradients are left as they are.
  Result apply(const Context& context, double count);

  // The same in two pieces, without waiting. enqueue() takes the count from inverse_count(), which
  // work before it on the stream has written, unless it is given; the staging (memory that copies
  // reach) stays until the stream has passed this point, and finish() tells what became of it.
  struct Staging {
    OptimizerBlock in, out;
    double squares = 0;
  };
  void enqueue(const Context& context, Staging& staging, double count = 0);
  Result finish(const Staging& staging);
  // enqueue()'s parts: numbers to the device, the update itself, numbers back. update() is the same
  // work every time and may be recorded.
  void send(const Context& context, Staging& staging, double count = 0);
  void update(const Context& context);
  void fetch(const Context& context, Staging& staging);
  double* inverse_count() const;  // device memory; nullptr in f64 sessions
  // Where the parameters are a part of the model's: what finds the sum of the squares of all its
  // gradients instead of that of these. It is called with the gradients complete.
  void set_sum_of_squares(std::function<double()> find) { sum_of_squares_ = std::move(find); }

  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  double learning_rate() const { return options_.learning_rate; }
  const OptimizerOptions& options() const { return options_; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);

  // The state as named flat arrays, for checkpoints: "momentum", "first_moment", "second_moment",
  // "average". Views of memory on the device.
  struct Slot {
    std::string name;
    TensorView view;
  };
  const std::vector<Slot>& state() const { return slots_; }
  bool averages() const { return options_.ema_decay > 0; }
  // Starts the average at the current weights; call it after they were set.
  void reset_average(const Context& context);
  // Exchanges weights and averaged weights; call it again to go back.
  void swap_average();
  size_t bytes() const { return memory_.bytes() + scalars_.bytes(); }
  static size_t state_bytes(const OptimizerOptions& options, int64_t flat_size);

 private:
  TensorView slot(const char* name) const;
  // A flat array without the elements that are frozen.
  TensorView trained(const TensorView& flat) const;
  OptimizerBlock* block() const;
  double* squares() const;
  void write_block();
  OptimizerOptions options_;
  Parameters* parameters_;
  int64_t frozen_;
  Buffer memory_, scalars_;
  std::vector<Slot> slots_;
  int64_t steps_ = 0;
  std::function<double()> sum_of_squares_;
};

}  // namespace rondo
