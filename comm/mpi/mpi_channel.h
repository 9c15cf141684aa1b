// A Channel whose bytes MPI carries. Internal to rondo_mpi.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "comm/channels/channel.h"
#include "comm/mpi/exchange.h"

namespace rondo::mpi_transport {

class Poller;

class MpiPipe final : public channels::Pipe {
 public:
  // `exchange` lives until close().
  MpiPipe(Exchange& exchange, int peer) : exchange_(&exchange), peer_(peer) {}

  bool readable() const override { return readable_; }
  bool writable() const override { return writable_; }
  size_t read(std::span<std::byte> to) override;
  Bytes peek() override;
  void skip(size_t n) override;
  size_t write(std::span<const Bytes> parts) override;

  // From any thread, without the channel's lock.
  void arrived(const Chunk& chunk);
  void look_for_room();
  // With the channel's lock held.
  bool all_has_left() const;

 private:
  static constexpr size_t most_under_way = 4;

  Exchange::OutgoingPtr* free_one();

  Exchange* const exchange_;
  const int peer_;
  std::atomic<bool> readable_{false}, writable_{true};
  std::mutex mutex_;  // of these
  std::map<uint64_t, Chunk> come_;
  uint64_t next_read_ = 0;

  uint64_t next_written_ = 0;
  std::array<Exchange::OutgoingPtr, most_under_way> outgoing_;
};

class MpiChannel final : public channels::Channel {
 public:
  // `inner` carries what ends the world, and lives until end() has been called.
  MpiChannel(int rank, int peer, Exchange& exchange, Poller& poller, Transport& inner,
             CommClock::duration grace);

  bool wait(channels::Operation& op, Deadline deadline) override;
  MpiPipe& mpi() const { return *mpi_; }

  // What has arrived by now still counts; everything else fails, from now on. The first one stays.
  void end(const channels::Ending& ending);
  // Whether the other side has said that it leaves.
  bool has_finished() const { return finished_; }
  // This rank leaves, and says so behind all that it has sent.
  void say_bye();
  // Whether that has left.
  bool has_said_bye();
  void close_pipe();

 private:
  void lose(const std::string& cause) override;
  void give_up(const std::string& what) override { inner_->abort(what); }
  bool hear(const News& news) override;

  Poller* const poller_;
  Transport* const inner_;
  MpiPipe* const mpi_;
  std::atomic<bool> finished_{false};
};

}  // namespace rondo::mpi_transport
