// Lines of a text that may be longer than memory, compressed by gzip or not.
//
// Errors: InputError that names the file, and the line where one is wrong. Thread safety: one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace rondo {

class LineReader {
 public:
  // "-" is standard input. Reading throws where the text is not UTF-8 or packed by another program.
  explicit LineReader(const std::string& path);
  // Of memory, which must outlive the reader; `name` stands for the file in messages.
  LineReader(std::string_view content, std::string name);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end (LF or CR LF), valid until the next call; false: there is none.
  bool next(std::string_view& line);

  const std::string& name() const { return name_; }
  int64_t line() const { return line_; }  // the number of the last one, from 1

  // Throws InputError about the last line.
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    fail_input(name_, ":", line_, ": ", args...);
  }

 private:
  struct Input;
  bool refill();

  std::string name_;
  std::unique_ptr<Input> input_;  // none: all is in `rest_`
  std::vector<char> buffer_;
  std::string_view rest_;  // what was read and not given yet
  int64_t line_ = 0;
  bool is_begun_ = false;  // something was read
};

}  // namespace rondo
