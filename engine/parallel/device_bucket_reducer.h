// BucketReducer for gradients in the memory of a device: the same buckets and the same bits, all of
// it enqueued.
//
// A bucket travels on the stream of the device group: it waits there for the event after the node
// that wrote its last gradient, and the session's stream waits for the event after its sums are
// back before it goes on to the update. The host waits for neither; it exchanges the counts.
#pragma once

#include <atomic>
#include <vector>

#include "comm/device_group.h"
#include "engine/parallel/bucket_reducer.h"

namespace rondo {

class DeviceBucketReducer final : public RankReducer {
 public:
  // `control`, in host memory, and `sums` are of the same ranks; `compute` is the session's stream.
  // All are borrowed.
  DeviceBucketReducer(ProcessGroup& control, DeviceGroup& sums, Stream& compute, const Graph& graph,
                      const Parameters& parameters, int64_t bucket_bytes, size_t ballot = 0);

  const std::vector<GradientBucket>& buckets() const { return buckets_; }

  void last_batch() override { active_ = true; }
  bool watches_nodes() const override { return active_; }
  void after_node(size_t node) override;
  // Throws CommError when the sums of the update were not.
  void applied() override;

 protected:
  void sum_gradients(TensorView gradients) override;

 private:
  struct Flight {
    BucketLayout layout;
    Buffer memory;  // the bucket as it travels
    Event written, summed;
    // Of CommClock, when the stream came there.
    std::atomic<int64_t> began = 0, ended = 0;
    Work work;
  };
  void launch();
  enum class Copy : uint8_t { pack, unpack };
  void copy(const Flight& flight, Copy direction);

  DeviceGroup& sums_;
  Stream& compute_;
  const TensorView gradients_;
  const int64_t width_;
  const std::vector<GradientBucket> buckets_;
  std::vector<Flight> flights_;
  size_t launched_ = 0;
  bool active_ = false;
  CommClock::time_point computed_{};  // when nothing but the sums was left to wait for
};

}  // namespace rondo
