// CommError: communication between ranks failed. It is recoverable: the program is right, a peer or
// the network is not. What to do is always the same: stop all ranks, rebuild the transport, resume
// from the last checkpoint. After a CommError the transport it came from may be unusable.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/error.h"

namespace rondo {

enum class CommErrorKind : uint8_t {
  timeout,    // a deadline passed
  peer_lost,  // a rank has died, left, or cannot be reached
  mismatch,   // ranks disagree on what they are exchanging
  aborted,    // some rank gave up and told the others, or the operation was withdrawn
};

constexpr const char* name_of(CommErrorKind kind) {
  switch (kind) {
    case CommErrorKind::timeout:
      return "timeout";
    case CommErrorKind::peer_lost:
      return "peer lost";
    case CommErrorKind::mismatch:
      return "mismatch";
    case CommErrorKind::aborted:
      return "aborted";
  }
  return "?";
}

// The message names the rank that reports it, the operation, the peer and the cause.
class CommError : public Error {
 public:
  CommError(CommErrorKind kind, int peer, const std::string& message)
      : Error(message), kind_(kind), peer_(peer) {}

  CommErrorKind kind() const { return kind_; }
  // The rank to blame as far as it is known, or -1.
  int peer() const { return peer_; }

 private:
  CommErrorKind kind_;
  int peer_;
};

}  // namespace rondo
