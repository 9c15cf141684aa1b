#include "comm/work.h"

#include <algorithm>
#include <utility>

#include "comm/work_state.h"

namespace rondo {
namespace detail {

bool WorkState::wait_until(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return finished_.wait_until(lock, deadline, [&] { return done_; });
}

bool WorkState::done() const {
  std::lock_guard lock(mutex_);
  return done_;
}

std::optional<CommError> WorkState::error() const {
  std::lock_guard lock(mutex_);
  if (!failed_) return std::nullopt;
  return CommError(kind_, peer_, message_);
}

size_t WorkState::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

CommClock::time_point WorkState::start() const {
  std::lock_guard lock(mutex_);
  return start_;
}

CommClock::time_point WorkState::end() const {
  std::lock_guard lock(mutex_);
  return end_;
}

void WorkState::began() {
  std::lock_guard lock(mutex_);
  start_ = CommClock::now();
}

void WorkState::succeed(size_t bytes) {
  std::unique_lock lock(mutex_);
  RONDO_CHECK(!done_, description(), " was finished twice");
  bytes_ = bytes;
  finish(std::move(lock));
}

void WorkState::fail(const CommError& error) {
  std::unique_lock lock(mutex_);
  RONDO_CHECK(!done_, description(), " was finished twice");
  failed_ = true;
  kind_ = error.kind();
  peer_ = error.peer();
  message_ = error.what();
  finish(std::move(lock));
}

void WorkState::finish(std::unique_lock<std::mutex> lock) {
  end_ = CommClock::now();
  done_ = true;
  finished_.notify_all();
  const auto all = std::exchange(then_, {});
  lock.unlock();
  for (const auto& then : all) then();
}

void WorkState::on_done(std::function<void()> then) {
  {
    std::lock_guard lock(mutex_);
    if (!done_) {
      then_.push_back(std::move(then));
      return;
    }
  }
  then();
}

namespace {

class DoneState final : public WorkState {
 public:
  DoneState() : WorkState("nothing to do", Deadline::max()) { succeed(0); }
  void withdraw(CommErrorKind, const std::string&) override {}
};

std::string seconds(CommClock::duration duration) {
  return str(std::chrono::duration<double>(duration).count(), " s");
}

void time_out(WorkState& state) {
  const auto waited = CommClock::now() - state.start();
  state.withdraw(CommErrorKind::timeout, str("timed out after ", seconds(waited)));
}

}  // namespace
}  // namespace detail

Work Work::nothing_to_do() { return Work(std::make_shared<detail::DoneState>()); }

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    drop();
    state_ = std::move(other.state_);
  }
  return *this;
}

Work::~Work() { drop(); }

void Work::drop() noexcept {
  if (!state_ || state_->done()) return;
  state_->withdraw(CommErrorKind::aborted, "withdrawn before it was done");
}

detail::WorkState& Work::state() const {
  RONDO_CHECK(state_ != nullptr, "this Work stands for no operation");
  return *state_;
}

void Work::wait() { wait(Deadline::max()); }

void Work::wait(Deadline deadline) {
  detail::WorkState& s = state();
  if (!s.wait_until(std::min(deadline, s.deadline()))) detail::time_out(s);
  if (const auto e = s.error()) throw *e;
}

bool Work::poll() {
  detail::WorkState& s = state();
  if (!s.done() && CommClock::now() >= s.deadline()) detail::time_out(s);
  return s.done();
}

std::optional<CommError> Work::error() const { return state().error(); }
size_t Work::bytes() const { return state().bytes(); }
CommClock::time_point Work::start() const { return state().start(); }
CommClock::time_point Work::end() const { return state().end(); }

}  // namespace rondo
