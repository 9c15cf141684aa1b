// Files: reading whole or mapped, and writing so that a full disk, a crash or a power failure is
// either noticed or leaves the old state.
//
// Errors: whatever the file system refuses is an InputError that names the path, the operation and
// the system's reason. Thread safety: objects are used by one thread at a time; functions are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/cpu/parallel.h"

namespace rondo {

// Without the marks (U+FEFF) that the text begins with: editors on Windows put one before UTF-8,
// and a program that takes it for a character puts its own before that.
std::string_view without_byte_order_mark(std::string_view text);
// What a text file says, as UTF-8 without such marks. UTF-16 is known by its mark, or by the zeros
// between its first letters; half a surrogate becomes bytes that are no UTF-8, as other bytes stay.
std::string as_utf8(std::string content);
bool is_utf16(std::string_view start);

// The whole file, as_utf8(). `max_bytes` guards against something absurd; a larger file is an
// error.
std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes = UINT64_MAX);

// Read-only bytes of a regular file, mapped or in memory of their own. Move-only.
//
// A mapped file must not be shortened while it is in use (the kernel answers with SIGBUS); files of
// committed checkpoints are never changed in place, so they are safe to map.
class FileBytes {
 public:
  enum class Mode { map, copy };

  FileBytes() = default;
  FileBytes(const std::filesystem::path& path, Mode mode);
  FileBytes(FileBytes&& other) noexcept;
  FileBytes& operator=(FileBytes&& other) noexcept;
  ~FileBytes();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void release() noexcept;

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
};

// Writes a new file (an existing one is truncated), keeping size and CRC-32C of what was written.
//
// A full disk, a quota or a file-size limit (EFBIG; its SIGXFSZ is held back) throws from write()
// or close(). Move-only; the destructor closes without syncing and reports nothing, so call
// close().
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Flushes, syncs to the disk and closes.
  void close();

  uint64_t size() const { return size_; }
  uint32_t crc() const { return crc_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush();

  std::filesystem::path path_;
  int fd_ = -1;
  std::unique_ptr<std::byte[]> buffer_;
  size_t filled_ = 0;
  uint64_t size_ = 0;
  uint32_t crc_ = 0;
};

// write(2) until everything is out: short writes and EINTR are continued, SIGXFSZ is held back.
// `path` is for the message.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);

// Replaces `path` at once: temporary file beside it, sync, rename, sync of the directory. After a
// crash there is either the old content or the new, and what the process had written of the new
// stays beside it as `path`.tmp-PID: see remove_temporaries(). A signal that ends the process
// removes it. `write` fills the file. A symbolic link is followed; what is not a regular file (a
// pipe, a terminal, /dev/null) is written to as it is.
void replace_file(const std::filesystem::path& path, FunctionRef<void(FileWriter&)> write);
void replace_text_file(const std::filesystem::path& path, std::string_view content);

// Removes the temporary files that processes which were killed left of replace_file(`path`). Only
// for who knows, by a lock say, that nobody writes `path` now.
void remove_temporaries(const std::filesystem::path& path);

// Makes renames and creations inside a directory durable.
void sync_directory(const std::filesystem::path& directory);

// mkdir -p, each new directory synced into its parent.
void make_directories(const std::filesystem::path& directory);
// A file or directory, to a free name; where that cannot be done, moves a directory file by file.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

// rm -rf; what is already gone is no error.
void remove_tree(const std::filesystem::path& path);

}  // namespace rondo
