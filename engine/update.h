// The update of a model's weights: SGD, Adam, AdamW over the flat arrays of Parameters, with
// clipping by the global norm and a moving average of the weights; whole, or with the optimiser's
// state divided over the ranks that hold the same weights.
//
// Formulas are PyTorch's (kernels/optimizer/optimizer.h). Divided, each rank updates its part of
// the weights and gets the other parts, after S. Rajbhandari et al., "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", SC 2020, stage 1. Parts are made of blocks
// (engine/part_layout.h), so the weights are those of an undivided update, bit for bit, but where
// the gradient is clipped by a norm that is added up in another order (UpdateRanks::own_sums).
//
// Memory of a rank: the state, or 1/N of it, of the weights and of the gradients, and an array of
// the size of the weights for what is on its way.
//
// One thread at a time. What changes the state from the host wants no update under way. With other
// ranks all of them make the same calls; CommError when one is gone or late.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/parameters.h"
#include "kernels/base/op.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/optimizer_options.h"

namespace rondo {

class DeviceGroup;
class PartLayout;  // engine/part_layout.h
class ProcessGroup;

// The ranks that an update is shared with. All are borrowed.
struct UpdateRanks {
  // Those that hold the same weights and divide the state; nullptr: it is not divided. `devices`:
  // the same ranks; nullptr where `owners` reaches the memory of the parameters, the host's.
  ProcessGroup* owners = nullptr;
  DeviceGroup* devices = nullptr;
  // Before an update each rank has the sums of its own part's gradients alone (SumsAt), not of
  // all. The norm is then added up of the parts.
  bool own_sums = false;
  // Those that hold the other stages of the model, whose parameters are `entries` in all. The norm
  // is added up of theirs, in this order, so that it does not depend on where the model is cut.
  ProcessGroup* stages = nullptr;
  std::span<const Parameters::Entry> entries = {};
};

class Update {
 public:
  // Allocates the state on the parameters' device; zeros. Frozen parameters are left as they are.
  // Borrows the parameters and what the context points to. InputError where a divided state has no
  // group that reaches the device.
  Update(const OptimizerOptions& options, Parameters& parameters, const Context& context,
         const UpdateRanks& ranks = {});
  ~Update();

  struct Result {
    double gradient_norm = 0;  // after division by the count, before clipping
    bool skipped = false;      // not finite: weights and state are unchanged
  };
  // weights -= step(gradients / count). The gradients are left as they are.
  Result apply(double count);

  // The same in pieces: numbers to the device, the update itself, numbers back, and, where the
  // state is divided, the weights of the other ranks. enqueue() takes the count from
  // inverse_count(), which work before it on the stream has written, unless it is given; the
  // staging (memory that copies reach) stays until the stream has passed this point, and finish()
  // tells what became of it. Nothing waits where the update is this rank's alone; send() waits for
  // the gradients where the norm is of several ranks, take_weights() for the weights.
  struct Staging {
    OptimizerBlock in, out;
    double squares = 0;
  };
  void send(Staging& staging, double count = 0);
  void update();  // the same work every time, which may be recorded
  void fetch(Staging& staging);
  void spread();
  Result finish(const Staging& staging);
  double* inverse_count() const;  // device memory; nullptr in f64 sessions
  // Seconds that spread() has taken so far.
  double spreading() const { return spreading_; }

  void set_learning_rate(double rate) { options_.learning_rate = rate; }
  double learning_rate() const { return options_.learning_rate; }
  const OptimizerOptions& options() const { return options_; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);

  // The state as named flat arrays: "momentum", "first_moment", "second_moment", "average". Views
  // of memory on the device, of this rank's part.
  struct Slot {
    std::string name;
    TensorView view;
  };
  const std::vector<Slot>& state() const { return slots_; }
  bool divided() const { return part_ != nullptr; }
  // For checkpoints: the whole arrays, where `here`; valid until the next update. The views are of
  // the device's memory or the host's.
  std::vector<Slot> gather(bool here);
  // In host memory, laid out as the parameters' flat arrays; empty where not `here`.
  std::vector<float> gather(const std::string& name, bool here);
  void set(const std::string& name, std::span<const float> flat);

  bool averages() const { return options_.ema_decay > 0; }
  // After the parameters' weights were set, the same on all ranks: the average starts at them.
  void take_weights();
  // Exchanges weights and averaged weights, if there are any; call it again to go back.
  void swap_average();
  size_t bytes() const { return memory_.bytes() + scalars_.bytes(); }
  static size_t state_bytes(const OptimizerOptions& options, int64_t flat_size);

 private:
  // One of the sums of squares that make the norm.
  struct Range {
    size_t place;
    TensorView gradients;
  };
  TensorView slot(const std::string& name) const;
  // A flat array without the elements that are frozen.
  TensorView trained(const TensorView& flat) const;
  OptimizerBlock* block() const;
  double* squares() const;
  // Over whose ranks the norm is added up; nullptr: it is this one's.
  ProcessGroup* norm_ranks() const { return ranks_.own_sums ? ranks_.owners : ranks_.stages; }
  void list_ranges();
  void square(const TensorView& gradients, double* out);
  double sum_over_ranks();
  void write_block();
  void pack(const TensorView& flat, const TensorView& part) const;
  void gather_parts(const TensorView& own);
  void gather_weights(const TensorView& own);

  OptimizerOptions options_;
  Parameters& whole_;
  const Context context_;
  const UpdateRanks ranks_;
  // Divided: this rank's weights and gradients, and the parts of all ranks, one after the other.
  std::unique_ptr<PartLayout> layout_;
  std::unique_ptr<Parameters> part_;
  Buffer parts_;
  Parameters* updated_;  // the part, or the whole
  int64_t frozen_ = 0;   // its first elements
  Buffer memory_, scalars_;
  std::vector<Slot> slots_;
  std::vector<Range> ranges_;  // of the norm
  size_t places_ = 1;
  int64_t steps_ = 0;
  bool averaged_ = false;  // divided: the weights of the parameters are the average
  double spreading_ = 0;
  std::vector<std::vector<float>> gathered_;  // while it is written
};

}  // namespace rondo
