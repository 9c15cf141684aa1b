#include "comm/tcp/meeting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <list>
#include <thread>

#include "comm/store/store.h"
#include "comm/tcp/handshake.h"

namespace rondo::tcp_transport {
namespace {

using std::chrono::milliseconds;

constexpr int most_log_lines = 20;
const std::string no_proof(sizeof(Digest), '\0');

std::string key_of(int rank) { return str("tcp-", rank); }

// The first address of an interface, IPv4 if it has one.
std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  RONDO_CHECK(getifaddrs(&all) == 0, "getifaddrs: ", std::strerror(errno));
  std::string found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = all; i != nullptr && found.empty(); i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || name != i->ifa_name) {
        continue;
      }
      char text[NI_MAXHOST];
      const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
        found = text;
      }
    }
  }
  freeifaddrs(all);
  if (found.empty()) fail_input("no interface has this name and an address");
  return found;
}

struct Stranger {
  Socket socket;
  std::string name, challenge, in;
  Deadline end;
};

class Meeting {
 public:
  Meeting(const TcpOptions& options, Deadline deadline)
      : options_(options),
        job_{options.token, options.rendezvous_id, options.world_size},
        deadline_(deadline),
        sockets_(static_cast<size_t>(options.world_size)) {}

  std::vector<Socket> run() {
    listen();
    for (int peer = 0; peer < options_.rank; ++peer) {
      sockets_[static_cast<size_t>(peer)] = connect(peer);
    }
    missing_ = options_.world_size - 1 - options_.rank;
    while (missing_ > 0) admit();
    return std::move(sockets_);
  }

 private:
  void listen();
  Socket connect(int peer);
  // Nothing: the connection was closed before it could be told who we are.
  Socket introduce(Socket socket, int peer, const std::string& name);

  void admit();
  void accept_all();
  // Whether it is still a stranger.
  bool hear(Stranger& s);
  bool welcome(Stranger& s, const Answer& answer);
  void drop(const Stranger& s, const std::string& why);
  [[noreturn]] void time_out();
  std::string about(int peer) const {
    return str("rank ", options_.rank, ": rendezvous with rank ", peer, ": ");
  }

  const TcpOptions& options_;
  const Job job_;
  const Deadline deadline_;
  std::vector<Socket> sockets_;
  Socket listener_;
  std::list<Stranger> strangers_;
  int missing_ = 0, log_lines_ = 0;
  std::string last_dropped_;
};

void Meeting::listen() {
  const bool by_interface = !options_.interface.empty();
  const std::string& place = by_interface ? options_.interface : options_.bind_address;
  std::string host = place;
  try {
    if (by_interface) host = address_of_interface(place);
    listener_ = listen_tcp(host, 0);
  } catch (const InputError& e) {
    fail_input("rank ", options_.rank, " cannot listen at '", place, "': ", e.what());
  }
  options_.store->set(key_of(options_.rank), str(local_port(listener_), " ", host), deadline_);
}

Socket Meeting::connect(int peer) {
  const std::string place = options_.store->get(key_of(peer), deadline_);
  uint16_t port = 0;
  const size_t space = place.find(' ');
  const auto [stop, error] = std::from_chars(place.data(), place.data() + place.size(), port);
  if (space == std::string::npos || error != std::errc() || stop != place.data() + space) {
    fail_input(about(peer), "'", place, "' in the store is no address");
  }
  const std::string host = place.substr(space + 1), name = host_and_port(host, port);
  std::string why = "no answer";
  for (auto pause = milliseconds(5);; pause = std::min(2 * pause, milliseconds(200))) {
    Socket s = connect_tcp(host, port, deadline_, why);
    if (s) {
      s = introduce(std::move(s), peer, name);
      if (s) return s;
      why = "the connection was closed";
    }
    if (CommClock::now() + pause >= deadline_) {
      throw CommError(CommErrorKind::peer_lost, peer, str(about(peer), name, ": ", why));
    }
    std::this_thread::sleep_for(pause);
  }
}

Socket Meeting::introduce(Socket s, int peer, const std::string& name) {
  const auto went_well = [&](IoResult result) {
    if (result == IoResult::timed_out) {
      throw CommError(CommErrorKind::timeout, peer, str(about(peer), "no greeting in time"));
    }
    return result == IoResult::done;
  };
  std::string greeting(greeting_bytes, '\0');
  if (!went_well(read_exactly(s, greeting, deadline_))) return Socket();
  Answer own{options_.rank, peer, random_bytes(nonce_bytes), {}};
  std::string theirs;
  try {
    theirs = parse_greeting(greeting);
  } catch (const InputError& e) {
    fail_input(about(peer), name, ": ", e.what());
  }
  std::string proof(sizeof(Digest), '\0');
  if (!went_well(
          write_all(s, encode_answer(job_, own.from, own.to, theirs, own.challenge), deadline_)) ||
      !went_well(read_exactly(s, proof, deadline_))) {
    return Socket();
  }
  if (proof == no_proof) fail_input(about(peer), name, " does not accept the job token");
  Digest digest;
  std::memcpy(digest.data(), proof.data(), digest.size());
  if (!equal_digests(digest, listener_proof(job_, own, theirs))) {
    fail_input(about(peer), name, " does not prove the job token");
  }
  return s;
}

void Meeting::time_out() {
  std::string ranks;
  int first = -1;
  for (int r = options_.rank + 1; r < options_.world_size; ++r) {
    if (sockets_[static_cast<size_t>(r)]) continue;
    if (first < 0) first = r;
    ranks += str(ranks.empty() ? "" : ", ", r);
  }
  throw CommError(CommErrorKind::timeout, first,
                  str("rank ", options_.rank, ": rendezvous of ", options_.world_size,
                      " ranks: timed out without rank ", ranks,
                      last_dropped_.empty() ? "" : "; dropped ", last_dropped_));
}

void Meeting::drop(const Stranger& s, const std::string& why) {
  last_dropped_ = str(s.name, ": ", why);
  if (++log_lines_ > most_log_lines) return;
  const std::string line =
      str("rank ", options_.rank, ": ",
          log_lines_ < most_log_lines ? "dropped " + last_dropped_
                                      : "further dropped connections are not listed");
  if (options_.log) {
    options_.log(line);
  } else {
    std::cerr << line + "\n";
  }
}

// One round: whoever has come, whoever has said something, whose time is up.
void Meeting::admit() {
  std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
  Deadline next = deadline_;
  for (const Stranger& s : strangers_) {
    polled.push_back({s.socket.fd(), POLLIN, 0});
    next = std::min(next, s.end);
  }
  RONDO_CHECK(poll(polled.data(), polled.size(), poll_timeout(next)) >= 0 || errno == EINTR,
              "poll: ", std::strerror(errno));
  const auto now = CommClock::now();
  if (now >= deadline_) time_out();
  size_t i = 1;
  for (auto s = strangers_.begin(); s != strangers_.end(); ++i) {
    bool stays = polled[i].revents == 0 || hear(*s);
    if (stays && now >= s->end) {
      drop(*s, "it does not prove the job token in time");
      stays = false;
    }
    s = stays ? std::next(s) : strangers_.erase(s);
  }
  if (polled[0].revents != 0) accept_all();
}

void Meeting::accept_all() {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      const bool nobody = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (!nobody && !strangers_.empty()) {
        // Too many open files and the like: those that are here have to go first.
        drop(strangers_.front(), str("accept: ", std::strerror(errno)));
        strangers_.pop_front();
      } else if (!nobody) {
        std::this_thread::sleep_for(milliseconds(10));
      }
      return;
    }
    if (strangers_.size() >= most_strangers) {
      drop(strangers_.front(), "too many connections do not prove the job token");
      strangers_.pop_front();
    }
    Stranger s{std::move(socket), {}, random_bytes(nonce_bytes), {}, within(handshake_timeout)};
    s.name = peer_name(s.socket);
    set_socket_options(s.socket);
    // Fits into any empty buffer.
    if (write_all(s.socket, encode_greeting(s.challenge), CommClock::now()) == IoResult::done) {
      strangers_.push_back(std::move(s));
    }
  }
}

bool Meeting::hear(Stranger& s) {
  char bytes[answer_bytes];
  const ssize_t n = recv(s.socket.fd(), bytes, answer_bytes - s.in.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    drop(s, "it left without proving the job token");
    return false;
  }
  s.in.append(bytes, static_cast<size_t>(n));
  try {
    const auto answer = parse_answer(s.in, options_.world_size);
    return !answer || welcome(s, *answer);
  } catch (const InputError& e) {
    drop(s, e.what());
    return false;
  }
}

bool Meeting::welcome(Stranger& s, const Answer& answer) {
  const bool wanted = answer.to == options_.rank && answer.from > options_.rank;
  if (!wanted || !proves(job_, answer, s.challenge)) {
    write_all(s.socket, no_proof, CommClock::now());
    fail_input("it does not prove the job token");
  }
  const Digest proof = listener_proof(job_, answer, s.challenge);
  if (write_all(s.socket, bytes_of(proof), CommClock::now()) != IoResult::done) return false;
  Socket& place = sockets_[static_cast<size_t>(answer.from)];
  if (!place) --missing_;  // else it has tried again
  place = std::move(s.socket);
  return false;
}

}  // namespace

std::vector<Socket> meet(const TcpOptions& options, Deadline deadline) {
  return Meeting(options, deadline).run();
}

}  // namespace rondo::tcp_transport
