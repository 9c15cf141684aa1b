// BucketSums for gradients in the memory of a device: the same buckets and the same bits, all of
// it enqueued.
//
// A bucket travels on the stream of the device group: it waits there for the event after the node
// that wrote its last gradient (the recording of a batch marks these events too, so that the
// buckets of an update's last batch are sent off once the whole of it has been launched), and the
// session's stream waits for the event after its sums are back before it goes on to the update. So
// do the counts of utterances and frames, which each rank gathers from all and adds up on its
// device. The host waits for no device: what it exchanges, the ballot, is known to it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "comm/group/device_group.h"
#include "engine/reduce/bucket_sums.h"
#include "kernels/totals/totals.h"

namespace rondo {

class DeviceBucketSums final : public Sums {
 public:
  // `control`, in host memory, and `sums` are of the same ranks; `compute` is the session's. All
  // are borrowed.
  DeviceBucketSums(ProcessGroup& control, DeviceGroup& sums, const Context& compute,
                   const Graph& graph, const Parameters& parameters, int64_t bucket_bytes,
                   size_t votes = 0, SumsAt at = SumsAt::everywhere);

  const std::vector<GradientBucket>& buckets() const { return buckets_; }

  void last_batch() override { active_ = true; }
  bool marks() const override { return active_; }
  void mark(size_t node) override;
  void flush(size_t node) override;
  bool queued() const override { return true; }
  void finish(LossTotals* totals, double* inverse_count) override;
  void applied() override;

 protected:
  void sum_gradients() override;
  void sum_nothing() override;

 private:
  struct Bucket {
    BucketLayout layout;
    Buffer memory;  // as it travels
    Event written, summed;
  };
  // What became of a bucket, or of the counts, in one update.
  struct Flight {
    Work work;
    Event began, ended;  // timed
  };
  struct Update {
    std::vector<Flight> flights;  // of the buckets, then of the counts
    Event computed;               // nothing but the sums is left to wait for
    Event* end = nullptr;         // the last of all these
  };

  Update& update() { return updates_[begun_ % updates_.size()]; }
  void launch();  // the next bucket that is marked
  void gather(const LossTotals* own);
  enum class Copy : uint8_t { pack, unpack };
  void copy(const BucketLayout& layout, const Buffer& memory, Copy direction);

  DeviceGroup& sums_;
  const Context compute_;
  const int64_t width_;
  const SumsAt at_;
  const std::vector<GradientBucket> buckets_;
  // Those under way, and the last one applied, whose end the next is counted from.
  std::array<Update, most_in_flight + 2> updates_;
  std::vector<Bucket> travelling_;
  Buffer parts_;  // the totals of each rank
  Event counted_, gathered_;
  size_t begun_ = 0, applied_ = 0;    // updates
  size_t marked_ = 0, launched_ = 0;  // buckets of the update that has begun
  bool active_ = false;
};

}  // namespace rondo
