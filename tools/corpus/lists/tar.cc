#include "tools/corpus/lists/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

constexpr uint64_t block_bytes = 512;
// Names and pax headers are short; an archive that says otherwise is damaged.
constexpr uint64_t most_header_bytes = 1 << 20;

using Block = std::array<std::byte, block_bytes>;

std::string_view field(const Block& block, size_t at, size_t size) {
  return {reinterpret_cast<const char*>(block.data()) + at, size};
}

// To the first NUL.
std::string text_field(const Block& block, size_t at, size_t size) {
  const std::string_view whole = field(block, at, size);
  return std::string(whole.substr(0, std::min(whole.find('\0'), size)));
}

class Archive {
 public:
  Archive(const data::ReadAt& read_at, uint64_t bytes, const std::string& name)
      : read_at_(read_at), bytes_(bytes), name_(name) {}

  std::vector<TarMember> members() {
    refuse_compressed();
    std::vector<TarMember> all;
    Block block;
    while (next_header(block)) {
      const uint64_t first = at_ + block_bytes;
      const char type = field(block, 156, 1)[0];
      uint64_t size = number(block, 124, 12);
      const bool is_file = type == '0' || type == '\0' || type == '7';
      if (is_file && pax_size_) size = *pax_size_;
      if (first > bytes_ || size > bytes_ - first)
        fail("is cut off: its file of ", size, " bytes goes beyond the end");
      if (type == 'L') {
        long_name_ = content(first, size);
        long_name_->erase(std::min(long_name_->find('\0'), long_name_->size()));
      } else if (type == 'x') {
        take_pax(content(first, size));
      } else if (type == 'S') {
        fail("holds a sparse file, which cannot be read in place");
      } else if (type != 'K' && type != 'g') {
        if (is_file) all.push_back({name_of(block), first, size});
        long_name_.reset();
        pax_name_.reset();
        pax_size_.reset();
      }
      at_ = first + (size + block_bytes - 1) / block_bytes * block_bytes;
    }
    return all;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    fail_input(name_, ": at byte ", at_, " ", args...);
  }

  void refuse_compressed() const {
    std::array<std::byte, 6> start{};
    read_at_(0, start);
    const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
    for (const std::string_view magic : {"\x1f\x8b", "BZh",
                                         "\xfd"
                                         "7zXZ",
                                         "\x28\xb5\x2f\xfd"}) {
      if (text.starts_with(magic))
        fail_input(name_,
                   ": is compressed, expected a plain tar archive, whose files can be read "
                   "where they are");
    }
  }

  // False at the end: a block of zeros, or no more bytes.
  bool next_header(Block& block) const {
    if (at_ >= bytes_) return false;
    if (read_at_(at_, block) < block.size()) fail("ends within a header");
    if (std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; }))
      return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < block.size(); ++i)
      sum += i >= 148 && i < 156 ? ' ' : std::to_integer<uint64_t>(block[i]);
    if (number(block, 148, 8) != sum)
      fail("holds no header of a tar archive (its checksum is another)");
    return true;
  }

  // Octal digits, or GNU's binary form.
  uint64_t number(const Block& block, size_t at, size_t size) const {
    const std::string_view digits = field(block, at, size);
    uint64_t value = 0;
    constexpr uint64_t most = uint64_t{1} << 56;
    if ((static_cast<unsigned char>(digits[0]) & 0x80u) != 0) {
      for (size_t i = 0; i < size; ++i) {
        const auto byte = static_cast<unsigned char>(i == 0 ? digits[i] & 0x7f : digits[i]);
        if (value >= most) fail("has a number in its header that is too large");
        value = value << 8 | byte;
      }
      return value;
    }
    for (const char c : digits) {
      if (c == ' ' && value == 0) continue;  // leading
      if (c == ' ' || c == '\0') break;
      if (c < '0' || c > '7') fail("has a number in its header that is not octal");
      value = value << 3 | static_cast<uint64_t>(c - '0');
    }
    return value;
  }

  std::string content(uint64_t first, uint64_t size) const {
    if (size > most_header_bytes) fail("has a name or a pax header of ", size, " bytes");
    std::string text(static_cast<size_t>(size), '\0');
    if (read_at_(first, std::as_writable_bytes(std::span(text))) < text.size())
      fail("is cut off within a name");
    return text;
  }

  // Records "LENGTH KEY=VALUE\n", where the length counts all of the record.
  void take_pax(std::string_view records) {
    while (!records.empty()) {
      uint64_t length = 0;
      size_t digits = 0;
      while (digits < records.size() && digits < 8 && records[digits] >= '0' &&
             records[digits] <= '9')
        length = 10 * length + static_cast<uint64_t>(records[digits++] - '0');
      if (digits == 0 || length > records.size() || length < digits + 3 || records[digits] != ' ' ||
          records[length - 1] != '\n')
        fail("has a pax header that is damaged");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      records.remove_prefix(length);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) fail("has a pax header that is damaged");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") pax_name_ = std::string(value);
      if (key == "size") pax_size_ = decimal(value);
      if (key.starts_with("GNU.sparse."))
        fail("holds a sparse file, which cannot be read in place");
    }
  }

  uint64_t decimal(std::string_view digits) const {
    constexpr size_t most_digits = 18;
    uint64_t value = 0;
    if (digits.empty() || digits.size() > most_digits) fail("has a pax header that is damaged");
    for (const char c : digits) {
      if (c < '0' || c > '9') fail("has a pax header that is damaged");
      value = 10 * value + static_cast<uint64_t>(c - '0');
    }
    return value;
  }

  std::string name_of(const Block& block) const {
    if (pax_name_) return *pax_name_;
    if (long_name_) return *long_name_;
    const std::string name = text_field(block, 0, 100);
    // GNU's own format has other things where POSIX has the name's beginning.
    const bool is_posix = field(block, 257, 6) == std::string_view("ustar\0", 6);
    const std::string prefix = is_posix ? text_field(block, 345, 155) : "";
    return prefix.empty() ? name : prefix + "/" + name;
  }

  const data::ReadAt& read_at_;
  const uint64_t bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
  // Said before the header of the file that they are of.
  std::optional<std::string> long_name_, pax_name_;
  std::optional<uint64_t> pax_size_;
};

}  // namespace

std::vector<TarMember> tar_members(const data::ReadAt& read_at, uint64_t bytes,
                                   const std::string& name) {
  return Archive(read_at, bytes, name).members();
}

std::vector<TarMember> tar_members(const std::string& path) {
  const data::RegularFile file(path);
  return tar_members(
      [&](uint64_t first, std::span<std::byte> to) { return file.read_at(first, to); }, file.size(),
      path);
}

}  // namespace rondo::corpus
