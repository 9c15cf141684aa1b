// A send or a recv between two ranks, from when it is posted until it is done. Internal to comm.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "comm/transport.h"
#include "comm/work_state.h"

namespace rondo::channels {

enum class Direction : uint8_t { send, recv };

// What becomes of the bytes of a recv.
enum class Landing : uint8_t { store, add_f32, add_f64 };

inline Landing landing_of(Element element, std::span<const std::byte> data) {
  RONDO_CHECK(data.size() % size_of(element) == 0 &&
                  reinterpret_cast<uintptr_t>(data.data()) % size_of(element) == 0,
              data.size(), " bytes of elements of ", size_of(element));
  return element == Element::f32 ? Landing::add_f32 : Landing::add_f64;
}

// Why a channel carries nothing any more.
struct Ending {
  CommErrorKind kind = CommErrorKind::aborted;
  int culprit = -1;
  std::string cause;
};

class Operation;

// One rank's end of what connects it with another rank; it carries operations out.
class Endpoint {
 public:
  Endpoint(int rank, int peer) : rank_(rank), peer_(peer) {}
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  int rank() const { return rank_; }
  int peer() const { return peer_; }

  virtual void withdraw(Operation& op, CommErrorKind kind, const std::string& cause) = 0;
  // Until `op` is done; false: not by then. Sleeps, unless the endpoint knows better.
  virtual bool wait(Operation& op, Deadline deadline);

 private:
  const int rank_, peer_;
};

// A send waits until it meets an announcement, then its bytes move; a recv moves from the start:
// the other side knows of it. Guarded by the endpoint's lock.
class Operation : public detail::WorkState {
 public:
  Operation(std::shared_ptr<Endpoint> e, Direction d, Tag t, std::byte* memory, size_t bytes,
            Deadline deadline)
      : WorkState(deadline),
        endpoint(std::move(e)),
        direction(d),
        tag(t),
        data(memory),
        size(bytes) {}

  bool wait_until(Deadline deadline) final { return endpoint->wait(*this, deadline); }
  bool sleep_until(Deadline deadline) { return WorkState::wait_until(deadline); }
  void withdraw(CommErrorKind kind, const std::string& cause) final {
    endpoint->withdraw(*this, kind, cause);
  }
  std::string description() const final {
    return str("rank ", endpoint->rank(), ": ",
               direction == Direction::send ? "send to rank " : "recv from rank ", endpoint->peer(),
               " (", describe_tag(tag), ", ", size, " bytes)");
  }

  void complete() { succeed(size); }
  void break_off(CommErrorKind kind, int culprit, const std::string& cause) {
    fail(CommError(kind, culprit, str(description(), ": ", cause)));
  }
  void break_off(const Ending& ending) { break_off(ending.kind, ending.culprit, ending.cause); }
  // The other side's size differs.
  void mismatch(uint64_t theirs) {
    const int own = endpoint->rank(), peer = endpoint->peer();
    const bool sends = direction == Direction::send;
    break_off(CommErrorKind::mismatch, peer,
              str("rank ", sends ? own : peer, " sends ", sends ? size : theirs, " bytes, rank ",
                  sends ? peer : own, " expects ", sends ? theirs : size));
  }

  const std::shared_ptr<Endpoint> endpoint;
  const Direction direction;
  const Tag tag;
  std::byte* const data;
  const size_t size;
  uint64_t number = 0;  // of the recv
  Landing landing = Landing::store;
  bool moving = false;   // send: has met its recv
  bool revoked = false;  // recv: the other side has agreed to forget it
};

inline bool Endpoint::wait(Operation& op, Deadline deadline) { return op.sleep_until(deadline); }

}  // namespace rondo::channels
