#include "tools/serve/talk.h"

#include <new>
#include <utility>

#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo::serve {
namespace {

constexpr size_t full_bytes = size_t{1} << 20;
constexpr size_t turn_bytes = size_t{1} << 15;  // then other streams have theirs

}  // namespace

Talk::Talk(Workers& worker, const ServedModel& served, std::string token,
           std::shared_ptr<Client> client, std::shared_ptr<void> place)
    : worker_(worker), client_(std::move(client)), place_(std::move(place)) {
  stream_.emplace(served, std::move(token));
}

void Talk::receive(bool is_text, std::string message) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  waiting_ += message.size();
  const bool continues = !is_text && !messages_.empty() && !messages_.back().is_text &&
                         messages_.back().content.size() < turn_bytes;
  if (continues) {
    messages_.back().content += message;
  } else {
    messages_.push_back({is_text, std::move(message)});
  }
  wake_worker();
}

bool Talk::is_full() {
  const std::lock_guard lock(mutex_);
  told_full_ = waiting_ >= full_bytes;
  return told_full_;
}

void Talk::leave() {
  client_->leave();
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  wake_worker();
}

// The mutex is held.
void Talk::wake_worker() {
  if (std::exchange(is_awake_, true)) return;
  worker_.add([self = shared_from_this()](Recognizer& model) { self->work(model); });
}

// One message; the rest has to wait for its turn.
void Talk::work(Recognizer& model) {
  Message message;
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) {
      end();
      return;
    }
    message = std::move(messages_.front());
    messages_.pop_front();
    waiting_ -= message.content.size();
    has_room = told_full_ && waiting_ < full_bytes / 2;
    told_full_ &= !has_room;
  }
  if (has_room) client_->send({});
  answer(model, std::move(message));
  const std::lock_guard lock(mutex_);
  is_awake_ = false;
  if (is_over_ || !messages_.empty()) wake_worker();
}

// The place is free before the client can know that the stream is over, and ask for another.
void Talk::answer(Recognizer& model, Message message) {
  std::vector<Outgoing> said;
  const auto fail = [&](const HttpError& error) {
    said.clear();
    said.push_back({.text = error_text(error), .is_last = true, .is_error = true});
  };
  try {
    for (std::string& text : message.is_text ? stream_->take_text(model, message.content)
                                             : stream_->take_sound(std::move(message.content)))
      said.push_back({.text = std::move(text)});
    if (stream_->has_ended()) said.back().is_last = true;
  } catch (const HttpError& e) {
    fail(e);
  } catch (const InputError& e) {
    fail(HttpError(400, e.what()));
  } catch (const std::bad_alloc&) {
    fail(HttpError(503, "out of memory"));
  } catch (const std::exception& e) {
    fail(HttpError(500, std::string("internal error: ") + e.what()));
  }
  if (!said.empty() && said.back().is_last) {
    stream_.reset();
    place_.reset();
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  for (Outgoing& piece : said) client_->send(std::move(piece));
}

// In the worker's thread, whose recognizer the stream borrows. The talk stays awake, for nothing
// comes after.
void Talk::end() {
  stream_.reset();
  messages_.clear();
  place_.reset();
}

}  // namespace rondo::serve
