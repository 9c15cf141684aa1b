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
std::string read_whole_file(const std::string& path) {
  return read_file_start(path, std::numeric_limits<size_t>::max());
}

std::string read_file_start(const std::string& path, size_t most) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_input(path, ": cannot be opened: ", std::strerror(errno));
  std::string content;
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode))
    content.reserve(std::min(most, static_cast<size_t>(status.st_size)));
  char buffer[1 << 16];
  while (content.size() < most) {
    const ssize_t n = ::read(file.get(), buffer, std::min(sizeof buffer, most - content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  return content;
}

void write_whole_file(const std::string& path, std::string_view content) {
  replace_text_file(path, content);
}

}  // namespace rondo::data
