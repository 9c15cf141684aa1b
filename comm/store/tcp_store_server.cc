#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <list>
#include <mutex>
#include <thread>

#include "comm/socket.h"
#include "comm/store/store_protocol.h"
#include "comm/store/tcp_store.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

constexpr int most_log_lines = 100;

struct Client {
  Socket socket;
  std::string name;
  std::string challenge;
  Deadline handshake_end;
  bool trusted = false;
  std::string in, out;
  std::optional<StoreRequest> waiting;
  Deadline waiting_end = Deadline::max();
  std::vector<std::string> announced;  // keys that go with it

  short events() const {
    // One request at a time, and the reply first: so what is kept per client stays bounded.
    if (!out.empty()) return POLLOUT;
    return waiting ? POLLRDHUP : POLLIN;
  }
};

}  // namespace

class TcpStoreServer::Impl {
 public:
  explicit Impl(TcpStoreServerOptions options)
      : options_(std::move(options)), table_(options_.max_table_bytes) {
    if (options_.token.empty()) fail_input("the store needs a job token, and it is empty");
    listener_ = listen_tcp(options_.bind_address, options_.port);
    port_ = local_port(listener_);
    wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    RONDO_CHECK(bool(wake_), "eventfd: ", std::strerror(errno));
    thread_ = start_thread("the thread of the store", [this] { serve(); });
  }
  ~Impl() {
    if (!thread_.joinable()) return;
    ask_for(Wish::stop);
    thread_.join();
  }
  void begin_anew() { ask_for(Wish::begin_anew); }

  const std::string& bind_address() const { return options_.bind_address; }
  uint16_t port() const { return port_; }

 private:
  using Clients = std::list<Client>;
  enum class Wish : uint8_t { none, begin_anew, stop };

  // Returns once the server's thread has done it.
  void ask_for(Wish wish);
  // Whether to go on.
  bool grant();
  void serve();
  void accept_all();
  void handle(Client& client);
  void advance(Client& client);
  bool read_some(Client& client);
  void take_answer(Client& client);
  void take_requests(Client& client);
  void write_some(Client& client);
  void reply(Client& client, const StoreReply& reply);
  void answer_waiting();
  void drop(Client& client, const std::string& why);
  void note_announced(Client& client, const std::string& key);
  void log(const std::string& line);

  const TcpStoreServerOptions options_;
  StoreTable table_;
  Socket listener_, wake_;
  uint16_t port_ = 0;
  Clients clients_;
  bool table_changed_ = false;
  int log_lines_ = 0;
  std::mutex mutex_;
  ConditionVariable granted_;
  Wish wish_ = Wish::none;
  bool ended_ = false;  // the thread: the system does not let it poll
  Thread thread_;
};

void TcpStoreServer::Impl::ask_for(Wish wish) {
  std::unique_lock lock(mutex_);
  wish_ = wish;
  const uint64_t one = 1;
  const ssize_t written = write(wake_.fd(), &one, sizeof(one));
  (void)written;  // cannot fail: the counter is 0
  granted_.wait(lock, [this] { return wish_ == Wish::none || ended_; });
}

bool TcpStoreServer::Impl::grant() {
  const std::lock_guard lock(mutex_);
  uint64_t count = 0;
  const ssize_t n = read(wake_.fd(), &count, sizeof(count));
  (void)n;  // cannot fail: poll has said so
  const bool stop = wish_ == Wish::stop;
  clients_.clear();
  table_ = StoreTable(options_.max_table_bytes);
  wish_ = Wish::none;
  granted_.notify_all();
  return !stop;
}

void TcpStoreServer::Impl::log(const std::string& line) {
  if (log_lines_ > most_log_lines) return;
  const std::string text = ++log_lines_ > most_log_lines
                               ? "store: further dropped connections are not listed"
                               : "store: " + line;
  if (options_.log) {
    options_.log(text);
  } else {
    std::cerr << text + "\n";
  }
}

void TcpStoreServer::Impl::drop(Client& client, const std::string& why) {
  if (!client.socket) return;
  if (!why.empty()) log(str("dropped ", client.name, ": ", why));
  client.socket = Socket();
  for (const std::string& key : client.announced) table_.remove(key);
  client.announced.clear();
}

// The last one to announce a key has it.
void TcpStoreServer::Impl::note_announced(Client& client, const std::string& key) {
  for (Client& c : clients_) std::erase(c.announced, key);
  client.announced.push_back(key);
}

void TcpStoreServer::Impl::serve() {
  std::vector<pollfd> polled;
  std::vector<Client*> order;
  for (;;) {
    polled.assign({{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}});
    order.clear();
    Deadline next = Deadline::max();
    for (Client& c : clients_) {
      polled.push_back({c.socket.fd(), c.events(), 0});
      order.push_back(&c);
      next = std::min(next, c.trusted ? c.waiting_end : c.handshake_end);
    }
    if (poll(polled.data(), polled.size(), poll_timeout(next)) < 0 && errno != EINTR) {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      granted_.notify_all();
      return;
    }
    if (polled[0].revents != 0) {
      if (!grant()) return;
      continue;
    }
    for (size_t i = 0; i < order.size(); ++i) {
      if (polled[i + 2].revents != 0) handle(*order[i]);
    }
    do answer_waiting();
    while (table_changed_);
    const auto now = CommClock::now();
    for (Client& c : clients_) {
      if (!c.trusted && now >= c.handshake_end) drop(c, "it did not prove the job token in time");
    }
    std::erase_if(clients_, [](const Client& c) { return !c.socket; });
    if (polled[1].revents != 0) accept_all();
  }
}

void TcpStoreServer::Impl::accept_all() {
  for (;;) {
    Socket s(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!s) {
      // Out of descriptors: leave the others in the queue for a moment instead of spinning.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        log(str("cannot accept a connection: ", std::strerror(errno)));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      if (errno == ECONNABORTED || errno == EINTR) continue;
      return;
    }
    const auto strangers =
        std::count_if(clients_.begin(), clients_.end(), [](const Client& c) { return !c.trusted; });
    const bool full = static_cast<int>(clients_.size()) >= options_.max_connections ||
                      strangers >= options_.max_strangers;
    Client client;
    client.name = peer_name(s);
    set_socket_options(s);
    client.socket = std::move(s);
    client.challenge = random_bytes(challenge_bytes);
    client.handshake_end = within(options_.handshake_timeout);
    client.out = str(store_magic, client.challenge);
    if (full) {
      drop(client, str("there are ", clients_.size(), " connections, ", strangers,
                       " of them not proved yet"));
      continue;
    }
    clients_.push_back(std::move(client));
    write_some(clients_.back());
  }
}

void TcpStoreServer::Impl::handle(Client& client) {
  if (!client.out.empty()) {
    write_some(client);
  } else if (client.waiting) {
    drop(client, "");  // it has hung up
  } else if (!read_some(client)) {
    return;
  }
  advance(client);
}

// As far as what it has sent goes.
void TcpStoreServer::Impl::advance(Client& client) {
  try {
    if (client.socket && !client.trusted && client.out.empty()) take_answer(client);
    if (client.trusted) take_requests(client);
  } catch (const InputError& e) {
    drop(client, e.what());
  }
}

// False: nothing to go on with.
bool TcpStoreServer::Impl::read_some(Client& client) {
  char buffer[64 * 1024];
  // Strangers may not send more than the one message they owe.
  const size_t most = client.trusted ? sizeof(buffer) : store_answer_bytes - client.in.size();
  const ssize_t n = recv(client.socket.fd(), buffer, most, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    drop(client, client.trusted ? "" : "it left without proving the job token");
    return false;
  }
  client.in.append(buffer, static_cast<size_t>(n));
  return true;
}

void TcpStoreServer::Impl::take_answer(Client& client) {
  const std::string_view known = std::string_view(client.in).substr(0, store_magic.size());
  if (!store_magic.starts_with(known)) fail_input("it does not speak the store's language");
  if (client.in.size() < store_answer_bytes) return;
  const std::string theirs = client.in.substr(store_magic.size(), challenge_bytes);
  Digest proof;
  std::memcpy(proof.data(), client.in.data() + store_greeting_bytes, proof.size());
  if (!equal_digests(proof, store_proof(Side::client, options_.token, client.challenge, theirs))) {
    write_all(client.socket, bytes_of(no_proof), CommClock::now());
    fail_input("it has a different job token");
  }
  client.in.clear();
  client.trusted = true;
  client.out = bytes_of(store_proof(Side::server, options_.token, client.challenge, theirs));
  write_some(client);
}

void TcpStoreServer::Impl::take_requests(Client& client) {
  while (client.socket && client.out.empty() && !client.waiting) {
    const std::optional<std::string> frame = take_frame(client.in);
    if (!frame) return;
    StoreRequest request = parse_store_request(*frame);
    table_changed_ |= request.op != StoreOp::get && request.op != StoreOp::wait;
    if (const auto now = table_.apply(request, request.wait_ms == 0)) {
      if (request.op == StoreOp::announce && now->status == StoreStatus::ok) {
        note_announced(client, request.keys[0]);
      }
      reply(client, *now);
    } else {
      client.waiting_end = within(std::chrono::milliseconds(request.wait_ms));
      client.waiting = std::move(request);
    }
  }
}

void TcpStoreServer::Impl::reply(Client& client, const StoreReply& r) {
  client.waiting.reset();
  client.waiting_end = Deadline::max();
  client.out = framed(encode(r));
  write_some(client);
}

void TcpStoreServer::Impl::answer_waiting() {
  const bool changed = std::exchange(table_changed_, false);
  const auto now = CommClock::now();
  for (Client& c : clients_) {
    if (!c.waiting || !c.socket) continue;
    const bool final = now >= c.waiting_end;
    if (!changed && !final) continue;
    if (const auto r = table_.apply(*c.waiting, final)) {
      reply(c, *r);
      advance(c);
    }
  }
}

void TcpStoreServer::Impl::write_some(Client& client) {
  while (client.socket && !client.out.empty()) {
    const ssize_t n = send(client.socket.fd(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (n > 0) {
      client.out.erase(0, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      drop(client, client.trusted ? "" : "it left without proving the job token");
    }
  }
}

TcpStoreServer::TcpStoreServer(TcpStoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
TcpStoreServer::~TcpStoreServer() = default;
void TcpStoreServer::begin_anew() { impl_->begin_anew(); }
const std::string& TcpStoreServer::bind_address() const { return impl_->bind_address(); }
uint16_t TcpStoreServer::port() const { return impl_->port(); }

}  // namespace rondo
