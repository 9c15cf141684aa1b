#include "comm/tcp/dial.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rondo::tcp_transport {

using std::chrono::milliseconds;

std::string too_many_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return str(std::strerror(EMFILE), ": ulimit -n is ", limit.rlim_cur);
}

void Dial::begin() {
  // Where there is another address to try.
  constexpr auto attempt_timeout = std::chrono::seconds(1);
  stage_ = Stage::connecting;
  in_.clear();
  if (!failing_) failing_since_ = CommClock::now();
  failing_ = true;
  int error = 0;
  attempt_end_ = place_.hosts.size() > 1 ? within(attempt_timeout) : Deadline::max();
  socket_ = begin_connect(place_.hosts[at_], place_.port, error);
  if (socket_) return;
  if (error == EMFILE) throw Error(str(about(), too_many_files()));
  cut_off(std::strerror(error), error);
}

void Dial::cut_off(const std::string& why, int error) {
  why_[at_] = why;
  socket_ = Socket();
  stage_ = Stage::connecting;
  refused_in_round_ = refused_in_round_ || error == ECONNREFUSED;
  at_ = (at_ + 1) % place_.hosts.size();
  next_ = CommClock::now();
  if (at_ != 0) return;
  refused_ = std::exchange(refused_in_round_, false);
  next_ = within(pause_);
  pause_ = std::min(2 * pause_, milliseconds(200));
}

std::string Dial::why() const {
  if (place_.hosts.size() == 1) return str(place_.name(), ": ", why_[0]);
  std::string all;
  for (size_t i = 0; i < why_.size(); ++i) {
    all += str(i ? ", " : "", host_and_port(place_.hosts[i], place_.port), ": ", why_[i]);
  }
  return all;
}

bool Dial::read(size_t size) {
  while (in_.size() < size) {
    char bytes[answer_bytes];
    const ssize_t n = recv(socket_.fd(), bytes, std::min(sizeof bytes, size - in_.size()), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return false;
    if (n <= 0) {
      cut_off(n == 0 ? "the connection was closed" : std::strerror(errno));
      return false;
    }
    in_.append(bytes, static_cast<size_t>(n));
  }
  return true;
}

bool Dial::is_closed() const {
  char byte;
  const ssize_t n = recv(socket_.fd(), &byte, 1, MSG_PEEK);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void Dial::advance() {
  if (!socket_) {
    if (CommClock::now() < next_) return;
    return begin();  // an event says how it went
  }
  if (stage_ == Stage::connecting) {
    if (CommClock::now() >= attempt_end_) return cut_off("no answer");
    const int error = connect_error(socket_);
    if (error != 0) return cut_off(std::strerror(error), error);
    set_socket_options(socket_);
    attempt_end_ = Deadline::max();
    refused_ = refused_in_round_ = false;
    stage_ = Stage::greeting;
  }
  if (stage_ == Stage::greeting) {
    if (!read(greeting_bytes)) return;
    failing_ = false;
    try {
      theirs_ = parse_greeting(in_);
    } catch (const InputError& e) {
      fail_input(about(), place_.name(), ": ", e.what());
    }
    in_.clear();
    own_ = Answer{rank_, peer_, random_bytes(nonce_bytes), {}};
    const std::string answer = encode_answer(*job_, rank_, peer_, theirs_, own_.challenge);
    // Fits into any empty buffer.
    if (write_all(socket_, answer, CommClock::now()) != IoResult::done) {
      return cut_off("the connection was closed");
    }
    stage_ = Stage::proof;
  }
  if (stage_ != Stage::proof || !read(sizeof(Digest))) return;
  if (in_ == std::string(sizeof(Digest), '\0')) {
    fail_input(about(), place_.name(), " does not accept the job token");
  }
  Digest digest;
  std::memcpy(digest.data(), in_.data(), digest.size());
  if (!equal_digests(digest, listener_proof(*job_, own_, theirs_))) {
    fail_input(about(), place_.name(), " does not prove the job token");
  }
  stage_ = Stage::proved;
}

}  // namespace rondo::tcp_transport
