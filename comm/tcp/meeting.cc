#include "comm/tcp/meeting.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <thread>

#include "comm/first_peers.h"
#include "comm/store/store.h"

namespace rondo::tcp_transport {
namespace {

constexpr int most_log_lines = 20;
const std::string no_proof(sizeof(Digest), '\0');

}  // namespace

Meeting::Meeting(const TcpOptions& options, Deadline deadline)
    : options_(options),
      job_{options.token, options.rendezvous_id, options.world_size},
      deadline_(deadline),
      whole_mesh_(is_whole_mesh(options.first_peers, options.world_size)),
      places_(static_cast<size_t>(options.world_size)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      has_(static_cast<size_t>(options.world_size)) {
  RONDO_CHECK(bool(epoll_), "epoll: ", std::strerror(errno));
  listener_ = listen_and_tell(options_, deadline_);
  watch(listener_, EPOLLIN);
}

void Meeting::watch(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  RONDO_CHECK(epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0,
              "epoll: ", std::strerror(errno));
}

std::vector<News> Meeting::meet() {
  want_first_peers();
  while (missing_ > 0) {
    look(deadline_);
    if (missing_ > 0 && CommClock::now() >= deadline_) time_out();
  }
  settled_ = true;
  options_.store = nullptr;
  if (whole_mesh_) {
    strangers_.clear();
    listener_ = Socket();
  }
  return std::exchange(news_, {});
}

void Meeting::want_first_peers() {
  const std::vector<int> peers = options_.first_peers(options_.rank, options_.world_size);
  missing_ = peers.size();
  if (!whole_mesh_) places_ = all_places(options_, deadline_);
  for (const int peer : peers) {
    if (peer > options_.rank) continue;
    if (whole_mesh_) places_[static_cast<size_t>(peer)] = place_of(options_, peer, deadline_);
    want(peer);
  }
}

void Meeting::want(int peer) {
  const auto at = static_cast<size_t>(peer);
  const auto under_way = [&](const Dial& d) { return d.peer() == peer; };
  if (has_[at] || std::any_of(dials_.begin(), dials_.end(), under_way)) return;
  dials_.emplace_back(job_, options_.rank, peer, places_[at]);
  advance(std::prev(dials_.end()));
}

Deadline Meeting::next() const {
  Deadline next = Deadline::max();
  for (const Stranger& s : strangers_) next = std::min(next, s.end);
  for (const Dial& d : dials_) {
    next = std::min(next, d.due());
    if (settled_ && !d.connected()) next = std::min(next, d.failing_since() + options_.silence);
  }
  return next;
}

std::vector<News> Meeting::go_on() {
  look(CommClock::now());
  return std::exchange(news_, {});
}

// One round: whoever has come, whoever has said something, whose time is up.
void Meeting::look(Deadline until) {
  std::array<epoll_event, 64> events;
  const int n =
      epoll_wait(epoll_.fd(), events.data(), events.size(), poll_timeout(std::min(until, next())));
  RONDO_CHECK(n >= 0 || errno == EINTR, "epoll: ", std::strerror(errno));
  for (int i = 0; i < n; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == listener_.fd()) {
      accept_all();
      continue;
    }
    const auto is_it = [&](const auto& s) { return s.socket.fd() == fd; };
    const auto stranger = std::find_if(strangers_.begin(), strangers_.end(), is_it);
    if (stranger != strangers_.end() && !hear(*stranger)) strangers_.erase(stranger);
    const auto dial =
        std::find_if(dials_.begin(), dials_.end(), [&](const Dial& d) { return d.fd() == fd; });
    if (dial != dials_.end()) advance(dial);
  }
  const auto now = CommClock::now();
  std::erase_if(strangers_, [&](const Stranger& s) {
    if (now < s.end) return false;
    drop(s, "it does not prove the job token in time");
    return true;
  });
  for (auto d = dials_.begin(); d != dials_.end();) {
    const auto dial = d++;
    if (now >= dial->due()) advance(dial);
  }
  if (settled_) give_up_late_dials();
}

void Meeting::advance(std::list<Dial>::iterator dial) {
  if (dial->proved()) {  // a call, on which nothing more is said
    if (dial->is_closed()) cannot_dial(dial, "its connection is closed");
    return;
  }
  try {
    const int before = dial->fd();
    dial->advance();
    if (dial->fd() >= 0 && dial->fd() != before) {
      watch(dial->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    }
  } catch (const InputError& e) {
    if (!settled_) throw;
    return cannot_dial(dial, e.what());
  }
  if (dial->proved() && !is_calling(*dial)) return dialled(dial);
  // It listened when it told its address, and would do so still.
  if (settled_ && dial->refused()) cannot_dial(dial, dial->why());
}

void Meeting::give_up_late_dials() {
  const auto now = CommClock::now();
  for (auto d = dials_.begin(); d != dials_.end();) {
    const auto dial = d++;
    if (dial->connected() || now < dial->failing_since() + options_.silence) continue;
    cannot_dial(dial, "its machine does not answer");
  }
}

void Meeting::dialled(std::list<Dial>::iterator dial) {
  const int peer = dial->peer();
  Socket socket = dial->take();
  dials_.erase(dial);
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, socket.fd(), nullptr);
  callers_.erase(peer);
  connected(peer, std::move(socket));
}

void Meeting::cannot_dial(std::list<Dial>::iterator dial, const std::string& why) {
  const int peer = dial->peer();
  dials_.erase(dial);
  callers_.erase(peer);
  has_[static_cast<size_t>(peer)] = true;
  news_.push_back({peer, Socket(), why});
}

void Meeting::connected(int peer, Socket socket) {
  const auto at = static_cast<size_t>(peer);
  if (has_[at]) {  // it has tried again, before anybody has used the first one
    const auto is_it = [&](const News& n) { return n.peer == peer; };
    std::find_if(news_.begin(), news_.end(), is_it)->socket = std::move(socket);
    return;
  }
  has_[at] = true;
  news_.push_back({peer, std::move(socket), {}});
  if (settled_) return;
  const auto first = options_.first_peers(options_.rank, options_.world_size);
  if (std::find(first.begin(), first.end(), peer) != first.end()) --missing_;
}

void Meeting::time_out() const {
  const std::string about = str("rank ", options_.rank, ": rendezvous ");
  for (const Dial& d : dials_) {
    if (is_calling(d)) continue;
    const std::string with = str(about, "with rank ", d.peer(), ": ");
    if (d.connected()) {
      throw CommError(CommErrorKind::timeout, d.peer(), with + "no greeting in time");
    }
    throw CommError(CommErrorKind::peer_lost, d.peer(), with + d.why());
  }
  std::string ranks;
  int first = -1;
  for (const int r : options_.first_peers(options_.rank, options_.world_size)) {
    if (has_[static_cast<size_t>(r)]) continue;
    if (first < 0) first = r;
    ranks += str(ranks.empty() ? "" : ", ", r);
  }
  throw CommError(CommErrorKind::timeout, first,
                  str(about, "of ", options_.world_size, " ranks: timed out without rank ", ranks,
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

void Meeting::accept_all() {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      const bool nobody = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      if (!nobody && !strangers_.empty()) {
        // Too many open files and the like: those that are here have to go first.
        drop(strangers_.front(), str("accept: ", std::strerror(errno)));
        strangers_.pop_front();
      } else if (errno == EMFILE) {
        throw Error(str("rank ", options_.rank, " cannot admit other ranks: ", too_many_files()));
      } else if (!nobody) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return;
    }
    if (strangers_.size() >= std::max(most_strangers, has_.size())) {
      drop(strangers_.front(), "too many connections do not prove the job token");
      strangers_.pop_front();
    }
    Stranger s{std::move(socket), {}, random_bytes(nonce_bytes), {}, within(handshake_timeout)};
    s.name = peer_name(s.socket);
    set_socket_options(s.socket);
    // Fits into any empty buffer.
    if (write_all(s.socket, encode_greeting(s.challenge), CommClock::now()) != IoResult::done) {
      continue;
    }
    watch(s.socket, EPOLLIN | EPOLLRDHUP);
    strangers_.push_back(std::move(s));
  }
}

bool Meeting::hear(Stranger& s) {
  char bytes[answer_bytes];
  const ssize_t n = recv(s.socket.fd(), bytes, answer_bytes - s.in.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    // A rank that calls hangs up when the other one dials at the same time.
    if (whole_mesh_ || !s.in.empty()) drop(s, "it left without proving the job token");
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
  const bool calls = answer.from < options_.rank;
  const bool wanted =
      answer.to == options_.rank && answer.from != options_.rank && (!calls || !whole_mesh_);
  if (!wanted || !proves(job_, answer, s.challenge)) {
    write_all(s.socket, no_proof, CommClock::now());
    fail_input("it does not prove the job token");
  }
  // One that is lost already, or connected and in use, has nothing to look for here.
  const bool known = has_[static_cast<size_t>(answer.from)];
  if (known && settled_) return false;
  const Digest proof = listener_proof(job_, answer, s.challenge);
  if (write_all(s.socket, bytes_of(proof), CommClock::now()) != IoResult::done) return false;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, s.socket.fd(), nullptr);
  if (calls) {
    if (known) return false;
    callers_[answer.from] = std::move(s.socket);
    want(answer.from);
    return false;
  }
  std::erase_if(dials_, [&](const Dial& d) { return d.peer() == answer.from; });  // a call
  connected(answer.from, std::move(s.socket));
  return false;
}

}  // namespace rondo::tcp_transport
