// Small files, read and written whole, and places in large ones. Errors: InputError that names the
// file and the cause.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/features/file_part.h"
#include "engine/io/descriptor.h"

namespace rondo::data {

// What is no regular file (a pipe, a device) may give this much, so that none is read for ever.
inline constexpr size_t most_piped_bytes = size_t{256} << 20;

std::string read_whole_file(const std::string& path);

// Open for reading where it is wanted: a regular file, for a pipe would be waited for.
// Thread safety: const members may be called from several threads at once.
class RegularFile {
 public:
  explicit RegularFile(const std::string& path);

  uint64_t size() const { return size_; }  // when it was opened
  // Fills `to` from byte `first`, as far as the file goes; how many bytes there were.
  size_t read_at(uint64_t first, std::span<std::byte> to) const;

 private:
  std::string path_;
  uint64_t size_ = 0;
  Descriptor file_;  // opening it sets the size
};

// The same of a regular file alone: a pipe without a writer would be waited for.
std::string read_regular_file(const FilePart& file);
// Its first bytes, at most `most`.
std::string read_file_start(const FilePart& file, size_t most);
// How many bytes it has.
uint64_t regular_file_size(const FilePart& file);
// That it is one, without waiting.
void require_regular_file(const std::string& path);
// Through a temporary file in the same folder, synced and renamed: a reader sees the old content
// or the new, never a part.
void write_whole_file(const std::string& path, std::string_view content);

}  // namespace rondo::data
