#include "comm/group/collectives.h"

#include <algorithm>
#include <array>
#include <utility>

#include "comm/group/ring.h"

namespace rondo {

ChunkRange chunk_range(int64_t n, int chunks, int chunk) {
  return {n * chunk / chunks, n * (chunk + 1) / chunks};
}

namespace {

int wrap(int rank, int size) { return ((rank % size) + size) % size; }

// Two ranks that send each other everything and add send as much as by a ring, in one round instead
// of two. It takes one more pass over memory, which counts for more than a round in longer arrays
// (bench/collectives: at 256 KB through shared memory 37 us, 43 by the ring).
constexpr size_t longest_swap = size_t{256} << 10;

template <class T>
void swap_and_add(Link& link, T* data, int64_t n, std::span<std::byte> staging) {
  const std::span own(data, static_cast<size_t>(n));
  const std::span arrived(reinterpret_cast<T*>(staging.data()), own.size());
  const int other = 1 - link.rank();
  Work recv = link.recv(other, std::as_writable_bytes(arrived));
  Work send = link.send(other, std::as_bytes(own));
  link.wait(std::move(recv));
  link.wait(std::move(send));
  for (size_t i = 0; i < own.size(); ++i) own[i] += arrived[i];
}

constexpr size_t most_rounds = 32;  // more than an int of ranks has

int greatest_power_of_two(int n) {
  int power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

// One rank's part in a recursive doubling over so many numbers.
class Doubling {
 public:
  Doubling(Link& link, double* data, size_t n, std::span<std::byte> staging)
      : link_(link),
        own_(data, n),
        arrived_(reinterpret_cast<double*>(staging.data())),
        paired_(greatest_power_of_two(link.size())) {}

  void run() {
    const int rank = link_.rank();
    if (rank >= paired_) {  // one that has no partner in the rounds lets another one add for it
      Work result = link_.recv(rank - paired_, std::as_writable_bytes(slot(0)));
      give(rank - paired_);
      link_.wait(std::move(result));
      std::copy(slot(0).begin(), slot(0).end(), own_.begin());
      return;
    }
    const bool adds_for_another = rank + paired_ < link_.size();
    // All at once: a message leaves when it is known to be awaited.
    std::array<Work, most_rounds> recvs;
    size_t round = 0;
    if (adds_for_another) recvs[round] = link_.recv(rank + paired_, bytes_of_slot(0)), ++round;
    for (int distance = 1; distance < paired_; distance *= 2, ++round) {
      recvs[round] = link_.recv(rank ^ distance, bytes_of_slot(round));
    }
    round = 0;
    if (adds_for_another) add(std::move(recvs[round]), round), ++round;
    for (int distance = 1; distance < paired_; distance *= 2, ++round) {
      give(rank ^ distance);
      add(std::move(recvs[round]), round);
    }
    if (adds_for_another) give(rank + paired_);
  }

 private:
  std::span<double> slot(size_t i) const { return {arrived_ + i * own_.size(), own_.size()}; }
  std::span<std::byte> bytes_of_slot(size_t i) const { return std::as_writable_bytes(slot(i)); }
  void give(int to) { link_.wait(link_.send(to, std::as_bytes(own_))); }
  void add(Work recv, size_t i) {
    link_.wait(std::move(recv));
    for (size_t k = 0; k < own_.size(); ++k) own_[k] += slot(i)[k];
  }

  Link& link_;
  const std::span<double> own_;
  double* const arrived_;
  const int paired_;
};

void require_summable(const TensorView& data) {
  RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, "a sum of ",
              name_of(data.dtype), ", expected f32 or f64");
}

// f(ring) with the ring of all ranks for this dtype and wire.
template <class F>
void with_ring(Link& link, const TensorView& data, std::span<std::byte> staging, Wire wire, F f) {
  require_summable(data);
  if (link.size() == 1 || data.numel() == 0) return;
  if (data.dtype == DType::f64) {
    Ring<double> ring(link, Circle(link), data.as<double>(), data.numel(), staging);
    f(ring);
  } else if (wire == Wire::bf16) {
    Ring<float, bf16> ring(link, Circle(link), data.as<float>(), data.numel(), staging);
    f(ring);
  } else {
    Ring<float> ring(link, Circle(link), data.as<float>(), data.numel(), staging);
    f(ring);
  }
}

template <class T, class W>
void sum_by_machines(Link& link, const Machines& m, T* data, int64_t n,
                     std::span<std::byte> staging) {
  const Circle inside(m.neighbours, m.place), between(m.counterparts, m.machine);
  Ring<T> own_machine(link, inside, data, n, staging);
  own_machine.reduce_scatter();
  const ChunkRange own = chunk_range(n, inside.size(), m.place);
  if (own.size() > 0) {
    Ring<T, W>(link, between, data + own.begin, own.size(), staging).all_reduce();
  }
  own_machine.all_gather();
}

template <class E>
void gather_as(Link& link, const TensorView& data, std::span<std::byte> staging) {
  Ring<E>(link, Circle(link), static_cast<E*>(data.data), data.numel(), staging).all_gather();
}

}  // namespace

void ring_all_reduce(Link& link, const TensorView& data, std::span<std::byte> staging, Wire wire) {
  const bool exact = wire == Wire::exact || data.dtype == DType::f64;
  if (link.size() == 2 && exact && data.bytes() <= std::min(longest_swap, staging.size())) {
    if (data.numel() == 0) return;
    return data.dtype == DType::f64 ? swap_and_add(link, data.as<double>(), data.numel(), staging)
                                    : swap_and_add(link, data.as<float>(), data.numel(), staging);
  }
  with_ring(link, data, staging, wire, [](auto& ring) { ring.all_reduce(); });
}

std::optional<Machines> machines_of(const std::vector<int>& machine_of, int rank) {
  std::vector<int> order;  // of machines, by their lowest rank
  std::vector<std::vector<int>> ranks;
  for (size_t r = 0; r < machine_of.size(); ++r) {
    const auto found = std::find(order.begin(), order.end(), machine_of[r]);
    const auto at = static_cast<size_t>(found - order.begin());
    if (found == order.end()) {
      order.push_back(machine_of[r]);
      ranks.emplace_back();
    }
    ranks[at].push_back(static_cast<int>(r));
  }
  const size_t places = ranks.empty() ? 0 : ranks.front().size();
  if (ranks.size() < 2 || places < 2) return {};
  Machines m;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].size() != places) return {};
    const auto own = std::find(ranks[i].begin(), ranks[i].end(), rank);
    if (own == ranks[i].end()) continue;
    m.machine = static_cast<int>(i);
    m.place = static_cast<int>(own - ranks[i].begin());
    m.neighbours = ranks[i];
  }
  RONDO_CHECK(!m.neighbours.empty(), "rank ", rank, " of ", machine_of.size());
  for (const auto& machine : ranks) {
    m.counterparts.push_back(machine[static_cast<size_t>(m.place)]);
  }
  return m;
}

void hierarchical_all_reduce(Link& link, const Machines& machines, const TensorView& data,
                             std::span<std::byte> staging, Wire wire) {
  require_summable(data);
  const int64_t n = data.numel();
  if (n == 0) return;
  if (data.dtype == DType::f64) {
    sum_by_machines<double, double>(link, machines, data.as<double>(), n, staging);
  } else if (wire == Wire::bf16) {
    sum_by_machines<float, bf16>(link, machines, data.as<float>(), n, staging);
  } else {
    sum_by_machines<float, float>(link, machines, data.as<float>(), n, staging);
  }
}

bool fits_doubling(const TensorView& data, int ranks, size_t staging_bytes) {
  size_t rounds = 1;
  for (int p = greatest_power_of_two(ranks); p > 1; p /= 2) ++rounds;
  return data.dtype == DType::f64 && data.numel() <= most_doubled &&
         rounds * data.bytes() <= staging_bytes;
}

void doubling_all_reduce(Link& link, const TensorView& data, std::span<std::byte> staging) {
  RONDO_CHECK(fits_doubling(data, link.size(), staging.size()), "a doubling of ", data.numel(), " ",
              name_of(data.dtype));
  if (link.size() == 1 || data.numel() == 0) return;
  Doubling(link, data.as<double>(), static_cast<size_t>(data.numel()), staging).run();
}

void ring_reduce_scatter(Link& link, const TensorView& data, std::span<std::byte> staging,
                         Wire wire) {
  with_ring(link, data, staging, wire, [](auto& ring) { ring.reduce_scatter(); });
}

void ring_all_gather(Link& link, const TensorView& data, std::span<std::byte> staging) {
  if (link.size() == 1 || data.numel() == 0) return;
  // Elements are only copied.
  switch (size_of(data.dtype)) {
    case 1:
      return gather_as<uint8_t>(link, data, staging);
    case 2:
      return gather_as<uint16_t>(link, data, staging);
    case 4:
      return gather_as<uint32_t>(link, data, staging);
    default:
      return gather_as<uint64_t>(link, data, staging);
  }
}

void tree_broadcast(Link& link, std::span<std::byte> data, int root) {
  const int size = link.size();
  RONDO_CHECK(root >= 0 && root < size, "root ", root, " of a group of ", size);
  const int place = wrap(link.rank() - root, size);  // the root is at place 0
  const auto at = [&](int p) { return wrap(p + root, size); };
  int bit = 1;
  while (bit < size && (place & bit) == 0) bit <<= 1;
  if (place != 0) link.wait(link.recv(at(place - bit), data));
  std::vector<Work> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (place + bit < size) sends.push_back(link.send(at(place + bit), data));
  }
  for (Work& send : sends) link.wait(std::move(send));
}

void dissemination_barrier(Link& link) {
  for (int distance = 1; distance < link.size(); distance *= 2) {
    // A byte, because not every backend carries empty messages.
    const std::byte token{};
    std::byte arrived{};
    Work recv = link.recv(wrap(link.rank() - distance, link.size()), std::span(&arrived, 1));
    Work send = link.send(wrap(link.rank() + distance, link.size()), std::span(&token, 1));
    link.wait(std::move(recv));
    link.wait(std::move(send));
  }
}

}  // namespace rondo
