#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "comm/socket.h"
#include "comm/store/store_protocol.h"
#include "comm/store/tcp_store.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;

// How much later than the deadline the server's "the time is up" may come.
constexpr auto reply_slack = std::chrono::seconds(2);
// Then connecting is tried once more.
constexpr auto attempt_timeout = std::chrono::seconds(10);

class TcpStoreClient final : public TcpStore {
 public:
  TcpStoreClient(Socket socket, std::string name)
      : socket_(std::move(socket)), own_address_(local_host(socket_)), name_(std::move(name)) {}

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    check_store_value(key, value);
    ask({StoreOp::set, 0, 0, {key}, std::string(value)}, deadline);
  }
  void announce(const std::string& key, std::string_view value, Deadline deadline) override {
    check_store_value(key, value);
    ask({StoreOp::announce, 0, 0, {key}, std::string(value)}, deadline);
  }
  void hang_up() override { ::shutdown(socket_.fd(), SHUT_RDWR); }
  std::string own_address() const override { return own_address_; }
  std::string get(const std::string& key, Deadline deadline) override {
    return ask({StoreOp::get, patience(deadline), 0, {key}, {}}, deadline).value;
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    StoreReply reply = exchange({StoreOp::get, 0, 0, {key}, {}}, deadline);
    if (reply.status == StoreStatus::absent) return std::nullopt;
    return std::move(accept(std::move(reply)).value);
  }
  int64_t add(const std::string& key, int64_t delta, Deadline deadline) override {
    return ask({StoreOp::add, 0, delta, {key}, {}}, deadline).number;
  }
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    for (size_t at = 0; at < keys.size(); at += max_store_keys) {
      const auto part = keys.subspan(at, std::min(max_store_keys, keys.size() - at));
      ask({StoreOp::wait, patience(deadline), 0, {part.begin(), part.end()}, {}}, deadline);
    }
  }

 private:
  static uint32_t patience(Deadline deadline) {
    const auto left = deadline - CommClock::now();
    if (left <= CommClock::duration::zero()) return 0;
    const auto most = milliseconds(std::chrono::hours(24));
    return static_cast<uint32_t>(std::min<CommClock::rep>(
        std::chrono::ceil<milliseconds>(std::min<CommClock::duration>(left, most)).count(),
        most.count()));
  }

  [[noreturn]] void time_out(const StoreRequest& request, const std::string& key) const {
    static constexpr const char* names[] = {"", "set", "get", "add", "wait", "announce"};
    throw CommError(CommErrorKind::timeout, -1,
                    str("store at ", name_, ": ", names[static_cast<size_t>(request.op)], " '", key,
                        "': timed out"));
  }

  StoreReply accept(StoreReply reply) const {
    if (reply.status == StoreStatus::refused) fail_input("store at ", name_, ": ", reply.value);
    return reply;
  }

  StoreReply ask(const StoreRequest& request, Deadline deadline) {
    StoreReply reply = exchange(request, deadline);
    if (reply.status == StoreStatus::absent) time_out(request, reply.value);
    return accept(std::move(reply));
  }

  StoreReply exchange(const StoreRequest& request, Deadline deadline) {
    for (const std::string& key : request.keys) check_store_key(key);
    std::lock_guard lock(mutex_);
    const auto fail_unless_done = [&](IoResult result) {
      if (result == IoResult::done) return;
      in_step_ = false;
      hang_up();
      if (result == IoResult::timed_out) time_out(request, request.keys[0]);
      lost();
    };
    if (!in_step_) lost();
    const Deadline last =
        deadline > Deadline::max() - reply_slack ? deadline : deadline + reply_slack;
    fail_unless_done(write_all(socket_, framed(encode(request)), last));
    std::string frame(sizeof(uint32_t), '\0');
    fail_unless_done(read_exactly(socket_, frame, last));
    const size_t length = frame_length(frame);
    frame.resize(frame.size() + length);
    fail_unless_done(read_exactly(socket_, std::span(frame).subspan(sizeof(uint32_t)), last));
    return parse_store_reply(*take_frame(frame));
  }

  static size_t frame_length(const std::string& frame) {
    size_t length = 0;
    for (size_t i = 0; i < sizeof(uint32_t); ++i) {
      length |= size_t{static_cast<uint8_t>(frame[i])} << (8 * i);
    }
    if (length > max_store_frame) fail_input("a store message of ", length, " bytes");
    return length;
  }

  [[noreturn]] void lost() const {
    throw CommError(CommErrorKind::peer_lost, -1,
                    str("store at ", name_, ": the connection is closed; its server has ended"));
  }

  std::mutex mutex_;
  const Socket socket_;  // open to the end: hang_up() may come at any time
  const std::string own_address_;
  bool in_step_ = true;  // requests and replies
  const std::string name_;
};

// Throws, or returns whether the server let us in; false, and `why`: it closed without a reason, as
// one does that has just been killed, or does not answer.
bool prove(const Socket& s, const std::string& name, const std::string& token, Deadline deadline,
           std::string& why) {
  std::string greeting(store_greeting_bytes, '\0');
  const auto check = [&](IoResult result) {
    if (result == IoResult::timed_out) why = "no answer in time";
    if (result == IoResult::closed) why = "the connection was closed";
    return result == IoResult::done;
  };
  if (!check(read_exactly(s, greeting, deadline))) return false;
  if (!greeting.starts_with(store_magic))
    fail_input("what listens at ", name, " is no rondo store");
  const std::string theirs = greeting.substr(store_magic.size());
  const std::string ours = random_bytes(challenge_bytes);
  std::string answer = str(store_magic, ours);
  answer += bytes_of(store_proof(Side::client, token, theirs, ours));
  Digest proof;
  if (!check(write_all(s, answer, deadline)) ||
      !check(read_exactly(s, {reinterpret_cast<char*>(proof.data()), proof.size()}, deadline))) {
    return false;
  }
  if (proof == no_proof) fail_input("the store at ", name, " does not accept the job token");
  if (!equal_digests(proof, store_proof(Side::server, token, theirs, ours))) {
    fail_input("the store at ", name, " does not know the job token");
  }
  return true;
}

}  // namespace

std::unique_ptr<TcpStore> make_tcp_store(const std::string& host, uint16_t port,
                                         const std::string& token, Deadline deadline) {
  const std::string name = host_and_port(host, port);
  std::string why = "no answer";
  auto pause = milliseconds(5);
  for (;;) {
    // A machine that is starting again may have heard nothing of an earlier attempt.
    const Deadline soon = std::min(deadline, within(attempt_timeout));
    Socket s = connect_tcp(host, port, soon, why);
    if (s && prove(s, name, token, soon, why)) {
      return std::make_unique<TcpStoreClient>(std::move(s), name);
    }
    if (CommClock::now() + pause >= deadline) {
      throw CommError(CommErrorKind::peer_lost, -1,
                      str("store at ", name, ": cannot connect: ", why));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(200));
  }
}

}  // namespace rondo
