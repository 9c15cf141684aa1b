#include "comm/nccl/nccl_ring.h"

#include <algorithm>

namespace rondo {
namespace {

int wrap(int rank, int size) { return ((rank % size) + size) % size; }

TensorView part(const TensorView& data, const ChunkRange& r) {
  auto* const bytes = static_cast<std::byte*>(data.data);
  return {bytes + r.begin * static_cast<int64_t>(size_of(data.dtype)), data.dtype, {r.size()}};
}

}  // namespace

NcclRing::NcclRing(NcclComm& comm, Device& device, Stream& stream,
                   const DeviceArithmetic& arithmetic, int rank, int size, size_t message_bytes)
    : comm_(comm),
      device_(device),
      stream_(stream),
      arithmetic_(arithmetic),
      rank_(rank),
      size_(size),
      message_bytes_((message_bytes + 255) / 256 * 256),
      sums_(device.make_stream()),
      staging_(device, 4 * message_bytes_, "the ring's messages") {
  for (Event& e : arrived_) e = device.make_event();
  for (Event& e : landed_) e = device.make_event();
}

int64_t NcclRing::piece_elements(const Pass& pass) const {
  return static_cast<int64_t>(message_bytes_ / size_of(pass.wire));
}

ChunkRange NcclRing::piece_of(const Pass& pass, int chunk, int64_t piece) const {
  const ChunkRange c = chunk_range(pass.data.numel(), size_, wrap(chunk, size_));
  const int64_t length = piece_elements(pass);
  const int64_t begin = std::min(c.begin + piece * length, c.end);
  return {begin, std::min(begin + length, c.end)};
}

TensorView NcclRing::slot(const Pass& pass, int64_t index, int64_t elements) const {
  return {staging_.as<std::byte>() + index * static_cast<int64_t>(message_bytes_),
          pass.wire,
          {elements}};
}

void NcclRing::exchange(const TensorView& out, const TensorView& in) {
  auto* const stream = static_cast<cudaStream_t>(stream_.native());
  comm_.group([&](const Nccl& nccl, ncclComm_t comm) {
    if (out.numel() > 0) {
      check_nccl(nccl,
                 nccl.send(out.data, out.bytes(), ncclUint8, wrap(rank_ + 1, size_), comm, stream),
                 "ncclSend");
    }
    if (in.numel() > 0) {
      check_nccl(nccl,
                 nccl.recv(in.data, in.bytes(), ncclUint8, wrap(rank_ - 1, size_), comm, stream),
                 "ncclRecv");
    }
  });
}

// Message k leaves as soon as what it is made of has landed: message k - pieces, or nothing in the
// first step; and it arrives where message k - 2 was.
size_t NcclRing::run(const Pass& pass) {
  const bool converts = pass.wire != pass.data.dtype;
  const int64_t longest = (pass.data.numel() + size_ - 1) / size_;
  const int64_t pieces = (longest + piece_elements(pass) - 1) / piece_elements(pass);
  const int64_t messages = pieces * (size_ - 1);
  const int64_t behind = std::min<int64_t>(pieces, 2);
  const bool lands = pass.landing != Landing::in_place;
  size_t sent = 0;
  for (int64_t k = 0; k < messages; ++k) {
    const int chunk = pass.first_chunk - static_cast<int>(k / pieces);
    TensorView out = part(pass.data, piece_of(pass, chunk, k % pieces));
    const TensorView target = part(pass.data, piece_of(pass, chunk - 1, k % pieces));
    const TensorView in = lands ? slot(pass, k % 2, target.numel()) : target;
    const auto parity = static_cast<size_t>(k % 2);
    if (lands && k >= behind) landed_[static_cast<size_t>((k - behind) % 2)].wait(stream_);
    if (converts && out.numel() > 0) {
      const TensorView narrow = slot(pass, 2 + k % 2, out.numel());
      arithmetic_.cast(stream_, out, narrow);
      out = narrow;
    }
    sent += out.bytes();
    if (out.numel() > 0 || in.numel() > 0) exchange(out, in);
    if (!lands) continue;
    arrived_[parity].record(stream_);
    arrived_[parity].wait(sums_);
    if (in.numel() > 0) {
      (pass.landing == Landing::add ? arithmetic_.accumulate : arithmetic_.cast)(sums_, in, target);
    }
    landed_[parity].record(sums_);
  }
  if (lands && messages > 0) landed_[static_cast<size_t>((messages - 1) % 2)].wait(stream_);
  return sent;
}

// What the others will get, here too.
void NcclRing::round_own(const Pass& pass) {
  const ChunkRange own = chunk_range(pass.data.numel(), size_, wrap(pass.first_chunk, size_));
  const int64_t length = piece_elements(pass);
  for (int64_t at = own.begin; at < own.end; at += length) {
    const TensorView wide = part(pass.data, {at, std::min(at + length, own.end)});
    const TensorView narrow = slot(pass, 2, wide.numel());
    arithmetic_.cast(stream_, wide, narrow);
    arithmetic_.cast(stream_, narrow, wide);
  }
}

size_t NcclRing::all_reduce(const TensorView& data, Wire wire) {
  const DType travels = wire == Wire::bf16 && data.dtype == DType::f32 ? DType::bf16 : data.dtype;
  const size_t sent = run({data, travels, rank_, Landing::add});
  Pass gather{data, travels, rank_ + 1, Landing::in_place};
  if (travels != data.dtype) {
    gather.landing = Landing::replace;
    round_own(gather);
  }
  return sent + run(gather);
}

size_t NcclRing::reduce_scatter(const TensorView& data, Wire wire) {
  const DType travels = wire == Wire::bf16 && data.dtype == DType::f32 ? DType::bf16 : data.dtype;
  return run({data, travels, rank_ - 1, Landing::add});
}

size_t NcclRing::all_gather(const TensorView& data) {
  return run({data, data.dtype, rank_, Landing::in_place});
}

}  // namespace rondo
