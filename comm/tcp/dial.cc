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
  stage_ = Stage::connecting;
  in_.clear();
  if (!failing_) failing_since_ = CommClock::now();
  failing_ = true;
  int error = 0;
  socket_ = begin_connect(place_.host, place_.port, error);
  if (socket_) return;
  if (error == EMFILE) throw Error(str(about(), too_many_files()));
  refused_ = error == ECONNREFUSED;
  cut_off(std::strerror(error));
}

void Dial::cut_off(const std::string& why) {
  why_ = why;
  socket_ = Socket();
  stage_ = Stage::connecting;
  next_ = within(pause_);
  pause_ = std::min(2 * pause_, milliseconds(200));
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
    const int error = connect_error(socket_);
    refused_ = error == ECONNREFUSED;
    if (error != 0) return cut_off(std::strerror(error));
    set_socket_options(socket_);
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
