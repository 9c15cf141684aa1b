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

void TalkWorker::wake(std::shared_ptr<Talk> talk) {
  const std::lock_guard lock(mutex_);
  awake_.push_back(std::move(talk));
  if (awake_.size() == 1) thread_.add([this](Recognizer& model) { hear_round(model); });
}

void TalkWorker::hear_round(Recognizer& model) {
  std::vector<std::shared_ptr<Talk>> awake, heard;
  {
    const std::lock_guard lock(mutex_);
    awake.swap(awake_);
  }
  std::vector<RecognizerStream::Sound> sounds;
  for (const std::shared_ptr<Talk>& talk : awake) {
    if (const auto sound = talk->begin_turn(model)) {
      sounds.push_back(*sound);
      heard.push_back(talk);
    }
  }
  std::exception_ptr failure;
  try {
    RecognizerStream::accept(sounds);
  } catch (...) {
    failure = std::current_exception();
  }
  for (const std::shared_ptr<Talk>& talk : heard) talk->end_turn(failure);
}

Talk::Talk(TalkWorker& worker, const ServedModel& served, std::string token,
           std::shared_ptr<Client> client, std::shared_ptr<void> place)
    : worker_(worker), client_(std::move(client)), place_(std::move(place)) {
  stream_.emplace(served, std::move(token));
  ++worker_.talks_;
}
Talk::~Talk() { --worker_.talks_; }

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
  worker_.wake(shared_from_this());
}

std::optional<RecognizerStream::Sound> Talk::begin_turn(Recognizer& model) {
  Message message;
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) {
      end();
      return std::nullopt;
    }
    message = std::move(messages_.front());
    messages_.pop_front();
    waiting_ -= message.content.size();
    has_room = told_full_ && waiting_ < full_bytes / 2;
    told_full_ &= !has_room;
  }
  if (has_room) client_->send({});
  std::optional<RecognizerStream::Sound> sound;
  answer([&]() -> std::vector<std::string> {
    if (message.is_text) return stream_->take_text(model, message.content);
    sound = stream_->take_sound(message.content);
    return {};
  });
  if (!sound) rest();
  return sound;
}

void Talk::end_turn(std::exception_ptr failure) {
  answer([&] {
    if (failure) std::rethrow_exception(failure);
    return stream_->tell();
  });
  rest();
}

void Talk::rest() {
  const std::lock_guard lock(mutex_);
  is_awake_ = false;
  if (is_over_ || !messages_.empty()) wake_worker();
}

// Says what `work` finds. The place is free before the client can know that the stream is over, and
// ask for another.
template <class Work>
void Talk::answer(const Work& work) {
  std::vector<Outgoing> said;
  const auto fail = [&](const HttpError& error) {
    said.clear();
    said.push_back({.text = error_text(error), .is_last = true, .is_error = true});
  };
  try {
    for (std::string& text : work()) said.push_back({.text = std::move(text)});
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
