// Errors. One exception type for everything that is not communication.
//
// Two kinds of failure are kept apart, because the person who reads them differs:
//   * InputError   the outside world is wrong (a file, a flag, a label, a full disk). The message
//                  stands on its own: which file, line and value, and what was expected.
//   * Error        a contract inside the program is broken, or a resource is missing. The message
//                  carries the source position, because somebody has to look at the code.
// comm/ adds CommError (recoverable: time-out, lost peer, mismatch), derived from Error.
#pragma once

#include <cstdint>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace rondo {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

class InputError : public Error {
 public:
  using Error::Error;
};

// Concatenates its arguments with operator<<.
template <class... Args>
std::string str(Args&&... args) {
  std::ostringstream out;
  (out << ... << std::forward<Args>(args));
  return std::move(out).str();
}

template <class... Args>
[[noreturn]] void fail_input(Args&&... args) {
  throw InputError(str(std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] inline void fail_check(const char* condition, const std::string& message,
                                    std::source_location where) {
  throw Error(str(where.file_name(), ":", where.line(), ": check failed: ", condition,
                  message.empty() ? "" : ": ", message));
}
}  // namespace detail

}  // namespace rondo

namespace rondo::detail {
[[noreturn]] void fail_check_plain(const char* file, int line, const char* condition);
}

// A broken contract: RONDO_CHECK(rows >= 0, "rows is ", rows, ", expected at least 0").
#ifdef RONDO_ISA
// In files compiled once per instruction set: no templates (see kernels/base/simd.h).
#define RONDO_CHECK(condition, ...)                                                       \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::rondo::detail::fail_check_plain(__FILE__, __LINE__, #condition);                  \
  } while (false)
#else
#define RONDO_CHECK(condition, ...)                                                       \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::rondo::detail::fail_check(#condition, ::rondo::str(__VA_ARGS__),                  \
                                  std::source_location::current());                       \
  } while (false)
#endif
