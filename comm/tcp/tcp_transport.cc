#include "comm/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "comm/channels/channel_transport.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/tcp_channel.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

using namespace tcp_transport;
using channels::Direction;

// For the others' goodbyes.
constexpr auto farewell = std::chrono::seconds(2);

class TcpTransport final : public channels::ChannelTransport<World> {
 public:
  explicit TcpTransport(const TcpOptions& options);
  ~TcpTransport() override;

  bool adds_on_arrival(int) const override { return true; }
  Work recv_add(int from, Tag tag, std::span<std::byte> data, Element element,
                Deadline deadline) override {
    return channel(from).post(Direction::recv, tag, data.data(), data.size(), deadline,
                              channels::landing_of(element, data));
  }

 private:
  void meet(const TcpOptions& options, Deadline deadline);
  void watch(int fd, uint32_t events, void* what);
  void connect(int peer, Socket socket);
  void hear(std::vector<News> news);
  void run();
  // False: the transport is destroyed.
  bool take_events(bool more);
  void look_for_silence();
  void wake();

  const std::chrono::seconds silence_;
  Socket epoll_, wake_;
  std::atomic<bool> stop_{false};
  // These are the thread's, once it runs.
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::shared_ptr<TcpChannel>> connected_;
  Deadline next_look_{};
  Thread thread_;
};

TcpTransport::TcpTransport(const TcpOptions& options)
    : ChannelTransport(options.rank, options.world_size), silence_(options.silence) {
  world_.begin(options.grace, [this] { wake(); });
  if (options.world_size == 1) return;
  RONDO_CHECK(options.store != nullptr, "ranks need a store to find each other");
  epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  RONDO_CHECK(epoll_ && wake_, "epoll: ", std::strerror(errno));
  watch(wake_.fd(), EPOLLIN, this);
  try {
    meet(options, within(options.timeout));
  } catch (const CommError& e) {
    const std::string what =
        str("rank ", options.rank, ": rendezvous of ", options.world_size, " ranks: ");
    const std::string cause = e.what();
    if (cause.find(": rendezvous ") != std::string::npos) throw;
    throw CommError(e.kind(), e.peer(), what + cause);
  }
  thread_ = start_thread(str("rank ", options.rank, ": the thread of its connections"),
                         [this] { run(); });
}

void TcpTransport::meet(const TcpOptions& options, Deadline deadline) {
  const auto store = make_prefix_store(*options.store, options.rendezvous_id);
  TcpOptions own = options;
  own.store = store.get();
  meeting_ = std::make_unique<Meeting>(own, deadline);
  hear(meeting_->meet());
  if (meeting_->is_open()) {
    watch(meeting_->fd(), EPOLLIN, meeting_.get());
  } else {
    meeting_.reset();
  }
}

void TcpTransport::watch(int fd, uint32_t events, void* what) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = what;
  RONDO_CHECK(epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0,
              "epoll: ", std::strerror(errno));
}

void TcpTransport::hear(std::vector<News> news) {
  for (News& n : news) {
    if (n.socket) {
      connect(n.peer, std::move(n.socket));
    } else {
      world_.to(n.peer).cannot_connect(n.lost);
    }
  }
}

void TcpTransport::connect(int peer, Socket socket) {
  set_socket_options(socket, silence_);
  const auto channel = std::static_pointer_cast<TcpChannel>(world_.to(peer).shared_from_this());
  const int fd = socket.fd();
  if (!channel->connect(std::move(socket))) return;
  connected_.push_back(channel);
  watch(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, channel.get());
}

void TcpTransport::wake() {
  const uint64_t one = 1;
  const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
  (void)written;  // cannot fail: the thread reads it, or is about to
}

bool TcpTransport::take_events(bool more) {
  std::array<epoll_event, 64> events;
  // A tenth of the silence is how late it may be noticed.
  const Deadline until = meeting_ ? std::min(next_look_, meeting_->next()) : next_look_;
  const int n =
      epoll_wait(epoll_.fd(), events.data(), events.size(), more ? 0 : poll_timeout(until));
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.ptr == this) {
      uint64_t count = 0;
      const ssize_t got = ::read(wake_.fd(), &count, sizeof count);
      (void)got;  // epoll has said that it is there
    } else if (event.data.ptr != meeting_.get()) {
      static_cast<TcpChannel*>(event.data.ptr)->notice(event.events);
    }
  }
  if (stop_) return false;
  if (!meeting_) return true;
  try {
    for (const int peer : world_.take_wanted()) meeting_->want(peer);
    hear(meeting_->go_on());
  } catch (const Error& e) {
    world_.abort(world_.rank, e.what());
  }
  return true;
}

void TcpTransport::run() {
  next_look_ = within(std::chrono::milliseconds(silence_) / 10);
  for (bool more = false; take_events(more);) {
    more = false;
    for (const auto& c : connected_) {
      if (!c->has_work()) continue;
      c->progress();
      more = more || c->has_work();
    }
    if (CommClock::now() >= next_look_) look_for_silence();
  }
}

void TcpTransport::look_for_silence() {
  next_look_ = within(std::chrono::milliseconds(silence_) / 10);
  for (const auto& c : connected_) c->look_for_silence(silence_);
}

TcpTransport::~TcpTransport() {
  if (!thread_.joinable()) return;
  const Deadline deadline = within(farewell);
  const auto channels = world_.channels();
  world_.say_bye();
  for (const auto& c : channels) {
    if (c) c->wait_for_bye(deadline);
  }
  stop_ = true;
  wake();
  thread_.join();
  for (const auto& c : channels) {
    if (c) c->close_connection();
  }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace rondo
