// Ring: reduce-scatter and all-gather among the ranks of a Circle, the parts that collectives.cc is
// made of. Internal to comm/group.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/group/collectives.h"
#include "comm/group/link.h"
#include "comm/group/wire_arithmetic.h"

namespace rondo {

// Ranks of a group in the order of a ring, this one among them.
class Circle {
 public:
  // Of all ranks of the link.
  explicit Circle(const Link& link) : place_(link.rank()), size_(link.size()) {}
  // Of these; must outlive it. This rank is `ranks[place]`.
  Circle(const std::vector<int>& ranks, int place)
      : ranks_(&ranks), place_(place), size_(static_cast<int>(ranks.size())) {}

  int place() const { return place_; }
  int size() const { return size_; }
  int wrap(int place) const { return (place % size_ + size_) % size_; }
  int rank_at(int place) const {
    const int at = wrap(place);
    return ranks_ ? (*ranks_)[static_cast<size_t>(at)] : at;
  }

 private:
  const std::vector<int>* ranks_ = nullptr;
  int place_, size_;
};

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

  Ring(Link& link, const Circle& circle, T* data, int64_t n, std::span<std::byte> staging)
      : link_(link),
        circle_(circle),
        data_(data),
        n_(n),
        staging_(reinterpret_cast<W*>(staging.data())) {
    piece_ = static_cast<int64_t>(staging.size() / (ring_staging_messages * sizeof(W)));
    if constexpr (converts) piece_ = std::min(piece_, longest_rounded / int64_t{sizeof(W)});
    RONDO_CHECK(piece_ >= 1, staging.size(), " bytes of staging memory");
    adds_ = !converts && std::is_floating_point_v<T> && link.adds_on_arrival(left());
    const int64_t longest = (n + circle.size() - 1) / circle.size();
    pieces_ = (longest + piece_ - 1) / piece_;
  }

  void all_reduce() { run(0, 2 * (circle_.size() - 1), 0); }
  // Afterwards this rank has the sum of the chunk of its place.
  void reduce_scatter() { run(0, circle_.size() - 1, 1); }
  // Before, this rank has the chunk of its place.
  void all_gather() { run(circle_.size() - 1, 2 * (circle_.size() - 1), 1); }

 private:
  struct Message {
    Work send, recv;
    ChunkRange range;  // of what arrives
    int step = 0;
  };

  int left() const { return circle_.rank_at(circle_.place() - 1); }
  int right() const { return circle_.rank_at(circle_.place() + 1); }
  bool sums(int step) const { return step < circle_.size() - 1; }

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
      const bool final = rounds_ && m.step == circle_.size() - 2;
      (final ? arithmetic.add_and_round : arithmetic.add)(own, arrived, n);
    } else {
      if (!sums(m.step) || adds_) return;
      for (int64_t i = 0; i < n; ++i) own[i] += arrived[i];
    }
  }

  ChunkRange piece_of(int chunk, int64_t j) const {
    const ChunkRange c = chunk_range(n_, circle_.size(), circle_.wrap(chunk));
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
  int chunk_sent(int step) const { return circle_.place() - shift_ - step; }

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
    if (out.size() > 0) entry(k).send = link_.send(right(), leaving(k, out));
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
    rounds_ = first == 0 && end > circle_.size() - 1;
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
  const Circle circle_;
  T* const data_;
  const int64_t n_;
  W* const staging_;
  bool adds_ = false;   // the transport does
  int64_t piece_ = 0;   // elements per message
  int64_t pieces_ = 0;  // messages per step
  // In step s of this run, from first_ on, this rank sends chunk place - shift_ - s.
  int first_ = 0, steps_ = 0, shift_ = 0;
  bool rounds_ = false;  // what arrives in the last step of sums leaves as it is
  std::array<Message, ring_messages_ahead> messages_;
};

}  // namespace rondo
