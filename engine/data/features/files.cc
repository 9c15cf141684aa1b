#include "engine/data/features/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "engine/io/descriptor.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo::data {
namespace {

enum class Take { anything, regular };

// A pipe is opened without waiting for its writer where none is wanted.
Descriptor open_to_read(const std::string& path, Take take, size_t* size) {
  const int wait = take == Take::regular ? O_NONBLOCK : 0;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | wait));
  if (file.get() < 0) fail_input(path, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (take == Take::regular && !regular) {
    fail_input(path, ": is ", S_ISDIR(status.st_mode) ? "a directory" : "not a regular file",
               ", expected a file");
  }
  *size = regular ? static_cast<size_t>(status.st_size) : 0;
  return file;
}

std::string read_up_to(const std::string& path, int file, size_t most) {
  std::string content;
  char buffer[1 << 16];
  while (content.size() < most) {
    const ssize_t n = ::read(file, buffer, std::min(sizeof buffer, most - content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  return content;
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  size_t size = 0;
  const Descriptor file = open_to_read(path, Take::anything, &size);
  // A regular file may be growing.
  const size_t most = std::max(size, most_piped_bytes);
  std::string content = read_up_to(path, file.get(), most + 1);
  if (content.size() > most) fail_input(path, ": has more than ", most, " bytes, expected fewer");
  return content;
}

std::string read_regular_file(const std::string& path) {
  return read_file_start(path, std::numeric_limits<size_t>::max());
}

std::string read_file_start(const std::string& path, size_t most) {
  size_t size = 0;
  const Descriptor file = open_to_read(path, Take::regular, &size);
  return read_up_to(path, file.get(), most);
}

void require_regular_file(const std::string& path) {
  size_t size = 0;
  open_to_read(path, Take::regular, &size);
}

void write_whole_file(const std::string& path, std::string_view content) {
  replace_text_file(path, content);
}

}  // namespace rondo::data
