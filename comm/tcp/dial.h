// One rank's way to a connection with another one that listens: it connects, both prove the job
// token, and where it is cut off before that it tries again after a pause. Nothing here waits.
// Internal to the TCP transport. One thread at a time.
#pragma once

#include <string>

#include "comm/tcp/address_book.h"
#include "comm/tcp/handshake.h"

namespace rondo::tcp_transport {

class Dial {
 public:
  Dial(const Job& job, int rank, int peer, Place place)
      : job_(&job), rank_(rank), peer_(peer), place_(std::move(place)) {}

  int peer() const { return peer_; }
  // Of this attempt; -1 between two.
  int fd() const { return socket_.fd(); }
  bool connected() const { return stage_ != Stage::connecting; }
  // When advance() has something to do though nothing has come.
  Deadline due() const { return socket_ ? Deadline::max() : next_; }

  // Goes on as far as it gets. InputError: the other side does not accept the token, or does not
  // know it, or is no rank. Error: this process may not open a further socket.
  void advance();

  bool proved() const { return stage_ == Stage::proved; }
  // Then: by the other side.
  bool is_closed() const;
  Socket take() { return std::move(socket_); }
  // What ended the last attempt, with the address; whether nobody listens there any more.
  std::string why() const { return str(place_.name(), ": ", why_); }
  bool refused() const { return refused_; }
  // Since when no attempt has led as far as a greeting.
  CommClock::time_point failing_since() const { return failing_since_; }

 private:
  enum class Stage : uint8_t { connecting, greeting, proof, proved };

  void begin();
  void cut_off(const std::string& why);
  // False: not all of it has come.
  bool read(size_t size);
  std::string about() const { return str("rank ", rank_, ": rendezvous with rank ", peer_, ": "); }

  const Job* job_;
  int rank_, peer_;
  Place place_;
  Socket socket_;
  Stage stage_ = Stage::connecting;
  std::string in_, theirs_;
  Answer own_;
  std::string why_ = "no answer";
  bool refused_ = false, failing_ = false;
  CommClock::time_point failing_since_ = CommClock::now();
  Deadline next_ = CommClock::now();
  std::chrono::milliseconds pause_{5};
};

// For messages about EMFILE: "Too many open files (ulimit -n is 1024)".
std::string too_many_files();

}  // namespace rondo::tcp_transport
