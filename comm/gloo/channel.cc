#include "comm/gloo/channel.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/cpu/thread.h"

namespace rondo::gloo_transport {
namespace {

// Gloo closes the whole context when a wait of its own times out, so it never gets to.
constexpr auto forever = std::chrono::hours(24 * 365);
// For transfers and letters under way when the world is aborted.
constexpr auto last_moment = std::chrono::milliseconds(100);
constexpr auto until_close = std::chrono::milliseconds(300);
// Letters that may wait to be reused before the writing thread is woken for their sake.
constexpr size_t many_letters = 32;

}  // namespace

std::string without_position(std::string text) {
  const size_t end = text.find("] ");
  if (text.starts_with("[") && end != std::string::npos) text.erase(0, end + 2);
  return text;
}

void World::abort(int culprit, const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (aborted.exchange(true)) return;
    ending_ = Ending{CommErrorKind::aborted, culprit, str("rank ", culprit, " aborted: ", reason)};
    reason_ = reason;
  }
  for (const auto& c : channels) {
    if (c) c->begin_end(*ending_, &reason_);
  }
  const Deadline settle_by = within(last_moment);
  for (const auto& c : channels) {
    if (c) c->finish_end(settle_by);
  }
}

void World::say_bye() {
  bool ended;
  {
    const std::lock_guard lock(mutex_);
    ended = ending_.has_value();
  }
  for (const auto& c : channels) {
    if (!c) continue;
    if (ended) c->begin_end(*ending_, &reason_);
    c->say_bye();
  }
}

Channel::Channel(World& world, int peer)
    : Endpoint(world.rank, peer), world_(&world), grace_(world.grace) {}

Channel::~Channel() = default;

void Channel::start(std::string_view peer_nonce) {
  Lock lock(mutex_);
  for (Letter& letter : inbox_) {
    letter.buffer = world_->context->createUnboundBuffer(letter.memory.data(), max_letter_bytes);
    letter.buffer->recv(peer(), letter_slot);
  }
  const Digest proof =
      hello_proof(world_->token, world_->rendezvous_id, rank(), peer(), peer_nonce);
  send_letter({.kind = LetterKind::hello, .size = letter_magic}, std::as_bytes(std::span(proof)));
  greeting_sent_ = true;
  if (farewell_) send_abort(*farewell_);
  // stop() joins what was started: the transport calls it when the other cannot be.
  const std::string what = str("rank ", rank(), ": a thread that serves rank ", peer());
  reader_ = start_thread(what, [this] { read_letters(); });
  writer_ = start_thread(what, [this] { write_on(); });
}

void Channel::wait_for_hello(Deadline deadline) {
  Lock lock(mutex_);
  const bool in_time = changed_.wait_until(lock, deadline, [&] { return greeted_ || ending_; });
  if (greeted_) return;
  const std::string what = str("rank ", rank(), ": rendezvous with rank ", peer(), ": ");
  if (!in_time) throw CommError(CommErrorKind::timeout, peer(), what + "no greeting in time");
  throw CommError(ending_->kind, ending_->culprit, what + ending_->cause);
}

template <class Act>
void Channel::guarded(Lock& lock, Act act) {
  try {
    act();
  } catch (const std::exception& e) {
    lock.unlock();
    lose(without_position(e.what()));
    lock.lock();
  }
}

void Channel::send_letter(LetterHead head, std::span<const std::byte> body) {
  std::unique_ptr<Letter> letter;
  if (spare_.empty()) {
    letter = std::make_unique<Letter>();
    letter->buffer = world_->context->createUnboundBuffer(letter->memory.data(), max_letter_bytes);
  } else {
    letter = std::move(spare_.back());
    spare_.pop_back();
  }
  head.body_bytes = static_cast<uint32_t>(body.size());
  std::memcpy(letter->memory.data(), &head, sizeof(head));
  copy_bytes(letter->memory.data() + sizeof(head), body.data(), body.size());
  const std::shared_ptr<GlooBuffer> buffer = letter->buffer;
  outgoing_.push_back({buffer, nullptr, std::move(letter)});
  buffer->send(peer(), letter_slot, 0, sizeof(head) + body.size());
  if (outgoing_.size() > many_letters) changed_.notify_all();
}

void Channel::begin_send(const OperationPtr& op, const Announcement& to) {
  if (op->size != to.size) {
    send_letter({.kind = LetterKind::mismatch, .number = to.number, .size = op->size});
    return op->mismatch(to.size);
  }
  if (op->size <= max_body_bytes) {
    send_letter({.kind = LetterKind::body, .number = to.number}, {op->data, op->size});
    op->complete();
    return;
  }
  op->moving = true;
  op->buffer = world_->context->createUnboundBuffer(op->data, op->size);
  outgoing_.push_back({op->buffer, op, nullptr});
  ++outgoing_operations_;
  op->buffer->send(peer(), data_slot(to.number));
  send_letter({.kind = LetterKind::sent, .number = to.number});
  changed_.notify_all();
}

void Channel::begin_recv(const OperationPtr& op) {
  matching_.expect(op);
  if (op->size > max_body_bytes) {
    op->buffer = world_->context->createUnboundBuffer(op->data, op->size);
    op->buffer->recv(peer(), data_slot(op->number));
  }
  send_letter(
      {.kind = LetterKind::announce, .number = op->number, .tag = op->tag, .size = op->size});
}

Work Channel::post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline) {
  auto op =
      std::allocate_shared<Operation>(RecyclingAllocator<Operation>(operations_),
                                      shared_from_this(), direction, tag, data, size, deadline);
  Lock lock(mutex_);
  if (ending_) {
    op->break_off(*ending_);
    return Work(std::move(op));
  }
  if (direction == Direction::recv) {
    guarded(lock, [&] { begin_recv(op); });
  } else if (const auto to = matching_.offer(op)) {
    // Queued first, so that it fails with the rest should Gloo throw.
    guarded(lock, [&] { begin_send(op, *to); });
    if (ending_ && !op->moving && !op->done()) op->break_off(*ending_);
  }
  return Work(std::move(op));
}

void Channel::withdraw(channels::Operation& operation, CommErrorKind kind,
                       const std::string& cause) {
  Lock lock(mutex_);
  if (operation.done()) return;
  if (operation.direction == Direction::send && !operation.moving) {
    RONDO_CHECK(matching_.take_send(operation), operation.description(), " is nowhere");
    operation.break_off(kind, peer(), cause);
    return;
  }
  if (operation.direction == Direction::recv) {
    guarded(lock, [&] {
      send_letter({.kind = LetterKind::revoke, .number = operation.number, .tag = operation.tag});
    });
  }
  const auto settled = [&] { return operation.done() || operation.revoked; };
  const bool agreed = changed_.wait_for(lock, grace_, settled);
  if (operation.done()) return;
  OperationPtr op =
      operation.direction == Direction::recv ? matching_.take_recv(operation.number) : nullptr;
  for (const Outgoing& o : outgoing_) {
    if (o.op.get() == &operation) op = o.op;
  }
  if (awaited_.op.get() == &operation) op = awaited_.op;
  RONDO_CHECK(op != nullptr, operation.description(), " is nowhere");
  cut(lock, op);
  if (!op->done()) op->break_off(kind, peer(), cause);
  if (agreed) return;
  // Gloo cannot be told to forget bytes that may be on their way: the connection is of no use now.
  World* const world = world_;
  lock.unlock();
  world->abort(rank(), str(operation.description(), ": ", cause));
}

// The bytes of one operation leave Gloo's hands, in whatever state they are.
void Channel::cut(Lock& lock, const OperationPtr& op) {
  if (!op->buffer) return;
  outgoing_operations_ -= std::erase_if(outgoing_, [&](const Outgoing& o) { return o.op == op; });
  if (awaited_.op == op) {
    awaited_.buffer->abortWaitSend();
    changed_.wait(lock, [&] { return awaited_.op != op; });
  }
  // Blocks while Gloo is inside a system call with it; afterwards nobody touches the memory.
  op->buffer.reset();
}

void Channel::fail_all(Lock& lock) {
  std::vector<OperationPtr> all = matching_.take_all();
  for (const Outgoing& o : outgoing_) {
    if (o.op) all.push_back(o.op);
  }
  if (awaited_.op) all.push_back(awaited_.op);
  if (awaited_.letter) awaited_.buffer->abortWaitSend();
  const Ending ending = *ending_;
  for (const OperationPtr& op : all) {
    cut(lock, op);
    if (!op->done()) op->break_off(ending);
  }
  changed_.notify_all();
}

void Channel::lose(const std::string& cause) {
  begin_end({CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: ", cause)}, nullptr);
  {
    Lock lock(mutex_);
    gone_ = true;
    changed_.notify_all();
  }
  finish_end(CommClock::now());
}

void Channel::begin_end(const Ending& ending, const std::string* tell) {
  Lock lock(mutex_);
  if (ending_) return;
  ending_ = ending;
  if (ending.kind != CommErrorKind::aborted) return;
  close_at_ = within(until_close);
  if (tell == nullptr) return;
  farewell_ = *tell;
  if (!greeting_sent_) return;  // start() will
  try {
    send_abort(*tell);
  } catch (const std::exception&) {
    gone_ = true;  // it needs no telling
  }
}

void Channel::send_abort(const std::string& reason) {
  const auto body = std::as_bytes(std::span(reason));
  send_letter({.kind = LetterKind::abort, .number = static_cast<uint64_t>(ending_->culprit)},
              body.first(std::min(body.size(), max_body_bytes)));
}

// What is half sent when it is cut keeps all later letters from getting through, hence the wait.
void Channel::finish_end(Deadline settle_by) {
  Lock lock(mutex_);
  changed_.wait_until(lock, settle_by, [&] { return outgoing_operations_ == 0 || gone_; });
  fail_all(lock);
}

void Channel::say_bye() {
  Lock lock(mutex_);
  if (ending_) return;
  ending_ = Ending{CommErrorKind::aborted, -1, "the transport was destroyed"};
  fail_all(lock);
  try {
    send_letter({.kind = LetterKind::bye});
  } catch (const std::exception&) {
    gone_ = true;
  }
}

void Channel::wait_for_bye(Deadline deadline) {
  Lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return bye_seen_ || gone_; });
}

void Channel::stop() {
  {
    Lock lock(mutex_);
    stop_ = true;
    if (awaited_.buffer) awaited_.buffer->abortWaitSend();
    for (Letter& letter : inbox_) {
      if (letter.buffer) letter.buffer->abortWaitRecv();
    }
    changed_.notify_all();
  }
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
  Lock lock(mutex_);
  RONDO_CHECK(matching_.idle() && outgoing_operations_ == 0,
              "a channel stops with operations under way");
  outgoing_.clear();
  spare_.clear();
  for (Letter& letter : inbox_) letter.buffer.reset();
  world_ = nullptr;
}

void Channel::read_letters() {
  for (size_t i = 0;; i = (i + 1) % inbox_.size()) {
    Letter& letter = inbox_[i];
    try {
      if (!letter.buffer->waitRecv(nullptr, forever)) return;
      const LetterView view = parse_letter(letter.memory);
      handle(view.head, view.body);
      letter.buffer->recv(peer(), letter_slot);
    } catch (const std::exception& e) {
      lose(without_position(e.what()));
      return;
    }
  }
}

void Channel::check_hello(const LetterHead& head, std::span<const std::byte> body) {
  const Digest expected =
      hello_proof(world_->token, world_->rendezvous_id, peer(), rank(), world_->nonce);
  Digest proof{};
  if (body.size() == proof.size()) std::memcpy(proof.data(), body.data(), proof.size());
  if (head.kind != LetterKind::hello || head.size != letter_magic ||
      !equal_digests(proof, expected)) {
    throw Error("it does not prove the job token");
  }
  greeted_ = true;
  changed_.notify_all();
}

void Channel::handle(const LetterHead& head, std::span<const std::byte> body) {
  Lock lock(mutex_);
  if (!greeted_) return check_hello(head, body);
  switch (head.kind) {
    case LetterKind::abort: {
      const std::string cause(reinterpret_cast<const char*>(body.data()), body.size());
      const auto culprit = static_cast<int>(head.number);
      send_letter({.kind = LetterKind::bye_seen});
      lock.unlock();
      return world_->abort(culprit >= 0 && culprit < world_->size ? culprit : peer(), cause);
    }
    case LetterKind::bye_seen:
      bye_seen_ = true;
      return changed_.notify_all();
    case LetterKind::bye:
      send_letter({.kind = LetterKind::bye_seen});
      lock.unlock();
      return lose("it has finished");
    default:
      if (!ending_) settle(head, body);
      changed_.notify_all();
  }
}

// The letters about messages.
void Channel::settle(const LetterHead& head, std::span<const std::byte> body) {
  if (head.kind == LetterKind::announce) {
    const OperationPtr op = matching_.announced(head.tag, {head.number, head.size});
    if (!op) return;
    try {
      return begin_send(op, {head.number, head.size});
    } catch (...) {
      if (!op->moving && !op->done()) matching_.put_back(op);
      throw;
    }
  }
  if (head.kind == LetterKind::revoke) {
    if (!matching_.forget(head.tag, head.number)) return;  // it has been sent
    return send_letter({.kind = LetterKind::revoked, .number = head.number});
  }
  if (head.kind == LetterKind::revoked) {
    if (Operation* const op = matching_.recv(head.number)) op->revoked = true;
    return;
  }
  const OperationPtr op = matching_.take_recv(head.number);
  if (!op) throw Error(str("a letter about recv ", head.number, ", which is unknown"));
  if (head.kind == LetterKind::body && op->size == body.size()) {
    copy_bytes(op->data, body.data(), body.size());
    op->complete();
  } else if (head.kind == LetterKind::sent && op->buffer) {
    op->buffer->waitRecv(nullptr, forever);  // has come already, before this letter
    op->buffer.reset();
    op->complete();
  } else {
    op->buffer.reset();
    op->mismatch(head.size);
  }
}

// With the lock held, after waiting for awaited_.
void Channel::finish_outgoing(bool sent) {
  Outgoing done = std::exchange(awaited_, {});
  if (done.op && sent) {
    --outgoing_operations_;
    done.op->buffer.reset();
    if (!done.op->done()) done.op->complete();
  } else if (done.letter && sent) {
    spare_.push_back(std::move(done.letter));
  } else if (done.letter) {
    outgoing_.push_front(std::move(done));  // still Gloo's
  } else {
    --outgoing_operations_;  // whoever interrupted the wait looks after the operation
  }
  changed_.notify_all();
}

// Tells operations that their bytes have gone, and collects letters for reuse.
void Channel::write_on() {
  Lock lock(mutex_);
  while (!stop_) {
    if (close_at_ != Deadline::max()) {
      if (changed_.wait_until(lock, close_at_, [&] { return stop_; })) return;
      lock.unlock();
      world_->context->getPair(peer())->close();
      lock.lock();
      gone_ = true;
      changed_.notify_all();
      return;
    }
    if (outgoing_operations_ == 0 && outgoing_.size() <= many_letters) {
      changed_.wait(lock);
      continue;
    }
    awaited_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    GlooBuffer& buffer = *awaited_.buffer;
    lock.unlock();
    bool sent = false;
    std::string error;
    try {
      sent = buffer.waitSend(nullptr, forever);
    } catch (const std::exception& e) {
      error = without_position(e.what());
    }
    lock.lock();
    if (error.empty()) {
      finish_outgoing(sent);
      continue;
    }
    outgoing_.push_front(std::exchange(awaited_, {}));  // fails with the rest
    changed_.notify_all();
    lock.unlock();
    lose(error);
    return;
  }
}

}  // namespace rondo::gloo_transport
