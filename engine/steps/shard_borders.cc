#include "engine/steps/shard_borders.h"
#include "kernels/base/cpu/copy_bytes.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rondo {
namespace {

// Planes of rows, `plane` bytes apart, into or out of the order of the whole batch, dense.
std::vector<std::byte> in_batch_order(const std::byte* rows, const ShardBorders::Rows& shape,
                                      size_t plane, const ShardBorders::Order& order) {
  std::vector<std::byte> bytes(shape.bytes(order.size()));
  for (size_t p = 0; p < shape.planes; ++p) {
    std::byte* to = bytes.data() + p * order.size() * shape.row;
    for (size_t i = 0; i < order.size(); ++i) {
      copy_bytes(to + static_cast<size_t>(order[i]) * shape.row, rows + p * plane + i * shape.row,
                 shape.row);
    }
  }
  return bytes;
}
void in_part_order(const std::vector<std::byte>& bytes, const ShardBorders::Rows& shape,
                   size_t plane, const ShardBorders::Order& order, std::byte* rows) {
  for (size_t p = 0; p < shape.planes; ++p) {
    const std::byte* from = bytes.data() + p * order.size() * shape.row;
    for (size_t i = 0; i < order.size(); ++i) {
      copy_bytes(rows + p * plane + i * shape.row, from + static_cast<size_t>(order[i]) * shape.row,
                 shape.row);
    }
  }
}

}  // namespace

ShardBorders::ShardBorders(const Context& context, ProcessGroup& group, int first)
    : context_(context),
      group_(group),
      first_(first),
      staging_(*context.device, "states between shards of sequences") {}

// What an interrupted pass left behind is nobody's.
void ShardBorders::start(Deadline deadline) {
  deadline_ = deadline;
  for (const Departure& d : leaving_) staging_.give_back(*d.staged);
  leaving_.clear();
  sent_.clear();
  incoming_.clear();
}

void ShardBorders::finish() {
  post_leaving(Leaving::all);
  for (Message& message : sent_) message.work.wait();
  sent_.clear();
}

void ShardBorders::send(int to, uint32_t number, std::span<const Rows> states, const Order& order) {
  if (direct()) {
    for (const Rows& s : states) post(to, number++, in_batch_order(s.data, s, s.plane, order));
    return;
  }
  size_t bytes = 0;
  for (const Rows& s : states) bytes += s.bytes(order.size());
  StagingPool::Piece& staged = staging_.take(bytes);
  std::byte* at = staged.data();
  for (const Rows& s : states) {
    for (size_t p = 0; p < s.planes; ++p) {
      context_.device->copy(*context_.stream, at, s.data + p * s.plane, s.row * order.size());
      at += s.row * order.size();
    }
  }
  staged.record(*context_.stream);
  leaving_.push_back({&staged, to, number, {states.begin(), states.end()}, &order});
}

void ShardBorders::post_leaving(Leaving which) {
  while (!leaving_.empty()) {
    const Departure& d = leaving_.front();
    if (which == Leaving::arrived && !d.staged->passed()) return;
    d.staged->wait();
    const std::byte* at = d.staged->data();
    for (size_t i = 0; i < d.states.size(); ++i) {
      const Rows& s = d.states[i];
      post(d.to, d.number + static_cast<uint32_t>(i),
           in_batch_order(at, s, s.row * d.order->size(), *d.order));
      at += s.bytes(d.order->size());
    }
    staging_.give_back(*d.staged);
    leaving_.pop_front();
  }
}

void ShardBorders::post(int to, uint32_t number, std::vector<std::byte> bytes) {
  Message message;
  message.bytes = std::move(bytes);
  message.work = group_.send(first_ + to, number, message.bytes, deadline_);
  sent_.push_back(std::move(message));
}

void ShardBorders::post_receive(int from, uint32_t number, size_t bytes) {
  Message& message = incoming_[number];
  message.bytes.resize(bytes);
  message.work = group_.recv(first_ + from, number, message.bytes, deadline_);
}

void ShardBorders::expect(int from, uint32_t number, std::span<const size_t> rows,
                          size_t sequences) {
  for (size_t row : rows) post_receive(from, number++, row * sequences);
}

void ShardBorders::receive(int from, uint32_t number, std::span<const Rows> states,
                           const Order& order) {
  size_t bytes = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    const uint32_t n = number + static_cast<uint32_t>(i);
    bytes += states[i].bytes(order.size());
    if (!incoming_.contains(n)) post_receive(from, n, states[i].bytes(order.size()));
    Work& work = incoming_.at(n).work;
    if (!work.poll()) post_leaving(Leaving::all);
    work.wait();
  }
  StagingPool::Piece* const staged = direct() ? nullptr : &staging_.take(bytes);
  std::byte* at = staged ? staged->data() : nullptr;
  for (const Rows& s : states) {
    in_part_order(incoming_.at(number).bytes, s, staged ? s.row * order.size() : s.plane, order,
                  staged ? at : s.data);
    incoming_.erase(number++);
    for (size_t p = 0; staged && p < s.planes; ++p) {
      context_.device->copy(*context_.stream, s.data + p * s.plane, at, s.row * order.size());
      at += s.row * order.size();
    }
  }
  if (!staged) return;
  staged->record(*context_.stream);
  staging_.give_back(*staged);
}

void ShardBorders::receive(int from, uint32_t number, std::span<std::byte> bytes) {
  post_leaving(Leaving::all);
  group_.recv(first_ + from, number, bytes, deadline_).wait();
}

const std::byte* ShardBorders::fetched(const std::byte* data, size_t bytes) {
  if (direct()) return data;
  if (fetched_) staging_.give_back(*fetched_);
  fetched_ = &staging_.take(bytes);
  context_.device->copy(*context_.stream, fetched_->data(), data, bytes);
  fetched_->record(*context_.stream);
  fetched_->wait();
  return fetched_->data();
}

void ShardBorders::upload(std::byte* data, std::span<const std::byte> bytes) {
  if (direct()) {
    std::copy(bytes.begin(), bytes.end(), data);
    return;
  }
  StagingPool::Piece& staged = staging_.take(bytes.size());
  std::copy(bytes.begin(), bytes.end(), staged.data());
  context_.device->copy(*context_.stream, data, staged.data(), bytes.size());
  staged.record(*context_.stream);
  staging_.give_back(staged);
}

}  // namespace rondo
