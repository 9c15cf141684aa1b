// A Channel through the memory that two ranks of a machine share. Internal to the shared transport.
//
// The bytes are copied twice, into the stream and out of it, by whoever waits on either side
// (waiting.h).
#pragma once

#include <memory>
#include <string>

#include "comm/channels/channel.h"
#include "comm/shared/inbox.h"

namespace rondo::shared_transport {

class Waiting;

struct MemoryEnds {
  Stream in, out;
  std::shared_ptr<const Inbox> own, peers;  // which the streams point into
};

class MemoryPipe final : public channels::Pipe {
 public:
  explicit MemoryPipe(MemoryEnds ends);

  bool readable() const override { return !ends_.in.empty(); }
  bool writable() const override { return !ends_.out.full(); }
  size_t read(std::span<std::byte> to) override;
  Bytes peek() override { return ends_.in.arrived(); }
  void skip(size_t n) override;
  size_t write(std::span<const Bytes> parts) override;
  void written(bool at_once) override;
  void watch(bool under_way) override { ends_.in.head().unwatched = under_way ? 0 : 1; }
  void moved(bool ended) override;

 private:
  const MemoryEnds ends_;
};

class SharedChannel final : public channels::Channel {
 public:
  // `inner` carries what ends the world, and lives until end() has been called.
  SharedChannel(int rank, int peer, MemoryEnds ends, std::shared_ptr<Waiting> waiting,
                Transport& inner, CommClock::duration grace);

  bool wait(channels::Operation& op, Deadline deadline) override;
  // What has arrived by now still counts; everything else fails, from now on. The first one stays.
  void end(const channels::Ending& ending);

 private:
  void lose(const std::string& cause) override;
  void give_up(const std::string& what) override { inner_->abort(what); }

  const std::shared_ptr<Waiting> waiting_;
  const std::shared_ptr<const Inbox> inbox_;
  Transport* inner_;
};

}  // namespace rondo::shared_transport
