// One rank's end of the streams to and from another rank of its machine. Internal to the shared
// transport.
//
// The receiver announces every recv; the sender matches announcements with its sends, so that sizes
// are compared before any byte moves. The bytes are copied twice, into the stream and out of it,
// by whoever waits on either side (waiting.h).
//
// Thread safety: all members may be called from any thread. Operations end with the channel's lock
// held.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/recycling_allocator.h"
#include "comm/shared/frame.h"
#include "comm/shared/inbox.h"
#include "comm/transport.h"

namespace rondo::shared_transport {

class Channel;
class Waiting;

enum class Direction : uint8_t { send, recv };

// Guarded by the channel's mutex. A send waits until it meets an announcement, then its bytes move;
// a recv moves from the start: the other side knows of it.
class Operation final : public detail::WorkState {
 public:
  Operation(std::shared_ptr<Channel> c, Direction d, Tag t, std::byte* memory, size_t bytes,
            Deadline deadline)
      : WorkState(deadline),
        channel(std::move(c)),
        direction(d),
        tag(t),
        data(memory),
        size(bytes) {}

  bool wait_until(Deadline deadline) override;
  void withdraw(CommErrorKind kind, const std::string& cause) override;
  std::string description() const override;

  void complete() { succeed(size); }
  void break_off(CommErrorKind kind, int culprit, const std::string& cause) {
    fail(CommError(kind, culprit, str(description(), ": ", cause)));
  }

  const std::shared_ptr<Channel> channel;
  const Direction direction;
  const Tag tag;
  std::byte* const data;
  const size_t size;
  uint64_t number = 0;   // of the recv
  bool moving = false;   // send: has met its recv
  bool revoked = false;  // recv: the other side has agreed to forget it
};

// Why a channel carries nothing any more.
struct Ending {
  CommErrorKind kind = CommErrorKind::aborted;
  int culprit = -1;
  std::string cause;
};

struct ChannelEnds {
  int rank = 0, peer = 0;
  Stream in, out;
  Bell* own_bell = nullptr;
  Bell* peer_bell = nullptr;
  std::shared_ptr<const Inbox> own_inbox, peer_inbox;  // which the above point into
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `inner` carries what ends the world, and lives until end() has been called.
  Channel(ChannelEnds ends, std::shared_ptr<Waiting> waiting, Transport& inner,
          CommClock::duration grace);

  Work post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline);
  void withdraw(Operation& op, CommErrorKind kind, const std::string& cause);

  // Moves what can be moved without waiting.
  void progress();
  // Whether progress() would do something. Takes no lock.
  bool has_work() const { return !ends_.in.empty() || (has_outgoing_ && !ends_.out.full()); }

  // What has arrived by now still counts; everything else fails, from now on. The first one stays.
  void end(const Ending& ending);

  int rank() const { return ends_.rank; }
  int peer() const { return ends_.peer; }
  Waiting& waiting() const { return *waiting_; }

 private:
  using OperationPtr = std::shared_ptr<Operation>;
  using Lock = std::unique_lock<std::mutex>;
  struct Announcement {
    uint64_t number = 0, size = 0;
  };
  struct Outgoing {
    Frame frame;
    OperationPtr op;    // data
    uint64_t done = 0;  // bytes, of frame and padded data
  };

  // With the lock held. What they throw means that the other side wrote what no rank writes.
  void move();
  void read_some();
  size_t read_data(std::span<const std::byte> bytes);
  void write_some();
  size_t write_front(std::span<std::byte> room);
  void ring_for_arrivals();
  void ring_for_room();
  void handle(const Frame& frame);
  void settle_recv(const Frame& frame);
  void begin_send(const OperationPtr& op, const Announcement& to);
  void queue(const Frame& frame, OperationPtr op = nullptr);
  void complete(const OperationPtr& op);
  void tell_leader();
  void fail_all(const Ending& ending);
  OperationPtr take_recv(uint64_t number);
  // Out of wherever it is.
  OperationPtr take(const Operation& op);
  // move() without the lock held afterwards; ends the world if it throws.
  void move_and_unlock(Lock lock);
  bool idle() const { return sends_.empty() && recvs_.empty() && !reading_ && outgoing_.empty(); }

  const ChannelEnds ends_;
  const std::shared_ptr<Waiting> waiting_;
  Transport* inner_;
  const CommClock::duration grace_;
  const std::shared_ptr<MemoryPool> operations_ = std::make_shared<MemoryPool>();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Ending> ending_;
  bool broken_ = false;  // a frame was left unfinished
  bool ended_ = false;   // an operation, in this move
  bool urgent_ = false;  // a letter is on its way for which the other side has to wake up
  int withdrawing_ = 0;  // threads
  std::map<Tag, std::deque<OperationPtr>> sends_;      // no announcement yet
  std::map<Tag, std::deque<Announcement>> announced_;  // no send yet
  std::map<uint64_t, OperationPtr> recvs_;
  uint64_t next_number_ = 0;
  std::deque<Outgoing> outgoing_;
  std::atomic<bool> has_outgoing_{false};
  // The data frame that is being read, and the recv it is for; none if nobody wants it any more.
  std::optional<Frame> reading_;
  OperationPtr reader_;
  uint64_t read_ = 0;
};

}  // namespace rondo::shared_transport
