#include "engine/data/features/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/io/descriptor.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo::data {
namespace {

// Sets the size of a regular file; what is none has a size of 0 where it is allowed.
enum class Take { anything, regular };

// A pipe is opened without waiting for its writer where none is wanted.
Descriptor open_to_read(const std::string& path, Take take, uint64_t* size) {
  const int wait = take == Take::regular ? O_NONBLOCK : 0;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | wait));
  if (file.get() < 0) fail_to_open(path, errno);
  struct stat status {};
  const bool regular = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (take == Take::regular && !regular) {
    fail_input(path, ": is ", S_ISDIR(status.st_mode) ? "a directory" : "not a regular file",
               ", expected a file");
  }
  *size = regular ? static_cast<uint64_t>(status.st_size) : 0;
  return file;
}

std::string read_up_to(const std::string& path, int file, size_t most) {
  std::string content;
  std::vector<char> buffer(1 << 16);  // not of a stack that may be small
  while (content.size() < most) {
    const ssize_t n = ::read(file, buffer.data(), std::min(buffer.size(), most - content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(path, ": cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    content.append(buffer.data(), static_cast<size_t>(n));
  }
  return content;
}

}  // namespace

RegularFile::RegularFile(const std::string& path)
    : path_(path), file_(open_to_read(path, Take::regular, &size_)) {}

size_t RegularFile::read_at(uint64_t first, std::span<std::byte> to) const {
  size_t done = 0;
  while (done < to.size()) {
    const auto at = static_cast<off_t>(first + done);
    const ssize_t n = ::pread(file_.get(), to.data() + done, to.size() - done, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_input(path_, ": cannot be read: ", std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

std::string read_whole_file(const std::string& path) {
  uint64_t size = 0;
  const Descriptor file = open_to_read(path, Take::anything, &size);
  // A regular file may be growing.
  const size_t most = std::max<size_t>(size, most_piped_bytes);
  std::string content = read_up_to(path, file.get(), most + 1);
  if (content.size() > most) fail_input(path, ": has more than ", most, " bytes, expected fewer");
  return content;
}

std::string read_regular_file(const FilePart& file) {
  return read_file_start(file, std::numeric_limits<size_t>::max());
}

std::string read_file_start(const FilePart& file, size_t most) {
  const RegularFile opened(file.path);
  std::string content(std::min<uint64_t>(most, file.size_in(opened.size())), '\0');
  content.resize(opened.read_at(file.first, std::as_writable_bytes(std::span(content))));
  return content;
}

uint64_t regular_file_size(const FilePart& file) {
  return file.size_in(RegularFile(file.path).size());
}

void require_regular_file(const std::string& path) { RegularFile file(path); }

void write_whole_file(const std::string& path, std::string_view content) {
  replace_text_file(path, content);
}

}  // namespace rondo::data
