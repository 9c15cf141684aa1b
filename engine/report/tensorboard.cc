#include "engine/report/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "engine/io/crc32c.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Protocol buffers' wire format: a key (field number and wire type), then the value.
std::string varint(uint64_t v) {
  std::string s;
  for (; v >= 0x80; v >>= 7) s += static_cast<char>((v & 0x7f) | 0x80);
  return s + static_cast<char>(v);
}
std::string key(int field, int wire_type) {
  return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
}
std::string varint_field(int field, int64_t v) {
  return key(field, 0) + varint(static_cast<uint64_t>(v));
}
std::string double_field(int field, double v) { return key(field, 1) + raw(v); }
std::string bytes_field(int field, std::string_view v) {
  return key(field, 2) + varint(v.size()) + std::string(v);
}
std::string float_field(int field, float v) { return key(field, 5) + raw(v); }

// The CRC of bytes that hold CRCs themselves is weak, hence TFRecord's mask.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

std::string tf_record(std::string_view data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  return length + raw(masked_crc(length)) + std::string(data) + raw(masked_crc(data));
}

// Event: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.  Summary: 1 value.
// SessionLog: 1 status (1: START).
// Value: 1 tag, 2 simple_value, 8 tensor, 9 metadata.
std::string summary(std::string_view value) { return bytes_field(5, bytes_field(1, value)); }

double system_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

constexpr std::string_view file_prefix = "events.out.tfevents.";

// The latest time that a file of the directory has in its name; -1 where there is none.
int64_t latest_time(const fs::path& directory) {
  int64_t time = -1;
  std::error_code ignored;
  fs::directory_iterator it(directory, ignored);
  for (const fs::directory_iterator end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(file_prefix)) continue;
    const char* const digits = name.data() + file_prefix.size();
    int64_t other = 0;
    const auto [behind, error] = std::from_chars(digits, name.data() + name.size(), other);
    // Ten digits, as all have for centuries: names are compared as text.
    if (error == std::errc() && behind - digits == 10) time = std::max(time, other);
  }
  return time;
}

std::string file_name(int64_t seconds) {
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  char name[400];
  std::snprintf(name, sizeof name, "%s%010lld.%s.%ld", file_prefix.data(),
                static_cast<long long>(seconds), host, static_cast<long>(::getpid()));
  return name;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& directory, std::function<double()> clock)
    : clock_(clock ? std::move(clock) : system_seconds) {
  make_directories(directory);
  const int64_t latest = latest_time(directory);
  continues_ = latest >= 0;
  const std::string name = file_name(std::max(static_cast<int64_t>(clock_()), latest + 1));
  // A run that begins at the same moment gets a file of its own.
  for (int attempt = 0; fd_ < 0; ++attempt) {
    path_ = directory / (name + "." + std::to_string(attempt));
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) {
      fail_input(path_.string(), ": cannot be created: ", std::generic_category().message(errno));
    }
  }
  write_event(0, bytes_field(3, "brain.Event:2"));
}

TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&& other) noexcept
    : clock_(std::move(other.clock_)),
      path_(std::move(other.path_)),
      continues_(other.continues_),
      fd_(std::exchange(other.fd_, -1)) {}

TensorBoardWriter::~TensorBoardWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void TensorBoardWriter::write_event(int64_t step, std::string_view field) {
  std::string event = double_field(1, clock_());
  if (step != 0) event += varint_field(2, step);
  event += field;
  const std::string record = tf_record(event);
  write_all(fd_, std::as_bytes(std::span(record.data(), record.size())), path_);
}

void TensorBoardWriter::session_start(int64_t step) {
  write_event(step, bytes_field(7, varint_field(1, 1)));
}

void TensorBoardWriter::scalar(std::string_view tag, int64_t step, float value) {
  write_event(step, summary(bytes_field(1, tag) + float_field(2, value)));
}

void TensorBoardWriter::text(std::string_view tag, int64_t step, std::string_view markdown) {
  // SummaryMetadata: 1 plugin_data {1 plugin_name}.  TensorProto: 1 dtype (7: string), 2 shape
  // {2 dim {1 size}}, 8 string_val.
  const std::string metadata = bytes_field(1, bytes_field(1, "text"));
  const std::string shape = bytes_field(2, varint_field(1, 1));
  const std::string tensor = varint_field(1, 7) + bytes_field(2, shape) + bytes_field(8, markdown);
  write_event(step,
              summary(bytes_field(1, tag) + bytes_field(8, tensor) + bytes_field(9, metadata)));
}

}  // namespace rondo
