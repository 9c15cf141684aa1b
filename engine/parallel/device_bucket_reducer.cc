#include "engine/parallel/device_bucket_reducer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {
namespace {

int64_t ticks_now() { return CommClock::now().time_since_epoch().count(); }

double seconds_between(int64_t from, int64_t to) {
  return std::chrono::duration<double>(CommClock::duration(to - from)).count();
}

}  // namespace

DeviceBucketReducer::DeviceBucketReducer(ProcessGroup& control, DeviceGroup& sums, Stream& compute,
                                         const Graph& graph, const Parameters& parameters,
                                         int64_t bucket_bytes, size_t ballot)
    : RankReducer(control, ballot),
      sums_(sums),
      compute_(compute),
      gradients_(parameters.gradients()),
      width_(static_cast<int64_t>(size_of(parameters.dtype()))),
      buckets_(plan_buckets(graph, parameters, bucket_bytes / width_ / 4, bucket_bytes / width_)),
      flights_(buckets_.size()) {
  RONDO_CHECK(control.size() == sums.size() && control.rank() == sums.rank(), "rank ",
              control.rank(), " of ", control.size(), " sums as rank ", sums.rank(), " of ",
              sums.size());
  Device& device = sums.device();
  RONDO_CHECK(&device == &parameters.device(), "gradients of another device");
  Stream stream = device.make_stream();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Flight& f = flights_[i];
    f.layout = lay_out(buckets_[i], sums.size());
    const auto bytes = static_cast<size_t>(f.layout.chunk * sums.size() * width_);
    f.memory = Buffer(device, std::max<size_t>(bytes, 1), "gradient buckets");
    device.fill_bytes(stream, f.memory.data(), 0, f.memory.bytes());
    f.written = device.make_event();
    f.summed = device.make_event();
  }
  stream.synchronize();
}

void DeviceBucketReducer::copy(const Flight& flight, Copy direction) {
  auto* const flat = static_cast<std::byte*>(gradients_.data);
  auto* const packed = flight.memory.as<std::byte>();
  const auto bytes = [this](int64_t elements) { return static_cast<size_t>(elements * width_); };
  for (const BlockRows& r : flight.layout.rows) {
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

void DeviceBucketReducer::launch() {
  Flight& f = flights_[launched_];
  Stream& stream = sums_.stream();
  f.written.record(compute_);
  f.written.wait(stream);
  stream.enqueue([&f] { f.began = ticks_now(); });
  copy(f, Copy::pack);
  const TensorView packed(f.memory.data(), gradients_.dtype, {f.layout.chunk * sums_.size()});
  f.work = sums_.all_reduce(packed, Reduction::sum);
  copy(f, Copy::unpack);
  stream.enqueue([&f] { f.ended = ticks_now(); });
  f.summed.record(stream);
  ++launched_;
}

void DeviceBucketReducer::after_node(size_t node) {
  if (!active_) return;
  while (launched_ < buckets_.size() && buckets_[launched_].after_node <= node) launch();
}

void DeviceBucketReducer::sum_gradients(TensorView gradients) {
  RONDO_CHECK(gradients.data == gradients_.data, "gradients of another session");
  computed_ = CommClock::now();
  while (launched_ < buckets_.size()) launch();
  for (Flight& f : flights_) f.summed.wait(compute_);
  launched_ = 0;
  active_ = false;
}

void DeviceBucketReducer::applied() {
  int64_t last = computed_.time_since_epoch().count();
  const int64_t computed = last;
  for (Flight& f : flights_) {
    if (!f.work) continue;
    std::exchange(f.work, Work()).wait();
    times_.communication += seconds_between(f.began, f.ended);
    last = std::max<int64_t>(last, f.ended);
  }
  times_.exposed += seconds_between(computed, last);
}

}  // namespace rondo
