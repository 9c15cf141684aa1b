#include "comm/mpi/mpi_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/mpi/poller.h"

namespace rondo::mpi_transport {

using channels::Ending;
using channels::FrameKind;

void MpiPipe::arrived(const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  come_[chunk.head.number] = chunk;
  readable_ = come_.begin()->first == next_read_;
}

MpiPipe::Bytes MpiPipe::peek() {
  const std::lock_guard lock(mutex_);
  const auto first = come_.begin();
  if (first == come_.end() || first->first != next_read_) return {};
  return first->second.bytes;
}

void MpiPipe::skip(size_t n) {
  std::unique_lock lock(mutex_);
  const auto first = come_.begin();
  first->second.bytes = first->second.bytes.subspan(n);
  if (!first->second.bytes.empty()) return;
  const Chunk read = first->second;
  come_.erase(first);
  ++next_read_;
  readable_ = !come_.empty() && come_.begin()->first == next_read_;
  lock.unlock();
  exchange_->give_back(read);
}

size_t MpiPipe::read(std::span<std::byte> to) {
  const Bytes there = peek();
  const size_t n = std::min(there.size(), to.size());
  if (n == 0) return 0;
  std::memcpy(to.data(), there.data(), n);
  skip(n);
  return n;
}

// With the channel's lock held, where chunks are made.
size_t MpiPipe::write(std::span<const Bytes> parts) {
  Exchange::OutgoingPtr* const free = free_one();
  if (free == nullptr) {
    writable_ = false;
    return 0;
  }
  const std::span<std::byte> body = (*free)->body();
  size_t n = 0;
  for (const Bytes part : parts) {
    const size_t some = std::min(part.size(), body.size() - n);
    if (some == 0) continue;
    std::memcpy(body.data() + n, part.data(), some);
    n += some;
  }
  if (n > 0) {
    exchange_->send(peer_, *free, {.number = next_written_++, .size = static_cast<uint32_t>(n)});
  }
  return n;
}

Exchange::OutgoingPtr* MpiPipe::free_one() {
  for (Exchange::OutgoingPtr& o : outgoing_) {
    if (!o) o = exchange_->make_outgoing();
    if (Exchange::has_left(o)) return &o;
  }
  return nullptr;
}

void MpiPipe::look_for_room() {
  if (writable_) return;  // else all chunks have been made
  writable_ = std::any_of(outgoing_.begin(), outgoing_.end(), Exchange::has_left);
}

bool MpiPipe::all_has_left() const {
  return std::all_of(outgoing_.begin(), outgoing_.end(),
                     [](const auto& o) { return !o || Exchange::has_left(o); });
}

MpiChannel::MpiChannel(int rank, int peer, Exchange& exchange, Poller& poller, Transport& inner,
                       CommClock::duration grace)
    : Channel(rank, peer, std::make_unique<MpiPipe>(exchange, peer), grace),
      poller_(&poller),
      inner_(&inner),
      mpi_(static_cast<MpiPipe*>(&this->pipe())) {}

bool MpiChannel::wait(channels::Operation& op, Deadline deadline) {
  // An operation that is done may be waited for after the end of its transport.
  return op.done() || poller_->wait(op, deadline);
}

void MpiChannel::lose(const std::string& cause) {
  const std::string text = str("rank ", peer(), " is lost: ", cause);
  end({CommErrorKind::peer_lost, peer(), text});
  inner_->abort(text);
}

bool MpiChannel::hear(const News& news) {
  if (news.frame.kind != FrameKind::bye) return false;
  finished_ = true;
  end({CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: it has finished")});
  return true;
}

void MpiChannel::end(const Ending& e) {
  Lock lock(mutex_);
  if (ending()) return;
  read_what_came();
  set_ending(e);
  close();
}

void MpiChannel::say_bye() {
  Lock lock(mutex_);
  if (ending()) return;
  set_ending({CommErrorKind::aborted, -1, "the transport was destroyed"});
  queue({FrameKind::bye, 0, 0, 0});
  try {
    write_some();
  } catch (const Error&) {
    close();
  }
}

bool MpiChannel::has_said_bye() {
  Lock lock(mutex_);
  return all_written() && mpi_->all_has_left();
}

void MpiChannel::close_pipe() {
  Lock lock(mutex_);
  close();
}

}  // namespace rondo::mpi_transport
