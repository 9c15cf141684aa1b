// A stream between the network's thread, which receives, and the worker that hears it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tools/serve/outbox.h"
#include "tools/serve/speech_stream.h"
#include "tools/serve/workers.h"

namespace rondo::serve {

class Talk : public std::enable_shared_from_this<Talk> {
 public:
  // Borrows `worker`, of one thread. `place` is held until the worker is done with the stream.
  Talk(Workers& worker, const ServedModel& served, std::string token,
       std::shared_ptr<Client> client, std::shared_ptr<void> place);

  // Of the network's thread: the next message.
  void receive(bool is_text, std::string message);
  // So much waits that the client should send no more. When that is over, it gets an empty piece.
  bool is_full();
  // There is no client any more.
  void leave();

 private:
  struct Message {
    bool is_text = false;
    std::string content;
  };
  void wake_worker();
  void work(Recognizer& model);
  void answer(Recognizer& model, Message message);
  void end();

  Workers& worker_;
  const std::shared_ptr<Client> client_;
  std::mutex mutex_;
  std::deque<Message> messages_;
  size_t waiting_ = 0;     // bytes in them
  bool is_awake_ = false;  // a job of the worker is for this
  bool told_full_ = false;
  bool is_over_ = false;                // what comes counts for nothing
  std::optional<SpeechStream> stream_;  // the worker's
  std::shared_ptr<void> place_;
};

}  // namespace rondo::serve
