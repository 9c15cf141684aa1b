// A file, or some bytes of one: a recording in a tar archive, a matrix in an archive of Kaldi's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {

struct FilePart {
  static constexpr uint64_t to_the_end = UINT64_MAX;

  std::string path;
  uint64_t first = 0;          // byte at which it begins
  uint64_t size = to_the_end;  // bytes

  FilePart() = default;
  // Most are whole files, and called by their paths.
  FilePart(std::string file, uint64_t begin = 0, uint64_t bytes = to_the_end)
      : path(std::move(file)), first(begin), size(bytes) {}
  FilePart(const char* file) : path(file) {}

  bool is_whole() const { return first == 0 && size == to_the_end; }
  // For messages: "clips.tar, 40000 bytes from byte 1536".
  std::string name() const {
    if (is_whole()) return path;
    const std::string from = " from byte " + std::to_string(first);
    return size == to_the_end ? path + "," + from
                              : path + ", " + std::to_string(size) + " bytes" + from;
  }
  // How many bytes it has in a file of so many. Throws InputError where the file ends before it.
  uint64_t size_in(uint64_t file_bytes) const {
    const bool inside = first <= file_bytes;
    if (inside && size == to_the_end) return file_bytes - first;
    if (!inside || size > file_bytes - first)
      fail_input(name(), ": the file ends before that, it has ", file_bytes, " bytes");
    return size;
  }
};

}  // namespace rondo
