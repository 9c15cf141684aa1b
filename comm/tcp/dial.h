// One rank's way to a connection with another one that listens: it connects, both prove the job
// token, and where it is cut off before that it tries again after a pause. Of several addresses one
// is tried after the other, each for a short time. Nothing here waits.
// Internal to the TCP transport. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "comm/tcp/address_book.h"
#include "comm/tcp/handshake.h"

namespace rondo::tcp_transport {

class Dial {
 public:
  Dial(const Job& job, int rank, int peer, Place place)
      : job_(&job),
        rank_(rank),
        peer_(peer),
        place_(std::move(place)),
        why_(place_.hosts.size(), "no answer") {}

  int peer() const { return peer_; }
  // Of this attempt; -1 between two.
  int fd() const { return socket_.fd(); }
  bool connected() const { return stage_ != Stage::connecting; }
  // When advance() has something to do though nothing has come.
  Deadline due() const { return socket_ ? attempt_end_ : next_; }

  // Goes on as far as it gets. InputError: the other side does not accept the token, or does not
  // know it, or is no rank. Error: this process may not open a further socket.
  void advance();

  bool proved() const { return stage_ == Stage::proved; }
  // Then: by the other side.
  bool is_closed() const;
  Socket take() { return std::move(socket_); }
  // What ended the last attempts, with the addresses; whether nobody listens there any more: one of
  // its addresses has refused, and none of the others answers.
  std::string why() const;
  bool refused() const { return refused_; }
  // Since when no attempt has led as far as a greeting.
  CommClock::time_point failing_since() const { return failing_since_; }

 private:
  enum class Stage : uint8_t { connecting, greeting, proof, proved };

  void begin();
  // The other side's address is tried no longer: the next one is, after the last all again.
  void cut_off(const std::string& why, int error = 0);
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
  size_t at_ = 0;                 // the address that is tried, of place_.hosts
  std::vector<std::string> why_;  // of each address
  bool refused_ = false, refused_in_round_ = false, failing_ = false;
  CommClock::time_point failing_since_ = CommClock::now();
  Deadline next_ = CommClock::now(), attempt_end_ = Deadline::max();
  std::chrono::milliseconds pause_{5};
};

// For messages about EMFILE: "Too many open files (ulimit -n is 1024)".
std::string too_many_files();

}  // namespace rondo::tcp_transport
