// One rank's end of the pipe to and from another rank: messages of any tags, matched, compared and
// moved in frames. Internal to comm; what ends a channel differs between transports, which derive
// from it.
//
// The receiver announces every recv; the sender matches announcements with its sends, so that sizes
// are compared before any byte moves. Nothing here waits but withdraw(): whoever posts an operation
// or drives the channel (progress()) moves what can be moved.
//
// Thread safety: all members may be called from any thread. Operations end with the channel's lock
// held.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/channels/frame.h"
#include "comm/channels/matching.h"
#include "comm/channels/pipe.h"
#include "comm/recycling_allocator.h"
#include "kernels/base/cpu/thread.h"

namespace rondo::channels {

class Channel : public Endpoint, public std::enable_shared_from_this<Channel> {
 public:
  // `grace`: for the other side's consent to a withdrawal.
  Channel(int rank, int peer, std::unique_ptr<Pipe> pipe, CommClock::duration grace);

  Work post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline,
            Landing landing = Landing::store);
  void withdraw(Operation& op, CommErrorKind kind, const std::string& cause) override;

  // Moves what can be moved without waiting.
  void progress();
  // Whether progress() would do something. Takes no lock.
  bool has_work() const {
    return !closed_ && (pipe_->readable() || (has_outgoing_ && pipe_->writable()));
  }

 protected:
  using OperationPtr = std::shared_ptr<Operation>;
  using Lock = std::unique_lock<std::mutex>;
  // A frame that is about the other rank rather than a message.
  struct News {
    Frame frame;
    std::string text;
  };

  // Without the lock. The pipe cannot be used any more: the other side is gone, or wrote what no
  // rank writes.
  virtual void lose(const std::string& cause) = 0;
  // Without the lock. What was on its way could not be called back.
  virtual void give_up(const std::string& what) = 0;
  // Without the lock; in the order in which they came. Returns whether this transport knows them.
  virtual bool hear(const News&) { return false; }

  // With the lock held. Pending and later operations fail; the first ending stays.
  void set_ending(const Ending& ending);
  // After set_ending() these alone are written, after what is half written.
  void queue(const Frame& frame, std::string_view text = {});
  void write_some();
  // Without an error: what is left behind unfinished is no message.
  void read_what_came();
  // Nothing is read and written any more.
  void close();
  // move(), and then, without the lock, what has to come of it.
  void move_and_unlock(Lock lock);

  Pipe& pipe() const { return *pipe_; }
  const std::optional<Ending>& ending() const { return ending_; }
  bool all_written() const { return outgoing_.empty(); }

  std::mutex mutex_;
  ConditionVariable changed_;

 private:
  // `body` is of the operation, or of `own`.
  struct Outgoing {
    Frame frame;
    OperationPtr op;
    std::vector<std::byte> own;
    std::span<const std::byte> body;
    uint64_t done = 0;  // bytes, of frame and body
    bool begun() const { return done > 0; }
    bool complete() const { return done == frame_bytes + body.size(); }
  };

  // With the lock held. What they throw means that the other side wrote what no rank writes.
  void move();
  void read_some();
  size_t read_head();
  size_t read_body();
  size_t add_body(size_t left);
  void end_body();
  size_t write_front();
  void handle(const Frame& frame);
  void settle_recv(const Frame& frame);
  void begin_send(const OperationPtr& op, const Announcement& to);
  void begin_body(const Frame& frame, OperationPtr op);
  void complete(const OperationPtr& op);
  // Whether the other side never heard of this recv.
  bool forget_announcement(const Operation& op);
  void fail_all(const Ending& ending);
  // Out of wherever it is.
  OperationPtr take(Operation& op);
  // The operation's memory is touched no more; what is half written keeps its end.
  static OperationPtr detach(Outgoing& o);
  bool idle() const { return matching_.idle() && !reading_ && outgoing_.empty(); }

  const std::unique_ptr<Pipe> pipe_;
  const CommClock::duration grace_;
  const std::shared_ptr<MemoryPool> operations_ = std::make_shared<MemoryPool>();

  std::optional<Ending> ending_;
  std::atomic<bool> closed_{false};
  bool ended_ = false;   // an operation, in this move
  bool urgent_ = false;  // a frame is on its way for which the other side has to wake up
  int withdrawing_ = 0;  // threads
  Matching<Operation> matching_;
  std::deque<Outgoing> outgoing_;
  std::atomic<bool> has_outgoing_{false};

  Frame head_;
  size_t head_read_ = 0;
  // The frame whose body is being read, and the recv it is for; none if nobody wants it any more.
  std::optional<Frame> reading_;
  OperationPtr reader_;
  uint64_t body_read_ = 0;
  // The beginning of an element whose rest has not come yet, where elements are added.
  std::array<std::byte, 8> element_;
  size_t element_read_ = 0;
  std::string text_;
  std::vector<std::byte> unwanted_;
  std::optional<News> news_;
};

}  // namespace rondo::channels
