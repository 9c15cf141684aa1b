// A Channel over a TCP connection, and what all of a rank's channels share. Internal to the TCP
// transport.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/channels/channel.h"
#include "comm/socket.h"

namespace rondo::tcp_transport {

class TcpChannel;

// Thread safety: everything but the construction may be called from any thread.
class World {
 public:
  // `wake`: somebody has to take_wanted().
  void begin(CommClock::duration grace, std::function<void()> wake);

  // Ends all channels, once, and tells all ranks that are connected, also when it is another that
  // gave up: so word of it reaches everybody, and nobody takes the end of a rank that follows it
  // for the cause.
  void abort(int culprit, const std::string& reason) noexcept;
  // Goodbye to all ranks that are connected; to those that abort(), in another thread, has not told
  // yet, word of the end comes first.
  void say_bye();

  // The channel to this rank. If it is new, the rank is one of those that are wanted.
  TcpChannel& to(int peer);
  // All there are.
  std::vector<std::shared_ptr<TcpChannel>> channels() const;
  // Ranks with which somebody wants to exchange messages, and which are not connected.
  std::vector<int> take_wanted();

  int rank = 0, size = 1;

 private:
  TcpChannel& make(int peer);

  mutable std::mutex mutex_;
  CommClock::duration grace_{};
  std::function<void()> wake_;
  std::vector<std::shared_ptr<TcpChannel>> channels_;  // by rank; null: not needed yet
  std::unique_ptr<std::atomic<TcpChannel*>[]> found_;  // the same, for those in a hurry
  std::vector<int> wanted_;
  std::optional<channels::Ending> ending_;
  std::string reason_;  // of an abort
};

// Non-blocking. Whether there is something to read or room to write is remembered until a call says
// that there is not; so whoever waits needs to hear of changes alone (EPOLLET).
class TcpPipe final : public channels::Pipe {
 public:
  // Carries nothing until it has a socket.
  void open(Socket socket);
  bool is_open() const { return bool(socket_); }

  bool readable() const override { return readable_; }
  bool writable() const override { return writable_; }
  size_t read(std::span<std::byte> to) override;
  Bytes peek() override;
  void skip(size_t n) override;
  size_t write(std::span<const Bytes> parts) override;

  // These too with the channel's lock held. `hung_up`: nothing more comes after what is there.
  void ready(bool to_read, bool to_write, bool hung_up);
  void close();
  int fd() const { return socket_.fd(); }
  bool is_silent(std::chrono::seconds silence) const {
    return socket_ && !stays_in_machine(socket_) && rondo::is_silent(socket_, silence);
  }

 private:
  // From the socket, into `to` and then into the empty buffer.
  size_t receive(std::span<std::byte> to);

  Socket socket_;
  std::atomic<bool> readable_{false}, writable_{false};
  bool arriving_ = false;  // the socket may hold bytes
  bool hung_up_ = false;
  std::vector<std::byte> buffer_;  // what came behind that which was asked for
  size_t begin_ = 0, end_ = 0;
};

class TcpChannel final : public channels::Channel {
 public:
  // `world` lives until this channel has been closed.
  TcpChannel(World& world, int peer, CommClock::duration grace);

  // What was posted before now leaves. False: too late, this rank leaves.
  bool connect(Socket socket);
  // It cannot be connected.
  void cannot_connect(const std::string& cause) { lose(cause); }
  int fd() const { return tcp_->fd(); }
  // Events of epoll; moves nothing.
  void notice(uint32_t events);

  // The other rank is lost if its machine has not answered for so long.
  void look_for_silence(std::chrono::seconds silence);

  // Everything fails from now on; the other side is told, with the reason.
  void abort(const channels::Ending& ending, const std::string& reason);
  // In order: say goodbye, wait until the other side has heard it or is gone, close.
  void say_bye();
  void wait_for_bye(Deadline deadline);
  void close_connection();

 private:
  void lose(const std::string& cause) override;
  void give_up(const std::string& what) override;
  bool hear(const News& news) override;
  void reply(const channels::Frame& frame);

  World* const world_;
  TcpPipe* const tcp_;
  bool heard_ = false;  // the other side has seen that we end, or ends itself
  bool gone_ = false;
};

}  // namespace rondo::tcp_transport
