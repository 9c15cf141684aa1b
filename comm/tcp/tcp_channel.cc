#include "comm/tcp/tcp_channel.h"
#include "kernels/base/cpu/copy_bytes.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace rondo::tcp_transport {

using channels::Ending;
using channels::Frame;
using channels::FrameKind;

namespace {

// Many small frames arrive at once; large messages go past it.
constexpr size_t buffer_bytes = size_t{64} << 10;
constexpr const char* no_answer = "its machine does not answer";

}  // namespace

void World::begin(CommClock::duration grace, std::function<void()> wake) {
  grace_ = grace;
  wake_ = std::move(wake);
  const auto ranks = static_cast<size_t>(size);
  channels_.resize(ranks);
  found_ = std::make_unique<std::atomic<TcpChannel*>[]>(ranks);
}

void World::abort(int culprit, const std::string& reason) noexcept {
  std::unique_lock lock(mutex_);
  if (ending_) return;
  ending_ = Ending{CommErrorKind::aborted, culprit, str("rank ", culprit, " aborted: ", reason)};
  reason_ = reason;
  const auto all = channels_;
  lock.unlock();
  for (const auto& c : all) {
    if (c) c->abort(*ending_, reason_);
  }
}

void World::say_bye() {
  std::unique_lock lock(mutex_);
  const auto all = channels_;
  const bool ended = ending_.has_value();
  lock.unlock();
  for (const auto& c : all) {
    if (!c) continue;
    if (ended) c->abort(*ending_, reason_);
    c->say_bye();
  }
}

TcpChannel& World::to(int peer) {
  TcpChannel* const found = found_[static_cast<size_t>(peer)].load(std::memory_order_acquire);
  return found != nullptr ? *found : make(peer);
}

TcpChannel& World::make(int peer) {
  const auto at = static_cast<size_t>(peer);
  {
    const std::lock_guard lock(mutex_);
    if (channels_[at]) return *channels_[at];
    channels_[at] = std::make_shared<TcpChannel>(*this, peer, grace_);
    // Should the other side come, it is told as well.
    if (ending_) channels_[at]->abort(*ending_, reason_);
    found_[at].store(channels_[at].get(), std::memory_order_release);
    wanted_.push_back(peer);
  }
  wake_();
  return *channels_[at];
}

std::vector<std::shared_ptr<TcpChannel>> World::channels() const {
  const std::lock_guard lock(mutex_);
  return channels_;
}

std::vector<int> World::take_wanted() {
  const std::lock_guard lock(mutex_);
  return std::exchange(wanted_, {});
}

void TcpPipe::open(Socket socket) {
  socket_ = std::move(socket);
  buffer_.resize(buffer_bytes);
  readable_ = writable_ = arriving_ = true;
}

size_t TcpPipe::receive(std::span<std::byte> to) {
  const std::array<iovec, 2> into{iovec{to.data(), to.size()},
                                  iovec{buffer_.data(), buffer_.size()}};
  ssize_t n;
  do {
    n = readv(socket_.fd(), into.data(), into.size());
  } while (n < 0 && errno == EINTR);
  if (n == 0) throw Error("its connection is closed");
  if (n < 0 && errno != EAGAIN) {
    throw Error(errno == ETIMEDOUT ? no_answer : std::strerror(errno));
  }
  const size_t got = n < 0 ? 0 : static_cast<size_t>(n);
  // A short read has emptied the socket; what comes later is an event of its own.
  arriving_ = n > 0 && (hung_up_ || got == to.size() + buffer_.size());
  begin_ = 0;
  end_ = got > to.size() ? got - to.size() : 0;
  readable_ = end_ > 0 || arriving_;
  return std::min(got, to.size());
}

size_t TcpPipe::read(std::span<std::byte> to) {
  if (begin_ == end_ && arriving_) return receive(to);
  const size_t n = std::min(to.size(), end_ - begin_);
  copy_bytes(to.data(), buffer_.data() + begin_, n);
  skip(n);
  return n;
}

TcpPipe::Bytes TcpPipe::peek() {
  if (begin_ == end_ && arriving_) receive({});
  return std::span(buffer_).subspan(begin_, end_ - begin_);
}

void TcpPipe::skip(size_t n) {
  begin_ += n;
  readable_ = begin_ < end_ || arriving_;
}

size_t TcpPipe::write(std::span<const Bytes> parts) {
  if (!writable_) return 0;
  std::array<iovec, 4> from;
  RONDO_CHECK(parts.size() <= from.size(), parts.size(), " parts");
  for (size_t i = 0; i < parts.size(); ++i) {
    // sendmsg only reads.
    from[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  }
  msghdr message{};
  message.msg_iov = from.data();
  message.msg_iovlen = parts.size();
  ssize_t n;
  do {
    n = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<size_t>(n);
  writable_ = false;
  return 0;
}

void TcpPipe::ready(bool to_read, bool to_write, bool hung_up) {
  if (!socket_) return;
  hung_up_ = hung_up_ || hung_up;
  arriving_ = arriving_ || to_read || hung_up;
  readable_ = begin_ < end_ || arriving_;
  if (to_write) writable_ = true;
}

void TcpPipe::close() {
  socket_ = Socket();
  readable_ = writable_ = arriving_ = false;
}

TcpChannel::TcpChannel(World& world, int peer, CommClock::duration grace)
    : Channel(world.rank, peer, std::make_unique<TcpPipe>(), grace),
      world_(&world),
      tcp_(static_cast<TcpPipe*>(&this->pipe())) {}

bool TcpChannel::connect(Socket socket) {
  Lock lock(mutex_);
  if (gone_) return false;
  tcp_->open(std::move(socket));
  return true;
}

void TcpChannel::notice(uint32_t events) {
  Lock lock(mutex_);
  tcp_->ready((events & EPOLLIN) != 0, (events & EPOLLOUT) != 0,
              (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

void TcpChannel::look_for_silence(std::chrono::seconds silence) {
  Lock lock(mutex_);
  const bool silent = tcp_->is_silent(silence);
  lock.unlock();
  if (silent) lose(no_answer);
}

void TcpChannel::reply(const Frame& frame) {
  queue(frame);
  write_some();
  changed_.notify_all();
}

bool TcpChannel::hear(const News& news) {
  switch (news.frame.kind) {
    case FrameKind::abort: {
      const uint64_t culprit = news.frame.number;
      const bool known = culprit < static_cast<uint64_t>(world_->size);
      world_->abort(known ? static_cast<int>(culprit) : peer(), news.text);
      Lock lock(mutex_);
      reply({FrameKind::bye_seen, 0, 0, 0});
      return true;
    }
    case FrameKind::bye: {
      Lock lock(mutex_);
      set_ending(
          {CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: it has finished")});
      heard_ = true;
      reply({FrameKind::bye_seen, 0, 0, 0});
      return true;
    }
    case FrameKind::bye_seen: {
      Lock lock(mutex_);
      heard_ = true;
      changed_.notify_all();
      return true;
    }
    default:
      return false;
  }
}

void TcpChannel::abort(const Ending& e, const std::string& reason) {
  Lock lock(mutex_);
  if (ending()) return;
  set_ending(e);
  const auto text = std::string_view(reason).substr(0, channels::longest_reason);
  queue({FrameKind::abort, static_cast<uint64_t>(e.culprit), 0, text.size()}, text);
  write_some();
}

void TcpChannel::give_up(const std::string& what) { world_->abort(rank(), what); }

void TcpChannel::lose(const std::string& cause) {
  Lock lock(mutex_);
  gone_ = true;
  set_ending({CommErrorKind::peer_lost, peer(), str("rank ", peer(), " is lost: ", cause)});
  tcp_->close();
  close();
}

void TcpChannel::say_bye() {
  Lock lock(mutex_);
  if (!tcp_->is_open()) gone_ = true;
  if (ending()) return;
  set_ending({CommErrorKind::aborted, -1, "the transport was destroyed"});
  reply({FrameKind::bye, 0, 0, 0});
}

void TcpChannel::wait_for_bye(Deadline deadline) {
  Lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return gone_ || (heard_ && all_written()); });
}

void TcpChannel::close_connection() {
  Lock lock(mutex_);
  tcp_->close();
  close();
}

}  // namespace rondo::tcp_transport
