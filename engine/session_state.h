// What a Session is made of; for engine/session*.cc alone.
#pragma once

#include <array>
#include <optional>

#include "engine/cut/chunked_training.h"
#include "engine/graph/bucket.h"
#include "engine/graph/lockstep.h"
#include "engine/graph/recording.h"
#include "engine/session.h"
#include "kernels/base/error.h"
#include "kernels/totals/totals.h"

namespace rondo {

struct Model {
  Graph graph;
  Outputs outputs;
  // What plans run: the same values, and layers that a device runs at once as one node.
  Graph planned = {};
};

// A batch or an update that was enqueued, and what comes back from the device.
struct InFlight {
  struct Returned {
    LossTotals totals;
    Update::Staging update;
  };
  Event done;
  bool is_update = false;
  int64_t losses = 0;  // how many
  DType loss_dtype = DType::f32;
  StagingBuffer fixed, loss_values;

  Returned& returned() const { return *reinterpret_cast<Returned*>(fixed.data()); }
};

struct Session::State {
  SessionOptions options;
  Model train, evaluate, infer;
  Device* device = nullptr;
  Stream stream;
  std::unique_ptr<ThreadPool> pool;
  Context context;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Update> optimizer;
  std::optional<BucketedPlans> train_plans, evaluate_plans, infer_plans;
  Recording update_recording;
  std::unique_ptr<Lockstep> lockstep;
  std::unique_ptr<ChunkedTraining> chunked;  // tbptt
  Sums* sums = nullptr;                      // over ranks
  size_t sums_set = 0;                       // so many so far
  StepResult result;
  std::vector<float> prediction;
  std::vector<bf16> narrow;
  std::vector<double> wide;
  int64_t step = 0;
  bool gradients_clear = true;
  bool updated = false;  // the last batch took the update with it
  Buffer totals;         // since the last update; behind them what they are in chunks
  LossTotals chunks_totals;
  std::array<InFlight, most_in_flight> ring;
  size_t oldest = 0, in_flight = 0;

  // Memory (session_memory.cc).
  BucketedPlans make_plans(const Graph& graph, const BatchCapacity& capacity);
  // The plan of the batch's bucket. All are made anew when the batch is larger than the largest.
  Plan& plan_for(std::optional<BucketedPlans>& plans, const Graph& graph, const BatchView& batch);
  void replace(std::optional<BucketedPlans>& plans, const Graph& graph,
               const BatchCapacity& capacity);
  void make_room(InFlight& item);

  // Training (session_steps.cc). The place of the ring that is `ahead` of the next free one.
  InFlight& place(size_t ahead);
  InFlight& begin_item(bool is_update);
  void end_item(InFlight& item);
  void clear_gradients();
  // Fresh gradients or sums of several batches, with the update or without it: each is recorded by
  // itself.
  void run_batch(Plan& plan, bool restart, bool updates);
  void add_to_totals(const Plan& plan, bool restart);
  void fetch_losses(const Plan& plan, InFlight& item);
  void add_nothing(InFlight& item);
  void run_chunks(const BatchView& batch, InFlight& item);
  void set_losses(const InFlight& item);

  void require_idle(const char* what) const {
    RONDO_CHECK(in_flight == 0, what, " while ", in_flight,
                " batches and updates are in flight: collect() them");
  }

  // A value's live part as f32 (session.cc).
  void read_floats(const Plan& plan, ValueId id, std::vector<float>& out);
};

}  // namespace rondo
