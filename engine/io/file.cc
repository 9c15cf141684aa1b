#include "engine/io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/io/crc32c.h"
#include "engine/io/descriptor.h"
#include "engine/io/moving.h"
#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
constexpr size_t buffer_bytes = 1 << 20;
constexpr const char* temporary_suffix = ".tmp-";

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

[[noreturn]] void fail_path(const char* what, const fs::path& path, int error) {
  fail_input(path.string(), ": cannot be ", what, ": ", reason(error));
}

// Past a file-size limit write(2) raises SIGXFSZ, which would end the process before it can report.
// Held back in this thread alone, and taken from the queue if it came, so that the host program's
// own handling of the signal is not disturbed.
class HoldSigxfsz {
 public:
  HoldSigxfsz() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~HoldSigxfsz() {
    if (raised_ && !was_pending_) {
      const timespec now{0, 0};
      while (sigtimedwait(&set_, nullptr, &now) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HoldSigxfsz(const HoldSigxfsz&) = delete;
  HoldSigxfsz& operator=(const HoldSigxfsz&) = delete;
  void raised() { raised_ = true; }

 private:
  sigset_t set_;
  sigset_t before_;
  bool was_pending_ = false;
  bool raised_ = false;
};

int open_retry(const fs::path& path, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

// Opens a regular file for reading and returns its size. O_NONBLOCK: opening a FIFO must not hang.
int open_regular(const fs::path& path, uint64_t& size) {
  const int fd = open_retry(path, O_RDONLY | O_NONBLOCK);
  if (fd < 0) fail_to_open(path, errno);
  struct stat st;
  if (::fstat(fd, &st) != 0) {
    const int error = errno;
    ::close(fd);
    fail_path("examined", path, error);
  }
  if (!S_ISREG(st.st_mode)) {
    ::close(fd);
    fail_input(path.string(), ": is ", S_ISDIR(st.st_mode) ? "a directory" : "not a regular file",
               ", expected a file");
  }
  size = static_cast<uint64_t>(st.st_size);
  return fd;
}

void read_exactly(int fd, std::byte* into, size_t size, const fs::path& path) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, into + done, size - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      fail_path("read", path, errno);
    }
    if (n == 0) {
      fail_input(path.string(), ": cannot be read: it ended after ", done, " of ", size, " bytes");
    }
    done += static_cast<size_t>(n);
  }
}

// Where a symbolic link leads; a file that is none, or leads nowhere, is itself.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
  const fs::path target = fs::canonical(path, error);
  return error ? path : target;
}

// A message with the name that the user knows.
std::string renamed(std::string message, const std::string& from, const std::string& to) {
  const size_t at = message.find(from);
  return at == std::string::npos ? message : message.replace(at, from.size(), to);
}

void append_utf8(char32_t c, std::string& text) {
  const auto byte = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      byte(0xe0 | c >> 12);
    } else {
      byte(0xf0 | c >> 18);
      byte(0x80 | (c >> 12 & 0x3f));
    }
    byte(0x80 | (c >> 6 & 0x3f));
  }
  byte(0x80 | (c & 0x3f));
}

enum class Order { none, low_first, high_first };

Order utf16_order(std::string_view text) {
  if (text.starts_with("\xff\xfe")) return Order::low_first;
  if (text.starts_with("\xfe\xff")) return Order::high_first;
  if (text.size() < 4) return Order::none;
  const auto is_zero = [&](size_t i) { return text[i] == '\0'; };
  if (!is_zero(0) && is_zero(1) && !is_zero(2) && is_zero(3)) return Order::low_first;
  if (is_zero(0) && !is_zero(1) && is_zero(2) && !is_zero(3)) return Order::high_first;
  return Order::none;
}

std::string from_utf16(std::string_view bytes, Order order) {
  const auto unit = [&](size_t at) {
    const auto a = static_cast<unsigned char>(bytes[at]);
    const auto b = static_cast<unsigned char>(bytes[at + 1]);
    return static_cast<char32_t>(order == Order::low_first ? a | b << 8 : a << 8 | b);
  };
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at + 1 < bytes.size(); at += 2) {
    char32_t c = unit(at);
    if (c >= 0xd800 && c < 0xdc00 && at + 3 < bytes.size()) {
      const char32_t low = unit(at + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        at += 2;
      }
    }
    append_utf8(c, text);
  }
  // Half a unit is none.
  if (bytes.size() % 2 != 0) text += '\xff';
  return text;
}

}  // namespace

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  while (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

bool is_utf16(std::string_view start) { return utf16_order(start) != Order::none; }

std::string as_utf8(std::string content) {
  const Order order = utf16_order(content);
  if (order != Order::none) content = from_utf16(content, order);
  content.erase(0, content.size() - without_byte_order_mark(content).size());
  return content;
}

std::string read_text_file(const fs::path& path, uint64_t max_bytes) {
  uint64_t size = 0;
  const Descriptor fd(open_regular(path, size));
  if (size > max_bytes) {
    fail_input(path.string(), ": has ", size, " bytes, expected at most ", max_bytes);
  }
  std::string text(static_cast<size_t>(size), '\0');
  read_exactly(fd.get(), reinterpret_cast<std::byte*>(text.data()), text.size(), path);
  return as_utf8(std::move(text));
}

FileBytes::FileBytes(const fs::path& path, Mode mode) {
  uint64_t size = 0;
  const Descriptor fd(open_regular(path, size));
  if (size == 0) return;
  if (mode == Mode::map) {
    void* p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (p != MAP_FAILED) {
      data_ = static_cast<const std::byte*>(p);
      size_ = size;
      mapped_ = true;
      return;
    }
    if (errno != ENODEV) fail_path("mapped into memory", path, errno);
    // The file system does not map files: it is read.
  }
  auto* memory =
      static_cast<std::byte*>(::operator new[](size, std::align_val_t{64}, std::nothrow));
  if (!memory) fail_input(path.string(), ": cannot be read: no memory for ", size, " bytes");
  data_ = memory;
  size_ = size;
  try {
    read_exactly(fd.get(), memory, size, path);
  } catch (...) {
    release();
    throw;
  }
}

FileBytes::FileBytes(FileBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(other.mapped_) {}

FileBytes& FileBytes::operator=(FileBytes&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapped_ = other.mapped_;
  }
  return *this;
}

FileBytes::~FileBytes() { release(); }

void FileBytes::release() noexcept {
  if (!data_) return;
  auto* p = const_cast<std::byte*>(data_);
  if (mapped_) {
    ::munmap(p, size_);
  } else {
    ::operator delete[](p, std::align_val_t{64});
  }
  data_ = nullptr;
  size_ = 0;
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  HoldSigxfsz hold;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EFBIG) hold.raised();
      fail_path("written", path, errno);
    }
    done += static_cast<size_t>(n);
  }
}

FileWriter::FileWriter(const fs::path& path)
    : path_(path),
      fd_(open_retry(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)),
      buffer_(std::make_unique<std::byte[]>(buffer_bytes)) {
  if (fd_ < 0) fail_path("created", path, errno);
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      filled_(std::exchange(other.filled_, 0)),
      size_(other.size_),
      crc_(other.crc_) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  RONDO_CHECK(fd_ >= 0, "write to the closed file '", path_.string(), "'");
  size_ += bytes.size();
  crc_ = crc32c(bytes, crc_);
  if (filled_ + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes) {
    write_all(fd_, bytes, path_);
  } else if (!bytes.empty()) {
    std::memcpy(buffer_.get() + filled_, bytes.data(), bytes.size());
    filled_ += bytes.size();
  }
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void FileWriter::flush() {
  const size_t n = std::exchange(filled_, 0);
  if (n > 0) write_all(fd_, {buffer_.get(), n}, path_);
}

void FileWriter::close() {
  RONDO_CHECK(fd_ >= 0, "second close of '", path_.string(), "'");
  flush();
  sync_if_possible(fd_, path_);
  // NFS and quotas may report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_path("closed", path_, errno);
}

void replace_file(const fs::path& name, FunctionRef<void(FileWriter&)> write) {
  std::error_code ignored;
  const fs::file_status status = fs::status(name, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    FileWriter file(name);
    write(file);
    file.close();
    return;
  }
  const fs::path path = target_of(name);
  fs::path temporary = path;
  temporary += temporary_suffix + std::to_string(::getpid());
  if (is_whole(temporary)) finish_replacing(temporary, path);  // of an earlier attempt
  const RemovedIfStopped unfinished(temporary);
  try {
    FileWriter file(temporary);
    write(file);
    file.close();
    replace_with(temporary, path);
  } catch (const InputError& e) {
    if (is_whole(temporary)) throw;  // and kept
    ::unlink(temporary.c_str());
    throw InputError(renamed(e.what(), temporary.string(), path.string()));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const fs::path parent = path.parent_path();
  sync_directory(parent.empty() ? "." : parent);
}

void remove_temporaries(const fs::path& name) {
  const fs::path path = target_of(name);
  const std::string prefix = path.filename().string() + temporary_suffix;
  const fs::path parent = path.parent_path();
  std::error_code error;
  std::vector<fs::path> left;
  fs::directory_iterator it(parent.empty() ? fs::path(".") : parent, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (!file.starts_with(prefix)) continue;
    std::string number = file.substr(prefix.size());
    if (number.ends_with(whole_suffix)) number.resize(number.size() - whole_suffix.size());
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    left.push_back(it->path().parent_path() / (prefix + number));
  }
  for (const fs::path& file : left) finish_replacing(file, path);
}

void replace_text_file(const fs::path& path, std::string_view content) {
  replace_file(path, [&](FileWriter& file) { file.write(content); });
}

void rename_path(const fs::path& from, const fs::path& to) { move_directory(from, to); }

void sync_directory(const fs::path& directory) { sync_if_possible(directory); }

void make_directories(const fs::path& directory) {
  std::error_code ignored;
  if (directory.empty() || fs::is_directory(directory, ignored)) return;
  const fs::path parent = directory.parent_path();
  if (parent != directory) make_directories(parent);
  if (::mkdir(directory.c_str(), 0777) != 0) {
    if (errno == EEXIST && fs::is_directory(directory, ignored)) return;
    fail_path("made a directory", directory, errno);
  }
  sync_directory(parent.empty() ? "." : parent);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::directory) {
    std::vector<fs::path> entries;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
      entries.push_back(it->path());
    }
    for (const fs::path& entry : entries) remove_tree(entry);
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail_path("removed", path, errno);
  } else if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail_path("removed", path, errno);
  }
}

}  // namespace rondo
