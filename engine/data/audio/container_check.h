// Finds audio files that end too early, which libsndfile plays as if they were whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace rondo::data {

// Random access to a file's bytes: fills `to` from `offset`, returns how many bytes there were.
using ReadAt = std::function<size_t(uint64_t offset, std::span<std::byte> to)>;

// Why the file is truncated, or an empty string. Looks at RIFF/RF64 WAV (the size of the data
// chunk) and at Ogg (the last page must be whole and marked as the end of its stream); knows
// nothing of other formats. Reads a few small pieces only.
std::string find_truncation(uint64_t file_size, const ReadAt& read_at);

}  // namespace rondo::data
