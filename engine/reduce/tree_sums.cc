#include "engine/reduce/tree_sums.h"

#include <algorithm>
#include <cstring>

#include "comm/group/collectives.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr uint32_t nodes_tag = 0x6e6f6465, sums_tag = 0x73756d73;

PartRange left_half(PartRange r) { return {r.begin, r.begin + r.size() / 2}; }
PartRange right_half(PartRange r) { return {r.begin + r.size() / 2, r.end}; }

void collect_nodes(PartRange node, PartRange range, std::vector<PartRange>& out) {
  if (node.end <= range.begin || node.begin >= range.end) return;
  if (node.begin >= range.begin && node.end <= range.end) {
    out.push_back(node);
    return;
  }
  collect_nodes(left_half(node), range, out);
  collect_nodes(right_half(node), range, out);
}

template <class T>
void add(T* sum, const T* other, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += other[i];
}

// The sum of `node` ends up at at(node.begin).
template <class T, class At>
void add_tree(PartRange node, int64_t n, const At& at) {
  if (node.size() == 1) return;
  add_tree<T>(left_half(node), n, at);
  add_tree<T>(right_half(node), n, at);
  add(at(node.begin), at(right_half(node).begin), n);
}

void wait_all(std::vector<Work>& works) {
  for (Work& w : works) w.wait();
  works.clear();
}

}  // namespace

PartRange parts_of_rank(int parts, int rank, int world_size) {
  RONDO_CHECK(rank >= 0 && rank < world_size, "rank ", rank, " of ", world_size);
  return {parts * rank / world_size, parts * (rank + 1) / world_size};
}

std::vector<PartRange> tree_nodes_within(int parts, PartRange range) {
  std::vector<PartRange> nodes;
  collect_nodes({0, parts}, range, nodes);
  return nodes;
}

TreeSums::TreeSums(ProcessGroup& group, int parts, const Parameters& parameters, Stream& compute,
                   size_t votes)
    : Sums(group, parameters, votes),
      count_(parts),
      own_(parts_of_rank(parts, group.rank(), group.size())),
      compute_(compute),
      parts_(static_cast<size_t>(own_.size())),
      filled_(static_cast<size_t>(own_.size())) {
  RONDO_CHECK(parts >= group.size(), parts, " parts for ", group.size(), " ranks");
  for (int r = 0; r < group.size(); ++r) {
    const auto part = tree_nodes_within(parts, parts_of_rank(parts, r, group.size()));
    of_.emplace_back(nodes_.size(), nodes_.size() + part.size());
    nodes_.insert(nodes_.end(), part.begin(), part.end());
  }
}

void TreeSums::allocate() {
  const TensorView& gradients = this->gradients();
  for (Buffer& b : parts_) {
    if (b.bytes() < gradients.bytes())
      b = Buffer(cpu_device(), gradients.bytes(), "gradients of parts");
  }
  const size_t chunk =
      static_cast<size_t>(chunk_range(gradients.numel(), group().size(), group().rank()).size());
  const size_t bytes = std::max<size_t>(1, nodes_.size() * chunk * size_of(gradients.dtype));
  if (received_.bytes() < bytes) received_ = Buffer(cpu_device(), bytes, "parts of gradients");
  if (device().kind() != DeviceKind::cpu && staging_.bytes() < gradients.bytes()) {
    staging_ = StagingBuffer(device(), gradients.bytes(), "gradients by way of the host");
  }
}

// Where the host reads and writes them.
TensorView TreeSums::on_host() const {
  TensorView host = gradients();
  if (staging_.data()) host.data = staging_.data();
  return host;
}

void TreeSums::take(int index) {
  RONDO_CHECK(index >= own_.begin && index < own_.end, "part ", index, " of another rank");
  allocate();
  const TensorView all = gradients(), g = on_host();
  if (g.data != all.data) device().copy(compute_, g.data, all.data, g.bytes());
  compute_.synchronize();
  char& filled = filled_[static_cast<size_t>(index - own_.begin)];
  if (!filled) {
    copy_bytes(gradient_of(index), g.data, g.bytes());
  } else if (g.dtype == DType::f64) {
    add(reinterpret_cast<double*>(gradient_of(index)), g.as<double>(), g.numel());
  } else {
    add(reinterpret_cast<float*>(gradient_of(index)), g.as<float>(), g.numel());
  }
  filled = 1;
  device().fill_bytes(compute_, all.data, 0, all.bytes());
}

template <class T>
void TreeSums::add_nodes(int64_t n) {
  const auto at = [&](int index) { return reinterpret_cast<T*>(gradient_of(index)); };
  const auto [first, last] = of_[static_cast<size_t>(group().rank())];
  for (size_t i = first; i < last; ++i) add_tree<T>(nodes_[i], n, at);
}

// Every rank gets its chunk of all nodes.
void TreeSums::exchange_nodes(const TensorView& gradients) {
  const size_t width = size_of(gradients.dtype);
  const int world = group().size(), me = group().rank();
  const ChunkRange mine = chunk_range(gradients.numel(), world, me);
  const size_t bytes = static_cast<size_t>(mine.size()) * width;
  std::vector<Work> works;
  for (int r = 0; r < world; ++r) {
    for (size_t i = of_[static_cast<size_t>(r)].first; i < of_[static_cast<size_t>(r)].second;
         ++i) {
      std::byte* into = received_.as<std::byte>() + i * bytes;
      if (r == me) {
        copy_bytes(into, gradient_of(nodes_[i].begin) + static_cast<size_t>(mine.begin) * width,
                   bytes);
      } else {
        works.push_back(group().recv(r, nodes_tag, {into, bytes}));
      }
    }
  }
  const auto [first, last] = of_[static_cast<size_t>(me)];
  for (int r = 0; r < world; ++r) {
    if (r == me) continue;
    const ChunkRange c = chunk_range(gradients.numel(), world, r);
    for (size_t i = first; i < last; ++i) {
      works.push_back(
          group().send(r, nodes_tag,
                       {gradient_of(nodes_[i].begin) + static_cast<size_t>(c.begin) * width,
                        static_cast<size_t>(c.size()) * width}));
    }
  }
  wait_all(works);
}

// The rest of the tree, over the nodes received.
template <class T>
void TreeSums::finish_chunk(TensorView gradients, int64_t begin, int64_t end) {
  const int64_t n = end - begin;
  T* const parts = received_.as<T>();
  const auto at = [&](int index) {
    const auto node = std::find_if(nodes_.begin(), nodes_.end(),
                                   [&](const PartRange& r) { return r.begin == index; });
    return parts + (node - nodes_.begin()) * n;
  };
  const std::function<void(PartRange)> sum = [&](PartRange node) {
    if (std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end()) return;
    sum(left_half(node));
    sum(right_half(node));
    add(at(node.begin), at(right_half(node).begin), n);
  };
  sum({0, count_});
  std::copy_n(at(0), n, gradients.as<T>() + begin);
}

void TreeSums::exchange_sums(const TensorView& gradients) {
  const size_t width = size_of(gradients.dtype);
  const int world = group().size(), me = group().rank();
  const auto part = [&](int r) {
    const ChunkRange c = chunk_range(gradients.numel(), world, r);
    return std::span<std::byte>(
        static_cast<std::byte*>(gradients.data) + static_cast<size_t>(c.begin) * width,
        static_cast<size_t>(c.size()) * width);
  };
  std::vector<Work> works;
  for (int r = 0; r < world; ++r) {
    if (r != me) works.push_back(group().recv(r, sums_tag, part(r)));
  }
  for (int r = 0; r < world; ++r) {
    if (r != me) works.push_back(group().send(r, sums_tag, part(me)));
  }
  wait_all(works);
}

void TreeSums::sum_gradients() {
  allocate();
  const TensorView gradients = on_host(), of_device = this->gradients();
  for (int s = own_.begin; s < own_.end; ++s) {
    char& filled = filled_[static_cast<size_t>(s - own_.begin)];
    if (!filled) std::memset(gradient_of(s), 0, gradients.bytes());
    filled = 0;
  }
  const bool wide = gradients.dtype == DType::f64;
  wide ? add_nodes<double>(gradients.numel()) : add_nodes<float>(gradients.numel());
  const auto begin = CommClock::now();
  exchange_nodes(gradients);
  const ChunkRange mine = chunk_range(gradients.numel(), group().size(), group().rank());
  wide ? finish_chunk<double>(gradients, mine.begin, mine.end)
       : finish_chunk<float>(gradients, mine.begin, mine.end);
  exchange_sums(gradients);
  if (gradients.data != of_device.data) {
    device().copy(compute_, of_device.data, gradients.data, gradients.bytes());
    compute_.synchronize();
  }
  const std::chrono::duration<double> took = CommClock::now() - begin;
  times_.communication += took.count();
  times_.exposed += took.count();
}

}  // namespace rondo
