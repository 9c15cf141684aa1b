#include "tests/comm/remote_ranks.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/socket.h"
#include "comm/store/store.h"
#include "comm/work_state.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 60s;

enum class What : uint32_t { make, send, recv, withdraw, abort, destroy, done, failed };

// Between processes of one program; `text` follows.
struct Order {
  What what = What::make;
  int32_t rank = 0, peer = 0, kind = 0;
  uint64_t id = 0, tag = 0, size = 0;
  uint64_t text_bytes = 0;
};

void write_order(const Socket& s, Order order, std::string_view text) {
  order.text_bytes = text.size();
  std::string bytes(reinterpret_cast<const char*>(&order), sizeof order);
  bytes += text;
  RONDO_CHECK(write_all(s, bytes, within(patience)) == IoResult::done, "a process is gone");
}

// False: the other side has ended.
bool read_order(const Socket& s, Order& order, std::string& text) {
  const auto head = std::span(reinterpret_cast<char*>(&order), sizeof order);
  if (read_exactly(s, head, Deadline::max()) != IoResult::done) return false;
  text.resize(order.text_bytes);
  return read_exactly(s, text, within(patience)) == IoResult::done;
}

bool is_readable(const Socket& s, int milliseconds) {
  pollfd p{s.fd(), POLLIN, 0};
  return poll(&p, 1, milliseconds) > 0;
}

// The process's own part of worlds.
using Ranks = std::map<int, std::unique_ptr<Transport>>;

Ranks make_ranks(int process, int processes, int ranks, uint64_t world, const MakeRank& make) {
  Ranks made;
  for (int r = process; r < ranks; r += processes) made[r] = nullptr;
  std::vector<std::thread> threads;
  for (auto& entry : made) {
    threads.emplace_back([&, place = &entry] { place->second = make(place->first, ranks, world); });
  }
  for (std::thread& t : threads) t.join();
  return made;
}

class Helper;

// An operation of a rank elsewhere.
class RemoteWork final : public detail::WorkState {
 public:
  RemoteWork(std::string description, Deadline deadline, Helper& helper, uint64_t id,
             std::span<std::byte> memory)
      : WorkState(std::move(description), deadline), helper_(&helper), id_(id), memory_(memory) {}
  void withdraw(CommErrorKind kind, const std::string& cause) override;
  void hear(const Order& order, const std::string& text) {
    if (order.what == What::failed) {
      return fail(CommError(static_cast<CommErrorKind>(order.kind), order.peer, text));
    }
    if (!text.empty()) std::memcpy(memory_.data(), text.data(), text.size());
    succeed(order.size);
  }

 private:
  Helper* const helper_;
  const uint64_t id_;
  const std::span<std::byte> memory_;  // of a recv
};

// Process 0's view of another one.
class Helper {
 public:
  explicit Helper(Socket socket) : socket_(std::move(socket)), thread_([this] { listen(); }) {}
  ~Helper() {
    ::shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }

  // Told, and not waited for.
  std::shared_ptr<RemoteWork> order(Order o, std::string_view text, const std::string& description,
                                    Deadline deadline, std::span<std::byte> memory = {}) {
    const std::lock_guard lock(mutex_);
    o.id = ++last_;
    const auto work = std::make_shared<RemoteWork>(description, deadline, *this, o.id, memory);
    works_[o.id] = work;
    write_order(socket_, o, text);
    return work;
  }
  void withdraw(uint64_t id, CommErrorKind kind, const std::string& cause) {
    const std::lock_guard lock(mutex_);
    Order o{.what = What::withdraw, .kind = static_cast<int32_t>(kind), .id = id};
    write_order(socket_, o, cause);
  }

 private:
  void listen() {
    Order order;
    std::string text;
    while (read_order(socket_, order, text)) {
      std::unique_lock lock(mutex_);
      const auto found = works_.find(order.id);
      if (found == works_.end()) continue;
      const auto work = found->second;
      works_.erase(found);
      lock.unlock();
      work->hear(order, text);
    }
  }

  std::mutex mutex_;
  const Socket socket_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::shared_ptr<RemoteWork>> works_;
  std::thread thread_;
};

void RemoteWork::withdraw(CommErrorKind kind, const std::string& cause) {
  if (done()) return;
  helper_->withdraw(id_, kind, cause);
  WorkState::wait_until(within(patience));
}

void wait_for(const std::shared_ptr<RemoteWork>& work) { Work(work).wait(within(patience)); }

class RemoteTransport final : public Transport {
 public:
  RemoteTransport(Helper& helper, int rank, int size) : helper_(helper), rank_(rank), size_(size) {}
  ~RemoteTransport() override {
    wait_for(helper_.order({.what = What::destroy, .rank = rank_}, {}, "destroy", Deadline::max()));
  }
  int rank() const override { return rank_; }
  int world_size() const override { return size_; }
  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
    return post({.what = What::send, .rank = rank_, .peer = to, .tag = tag, .size = data.size()},
                text, deadline, {});
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    return post({.what = What::recv, .rank = rank_, .peer = from, .tag = tag, .size = data.size()},
                {}, deadline, data);
  }
  void abort(const std::string& reason) noexcept override {
    wait_for(helper_.order({.what = What::abort, .rank = rank_}, reason, "abort", Deadline::max()));
  }

 private:
  Work post(const Order& order, std::string_view text, Deadline deadline,
            std::span<std::byte> memory) {
    RONDO_CHECK(order.peer >= 0 && order.peer < size_ && order.peer != rank_, "rank ", order.peer,
                order.peer == rank_ ? " exchanges a message with itself" : " of another world");
    return Work(helper_.order(order, text, "of a rank elsewhere", deadline, memory));
  }

  Helper& helper_;
  const int rank_, size_;
};

class RemoteWorld final : public TestWorld {
 public:
  explicit RemoteWorld(Ranks ranks) : ranks_(std::move(ranks)) {}
  ~RemoteWorld() override {
    std::vector<std::thread> threads;
    for (auto& [rank, transport] : ranks_) threads.emplace_back([&t = transport] { t.reset(); });
    for (std::thread& t : threads) t.join();
  }
  Transport& transport(int rank) override { return *ranks_.at(rank); }
  void lose(int rank) override { ranks_.at(rank).reset(); }

 private:
  Ranks ranks_;
};

// What a process does that is told what to do.
class Servant {
 public:
  Servant(int process, int processes, Socket socket, const MakeRank& make)
      : process_(process), processes_(processes), socket_(std::move(socket)), make_(make) {}

  ~Servant() {
    for (std::thread& t : enders_) t.join();
  }

  void run() {
    Order order;
    std::string text;
    for (;;) {
      if (is_readable(socket_, 1)) {
        if (!read_order(socket_, order, text)) return;
        obey(order, text);
      }
      // Looked at first: what a rank's end has ended is told before that end.
      std::vector<uint64_t> destroyed;
      {
        const std::lock_guard lock(mutex_);
        destroyed.swap(destroyed_);
      }
      for (auto u = under_way_.begin(); u != under_way_.end();) {
        u = tell_if_done(u->first, u->second) ? under_way_.erase(u) : std::next(u);
      }
      for (const uint64_t id : destroyed) write_order(socket_, {.what = What::done, .id = id}, {});
    }
  }

 private:
  struct UnderWay {
    bool receives = false;
    std::vector<std::byte> memory;
    Work work;
  };

  bool tell_if_done(uint64_t id, UnderWay& u) {
    if (!u.work.shared_state()->done()) return false;
    Order o{.what = What::done, .id = id};
    if (const auto e = u.work.error()) {
      o.what = What::failed;
      o.kind = static_cast<int32_t>(e->kind());
      o.peer = e->peer();
      write_order(socket_, o, e->what());
      return true;
    }
    o.size = u.work.bytes();
    const bool has_data = u.receives && !u.memory.empty();
    write_order(socket_, o,
                has_data
                    ? std::string_view(reinterpret_cast<char*>(u.memory.data()), u.memory.size())
                    : std::string_view());
    return true;
  }

  void obey(const Order& o, const std::string& text) {
    if (o.what == What::send || o.what == What::recv) return post(o, text);
    if (o.what == What::withdraw) {
      const auto found = under_way_.find(o.id);
      if (found == under_way_.end()) return;
      return found->second.work.shared_state()->withdraw(static_cast<CommErrorKind>(o.kind), text);
    }
    if (o.what == What::make) ranks_ = make_ranks(process_, processes_, o.rank, o.tag, make_);
    if (o.what == What::abort) ranks_.at(o.rank)->abort(text);
    if (o.what == What::destroy) {  // others of this process may be destroyed at the same time
      enders_.emplace_back([this, o] {
        ranks_.at(o.rank).reset();
        const std::lock_guard lock(mutex_);
        destroyed_.push_back(o.id);
      });
      return;
    }
    write_order(socket_, {.what = What::done, .id = o.id}, {});
  }

  void post(const Order& o, const std::string& text) {
    UnderWay& u = under_way_[o.id];
    u.receives = o.what == What::recv;
    const auto bytes = std::as_bytes(std::span(text));
    u.memory.assign(bytes.begin(), bytes.end());
    u.memory.resize(o.size);
    Transport& t = *ranks_.at(o.rank);
    // The driver looks at the time.
    u.work = u.receives ? t.recv(o.peer, o.tag, u.memory, Deadline::max())
                        : t.send(o.peer, o.tag, u.memory, Deadline::max());
  }

  const int process_, processes_;
  const Socket socket_;
  const MakeRank& make_;
  Ranks ranks_;
  std::map<uint64_t, UnderWay> under_way_;
  std::vector<std::thread> enders_;
  std::mutex mutex_;
  std::vector<uint64_t> destroyed_;
};

}  // namespace

class RemoteRanks::Impl {
 public:
  Impl(int process, int processes, const std::string& directory, MakeRank make)
      : process_(process), processes_(processes), make_(std::move(make)) {
    const auto store = make_file_store(directory);
    const Deadline deadline = within(patience);
    std::string why;
    if (process > 0) {
      const auto port = static_cast<uint16_t>(std::stoi(store->get("driver", deadline)));
      socket_ = connect_tcp("127.0.0.1", port, deadline, why);
      RONDO_CHECK(bool(socket_), why);
      write_order(socket_, {.rank = process}, {});
      return;
    }
    const Socket listener = listen_tcp("127.0.0.1", 0);
    store->set("driver", std::to_string(local_port(listener)), deadline);
    helpers_.resize(static_cast<size_t>(processes) - 1);
    for (int i = 1; i < processes; ++i) {
      RONDO_CHECK(is_readable(listener, 60'000), "a process does not come");
      Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      Order hello;
      RONDO_CHECK(read_order(s, hello, why), "a process has gone");
      helpers_.at(static_cast<size_t>(hello.rank) - 1) = std::make_unique<Helper>(std::move(s));
    }
  }

  std::unique_ptr<TestWorld> make_world(int ranks) {
    const uint64_t world = ++worlds_;
    std::vector<std::shared_ptr<RemoteWork>> made;
    for (const auto& h : helpers_) {
      made.push_back(
          h->order({.what = What::make, .rank = ranks, .tag = world}, {}, "make", Deadline::max()));
    }
    Ranks all = make_ranks(0, processes_, ranks, world, make_);
    for (const auto& m : made) wait_for(m);
    for (int r = 0; r < ranks; ++r) {
      if (r % processes_ == 0) continue;
      all[r] = std::make_unique<RemoteTransport>(helper_of(r), r, ranks);
    }
    return std::make_unique<RemoteWorld>(std::move(all));
  }

  void serve() { Servant(process_, processes_, std::move(socket_), make_).run(); }

 private:
  Helper& helper_of(int rank) { return *helpers_[static_cast<size_t>(rank % processes_) - 1]; }

  const int process_, processes_;
  const MakeRank make_;
  Socket socket_;
  std::vector<std::unique_ptr<Helper>> helpers_;
  uint64_t worlds_ = 0;
};

RemoteRanks::RemoteRanks(int process, int processes, const std::string& directory, MakeRank make)
    : impl_(std::make_unique<Impl>(process, processes, directory, std::move(make))) {}
RemoteRanks::~RemoteRanks() = default;
std::unique_ptr<TestWorld> RemoteRanks::make_world(int ranks) { return impl_->make_world(ranks); }
void RemoteRanks::serve() { impl_->serve(); }

}  // namespace rondo
