#include "comm/shared/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/shared/waiting.h"

namespace rondo::shared_transport {
namespace {

// Between two looks at who has to be woken: both sides copy at the same time.
constexpr size_t copied_at_once = size_t{128} << 10;
// Read before something else has its turn.
constexpr size_t read_at_once = size_t{1} << 20;

}  // namespace

std::string Operation::description() const {
  return str("rank ", channel->rank(), ": ",
             direction == Direction::send ? "send to rank " : "recv from rank ", channel->peer(),
             " (", describe_tag(tag), ", ", size, " bytes)");
}

bool Operation::wait_until(Deadline deadline) {
  return channel->waiting().wait(*this, deadline, [&] { return WorkState::wait_until(deadline); });
}

void Operation::withdraw(CommErrorKind kind, const std::string& cause) {
  channel->withdraw(*this, kind, cause);
}

Channel::Channel(ChannelEnds ends, std::shared_ptr<Waiting> waiting, Transport& inner,
                 CommClock::duration grace)
    : ends_(std::move(ends)), waiting_(std::move(waiting)), inner_(&inner), grace_(grace) {
  ends_.in.head().unwatched = 1;
}

Work Channel::post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline) {
  auto op =
      std::allocate_shared<Operation>(RecyclingAllocator<Operation>(operations_),
                                      shared_from_this(), direction, tag, data, size, deadline);
  Lock lock(mutex_);
  if (ending_) {
    op->break_off(ending_->kind, ending_->culprit, ending_->cause);
    return Work(std::move(op));
  }
  const auto met = announced_.find(tag);
  if (direction == Direction::recv) {
    op->number = next_number_++;
    recvs_[op->number] = op;
    queue({FrameKind::announce, op->number, tag, size});
  } else if (met == announced_.end()) {
    sends_[tag].push_back(op);
  } else {
    const Announcement to = met->second.front();
    met->second.pop_front();
    if (met->second.empty()) announced_.erase(met);
    begin_send(op, to);
  }
  ends_.in.head().unwatched = 0;
  move_and_unlock(std::move(lock));
  return Work(std::move(op));
}

void Channel::begin_send(const OperationPtr& op, const Announcement& to) {
  if (op->size == to.size) {
    op->moving = true;
    return queue({FrameKind::data, to.number, 0, op->size}, op);
  }
  queue({FrameKind::mismatch, to.number, 0, op->size});
  ended_ = true;
  op->break_off(
      CommErrorKind::mismatch, peer(),
      str("rank ", rank(), " sends ", op->size, " bytes, rank ", peer(), " expects ", to.size));
}

void Channel::complete(const OperationPtr& op) {
  ended_ = true;
  op->complete();
}

void Channel::queue(const Frame& frame, OperationPtr op) {
  outgoing_.push_back({frame, std::move(op), 0});
  has_outgoing_ = true;
}

void Channel::progress() {
  Lock lock(mutex_);
  if (!ending_) move_and_unlock(std::move(lock));
}

void Channel::move_and_unlock(Lock lock) {
  try {
    move();
    tell_leader();
    // Somebody else has to take the rest.
    if (!ends_.in.empty()) ends_.own_bell->ring();
  } catch (const Error& e) {
    const std::string cause = str("rank ", peer(), " is lost: ", e.what());
    lock.unlock();
    end({CommErrorKind::peer_lost, peer(), cause});
    inner_->abort(cause);
  }
}

// A leader that saw the work of another thread sleeps, perhaps on an operation that it has ended.
void Channel::tell_leader() {
  if (std::exchange(ended_, false)) ends_.own_bell->ring_leader();
}

void Channel::move() {
  read_some();
  write_some();
  if (withdrawing_ > 0) changed_.notify_all();
  if (idle()) ends_.in.head().unwatched = 1;
}

// The other side need not wake up for letters while nothing of it is under way.
void Channel::ring_for_arrivals() {
  if (std::exchange(urgent_, false) || ends_.out.head().unwatched.load() == 0) {
    ends_.peer_bell->ring();
  }
}

void Channel::ring_for_room() {
  auto& wanted = ends_.in.head().room_wanted;
  if (wanted.load() != 0 && ends_.in.half_empty()) {
    wanted = 0;
    ends_.peer_bell->ring();
  }
}

void Channel::read_some() {
  for (size_t total = 0; total < read_at_once;) {
    const std::span<const std::byte> there = ends_.in.arrived();
    if (there.empty()) return;
    size_t n = frame_bytes;
    if (reading_) {
      n = read_data(there);
    } else {
      const Frame frame = parse_frame(there);
      handle(frame);
    }
    ends_.in.took(n);
    ring_for_room();
    total += n;
  }
}

size_t Channel::read_data(std::span<const std::byte> bytes) {
  const uint64_t size = reading_->size;
  const size_t n = std::min<uint64_t>({bytes.size(), padded(size) - read_, copied_at_once});
  if (reader_)
    std::memcpy(reader_->data + read_, bytes.data(), std::min<uint64_t>(n, size - read_));
  read_ += n;
  if (read_ < padded(size)) return n;
  reading_.reset();
  if (reader_) complete(std::exchange(reader_, nullptr));
  return n;
}

void Channel::handle(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::announce: {
      const auto waiting = sends_.find(frame.tag);
      if (waiting == sends_.end()) {
        announced_[frame.tag].push_back({frame.number, frame.size});
        return;
      }
      begin_send(waiting->second.front(), {frame.number, frame.size});
      waiting->second.pop_front();
      if (waiting->second.empty()) sends_.erase(waiting);
      return;
    }
    case FrameKind::revoke: {
      const auto list = announced_.find(frame.tag);
      if (list == announced_.end()) return;  // it has been sent
      const size_t erased = std::erase_if(
          list->second, [&](const Announcement& a) { return a.number == frame.number; });
      if (list->second.empty()) announced_.erase(list);
      if (erased == 0) return;
      urgent_ = true;
      return queue({FrameKind::revoked, frame.number, 0, 0});
    }
    case FrameKind::revoked: {
      const auto op = recvs_.find(frame.number);
      if (op != recvs_.end()) op->second->revoked = true;
      return;
    }
    default:
      settle_recv(frame);
  }
}

void Channel::settle_recv(const Frame& frame) {
  OperationPtr op = take_recv(frame.number);
  if (frame.kind == FrameKind::mismatch) {
    if (!op) return;
    ended_ = true;
    op->break_off(CommErrorKind::mismatch, peer(),
                  str("rank ", peer(), " sends ", frame.size, " bytes, rank ", rank(), " expects ",
                      op->size));
    return;
  }
  RONDO_CHECK(!op || op->size == frame.size, frame.size, " bytes for a recv of ", op->size);
  if (frame.size > 0) {
    reading_ = frame;
    reader_ = std::move(op);
    read_ = 0;
  } else if (op) {
    complete(op);
  }
}

void Channel::write_some() {
  while (!outgoing_.empty() && !broken_) {
    std::span<std::byte> room = ends_.out.room();
    if (room.empty()) {
      ends_.out.head().room_wanted = 1;
      room = ends_.out.room();
      if (room.empty()) return ring_for_arrivals();
    }
    const size_t n = write_front(room);
    ends_.out.wrote(n);
    const Outgoing& front = outgoing_.front();
    const uint64_t all = frame_bytes + (front.op ? padded(front.op->size) : 0);
    if (front.done == all) {
      if (front.op) complete(front.op);
      outgoing_.pop_front();
    }
    has_outgoing_ = !outgoing_.empty();
    if (outgoing_.empty() || n > frame_bytes) ring_for_arrivals();
  }
}

size_t Channel::write_front(std::span<std::byte> room) {
  Outgoing& o = outgoing_.front();
  if (o.done == 0) {
    std::memcpy(room.data(), &o.frame, frame_bytes);
    o.done = frame_bytes;
    return frame_bytes;
  }
  const uint64_t from = o.done - frame_bytes, size = o.op->size;
  const size_t n = std::min<uint64_t>({room.size(), padded(size) - from, copied_at_once});
  std::memcpy(room.data(), o.op->data + from, std::min<uint64_t>(n, size - from));
  o.done += n;
  return n;
}

Channel::OperationPtr Channel::take_recv(uint64_t number) {
  const auto found = recvs_.find(number);
  if (found == recvs_.end()) return nullptr;
  OperationPtr op = std::move(found->second);
  recvs_.erase(found);
  return op;
}

Channel::OperationPtr Channel::take(const Operation& op) {
  if (op.direction == Direction::recv) {
    if (reader_.get() == &op) return std::exchange(reader_, nullptr);
    return take_recv(op.number);
  }
  if (const auto queue = sends_.find(op.tag); queue != sends_.end()) {
    auto& list = queue->second;
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const auto& o) { return o.get() == &op; });
    if (at != list.end()) {
      OperationPtr taken = *at;
      list.erase(at);
      if (list.empty()) sends_.erase(queue);
      return taken;
    }
  }
  const auto at = std::find_if(outgoing_.begin(), outgoing_.end(),
                               [&](const Outgoing& o) { return o.op.get() == &op; });
  if (at == outgoing_.end()) return nullptr;
  broken_ = true;
  OperationPtr taken = at->op;
  outgoing_.erase(at);
  return taken;
}

void Channel::withdraw(Operation& operation, CommErrorKind kind, const std::string& cause) {
  Lock lock(mutex_);
  if (operation.done()) return;
  const bool waits = operation.direction == Direction::send && !operation.moving;
  bool agreed = waits;
  if (!waits) {
    ++withdrawing_;
    if (operation.direction == Direction::recv) {
      urgent_ = true;
      queue({FrameKind::revoke, operation.number, operation.tag, 0});
      ends_.in.head().unwatched = 0;
      write_some();
      tell_leader();
    }
    agreed = changed_.wait_for(lock, grace_, [&] { return operation.done() || operation.revoked; });
    --withdrawing_;
    if (operation.done()) return;
  }
  const OperationPtr op = take(operation);
  RONDO_CHECK(op != nullptr, operation.description(), " is nowhere");
  op->break_off(kind, peer(), cause);
  if (agreed) return;
  // What is half in a stream cannot be called back, nor can a rank be reached that does not answer.
  lock.unlock();
  inner_->abort(str(operation.description(), ": ", cause));
}

void Channel::fail_all(const Ending& ending) {
  std::vector<OperationPtr> all;
  for (auto& [tag, queue] : std::exchange(sends_, {})) {
    all.insert(all.end(), queue.begin(), queue.end());
  }
  for (auto& [number, op] : std::exchange(recvs_, {})) all.push_back(op);
  for (Outgoing& o : std::exchange(outgoing_, {})) {
    if (o.op) all.push_back(std::move(o.op));
  }
  if (reader_) all.push_back(std::exchange(reader_, nullptr));
  announced_.clear();
  has_outgoing_ = false;
  for (const OperationPtr& op : all) op->break_off(ending.kind, ending.culprit, ending.cause);
}

void Channel::end(const Ending& ending) {
  {
    Lock lock(mutex_);
    if (ending_) return;
    try {
      while (!ends_.in.empty()) read_some();
    } catch (const Error&) {
      // What it left behind is no message.
    }
    ending_ = ending;
    fail_all(ending);
    ends_.in.head().unwatched = 1;
    changed_.notify_all();
  }
  ends_.own_bell->ring();
}

}  // namespace rondo::shared_transport
