#include "engine/reduce/device_bucket_sums.h"

#include <algorithm>

#include "engine/graph/trace.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"

namespace rondo {

DeviceBucketSums::DeviceBucketSums(ProcessGroup& control, DeviceGroup& sums, const Context& compute,
                                   const Graph& graph, const Parameters& parameters,
                                   int64_t bucket_bytes, size_t votes, SumsAt at)
    : Sums(control, parameters, votes),
      sums_(sums),
      compute_(compute),
      width_(static_cast<int64_t>(size_of(parameters.dtype()))),
      at_(at),
      buckets_(
          gradient_buckets(graph, parameters, bucket_bytes / width_ / 4, bucket_bytes / width_)),
      travelling_(buckets_.size()) {
  RONDO_CHECK(control.size() == sums.size() && control.rank() == sums.rank(), "rank ",
              control.rank(), " of ", control.size(), " sums as rank ", sums.rank(), " of ",
              sums.size());
  Device& device = sums.device();
  RONDO_CHECK(&device == &parameters.device(), "gradients of another device");
  Stream stream = device.make_stream();
  const auto ranks = static_cast<size_t>(sums.size());
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& b = travelling_[i];
    b.layout = lay_out(buckets_[i], sums.size(), at);
    const auto bytes = static_cast<size_t>(b.layout.chunk * width_) * ranks;
    b.memory = Buffer(device, std::max<size_t>(bytes, 1), "gradient buckets");
    device.fill_bytes(stream, b.memory.data(), 0, b.memory.bytes());
    b.written = device.make_event();
    b.summed = device.make_event();
  }
  parts_ = Buffer(device, ranks * sizeof(LossTotals), "sums of losses of all ranks");
  device.fill_bytes(stream, parts_.data(), 0, parts_.bytes());
  counted_ = device.make_event();
  gathered_ = device.make_event();
  for (Update& u : updates_) {
    u.flights.resize(buckets_.size() + 1);
    for (Flight& f : u.flights) {
      f.began = device.make_timed_event();
      f.ended = device.make_timed_event();
    }
    u.computed = device.make_timed_event();
  }
  stream.synchronize();
}

void DeviceBucketSums::copy(const BucketLayout& layout, const Buffer& memory, Copy direction) {
  auto* const flat = static_cast<std::byte*>(gradients().data);
  auto* const packed = memory.as<std::byte>();
  const auto bytes = [this](int64_t elements) { return static_cast<size_t>(elements * width_); };
  for (const BlockRows& r : layout.rows) {
    if (direction == Copy::unpack && !comes_back(r, layout, at_, sums_.rank())) continue;
    std::byte* const here = flat + r.flat * width_;
    std::byte* const there = packed + r.packed * width_;
    // A single row has no stride.
    const size_t row = bytes(r.elements);
    const size_t here_stride = std::max(bytes(r.flat_stride), row);
    const size_t there_stride = std::max(bytes(r.packed_stride), row);
    const auto rows = static_cast<size_t>(r.rows);
    sums_.device().copy_rows(sums_.stream(),
                             direction == Copy::pack
                                 ? Device::Rows{there, there_stride, here, here_stride, row, rows}
                                 : Device::Rows{here, here_stride, there, there_stride, row, rows});
  }
}

void DeviceBucketSums::launch() {
  Bucket& b = travelling_[launched_];
  Flight& f = update().flights[launched_];
  Stream& stream = sums_.stream();
  b.written.wait(stream);
  f.began.record(stream);
  copy(b.layout, b.memory, Copy::pack);
  const TensorView packed(b.memory.data(), gradients().dtype, {b.layout.chunk * sums_.size()});
  f.work = at_ == SumsAt::everywhere ? sums_.all_reduce(packed, Reduction::sum)
                                     : sums_.reduce_scatter(packed, Reduction::sum);
  copy(b.layout, b.memory, Copy::unpack);
  f.ended.record(stream);
  b.summed.record(stream);
  ++launched_;
}

void DeviceBucketSums::mark(size_t node) {
  for (; marked_ < buckets_.size() && buckets_[marked_].after_node <= node; ++marked_) {
    travelling_[marked_].written.record(*compute_.stream);
  }
}

// A recording has marked them, if not mark() itself.
void DeviceBucketSums::flush(size_t node) {
  if (!active_) return;
  while (launched_ < buckets_.size() && buckets_[launched_].after_node <= node) launch();
  marked_ = std::max(marked_, launched_);
}

void DeviceBucketSums::sum_gradients() {
  mark(all_nodes);
  while (launched_ < buckets_.size()) launch();
}

// What each rank has, on all of them; nullptr: this one has nothing.
void DeviceBucketSums::gather(const LossTotals* own) {
  Device& device = sums_.device();
  Stream& stream = sums_.stream();
  Flight& f = update().flights.back();
  counted_.record(*compute_.stream);
  counted_.wait(stream);
  f.began.record(stream);
  LossTotals* const place = parts_.as<LossTotals>() + sums_.rank();
  if (own) {
    device.copy(stream, place, own, sizeof(LossTotals));
  } else {
    device.fill_bytes(stream, place, 0, sizeof(LossTotals));
  }
  f.work = sums_.all_gather(
      TensorView(parts_.data(), DType::u8, {static_cast<int64_t>(parts_.bytes())}));
  f.ended.record(stream);
  gathered_.record(stream);
}

void DeviceBucketSums::sum_nothing() { gather(nullptr); }

void DeviceBucketSums::finish(LossTotals* totals, double* inverse_count) {
  RONDO_CHECK(begun_ - applied_ <= most_in_flight, begun_ - applied_,
              " updates under way, none of them applied");
  sum_gradients();
  gather(totals);
  update().computed.record(*compute_.stream);
  for (Bucket& b : travelling_) b.summed.wait(*compute_.stream);
  gathered_.wait(*compute_.stream);
  run(compute_, CombineTotalsArgs{parts_.as<LossTotals>(), sums_.size(), totals, inverse_count});
  marked_ = launched_ = 0;
  active_ = false;
  ++begun_;
  sum_numbers(nullptr, false);
}

void DeviceBucketSums::applied() {
  RONDO_CHECK(applied_ < begun_, "an update that was not enqueued");
  Update& u = updates_[applied_ % updates_.size()];
  u.computed.synchronize();
  u.end = &u.computed;
  for (Flight& f : u.flights) {
    std::exchange(f.work, Work()).wait();
    f.ended.synchronize();
    times_.communication += f.ended.seconds_since(f.began);
    if (Trace* const trace = Trace::current()) {
      trace->add(TraceSpan::Track::messages, "gradients", f.began, f.ended);
    }
    if (f.ended.seconds_since(*u.end) > 0) u.end = &f.ended;
  }
  times_.exposed += u.end->seconds_since(u.computed);
  if (applied_ > 0) {
    const Update& before = updates_[(applied_ - 1) % updates_.size()];
    times_.computed += u.computed.seconds_since(*before.end);
  }
  ++applied_;
}

}  // namespace rondo
