// A channel whose bytes lie in two strings, for tests and fuzzing.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "comm/channels/channel.h"

namespace rondo {

class StringPipe final : public channels::Pipe {
 public:
  static constexpr size_t plenty = size_t{1} << 40;

  StringPipe(std::shared_ptr<std::string> in, std::shared_ptr<std::string> out, size_t at_once)
      : in_(std::move(in)), out_(std::move(out)), at_once_(at_once) {}

  bool readable() const override { return !in_->empty(); }
  bool writable() const override { return room > 0; }
  size_t read(std::span<std::byte> to) override {
    const size_t n = std::min({to.size(), in_->size(), at_once_});
    if (n > 0) std::memcpy(to.data(), in_->data(), n);
    in_->erase(0, n);
    return n;
  }
  Bytes peek() override {
    return std::as_bytes(std::span(*in_)).first(std::min(in_->size(), at_once_));
  }
  void skip(size_t n) override { in_->erase(0, n); }
  size_t write(std::span<const Bytes> parts) override {
    size_t written = 0;
    for (const Bytes part : parts) {
      const size_t n = std::min({part.size(), at_once_ - written, room});
      out_->append(reinterpret_cast<const char*>(part.data()), n);
      written += n;
      room -= n;
    }
    return written;
  }

  size_t room = plenty;

 private:
  const std::shared_ptr<std::string> in_, out_;
  const size_t at_once_;
};

class StringChannel final : public channels::Channel {
 public:
  StringChannel(std::unique_ptr<StringPipe> pipe, int rank, int peer)
      : Channel(rank, peer, std::move(pipe), std::chrono::milliseconds(1)) {}

  // As when the other side is gone.
  void end(const std::string& cause) {
    Lock lock(mutex_);
    set_ending({CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: ", cause)});
    close();
  }

  int gave_up = 0;
  bool hears = false;  // of aborts and goodbyes, like TCP
  std::string lost;    // why, if the other side did what no rank does

 private:
  void lose(const std::string& cause) override {
    lost = cause;
    end(cause);
  }
  void give_up(const std::string&) override { ++gave_up; }
  bool hear(const News&) override { return hears; }
};

}  // namespace rondo
