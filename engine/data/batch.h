// Batches in host memory, and threads that prepare the next ones.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/sampler.h"
#include "kernels/base/packed_host.h"

namespace rondo {

// Packed as kernels/base/packed.h says: sorted longest first, time-major, no padded frames. Row r
// of `features` is row r of the layout. Everything per utterance is in packed order. Of the targets
// only those of the dataset's kind are filled. Plain data.
struct HostBatch {
  uint64_t epoch = 0;
  int64_t step = 0;
  PackedHost layout;
  int32_t feature_dim = 0;
  std::vector<float> features;         // [rows, feature_dim]
  std::vector<int32_t> labels;         // concatenated
  std::vector<int32_t> label_offsets;  // [N + 1]
  std::vector<int32_t> classes;        // [N]
  std::vector<int32_t> frame_classes;  // [rows]
  int32_t target_dim = 0;
  std::vector<float> targets;       // [N, target_dim]
  std::vector<int64_t> utterances;  // [N], indices into the dataset

  int64_t rows() const { return layout.extent.rows; }
  int32_t sequences() const { return static_cast<int32_t>(utterances.size()); }
};

// Packs examples into `out`, whose vectors keep their memory. examples[i] belongs to
// request.utterances[i] and keys[i]; equal lengths keep their order. An empty request gives a batch
// without sequences. Throws Error when the examples do not fit together.
void pack_batch(const BatchRequest& request, const std::vector<Example>& examples,
                const std::vector<uint64_t>& keys, int32_t feature_dim, HostBatch& out);

// Loads and packs in the calling thread.
HostBatch load_batch(const Dataset& dataset, const BatchRequest& request);

struct PrefetchOptions {
  int threads = 1;  // 0: everything happens in next()
  int depth = 4;    // batches that are ready or being made, at most
  // The threads get the lowest priority (nice 19), so that they run where cores have nothing else
  // to do.
  bool background = false;
};

// Threads that load, augment, extract and pack the next batches. Batches come in the order of the
// requests, and their content does not depend on the number of threads or on timing. Who waits in
// next() helps: it loads what is missing itself, even what a thread has begun, which may not get
// the processor on a busy machine.
//
// A failure in a batch is thrown by the next() whose turn it is, naming the utterance (the first
// of the batch, if several fail): InputError stays InputError, everything else becomes Error. The
// batches after it can still be had. The destructor stops the threads at the next utterance.
// Thread safety: next() is called by one thread; `source` is called by one thread at a time, but
// not always the same one.
class Prefetcher {
 public:
  // `source` gives the next request, or nothing at the end; `dataset` is borrowed. Throws NoThread
  // (<rondo/device.h>) when the system does not start all threads; none is left then.
  Prefetcher(const Dataset& dataset, std::function<std::optional<BatchRequest>()> source,
             const PrefetchOptions& options);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch into `out` (whose memory is used again); false at the end.
  bool next(HostBatch& out);

  // How long next() has waited for input so far.
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct Load {
    Example example;
    uint64_t key = 0;
    std::exception_ptr failure = {};
    bool done = false;
  };
  struct Slot;
  struct State;

  void end();
  static void step_back();
  void work();
  bool open_slot(std::unique_lock<std::mutex>& lock);
  Load load(int64_t utterance, uint64_t epoch) const;
  void pack(Slot& slot);
  void advance(std::unique_lock<std::mutex>& lock, Slot& slot, size_t i);
  void finish(std::unique_lock<std::mutex>& lock, Slot& slot);
  std::shared_ptr<Slot> make_now();
  std::shared_ptr<Slot> wait_for_front();

  const Dataset& dataset_;
  std::function<std::optional<BatchRequest>()> source_;
  std::unique_ptr<State> state_;
  double wait_seconds_ = 0;
};

}  // namespace rondo
