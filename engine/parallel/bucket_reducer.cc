#include "engine/parallel/bucket_reducer.h"

#include <algorithm>
#include <cstring>

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

std::vector<GradientBucket> plan_buckets(const Graph& graph, const Parameters& parameters,
                                         int64_t first, int64_t size) {
  std::vector<GradientBucket> pieces;
  const auto& entries = parameters.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
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

LinkSpeed measure_link(ProcessGroup& group) {
  std::vector<float> data(size_t{1} << 16, 0.0f);
  const auto fastest = [&](int64_t elements, int repeats) {
    double least = 0;
    for (int i = 0; i <= repeats; ++i) {
      group.barrier().wait();
      const auto begin = CommClock::now();
      group.all_reduce(TensorView(data.data(), DType::f32, {elements}), Reduction::sum).wait();
      const double seconds = seconds_since(begin);
      if (i == 1 || (i > 1 && seconds < least)) least = seconds;  // the first warms up
    }
    return least;
  };
  const auto large = static_cast<int64_t>(data.size());
  double times[] = {fastest(group.size(), 5), fastest(large, 3)};
  group.broadcast(TensorView(times, DType::f64, {2}), 0).wait();
  LinkSpeed link;
  link.latency = times[0];
  link.bandwidth = static_cast<double>(large * 4) / std::max(times[1] - times[0], 1e-9);
  return link;
}

int64_t bucket_bytes_for(const LinkSpeed& link) {
  const double bytes = 7 * link.latency * link.bandwidth;
  return static_cast<int64_t>(std::clamp(bytes, 65536.0, 67108864.0));
}

BucketReducer::BucketReducer(ProcessGroup& group, const Graph& graph, const Parameters& parameters,
                             int64_t bucket_bytes, size_t ballot)
    : RankReducer(group, ballot),
      gradients_(parameters.gradients()),
      width_(static_cast<int64_t>(size_of(parameters.dtype()))),
      buckets_(plan_buckets(graph, parameters, bucket_bytes / width_ / 4, bucket_bytes / width_)),
      flights_(buckets_.size()) {
  RONDO_CHECK(parameters.device().host_memory(), "gradients must be in host memory");
  for (size_t i = 0; i < buckets_.size(); ++i) {
    // Blocks of each chunk, at most.
    std::vector<int64_t> counts(static_cast<size_t>(group.size()));
    const GradientBucket& b = buckets_[i];
    for (int64_t at = b.begin; at < b.end; at = (at / block_elements + 1) * block_elements) {
      ++counts[static_cast<size_t>(at / block_elements % group.size())];
    }
    flights_[i].chunk = *std::max_element(counts.begin(), counts.end()) * block_elements;
    const auto bytes = static_cast<size_t>(flights_[i].chunk * group.size() * width_);
    flights_[i].memory = Buffer(cpu_device(), std::max<size_t>(bytes, 1), "gradient buckets");
    std::memset(flights_[i].memory.data(), 0, flights_[i].memory.bytes());
  }
}

// copy(flat, packed, bytes) for the blocks of a bucket.
template <class Copy>
void BucketReducer::for_blocks(size_t index, Copy copy) {
  const GradientBucket& b = buckets_[index];
  Flight& flight = flights_[index];
  const int ranks = group().size();
  std::vector<int64_t> next(static_cast<size_t>(ranks));
  for (int64_t at = b.begin; at < b.end;) {
    const int64_t end = std::min(b.end, (at / block_elements + 1) * block_elements);
    const auto chunk = static_cast<size_t>(at / block_elements % ranks);
    const int64_t packed =
        static_cast<int64_t>(chunk) * flight.chunk + next[chunk]++ * block_elements;
    copy(static_cast<std::byte*>(gradients_.data) + at * width_,
         flight.memory.as<std::byte>() + packed * width_, static_cast<size_t>((end - at) * width_));
    at = end;
  }
}

void BucketReducer::launch() {
  Flight& flight = flights_[launched_];
  for_blocks(launched_, [](std::byte* flat, std::byte* packed, size_t bytes) {
    std::memcpy(packed, flat, bytes);
  });
  flight.work = group().all_reduce(
      TensorView(flight.memory.data(), gradients_.dtype, {flight.chunk * group().size()}),
      Reduction::sum);
  ++launched_;
}

void BucketReducer::after_node(size_t node) {
  if (!active_) return;
  while (launched_ < buckets_.size() && buckets_[launched_].after_node <= node) launch();
}

void BucketReducer::sum_gradients(TensorView gradients) {
  RONDO_CHECK(gradients.data == gradients_.data, "gradients of another session");
  while (launched_ < buckets_.size()) launch();
  for (size_t i = 0; i < flights_.size(); ++i) {
    const auto begin = CommClock::now();
    Work& work = flights_[i].work;
    work.wait();
    times_.exposed += seconds_since(begin);
    times_.communication += std::chrono::duration<double>(work.end() - work.start()).count();
    for_blocks(i, [](std::byte* flat, std::byte* packed, size_t bytes) {
      std::memcpy(flat, packed, bytes);
    });
  }
  launched_ = 0;
  active_ = false;
}

}  // namespace rondo
