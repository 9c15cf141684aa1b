#include "comm/group/stream_group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/work_state.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

constexpr auto between_queries = std::chrono::microseconds(100);
constexpr auto patience_with_stream = std::chrono::seconds(5);

}  // namespace

class StreamGroup::Operation final : public detail::WorkState {
 public:
  Operation(StreamGroup& group, std::string text, Kind sort, uint32_t order, Deadline deadline,
            Event event)
      : WorkState(describe(group.rank(), text, sort, order), deadline),
        passed(std::move(event)),
        kind(sort),
        number(order),
        what(std::move(text)),
        group_(group) {}

  void withdraw(CommErrorKind reason, const std::string& cause) override {
    if (!done()) group_.withdraw(*this, reason, cause);
  }
  void succeed_now(size_t bytes) { succeed(bytes); }
  void fail_now(const CommError& error) { fail(error); }
  void refuse(const CommError& ended) {
    fail(CommError(CommErrorKind::aborted, ended.peer(),
                   str(description(), ": the group has ended: ", ended.what())));
  }

  Event passed;
  bool on_stream = false;  // recorded, and what follows is there; both under the group's mutex_
  Enqueued enqueued;
  const Kind kind;
  const uint32_t number;
  const std::string what;

 private:
  static std::string describe(int rank, const std::string& text, Kind sort, uint32_t order) {
    if (sort == Kind::message) return str("rank ", rank, ": ", text);
    return str("rank ", rank, ": ", text, ", collective ", order);
  }
  StreamGroup& group_;
};

StreamGroup::StreamGroup(Device& device, int rank, int size, CommClock::duration timeout)
    : device_(device), rank_(rank), size_(size), timeout_(timeout), stream_(device.make_stream()) {
  RONDO_CHECK(rank >= 0 && rank < size, "rank ", rank, " of a group of ", size);
}

StreamGroup::~StreamGroup() { stop(); }

void StreamGroup::check_peer(int peer) const {
  RONDO_CHECK(peer >= 0 && peer < size_ && peer != rank_, "rank ", peer, " as seen by rank ", rank_,
              " of ", size_);
}

void StreamGroup::start() {
  thread_ = start_thread("the thread of a group of devices", [this] { work(); });
}

bool StreamGroup::stop() {
  if (!thread_.joinable()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.empty() && !ending_) {
      ending_ = {CommError(CommErrorKind::aborted, -1, "the process group was destroyed"), nullptr,
                 false};
    }
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  return !ending_;
}

void StreamGroup::abort(const std::string& reason) noexcept {
  tell_others(reason);
  try {
    request_end(CommError(CommErrorKind::aborted, rank_, str("rank ", rank_, " aborted: ", reason)),
                nullptr, false);
  } catch (const std::exception&) {  // no memory: the others' word will come back to us
  }
}

StreamGroup::Place StreamGroup::place() {
  const std::lock_guard lock(mutex_);
  Place p;
  p.issued = issued_;
  p.completed = completed_;
  p.waiting = !pending_.empty();
  if (p.waiting) {
    p.number = pending_.front()->number;
    p.what = pending_.front()->what;
  }
  return p;
}

Event StreamGroup::take_event() {
  const std::lock_guard lock(mutex_);
  if (spare_events_.empty()) return device_.make_event();
  Event event = std::move(spare_events_.back());
  spare_events_.pop_back();
  return event;
}

// The operation is pending before it is on the stream: what `enqueue` waits for may never come.
Work StreamGroup::issue(const std::string& what, Kind kind, Deadline deadline,
                        const std::function<Enqueued()>& enqueue) {
  const std::lock_guard issuing(issuing_);
  Event passed = take_event();
  std::shared_ptr<Operation> operation;
  std::optional<CommError> ended;
  {
    const std::lock_guard lock(mutex_);
    operation =
        std::make_shared<Operation>(*this, what, kind, issued_, deadline, std::move(passed));
    if (kind == Kind::collective) ++issued_;
    if (ending_) {
      ended = ending_->error;
    } else {
      pending_.push_back(operation);
    }
  }
  if (ended) {
    operation->refuse(*ended);
    return Work(std::move(operation));
  }
  changed_.notify_all();
  Enqueued enqueued;
  std::optional<CommError> error;
  std::exception_ptr other;
  try {
    enqueued = enqueue();
  } catch (const CommError& e) {
    error.emplace(e.kind(), e.peer(), str(operation->description(), ": ", e.what()));
  } catch (const std::exception& e) {
    other = std::current_exception();
    error.emplace(CommErrorKind::aborted, rank_, str(operation->description(), ": ", e.what()));
  }
  operation->passed.record(stream_);
  {
    const std::lock_guard lock(mutex_);
    operation->enqueued = std::move(enqueued);
    operation->on_stream = true;
    if (error && !ending_) {
      ending_ = {*error, operation.get(), error->kind() != CommErrorKind::aborted || other};
    }
  }
  enqueued_.notify_all();
  changed_.notify_all();
  if (other) std::rethrow_exception(other);
  return Work(std::move(operation));
}

void StreamGroup::request_end(const CommError& error, const Operation* culprit, bool tell) {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) ending_ = {error, culprit, tell};
  }
  changed_.notify_all();
}

void StreamGroup::withdraw(Operation& operation, CommErrorKind kind, const std::string& cause) {
  request_end(CommError(kind, -1, str(operation.description(), ": ", cause)), &operation,
              kind == CommErrorKind::timeout);
  operation.wait_until(Deadline::max());
}

void StreamGroup::work() {
  auto next_look = CommClock::now();
  bool moved = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const bool end = ending_ && !ended_;
      if (!moved && !stop_ && !end) {
        changed_.wait_for(lock, pending_.empty() ? look_interval : between_queries);
      }
      if (ending_ && !ended_) {
        lock.unlock();
        end_now();
        continue;
      }
      if (stop_) return;
    }
    moved = false;
    try {
      moved = advance();
      if (CommClock::now() >= next_look) {
        look_at_peers();
        next_look = CommClock::now() + look_interval;
      }
    } catch (const CommError& e) {
      request_end(e, nullptr, e.kind() != CommErrorKind::aborted);
    } catch (const std::exception& e) {
      request_end(CommError(CommErrorKind::aborted, rank_, str("rank ", rank_, ": ", e.what())),
                  nullptr, true);
    }
  }
}

// Whether an operation is over.
bool StreamGroup::advance() {
  std::shared_ptr<Operation> oldest;
  bool on_stream = false;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.empty() || ending_) return false;
    oldest = pending_.front();
    on_stream = oldest->on_stream;
  }
  if (on_stream && oldest->passed.done()) {
    complete(oldest);
    return true;
  }
  if (CommClock::now() >= oldest->deadline()) {
    const std::chrono::duration<double> waited = CommClock::now() - oldest->start();
    request_end(CommError(CommErrorKind::timeout, -1,
                          str(oldest->description(), ": timed out after ", waited.count(), " s")),
                oldest.get(), true);
  }
  return false;
}

void StreamGroup::complete(const std::shared_ptr<Operation>& operation) {
  const Outcome outcome = operation->enqueued.outcome();
  {
    const std::lock_guard lock(mutex_);
    pending_.pop_front();
    spare_events_.push_back(std::move(operation->passed));
    if (!outcome.error && operation->kind == Kind::collective) ++completed_;
  }
  if (!outcome.error) {
    operation->succeed_now(outcome.bytes);
    return;
  }
  request_end(*outcome.error, operation.get(), outcome.error->kind() != CommErrorKind::aborted);
  operation->fail_now(*outcome.error);
}

// Of an operation that is being broken off, whether or not it is on the stream yet.
void StreamGroup::await_passed(Operation& operation, Deadline patience) {
  std::function<void()> cancel;
  {
    std::unique_lock lock(mutex_);
    const bool late = !operation.on_stream;
    if (!enqueued_.wait_until(lock, patience, [&] { return operation.on_stream; })) return;
    if (late) cancel = operation.enqueued.cancel;
  }
  if (cancel) cancel();
  try {
    while (!operation.passed.done() && CommClock::now() < patience) {
      std::this_thread::sleep_for(between_queries);
    }
  } catch (const std::exception&) {  // a broken device: its memory is lost anyhow
  }
}

void StreamGroup::end_now() {
  std::deque<std::shared_ptr<Operation>> pending;
  std::optional<Ending> ending;
  {
    const std::lock_guard lock(mutex_);
    ending = ending_;
  }
  if (ending->error.kind() == CommErrorKind::timeout) ending->error = explain(ending->error);
  {
    const std::lock_guard lock(mutex_);
    ending_ = ending;
    ended_ = true;
    pending = std::exchange(pending_, {});
  }
  std::vector<std::function<void()>> cancels;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& o : pending) cancels.push_back(o->on_stream ? o->enqueued.cancel : nullptr);
  }
  for (const auto& cancel : cancels) {
    if (cancel) cancel();
  }
  break_off(ending->error, ending->tell);
  const Deadline patience = within(patience_with_stream);
  for (const auto& o : pending) await_passed(*o, patience);
  if (pending.empty()) return;
  const Operation* culprit = ending->culprit;
  if (std::none_of(pending.begin(), pending.end(),
                   [&](const auto& o) { return o.get() == culprit; })) {
    culprit = pending.front().get();
  }
  for (const auto& o : pending) {
    if (o.get() != culprit) {
      o->refuse(ending->error);
    } else if (ending->culprit == culprit) {
      o->fail_now(ending->error);
    } else {
      o->fail_now(CommError(ending->error.kind(), ending->error.peer(),
                            str(o->description(), ": ", ending->error.what())));
    }
  }
}

}  // namespace rondo
