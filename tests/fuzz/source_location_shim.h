// clang 14 with GCC's library lacks std::source_location, which kernels/base/error.h uses. Included
// ahead of everything by tests/fuzz/run alone.
#pragma once

#include <source_location>

#ifndef __cpp_lib_source_location
namespace std {
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           unsigned line = __builtin_LINE()) {
    source_location out;
    out.file_ = file;
    out.line_ = line;
    return out;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
};
}  // namespace std
#endif
