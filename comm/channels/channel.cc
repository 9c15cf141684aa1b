#include "comm/channels/channel.h"

#include <array>
#include <utility>

namespace rondo::channels {
namespace {

// Read before something else has its turn.
constexpr size_t read_at_once = size_t{1} << 20;
constexpr size_t added_at_once = size_t{128} << 10;
constexpr size_t unwanted_at_once = size_t{64} << 10;

template <class T>
void add(std::byte* to, const std::byte* from, size_t bytes) {
  T* const own = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    T arrived;
    std::memcpy(&arrived, from + i * sizeof(T), sizeof(T));
    own[i] += arrived;
  }
}

}  // namespace

Channel::Channel(int rank, int peer, std::unique_ptr<Pipe> pipe, CommClock::duration grace)
    : Endpoint(rank, peer), pipe_(std::move(pipe)), grace_(grace) {
  pipe_->watch(false);
}

Work Channel::post(Direction direction, Tag tag, std::byte* data, size_t size, Deadline deadline,
                   Landing landing) {
  auto op =
      std::allocate_shared<Operation>(RecyclingAllocator<Operation>(operations_),
                                      shared_from_this(), direction, tag, data, size, deadline);
  op->landing = landing;
  Lock lock(mutex_);
  if (ending_) {
    op->break_off(*ending_);
    return Work(std::move(op));
  }
  if (direction == Direction::recv) {
    matching_.expect(op);
    queue({FrameKind::announce, op->number, tag, size});
  } else if (const auto to = matching_.offer(op)) {
    begin_send(op, *to);
  }
  pipe_->watch(true);
  move_and_unlock(std::move(lock));
  return Work(std::move(op));
}

void Channel::begin_send(const OperationPtr& op, const Announcement& to) {
  if (op->size == to.size) {
    op->moving = true;
    outgoing_.push_back({{FrameKind::data, to.number, 0, op->size}, op, {}, {op->data, op->size}});
    has_outgoing_ = true;
    return;
  }
  queue({FrameKind::mismatch, to.number, 0, op->size});
  ended_ = true;
  op->mismatch(to.size);
}

void Channel::complete(const OperationPtr& op) {
  ended_ = true;
  op->complete();
}

void Channel::queue(const Frame& frame, std::string_view text) {
  Outgoing& o = outgoing_.emplace_back();
  o.frame = frame;
  const auto bytes = std::as_bytes(std::span(text));
  o.own.assign(bytes.begin(), bytes.end());
  o.body = o.own;
  has_outgoing_ = true;
}

void Channel::progress() {
  Lock lock(mutex_);
  if (!closed_) move_and_unlock(std::move(lock));
}

void Channel::move_and_unlock(Lock lock) {
  std::string trouble;
  try {
    move();
    pipe_->moved(std::exchange(ended_, false));
  } catch (const Error& e) {
    trouble = e.what();
  }
  const std::optional<News> news = std::exchange(news_, std::nullopt);
  lock.unlock();
  if (news && !hear(*news)) {
    trouble = str("a frame of kind ", static_cast<uint64_t>(news->frame.kind));
  }
  if (!trouble.empty()) lose(trouble);
}

void Channel::move() {
  if (pipe_->readable()) read_some();
  write_some();
  if (withdrawing_ > 0 || ending_) changed_.notify_all();
  if (idle()) pipe_->watch(false);
}

void Channel::read_some() {
  for (size_t total = 0; total < read_at_once && !news_;) {
    const size_t n = reading_ ? read_body() : read_head();
    if (n == 0) return;
    total += n;
  }
}

void Channel::read_what_came() {
  try {
    while (pipe_->readable() && !news_) read_some();
  } catch (const Error&) {
  }
}

size_t Channel::read_head() {
  const auto head = std::as_writable_bytes(std::span(&head_, 1));
  const size_t n = pipe_->read(head.subspan(head_read_));
  head_read_ += n;
  if (head_read_ == frame_bytes) {
    head_read_ = 0;
    handle(parse_frame(head));
  }
  return n;
}

void Channel::begin_body(const Frame& frame, OperationPtr op) {
  reading_ = frame;
  reader_ = std::move(op);
  body_read_ = element_read_ = 0;
  if (frame.size == 0) return end_body();
  if (frame.kind == FrameKind::abort) text_.resize(frame.size);
  if (!reader_ && unwanted_.empty()) unwanted_.resize(unwanted_at_once);
}

size_t Channel::read_body() {
  const size_t left = std::min<uint64_t>(reading_->size - body_read_, read_at_once);
  if (reader_ && reader_->landing != Landing::store) return add_body(left);
  std::span<std::byte> to;
  if (reader_) {
    to = {reader_->data + body_read_, left};
  } else if (reading_->kind == FrameKind::abort) {
    to = std::as_writable_bytes(std::span(text_)).subspan(body_read_);
  } else {
    to = std::span(unwanted_).first(std::min(left, unwanted_.size()));
  }
  const size_t n = pipe_->read(to);
  body_read_ += n;
  if (body_read_ == reading_->size) end_body();
  return n;
}

// Bytes come in pieces that may end within an element.
size_t Channel::add_body(size_t left) {
  const bool single = reader_->landing == Landing::add_f32;
  const size_t size = single ? sizeof(float) : sizeof(double);
  const auto add_some = single ? add<float> : add<double>;
  Pipe::Bytes there = pipe_->peek();
  there = there.first(std::min({there.size(), left, added_at_once}));
  const size_t n = there.size();
  std::byte* to = reader_->data + (body_read_ - element_read_);
  if (element_read_ > 0) {
    const size_t rest = std::min(n, size - element_read_);
    std::copy_n(there.data(), rest, element_.data() + element_read_);
    there = there.subspan(rest);
    element_read_ += rest;
    if (element_read_ == size) {
      add_some(to, element_.data(), size);
      to += size;
      element_read_ = 0;
    }
  }
  if (!there.empty()) {
    const size_t whole = there.size() / size * size;
    add_some(to, there.data(), whole);
    element_read_ = there.size() - whole;
    std::copy_n(there.data() + whole, element_read_, element_.data());
  }
  if (n > 0) pipe_->skip(n);
  body_read_ += n;
  if (body_read_ == reading_->size) end_body();
  return n;
}

void Channel::end_body() {
  const Frame frame = *std::exchange(reading_, std::nullopt);
  if (frame.kind == FrameKind::abort) news_ = News{frame, std::exchange(text_, {})};
  if (reader_) complete(std::exchange(reader_, nullptr));
}

void Channel::handle(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::announce:
      if (ending_) return;
      if (const auto op = matching_.announced(frame.tag, {frame.number, frame.size})) {
        begin_send(op, {frame.number, frame.size});
      }
      return;
    case FrameKind::revoke:
      if (!matching_.forget(frame.tag, frame.number)) return;  // it has been sent
      urgent_ = true;
      return queue({FrameKind::revoked, frame.number, 0, 0});
    case FrameKind::revoked:
      if (Operation* const op = matching_.recv(frame.number)) op->revoked = true;
      return;
    case FrameKind::abort:
      return begin_body(frame, nullptr);
    case FrameKind::bye:
    case FrameKind::bye_seen:
      news_ = News{frame, {}};
      return;
    default:
      settle_recv(frame);
  }
}

void Channel::settle_recv(const Frame& frame) {
  OperationPtr op = matching_.take_recv(frame.number);
  if (frame.kind == FrameKind::mismatch) {
    if (!op) return;
    ended_ = true;
    return op->mismatch(frame.size);
  }
  if (op && op->size != frame.size) {
    const std::string cause = str(frame.size, " bytes for a recv of ", op->size);
    op->break_off(CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: ", cause));
    ended_ = true;
    throw Error(cause);
  }
  begin_body(frame, std::move(op));
}

void Channel::write_some() {
  while (!outgoing_.empty()) {
    const size_t n = write_front();
    if (n == 0) return pipe_->written(std::exchange(urgent_, false));
    Outgoing& front = outgoing_.front();
    front.done += n;
    if (front.complete()) {
      if (front.op) complete(front.op);
      outgoing_.pop_front();
    }
    has_outgoing_ = !outgoing_.empty();
    if (outgoing_.empty() || n > frame_bytes) pipe_->written(std::exchange(urgent_, false));
  }
}

size_t Channel::write_front() {
  const Outgoing& o = outgoing_.front();
  const auto head = std::as_bytes(std::span(&o.frame, 1));
  const size_t of_head = std::min<uint64_t>(o.done, frame_bytes);
  const std::array<Pipe::Bytes, 2> parts{head.subspan(of_head), o.body.subspan(o.done - of_head)};
  return pipe_->write(parts);
}

Channel::OperationPtr Channel::detach(Outgoing& o) {
  const uint64_t gone = std::max<uint64_t>(o.done, frame_bytes) - frame_bytes;
  const auto rest = o.body.subspan(gone);
  o.own = std::vector<std::byte>(rest.begin(), rest.end());
  o.body = o.own;
  o.done -= gone;
  return std::exchange(o.op, nullptr);
}

Channel::OperationPtr Channel::take(Operation& op) {
  if (op.direction == Direction::recv) {
    if (reader_.get() == &op) {
      if (unwanted_.empty()) unwanted_.resize(unwanted_at_once);
      return std::exchange(reader_, nullptr);
    }
    return matching_.take_recv(op.number);
  }
  for (size_t i = 0; i < outgoing_.size(); ++i) {
    Outgoing& o = outgoing_[i];
    if (o.op.get() != &op) continue;
    if (o.begun()) return detach(o);
    OperationPtr taken = std::move(o.op);
    outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
    has_outgoing_ = !outgoing_.empty();
    return taken;
  }
  return nullptr;
}

// Where nothing of it has left, nobody knows of the recv: there is no connection yet, or no room.
bool Channel::forget_announcement(const Operation& op) {
  if (op.direction != Direction::recv) return false;
  const auto is_it = [&](const Outgoing& o) {
    return o.frame.kind == FrameKind::announce && o.frame.number == op.number && !o.begun();
  };
  if (std::erase_if(outgoing_, is_it) == 0) return false;
  has_outgoing_ = !outgoing_.empty();
  matching_.take_recv(op.number);
  return true;
}

void Channel::withdraw(Operation& operation, CommErrorKind kind, const std::string& cause) {
  Lock lock(mutex_);
  if (operation.done()) return;
  if (operation.direction == Direction::send && !operation.moving) {
    RONDO_CHECK(matching_.take_send(operation), operation.description(), " is nowhere");
    return operation.break_off(kind, peer(), cause);
  }
  if (forget_announcement(operation)) return operation.break_off(kind, peer(), cause);
  ++withdrawing_;
  if (operation.direction == Direction::recv) {
    urgent_ = true;
    queue({FrameKind::revoke, operation.number, operation.tag, 0});
    pipe_->watch(true);
    write_some();
    pipe_->moved(std::exchange(ended_, false));
  }
  const bool agreed =
      changed_.wait_for(lock, grace_, [&] { return operation.done() || operation.revoked; });
  --withdrawing_;
  if (operation.done()) return;
  const OperationPtr op = take(operation);
  RONDO_CHECK(op != nullptr, operation.description(), " is nowhere");
  op->break_off(kind, peer(), cause);
  if (agreed) return;
  // What is half sent cannot be called back, nor can a rank be reached that does not answer.
  lock.unlock();
  give_up(str(op->description(), ": ", cause));
}

void Channel::fail_all(const Ending& ending) {
  std::vector<OperationPtr> all = matching_.take_all();
  std::deque<Outgoing> half_written;
  if (!outgoing_.empty() && outgoing_.front().begun()) {
    half_written.push_back(std::move(outgoing_.front()));
    outgoing_.pop_front();
    if (half_written[0].op) all.push_back(detach(half_written[0]));
  }
  for (Outgoing& o : outgoing_) {
    if (o.op) all.push_back(std::move(o.op));
  }
  outgoing_ = std::move(half_written);
  has_outgoing_ = !outgoing_.empty();
  if (reader_) {
    all.push_back(std::exchange(reader_, nullptr));
    if (unwanted_.empty()) unwanted_.resize(unwanted_at_once);
  }
  for (const OperationPtr& op : all) op->break_off(ending);
}

void Channel::set_ending(const Ending& ending) {
  if (ending_) return;
  ending_ = ending;
  fail_all(ending);
  pipe_->watch(false);
  changed_.notify_all();
  pipe_->moved(true);
}

void Channel::close() {
  closed_ = true;
  outgoing_.clear();
  has_outgoing_ = false;
  changed_.notify_all();
}

}  // namespace rondo::channels
