#include "engine/lm/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "engine/io/descriptor.h"
#include "engine/io/file.h"

namespace rondo {
namespace {

constexpr size_t buffer_bytes = size_t{1} << 20;
constexpr size_t longest_line = size_t{1} << 26;

int open_input(const std::string& path) {
  const int fd = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_to_open(path, errno);
  struct stat st;
  if (::fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
    ::close(fd);
    fail_input(path, ": is a directory, expected a file");
  }
  return fd;
}

// A text without the mark before it; throws InputError about what only another program reads.
std::string_view text_of(std::string_view start, const std::string& name) {
  struct Packed {
    std::string_view mark;
    const char *by, *unpack;
  };
  using namespace std::string_view_literals;
  constexpr Packed kinds[] = {{"BZh"sv, "bzip2", "bzcat"},
                              {"\xfd\x37zXZ\0"sv, "xz", "xzcat"},
                              {"\x28\xb5\x2f\xfd"sv, "zstd", "zstdcat"},
                              {"PK\x03\x04"sv, "zip", "unzip -p"}};
  for (const Packed& kind : kinds)
    if (start.starts_with(kind.mark))
      fail_input(name, ": is compressed by ", kind.by, ", expected a text, or gzip ('", kind.unpack,
                 " FILE | gzip > FILE.gz' makes one)");
  if (is_utf16(start))
    fail_input(name, ": is UTF-16, expected UTF-8 ('iconv -f UTF-16 -t UTF-8 FILE' makes it)");
  return without_byte_order_mark(start);
}

}  // namespace

struct LineReader::Input {
  explicit Input(const std::string& path) {
    const int fd = open_input(path);
    file = ::gzdopen(fd, "rb");
    if (!file) {
      ::close(fd);
      throw std::bad_alloc();
    }
    ::gzbuffer(file, 1 << 18);
  }
  ~Input() { ::gzclose(file); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  gzFile file;
};

LineReader::LineReader(const std::string& path)
    : name_(path == "-" ? "standard input" : path), input_(std::make_unique<Input>(path)) {}

LineReader::LineReader(std::string_view content, std::string name)
    : name_(std::move(name)), rest_(text_of(content, name_)) {}

LineReader::~LineReader() = default;

// More bytes behind those that are left; false at the end.
bool LineReader::refill() {
  if (!input_) return false;
  if (rest_.size() > longest_line) {
    fail_input(name_, ":", line_ + 1, ": the line is longer than ", longest_line, " bytes");
  }
  const size_t kept = rest_.size();
  if (buffer_.size() < kept + buffer_bytes) {
    std::vector<char> larger(2 * kept + buffer_bytes);
    std::copy(rest_.begin(), rest_.end(), larger.begin());
    buffer_.swap(larger);
  } else {
    std::copy(rest_.begin(), rest_.end(), buffer_.begin());  // to the left, if at all
  }
  const int n = ::gzread(input_->file, buffer_.data() + kept, buffer_bytes);
  int error = Z_OK;
  const char* what = ::gzerror(input_->file, &error);
  if (n < 0 || (n == 0 && error == Z_BUF_ERROR)) {
    fail_input(name_, ": cannot be read: ",
               error == Z_ERRNO       ? std::generic_category().message(errno)
               : error == Z_BUF_ERROR ? "the compressed file ends too early"
                                      : str("its compression is damaged (", what, ")"),
               ", after line ", line_);
  }
  rest_ = {buffer_.data(), kept + static_cast<size_t>(n)};
  if (!std::exchange(is_begun_, true)) rest_ = text_of(rest_, name_);
  return n > 0;
}

bool LineReader::next(std::string_view& line) {
  size_t end = rest_.find('\n');
  while (end == std::string_view::npos) {
    const size_t searched = rest_.size();
    if (!refill()) break;
    end = rest_.find('\n', searched);
  }
  if (end == std::string_view::npos && rest_.empty()) return false;
  ++line_;
  line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

}  // namespace rondo
