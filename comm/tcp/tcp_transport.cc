#include "comm/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "comm/channels/channel_transport.h"
#include "comm/tcp/meeting.h"
#include "comm/tcp/tcp_channel.h"
#include "kernels/base/cpu/parallel.h"

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
  void watch(int fd, uint32_t events, TcpChannel* channel);
  void run();

  const std::chrono::seconds silence_;
  Socket epoll_, stop_;
  std::thread thread_;
};

TcpTransport::TcpTransport(const TcpOptions& options)
    : ChannelTransport(options.rank, options.world_size), silence_(options.silence) {
  if (options.world_size == 1) return;
  RONDO_CHECK(options.store != nullptr, "ranks need a store to find each other");
  const Deadline deadline = within(options.timeout);
  const auto store = make_prefix_store(*options.store, options.rendezvous_id);
  TcpOptions own = options;
  own.store = store.get();
  std::vector<Socket> sockets;
  try {
    sockets = meet(own, deadline);
  } catch (const CommError& e) {
    const std::string what =
        str("rank ", options.rank, ": rendezvous of ", options.world_size, " ranks: ");
    const std::string cause = e.what();
    if (cause.find(": rendezvous ") != std::string::npos) throw;
    throw CommError(e.kind(), e.peer(), what + cause);
  }
  epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  stop_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  RONDO_CHECK(epoll_ && stop_, "epoll: ", std::strerror(errno));
  watch(stop_.fd(), EPOLLIN, nullptr);
  for (int peer = 0; peer < world_.size; ++peer) {
    Socket& socket = sockets[static_cast<size_t>(peer)];
    set_socket_options(socket, silence_);
    auto& channel = world_.channels.emplace_back();
    if (peer == world_.rank) continue;
    channel = std::make_shared<TcpChannel>(
        world_, peer, std::make_unique<TcpPipe>(std::move(socket)), options.grace);
  }
  for (const auto& c : world_.channels) {
    if (c) watch(c->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, c.get());
  }
  thread_ = start_thread(str("rank ", options.rank, ": the thread of its connections"),
                         [this] { run(); });
}

void TcpTransport::watch(int fd, uint32_t events, TcpChannel* channel) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = channel;
  RONDO_CHECK(epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0,
              "epoll: ", std::strerror(errno));
}

void TcpTransport::run() {
  std::array<epoll_event, 64> events;
  // A tenth of the silence is how late it may be noticed.
  const std::chrono::milliseconds pause = std::chrono::milliseconds(silence_) / 10;
  Deadline next_look = within(pause);
  for (bool more = false;;) {
    const int n = epoll_wait(epoll_.fd(), events.data(), events.size(),
                             more ? 0 : static_cast<int>(pause.count()));
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      if (event.data.ptr == nullptr) return;
      static_cast<TcpChannel*>(event.data.ptr)->notice(event.events);
    }
    more = false;
    for (const auto& c : world_.channels) {
      if (!c || !c->has_work()) continue;
      c->progress();
      more = more || c->has_work();
    }
    if (CommClock::now() < next_look) continue;
    next_look = within(pause);
    for (const auto& c : world_.channels) {
      if (c) c->look_for_silence(silence_);
    }
  }
}

TcpTransport::~TcpTransport() {
  const Deadline deadline = within(farewell);
  for (const auto& c : world_.channels) {
    if (c) c->say_bye();
  }
  for (const auto& c : world_.channels) {
    if (c) c->wait_for_bye(deadline);
  }
  if (thread_.joinable()) {
    const uint64_t one = 1;
    const ssize_t written = ::write(stop_.fd(), &one, sizeof one);
    (void)written;  // cannot fail: the counter is 0
    thread_.join();
  }
  for (const auto& c : world_.channels) {
    if (c) c->close_connection();
  }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace rondo
