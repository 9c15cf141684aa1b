// Streams between the network's thread, which receives, and the worker that hears them.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/outbox.h"
#include "tools/serve/speech_stream.h"
#include "tools/serve/workers.h"

namespace rondo::serve {

class Talk;

// A worker's talks. It hears those that have something to say in rounds, a message of each: sounds
// of one round are computed together. Thread-safe, but for its beginning and end.
class TalkWorker {
 public:
  explicit TalkWorker(const ServedModel& model) : thread_(1, model) {}

  // This one has a message, and has its turn in the next round.
  void wake(std::shared_ptr<Talk> talk);
  // Talks that there are.
  int talks() const { return talks_; }

 private:
  friend class Talk;
  void hear_round(Recognizer& model);

  std::atomic<int> talks_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Talk>> awake_;
  Workers thread_;  // the last, which uses the others until it ends
};

class Talk : public std::enable_shared_from_this<Talk> {
 public:
  // Borrows `worker`. `place` is held until the worker is done with the stream.
  Talk(TalkWorker& worker, const ServedModel& served, std::string token,
       std::shared_ptr<Client> client, std::shared_ptr<void> place);
  ~Talk();

  // Of the network's thread: the next message.
  void receive(bool is_text, std::string message);
  // So much waits that the client should send no more. When that is over, it gets an empty piece.
  bool is_full();
  // There is no client any more.
  void leave();

  // Of the worker's thread. A turn takes one message, and ends at once where that is no sound to be
  // heard.
  std::optional<RecognizerStream::Sound> begin_turn(Recognizer& model);
  // That sound was heard, or why it could not be.
  void end_turn(std::exception_ptr failure);

 private:
  struct Message {
    bool is_text = false;
    std::string content;
  };
  void wake_worker();
  template <class Work>
  void answer(const Work& work);
  void rest();
  void end();

  TalkWorker& worker_;
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
