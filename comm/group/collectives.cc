#include "comm/group/collectives.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "comm/group/wire_arithmetic.h"

namespace rondo {

ChunkRange chunk_range(int64_t n, int chunks, int chunk) {
  return {n * chunk / chunks, n * (chunk + 1) / chunks};
}

namespace {

int wrap(int rank, int size) { return ((rank % size) + size) % size; }

// Bytes of a message that is rounded on its way. What it is made of and its staging are six times
// as much, and three messages are under way: longer ones fall out of the cache (bench/collectives:
// a reduction of 64 MB takes 7 ms of a processor, 8 with messages of 2 MB).
constexpr int64_t longest_rounded = int64_t{512} << 10;

// The messages of a ring. It has 2(N-1) steps, reduce-scatter and then all-gather, in each of which
// every rank passes one chunk to its right neighbour, cut into pieces. A few pieces go through all
// steps before the next ones start: they stay in the processor's cache from the first partial sum
// to the last copy, and while one is on its way others are added. Piece j of a step can leave as
// soon as piece j of the step before has arrived. T: the elements; W: what travels, T itself or
// bf16.
template <class T, class W = T>
class Ring {
 public:
  static constexpr bool converts = !std::is_same_v<T, W>;

  Ring(Link& link, T* data, int64_t n, std::span<std::byte> staging)
      : link_(link), data_(data), n_(n), staging_(reinterpret_cast<W*>(staging.data())) {
    piece_ = static_cast<int64_t>(staging.size() / (ring_staging_messages * sizeof(W)));
    if constexpr (converts) piece_ = std::min(piece_, longest_rounded / int64_t{sizeof(W)});
    RONDO_CHECK(piece_ >= 1, staging.size(), " bytes of staging memory");
    adds_ = !converts && std::is_floating_point_v<T> && link.adds_on_arrival(left());
    const int64_t longest = (n + link.size() - 1) / link.size();
    pieces_ = (longest + piece_ - 1) / piece_;
  }

  void all_reduce() { run(0, 2 * (link_.size() - 1), 0); }
  // Afterwards this rank has the sum of chunk `rank`.
  void reduce_scatter() { run(0, link_.size() - 1, 1); }
  // Before, this rank has chunk `rank`.
  void all_gather() { run(link_.size() - 1, 2 * (link_.size() - 1), 1); }

 private:
  struct Message {
    Work send, recv;
    ChunkRange range;  // of what arrives
    int step = 0;
  };

  int left() const { return wrap(link_.rank() - 1, link_.size()); }
  bool sums(int step) const { return step < link_.size() - 1; }

  template <class E>
  static std::span<std::byte> bytes_of(E* first, const ChunkRange& r) {
    return std::as_writable_bytes(std::span(first, static_cast<size_t>(r.size())));
  }
  // One for each message under way; when messages are converted, as many again for what leaves.
  W* slot(int64_t k, bool leaves = false) const {
    return staging_ + (k % ring_messages_ahead + (leaves ? ring_messages_ahead : 0)) * piece_;
  }
  std::span<std::byte> target(int64_t k, const Message& m) const {
    if constexpr (!converts) {
      if (adds_ || !sums(m.step)) return bytes_of(data_ + m.range.begin, m.range);
    }
    return bytes_of(slot(k), m.range);
  }
  std::span<const std::byte> leaving(int64_t k, const ChunkRange& r) const {
    if constexpr (converts) {
      W* out = slot(k, true);
      wire_arithmetic().narrow(data_ + r.begin, out, r.size());
      return bytes_of(out, r);
    } else {
      return bytes_of(data_ + r.begin, r);
    }
  }
  void landed(int64_t k, const Message& m) const {
    const W* arrived = slot(k);
    T* own = data_ + m.range.begin;
    const int64_t n = m.range.size();
    if constexpr (converts) {
      const WireArithmetic& arithmetic = wire_arithmetic();
      if (!sums(m.step)) return arithmetic.widen(arrived, own, n);
      // A sum that leaves as it is becomes what the others get.
      const bool final = rounds_ && m.step == link_.size() - 2;
      (final ? arithmetic.add_and_round : arithmetic.add)(own, arrived, n);
    } else {
      if (!sums(m.step) || adds_) return;
      for (int64_t i = 0; i < n; ++i) own[i] += arrived[i];
    }
  }

  ChunkRange piece_of(int chunk, int64_t j) const {
    const ChunkRange c = chunk_range(n_, link_.size(), wrap(chunk, link_.size()));
    const int64_t begin = std::min(c.begin + j * piece_, c.end);
    return {begin, std::min(begin + piece_, c.end)};
  }

  Message& entry(int64_t k) { return messages_[static_cast<size_t>(k % ring_messages_ahead)]; }

  // Message k of a run of `steps` steps: the groups of pieces one after the other, their steps one
  // after the other, in each of them the pieces.
  struct Place {
    int step;
    int64_t piece, width;  // pieces of the group
  };
  Place place(int64_t k) const {
    const int64_t group = k / (ring_messages_ahead * steps_) * ring_messages_ahead;
    const int64_t width = std::min<int64_t>(ring_messages_ahead, pieces_ - group);
    const int64_t within = k - group * steps_;
    return {first_ + static_cast<int>(within / width), group + within % width, width};
  }
  int chunk_sent(int step) const { return link_.rank() - shift_ - step; }

  // Its place among the messages under way must be free but for its send.
  void post_recv(int64_t k) {
    Message& m = entry(k);
    if (m.send) link_.wait(std::exchange(m.send, Work()));
    const Place p = place(k);
    m.step = p.step;
    m.range = piece_of(chunk_sent(p.step) - 1, p.piece);
    if (m.range.size() == 0) return;
    if (adds_ && sums(m.step)) {
      constexpr Element element = sizeof(T) == 4 ? Element::f32 : Element::f64;
      m.recv = link_.recv_add(left(), target(k, m), element);
    } else {
      m.recv = link_.recv(left(), target(k, m));
    }
  }
  void post_send(int64_t k) {
    const Place p = place(k);
    const ChunkRange out = piece_of(chunk_sent(p.step), p.piece);
    const int right = wrap(link_.rank() + 1, link_.size());
    if (out.size() > 0) entry(k).send = link_.send(right, leaving(k, out));
  }
  void finish_recv(int64_t k) {
    Message& m = entry(k);
    if (m.recv) link_.wait(std::exchange(m.recv, Work()));
    if (m.range.size() > 0) landed(k, m);
  }

  // Receives are posted as early as there is memory for them: those of the last steps land in the
  // chunk that this rank sent before, whose sum cannot come back before it has left.
  void run(int first, int end, int shift) {
    first_ = first;
    steps_ = end - first;
    shift_ = shift;
    rounds_ = first == 0 && end > link_.size() - 1;
    const int64_t messages = pieces_ * steps_;
    int64_t awaited = 0, landed = 0;
    for (int64_t k = 0; k < messages; ++k) {
      const Place p = place(k);
      if (p.step > first_) {  // the same piece one step earlier
        while (landed <= k - p.width) finish_recv(landed++);
      }
      while (landed <= k - ring_messages_ahead) finish_recv(landed++);
      while (awaited < std::min(messages, landed + ring_messages_ahead)) post_recv(awaited++);
      post_send(k);
    }
    while (landed < messages) finish_recv(landed++);
    for (Message& m : messages_) {
      if (m.send) link_.wait(std::exchange(m.send, Work()));
    }
  }

  Link& link_;
  T* const data_;
  const int64_t n_;
  W* const staging_;
  bool adds_ = false;   // the transport does
  int64_t piece_ = 0;   // elements per message
  int64_t pieces_ = 0;  // messages per step
  // In step s of this run, from first_ on, this rank sends chunk rank - shift_ - s.
  int first_ = 0, steps_ = 0, shift_ = 0;
  bool rounds_ = false;  // what arrives in the last step of sums leaves as it is
  std::array<Message, ring_messages_ahead> messages_;
};

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

// f(ring) with the ring for this dtype and wire.
template <class F>
void with_ring(Link& link, const TensorView& data, std::span<std::byte> staging, Wire wire, F f) {
  RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, "a sum of ",
              name_of(data.dtype), ", expected f32 or f64");
  if (link.size() == 1 || data.numel() == 0) return;
  if (data.dtype == DType::f64) {
    Ring<double> ring(link, data.as<double>(), data.numel(), staging);
    f(ring);
  } else if (wire == Wire::bf16) {
    Ring<float, bf16> ring(link, data.as<float>(), data.numel(), staging);
    f(ring);
  } else {
    Ring<float> ring(link, data.as<float>(), data.numel(), staging);
    f(ring);
  }
}

template <class E>
void gather_as(Link& link, const TensorView& data, std::span<std::byte> staging) {
  Ring<E>(link, static_cast<E*>(data.data), data.numel(), staging).all_gather();
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
