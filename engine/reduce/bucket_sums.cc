#include "engine/reduce/bucket_sums.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/graph/trace.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

double seconds_since(CommClock::time_point begin) {
  return std::chrono::duration<double>(CommClock::now() - begin).count();
}

// The node that writes a parameter's gradient last; parameters nobody uses are ready at the end.
size_t last_writer(const Graph& graph, const std::string& parameter) {
  size_t last = graph.nodes.empty() ? 0 : graph.nodes.size() - 1;
  const ValueId id = graph.find(parameter);
  const ValueId gradient = id == no_value ? no_value : graph.value(id).gradient;
  if (gradient == no_value) return last;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const auto& outputs = graph.nodes[i].outputs;
    if (std::find(outputs.begin(), outputs.end(), gradient) != outputs.end()) return i;
  }
  return last;
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const Graph& graph, const Parameters& parameters,
                                             int64_t first, int64_t size) {
  std::vector<GradientBucket> pieces;
  const auto& entries = parameters.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].frozen) continue;  // its gradients are zeros on all ranks
    const int64_t end =
        i + 1 < entries.size() ? entries[i + 1].offset : parameters.flat_size();  // with padding
    pieces.push_back({entries[i].offset, end, last_writer(graph, entries[i].name)});
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.after_node != b.after_node ? a.after_node < b.after_node : a.begin > b.begin;
  });
  std::vector<GradientBucket> buckets;
  bool open = false;
  for (const GradientBucket& p : pieces) {
    const bool adjacent = open && (p.end == buckets.back().begin || p.begin == buckets.back().end);
    if (adjacent) {
      GradientBucket& b = buckets.back();
      b = {std::min(b.begin, p.begin), std::max(b.end, p.end),
           std::max(b.after_node, p.after_node)};
    } else {
      buckets.push_back(p);
    }
    open = buckets.back().size() < (buckets.size() == 1 ? first : size);
  }
  return buckets;
}

// Block q of the flat array is in chunk q modulo the number of ranks, after those before it. The
// ring finishes a chunk of an all-reduce on the rank before the one that finishes it in a
// reduce-scatter, so that there it is chunk q - 1.
BucketLayout lay_out(const GradientBucket& b, int ranks, SumsAt sums) {
  constexpr int64_t block = BucketLayout::block_elements;
  const int64_t first = b.begin / block, blocks = (b.end + block - 1) / block - first;
  const int64_t shift = sums == SumsAt::own_blocks ? ranks - 1 : 0;
  BucketLayout layout;
  layout.chunk = (blocks + ranks - 1) / ranks * block;
  for (int64_t i = 0; i < std::min<int64_t>(ranks, blocks); ++i) {
    BlockRows r{.flat = (first + i) * block,
                .flat_stride = ranks * block,
                .packed = (first + i + shift) % ranks * layout.chunk,
                .packed_stride = block,
                .elements = block,
                .rows = (blocks - i + ranks - 1) / ranks};
    // The first and the last block may be cut.
    const int64_t last = r.flat + (r.rows - 1) * r.flat_stride;
    if (last + block > b.end) {
      --r.rows;
      const int64_t from = std::max(last, b.begin);
      layout.rows.push_back({from, 0, r.packed + r.rows * block, 0, b.end - from, 1});
    }
    if (r.rows > 0 && r.flat < b.begin) {
      layout.rows.push_back({b.begin, 0, r.packed, 0, r.flat + block - b.begin, 1});
      r.flat += r.flat_stride;
      r.packed += block;
      --r.rows;
    }
    if (r.rows > 0) layout.rows.push_back(r);
  }
  return layout;
}

bool comes_back(const BlockRows& rows, const BucketLayout& layout, SumsAt sums, int rank) {
  return sums == SumsAt::everywhere || rows.packed / layout.chunk == rank;
}

namespace {

// `all_reduce` of so many elements, and waiting for it.
LinkSpeed measure(ProcessGroup& control, int64_t large,
                  const std::function<void(int64_t elements)>& all_reduce) {
  const auto fastest = [&](int64_t elements, int repeats) {
    double least = 0;
    for (int i = 0; i <= repeats; ++i) {
      control.barrier().wait();
      const auto begin = CommClock::now();
      all_reduce(elements);
      const double seconds = seconds_since(begin);
      if (i == 1 || (i > 1 && seconds < least)) least = seconds;  // the first warms up
    }
    return least;
  };
  double times[] = {fastest(control.size(), 5), fastest(large, 5)};
  control.broadcast(TensorView(times, DType::f64, {2}), 0).wait();
  LinkSpeed link;
  link.latency = times[0];
  link.bandwidth = static_cast<double>(large * 4) / std::max(times[1] - times[0], 1e-9);
  return link;
}

}  // namespace

LinkSpeed measure_link(ProcessGroup& group) {
  // Large enough that its time is not lost in the noise of the latency.
  std::vector<float> data(size_t{1} << 20, 0.0f);
  return measure(group, static_cast<int64_t>(data.size()), [&](int64_t n) {
    group.all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
  });
}

LinkSpeed measure_link(DeviceGroup& sums, ProcessGroup& control) {
  // A GPU's link needs more to show its bandwidth.
  const int64_t large = sums.device().kind() == DeviceKind::cuda ? int64_t{1} << 22 : 1 << 20;
  const auto bytes = static_cast<size_t>(large) * sizeof(float);
  const Buffer data(sums.device(), bytes, "measuring the link");
  sums.device().fill_bytes(sums.stream(), data.data(), 0, bytes);
  return measure(control, large, [&](int64_t n) {
    sums.all_reduce(TensorView(data.data(), DType::f32, {n}), Reduction::sum).wait();
  });
}

int64_t bucket_bytes_for(const LinkSpeed& link) {
  const double bytes = 7 * link.latency * link.bandwidth;
  return static_cast<int64_t>(std::clamp(bytes, 65536.0, 67108864.0));
}

BucketSums::BucketSums(ProcessGroup& group, const Graph& graph, const Parameters& parameters,
                       int64_t bucket_bytes, size_t votes, SumsAt at)
    : Sums(group, parameters, votes),
      width_(static_cast<int64_t>(size_of(parameters.dtype()))),
      at_(at),
      rank_(group.rank()),
      in_place_(group.size() == 2 && at == SumsAt::everywhere),
      buckets_(
          gradient_buckets(graph, parameters, bucket_bytes / width_ / 4, bucket_bytes / width_)),
      flights_(buckets_.size()) {
  RONDO_CHECK(parameters.device().kind() == DeviceKind::cpu, "gradients must be a cpu's");
  for (size_t i = 0; i < buckets_.size() && !in_place_; ++i) {
    Flight& f = flights_[i];
    f.layout = lay_out(buckets_[i], group.size(), at);
    const auto bytes = static_cast<size_t>(f.layout.chunk * group.size() * width_);
    f.memory = Buffer(cpu_device(), std::max<size_t>(bytes, 1), "gradient buckets");
    std::memset(f.memory.data(), 0, f.memory.bytes());
  }
}

void BucketSums::copy(const Flight& flight, Copy direction) const {
  auto* const flat = static_cast<std::byte*>(gradients().data);
  auto* const packed = flight.memory.as<std::byte>();
  for (const BlockRows& r : flight.layout.rows) {
    if (direction == Copy::unpack && !comes_back(r, flight.layout, at_, rank_)) continue;
    const auto bytes = static_cast<size_t>(r.elements * width_);
    for (int64_t i = 0; i < r.rows; ++i) {
      std::byte* const here = flat + (r.flat + i * r.flat_stride) * width_;
      std::byte* const there = packed + (r.packed + i * r.packed_stride) * width_;
      direction == Copy::pack ? std::memcpy(there, here, bytes) : std::memcpy(here, there, bytes);
    }
  }
}

void BucketSums::launch() {
  const GradientBucket& bucket = buckets_[launched_];
  Flight& flight = flights_[launched_];
  ++launched_;
  if (in_place_) {
    std::byte* const begin = static_cast<std::byte*>(gradients().data) + bucket.begin * width_;
    flight.work =
        group().all_reduce(TensorView(begin, gradients().dtype, {bucket.size()}), Reduction::sum);
    return;
  }
  copy(flight, Copy::pack);
  const TensorView packed(flight.memory.data(), gradients().dtype,
                          {flight.layout.chunk * group().size()});
  flight.work = at_ == SumsAt::everywhere ? group().all_reduce(packed, Reduction::sum)
                                          : group().reduce_scatter(packed, Reduction::sum);
}

void BucketSums::mark(size_t node) {
  if (!active_) return;
  while (launched_ < buckets_.size() && buckets_[launched_].after_node <= node) launch();
}

void BucketSums::sum_gradients() {
  while (launched_ < buckets_.size()) launch();
  for (Flight& flight : flights_) {
    const auto begin = CommClock::now();
    flight.work.wait();
    times_.exposed += seconds_since(begin);
    times_.communication +=
        std::chrono::duration<double>(flight.work.end() - flight.work.start()).count();
    if (Trace* const trace = Trace::current()) {
      trace->add(TraceSpan::Track::messages, "gradients", flight.work.start(), flight.work.end());
    }
    if (!in_place_) copy(flight, Copy::unpack);
  }
  launched_ = 0;
  active_ = false;
}

}  // namespace rondo
