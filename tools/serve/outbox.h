// What goes to clients, from the threads that compute to the one that talks to the network.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/serve/messages/http_message.h"

namespace rondo::serve {

// A piece of what a client gets.
struct Outgoing {
  std::optional<HttpReply> reply =
      {};                 // the first piece of a reply, its whole body unless more comes
  std::string text = {};  // more of a body; or a message of a WebSocket
  bool is_last = false;
  bool is_error = false;  // of a WebSocket's last message
};

// Thread-safe.
class Outbox {
 public:
  // `wake` is called for each piece, by the thread that puts it in.
  explicit Outbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(uint64_t client, Outgoing piece) {
    const std::lock_guard lock(mutex_);
    if (!wake_) return;
    pieces_.emplace_back(client, std::move(piece));
    wake_();
  }
  std::vector<std::pair<uint64_t, Outgoing>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(pieces_, {});
  }
  // Nobody takes any more.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = {};
    pieces_.clear();
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::pair<uint64_t, Outgoing>> pieces_;
};

// Somebody who waits for a reply, or listens to a stream. Shared by the threads that serve him.
class Client {
 public:
  Client(std::shared_ptr<Outbox> outbox, uint64_t number)
      : outbox_(std::move(outbox)), number_(number) {}

  uint64_t number() const { return number_; }
  void send(Outgoing piece) {
    if (!is_gone_) outbox_->put(number_, std::move(piece));
  }
  bool is_gone() const { return is_gone_; }
  void leave() { is_gone_ = true; }

 private:
  const std::shared_ptr<Outbox> outbox_;
  const uint64_t number_;
  std::atomic<bool> is_gone_ = false;
};

}  // namespace rondo::serve
