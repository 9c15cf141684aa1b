#include "engine/data/audio/container_check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace rondo::data {
namespace {

uint32_t little32(const std::byte* p) {
  uint32_t v = 0;
  for (int i = 3; i >= 0; --i) v = v << 8 | std::to_integer<uint32_t>(p[i]);
  return v;
}

bool tag(const std::byte* p, std::string_view wanted) {
  return std::memcmp(p, wanted.data(), wanted.size()) == 0;
}

std::string check_riff(uint64_t file_size, const ReadAt& read_at) {
  // Chunks are at least 8 bytes, so this ends; the bound keeps a hostile file cheap.
  constexpr int most_chunks = 1000;
  uint64_t at = 12;
  for (int i = 0; i < most_chunks; ++i) {
    std::byte head[8];
    if (read_at(at, head) < sizeof head)
      return str("the file ends at byte ", file_size, ", before its \"data\" chunk");
    const uint32_t size = little32(head + 4);
    if (tag(head, "data")) {
      // Written by programs that could not go back to fill in the size.
      const bool unknown = size == 0 || size >= 0x7fff0000u;
      const uint64_t have = file_size - (at + 8);
      if (unknown || size <= have) return {};
      return str("its header announces ", size, " bytes of samples, the file holds ", have);
    }
    at += 8 + static_cast<uint64_t>(size) + (size & 1);
  }
  return {};
}

// Walks the whole pages of the file's tail, from a page that is found by its capture pattern.
std::string check_ogg(uint64_t file_size, const ReadAt& read_at) {
  constexpr uint64_t largest_page = 27 + 255 + 255 * 255;
  const uint64_t from = file_size > 2 * largest_page ? file_size - 2 * largest_page : 0;
  std::vector<std::byte> tail(static_cast<size_t>(file_size - from));
  if (read_at(from, tail) < tail.size()) return "the file became shorter while it was read";
  bool complete = false, ended = false;
  size_t at = 0;
  while (at + 4 <= tail.size()) {
    if (!tag(tail.data() + at, "OggS")) {
      ++at;
      continue;
    }
    complete = false;
    if (at + 27 > tail.size()) break;
    const auto segments = std::to_integer<size_t>(tail[at + 26]);
    if (at + 27 + segments > tail.size()) break;
    size_t body = 0;
    for (size_t i = 0; i < segments; ++i) body += std::to_integer<size_t>(tail[at + 27 + i]);
    if (at + 27 + segments + body > tail.size()) break;
    complete = true;
    ended = (std::to_integer<unsigned>(tail[at + 5]) & 4u) != 0;
    at += 27 + segments + body;
  }
  if (complete && ended) return {};
  return complete ? "its last Ogg page is not marked as the end of the stream"
                  : "its last Ogg page is cut off";
}

}  // namespace

std::string find_truncation(uint64_t file_size, const ReadAt& read_at) {
  std::byte head[12];
  if (read_at(0, head) < sizeof head) return {};
  if ((tag(head, "RIFF") || tag(head, "RF64")) && tag(head + 8, "WAVE"))
    return check_riff(file_size, read_at);
  if (tag(head, "OggS")) return check_ogg(file_size, read_at);
  return {};
}

}  // namespace rondo::data
