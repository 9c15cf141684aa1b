#include "comm/shared/shared_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/shared/waiting.h"

namespace rondo::shared_transport {
namespace {

// Between two looks at who has to be woken: both sides copy at the same time.
constexpr size_t copied_at_once = size_t{128} << 10;

}  // namespace

MemoryPipe::MemoryPipe(MemoryEnds ends) : ends_(std::move(ends)) {}

size_t MemoryPipe::read(std::span<std::byte> to) {
  const std::span<const std::byte> there = ends_.in.arrived();
  const size_t n = std::min({there.size(), to.size(), copied_at_once});
  if (n == 0) return 0;
  std::memcpy(to.data(), there.data(), n);
  skip(n);
  return n;
}

void MemoryPipe::skip(size_t n) {
  ends_.in.took(n);
  auto& wanted = ends_.in.head().room_wanted;
  if (wanted.load() != 0 && ends_.in.half_empty()) {
    wanted = 0;
    ends_.peers->bell().ring();
  }
}

size_t MemoryPipe::write(std::span<const Bytes> parts) {
  size_t written = 0;
  for (Bytes part : parts) {
    while (!part.empty()) {
      std::span<std::byte> room = ends_.out.room();
      if (room.empty() && written == 0) {
        ends_.out.head().room_wanted = 1;
        room = ends_.out.room();
      }
      const size_t n = std::min({room.size(), part.size(), copied_at_once - written});
      if (n == 0) return written;
      std::memcpy(room.data(), part.data(), n);
      ends_.out.wrote(n);
      part = part.subspan(n);
      written += n;
    }
  }
  return written;
}

// The other side need not wake up for frames while nothing of it is under way.
void MemoryPipe::written(bool at_once) {
  if (at_once || ends_.out.head().unwatched.load() == 0) ends_.peers->bell().ring();
}

void MemoryPipe::moved(bool ended) {
  // A leader that saw the work of another thread sleeps, perhaps on an operation that it has ended.
  if (ended) ends_.own->bell().ring_leader();
  // Somebody else has to take the rest.
  if (!ends_.in.empty()) ends_.own->bell().ring();
}

SharedChannel::SharedChannel(int rank, int peer, MemoryEnds ends, std::shared_ptr<Waiting> waiting,
                             Transport& inner, CommClock::duration grace)
    : Channel(rank, peer, std::make_unique<MemoryPipe>(ends), grace),
      waiting_(std::move(waiting)),
      inbox_(ends.own),
      inner_(&inner) {}

bool SharedChannel::wait(channels::Operation& op, Deadline deadline) {
  return waiting_->wait(op, deadline);
}

void SharedChannel::lose(const std::string& cause) {
  const std::string text = str("rank ", peer(), " is lost: ", cause);
  end({CommErrorKind::peer_lost, peer(), text});
  inner_->abort(text);
}

void SharedChannel::end(const channels::Ending& e) {
  {
    Lock lock(mutex_);
    if (ending()) return;
    read_what_came();
    set_ending(e);
    close();
  }
  inbox_->bell().ring();
}

}  // namespace rondo::shared_transport
