// One rank's end of the connection with one other rank. Internal to rondo_gloo.
//
// The life of a message of more than max_body_bytes: the receiver posts Gloo's recv on a slot of
// its own and sends `announce`; the sender matches it with its send, gives the bytes to Gloo and
// then sends `sent`. Bytes and letters of a pair share one connection and keep their order, so
// `sent` arrives after the bytes, and the thread that reads letters is the only one that has to
// wait for anything.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/channels/matching.h"
#include "comm/gloo/letter.h"
#include "comm/recycling_allocator.h"
#include "kernels/base/cpu/thread.h"

namespace gloo::rendezvous {
class Context;
}
namespace gloo::transport {
class UnboundBuffer;
}

namespace rondo::gloo_transport {

class Channel;
using GlooBuffer = ::gloo::transport::UnboundBuffer;
using channels::Announcement;
using channels::Direction;
using channels::Ending;

class Operation final : public channels::Operation {
 public:
  using channels::Operation::Operation;
  std::shared_ptr<GlooBuffer> buffer;  // while Gloo has its bytes
};

// What all channels of a rank share.
struct World {
  // Ends all channels, once, and tells all other ranks, also when it is another that gave up: so
  // nobody takes the end of a rank that follows it for the cause.
  void abort(int culprit, const std::string& reason) noexcept;
  // Goodbye to all other ranks; to those that abort(), in another thread, has not told yet, word of
  // the end comes first.
  void say_bye();
  Channel& to(int peer) { return *channels[static_cast<size_t>(peer)]; }

  int rank = 0, size = 1;
  CommClock::duration grace{};
  std::string token, rendezvous_id, nonce;
  std::shared_ptr<::gloo::rendezvous::Context> context;
  std::vector<std::shared_ptr<Channel>> channels;  // by rank; null for this one
  std::atomic<bool> aborted{false};

 private:
  std::mutex mutex_;
  std::optional<Ending> ending_;
  std::string reason_;  // of an abort
};

class Channel final : public channels::Endpoint, public std::enable_shared_from_this<Channel> {
 public:
  // `world` lives until stop() has returned.
  Channel(World& world, int peer);
  ~Channel() override;

  void start(std::string_view peer_nonce);
  // Until the other side has proved the job token; throws CommError.
  void wait_for_hello(Deadline deadline);

  Work post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline);
  void withdraw(channels::Operation& op, CommErrorKind kind, const std::string& cause) override;

  // From now on everything fails; `tell`: what the other side hears of it, if anything.
  void begin_end(const Ending& ending, const std::string* tell);
  // Transfers under way have until then; what is left fails.
  void finish_end(Deadline settle_by);
  // In order: say goodbye (1), wait for the answer (2), stop the threads and let Gloo go (3).
  void say_bye();
  void wait_for_bye(Deadline deadline);
  void stop();

 private:
  using OperationPtr = std::shared_ptr<Operation>;
  using Lock = std::unique_lock<std::mutex>;
  struct Letter {
    std::vector<std::byte> memory = std::vector<std::byte>(max_letter_bytes);
    std::shared_ptr<GlooBuffer> buffer;
  };
  // What Gloo has been given to send, in order: a letter, or the bytes of an operation.
  struct Outgoing {
    std::shared_ptr<GlooBuffer> buffer;
    OperationPtr op;
    std::unique_ptr<Letter> letter;
  };
  static constexpr size_t letters_under_way = 16;

  void read_letters();
  void write_on();
  void handle(const LetterHead& head, std::span<const std::byte> body);
  void check_hello(const LetterHead& head, std::span<const std::byte> body);
  void lose(const std::string& cause);
  void settle(const LetterHead& head, std::span<const std::byte> body);
  void finish_outgoing(bool sent);

  // With the lock held. What they throw comes from Gloo and means that the other side is gone.
  void send_letter(LetterHead head, std::span<const std::byte> body = {});
  void send_abort(const std::string& reason);
  void begin_send(const OperationPtr& op, const Announcement& to);
  void begin_recv(const OperationPtr& op);
  void fail_all(Lock& lock);
  void cut(Lock& lock, const OperationPtr& op);
  // Runs `act`; when Gloo throws, the channel is lost.
  template <class Act>
  void guarded(Lock& lock, Act act);

  World* world_;
  const CommClock::duration grace_;

  const std::shared_ptr<MemoryPool> operations_ = std::make_shared<MemoryPool>();

  std::mutex mutex_;
  ConditionVariable changed_;
  std::optional<Ending> ending_;
  std::optional<std::string> farewell_;  // why this rank aborted
  bool greeting_sent_ = false, greeted_ = false, bye_seen_ = false, gone_ = false, stop_ = false;
  Deadline close_at_ = Deadline::max();
  channels::Matching<Operation> matching_;
  std::deque<Outgoing> outgoing_;
  size_t outgoing_operations_ = 0;
  Outgoing awaited_;  // by write_on, outside the lock
  std::vector<std::unique_ptr<Letter>> spare_;

  std::array<Letter, letters_under_way> inbox_;
  Thread reader_, writer_;
};

// "[../gloo/transport/tcp/pair.cc:598] Connection closed by peer" without its first part.
std::string without_position(std::string text);

}  // namespace rondo::gloo_transport
