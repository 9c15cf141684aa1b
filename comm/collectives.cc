#include "comm/collectives.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace rondo {

ChunkRange chunk_range(int64_t n, int chunks, int chunk) {
  return {n * chunk / chunks, n * (chunk + 1) / chunks};
}

namespace {

int wrap(int rank, int size) { return ((rank % size) + size) % size; }

// The messages of one half of the ring (reduce-scatter or all-gather): N-1 steps, in each of which
// every rank passes one chunk to its right neighbour, cut into pieces. Piece j of a step can leave
// as soon as piece j of the step before has arrived, so with two or more pieces the next transfer
// is posted before the last one is waited for.
// T: the elements; W: what travels, T itself or bf16.
template <class T, class W = T>
class Ring {
 public:
  static constexpr bool converts = !std::is_same_v<T, W>;

  Ring(Link& link, T* data, int64_t n, std::span<std::byte> staging)
      : link_(link), data_(data), n_(n), staging_(reinterpret_cast<W*>(staging.data())) {
    piece_ = static_cast<int64_t>(staging.size() / (4 * sizeof(W)));
    RONDO_CHECK(piece_ >= 1, staging.size(), " bytes of staging memory");
    const int64_t longest = (n + link.size() - 1) / link.size();
    pieces_ = (longest + piece_ - 1) / piece_;
  }

  // Afterwards this rank has the sum of chunk rank + 1 - shift.
  void reduce_scatter(int shift) {
    run([&](int step) { return link_.rank() - shift - step; },
        [&](int64_t k, const ChunkRange& r) { return arriving(k, r); },
        [&](int64_t k, const ChunkRange& r) {
          const W* arrived = slot(k % 2);
          T* own = data_ + r.begin;
          for (int64_t i = 0; i < r.size(); ++i) own[i] += static_cast<T>(arrived[i]);
        });
  }

  // Before, this rank has chunk rank + 1 - shift.
  void all_gather(int shift) {
    const auto chunk = [&](int step) { return link_.rank() + 1 - shift - step; };
    if constexpr (converts) {
      // What the others will get.
      const ChunkRange own = chunk_range(n_, link_.size(), wrap(chunk(0), link_.size()));
      for (int64_t i = own.begin; i < own.end; ++i) data_[i] = static_cast<T>(W(data_[i]));
      run(
          chunk, [&](int64_t k, const ChunkRange& r) { return arriving(k, r); },
          [&](int64_t k, const ChunkRange& r) {
            const W* arrived = slot(k % 2);
            for (int64_t i = 0; i < r.size(); ++i) data_[r.begin + i] = static_cast<T>(arrived[i]);
          });
    } else {
      run(
          chunk, [&](int64_t, const ChunkRange& r) { return bytes_of(data_ + r.begin, r); },
          [](int64_t, const ChunkRange&) {});
    }
  }

 private:
  template <class E>
  static std::span<std::byte> bytes_of(E* first, const ChunkRange& r) {
    return std::as_writable_bytes(std::span(first, static_cast<size_t>(r.size())));
  }
  // Two for what arrives, two for what is converted before it leaves.
  W* slot(int64_t i) const { return staging_ + i * piece_; }
  std::span<std::byte> arriving(int64_t k, const ChunkRange& r) const {
    return bytes_of(slot(k % 2), r);
  }
  std::span<const std::byte> leaving(int64_t k, const ChunkRange& r) const {
    if constexpr (converts) {
      W* out = slot(2 + k % 2);
      for (int64_t i = 0; i < r.size(); ++i) out[i] = W(data_[r.begin + i]);
      return bytes_of(out, r);
    } else {
      return bytes_of(data_ + r.begin, r);
    }
  }

  ChunkRange piece_of(int chunk, int64_t j) const {
    const ChunkRange c = chunk_range(n_, link_.size(), wrap(chunk, link_.size()));
    const int64_t begin = std::min(c.begin + j * piece_, c.end);
    return {begin, std::min(begin + piece_, c.end)};
  }

  // sent_chunk(step): the chunk this rank sends; the one it receives is the one before.
  // target(k, range): where message k lands. landed(k, range): called when it has.
  template <class SentChunk, class Target, class Landed>
  void run(SentChunk sent_chunk, Target target, Landed landed) {
    const int right = wrap(link_.rank() + 1, link_.size());
    const int left = wrap(link_.rank() - 1, link_.size());
    struct Exchange {
      Work send, recv;
      ChunkRange range;
    };
    std::array<Exchange, 2> exchanges;
    const auto post = [&](int64_t k) {
      const int step = static_cast<int>(k / pieces_);
      const int chunk = sent_chunk(step);
      const ChunkRange out = piece_of(chunk, k % pieces_);
      Exchange& e = exchanges[static_cast<size_t>(k % 2)];
      e.range = piece_of(chunk - 1, k % pieces_);
      if (e.range.size() > 0) e.recv = link_.recv(left, target(k, e.range));
      if (out.size() > 0) e.send = link_.send(right, leaving(k, out));
    };
    const auto finish = [&](int64_t k) {
      Exchange& e = exchanges[static_cast<size_t>(k % 2)];
      if (e.recv) std::exchange(e.recv, Work()).wait();
      if (e.range.size() > 0) landed(k, e.range);
      if (e.send) std::exchange(e.send, Work()).wait();
    };
    const int64_t messages = pieces_ * (link_.size() - 1);
    const int64_t ahead = pieces_ >= 2 ? 1 : 0;
    for (int64_t k = 0; k < messages + ahead; ++k) {
      if (k < messages) post(k);
      if (k >= ahead) finish(k - ahead);
    }
  }

  Link& link_;
  T* const data_;
  const int64_t n_;
  W* const staging_;
  int64_t piece_ = 0;   // elements per message
  int64_t pieces_ = 0;  // messages per step
};

// f(ring) with the ring for this dtype and wire.
template <class F>
void with_ring(Link& link, const TensorView& data, std::span<std::byte> staging, Wire wire, F f) {
  RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, "a sum of ",
              name_of(data.dtype), ", expected f32 or f64");
  if (link.size() == 1 || data.numel() == 0) return;
  if (data.dtype == DType::f64) {
    f(Ring<double>(link, data.as<double>(), data.numel(), staging));
  } else if (wire == Wire::bf16) {
    f(Ring<float, bf16>(link, data.as<float>(), data.numel(), staging));
  } else {
    f(Ring<float>(link, data.as<float>(), data.numel(), staging));
  }
}

template <class E>
void gather_as(Link& link, const TensorView& data, std::span<std::byte> staging) {
  Ring<E>(link, static_cast<E*>(data.data), data.numel(), staging).all_gather(1);
}

}  // namespace

void ring_all_reduce(Link& link, const TensorView& data, std::span<std::byte> staging, Wire wire) {
  with_ring(link, data, staging, wire, [](auto ring) {
    ring.reduce_scatter(0);
    ring.all_gather(0);
  });
}

void ring_reduce_scatter(Link& link, const TensorView& data, std::span<std::byte> staging,
                         Wire wire) {
  with_ring(link, data, staging, wire, [](auto ring) { ring.reduce_scatter(1); });
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
  if (place != 0) link.recv(at(place - bit), data).wait();
  std::vector<Work> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (place + bit < size) sends.push_back(link.send(at(place + bit), data));
  }
  for (Work& send : sends) send.wait();
}

void dissemination_barrier(Link& link) {
  for (int distance = 1; distance < link.size(); distance *= 2) {
    // A byte, because not every backend carries empty messages.
    const std::byte token{};
    std::byte arrived{};
    Work recv = link.recv(wrap(link.rank() - distance, link.size()), std::span(&arrived, 1));
    Work send = link.send(wrap(link.rank() + distance, link.size()), std::span(&token, 1));
    recv.wait();
    send.wait();
  }
}

}  // namespace rondo
