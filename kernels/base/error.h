// Errors. One exception type for everything that is not communication.
//
// Two kinds of failure are kept apart, because the person who reads them differs:
//   * InputError   the outside world is wrong (a file, a flag, a label, a full disk). The message
//                  stands on its own: which file, line and value, and what was expected.
//   * Error        a contract inside the program is broken, or a resource is missing. The message
//                  carries the source position, because somebody has to look at the code.
// comm/ adds CommError (recoverable: time-out, lost peer, mismatch), derived from Error.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/base/check.h"

namespace rondo {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

class InputError : public Error {
 public:
  using Error::Error;
};

// What a peer's run() (kernels/base/op.h) throws when its library turns out not to do this.
class Declined : public Error {
 public:
  using Error::Error;
};

// Its arguments one after the other: text, characters, and numbers (real ones to six digits).
template <class... Args>
std::string str(const Args&... args) {
  return detail::join({args...});
}

}  // namespace rondo
