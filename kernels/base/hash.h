// FNV-1a of 64 bits (Fowler, Noll, Vo): keys and fingerprints, not protection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rondo {

inline constexpr uint64_t fnv1a_begin = 0xcbf29ce484222325u;

// The state after one more value, usually a byte.
constexpr uint64_t fnv1a(uint64_t state, uint64_t value) {
  return (state ^ value) * 0x100000001b3u;
}
constexpr uint64_t fnv1a(std::string_view text, uint64_t state = fnv1a_begin) {
  for (char c : text) state = fnv1a(state, static_cast<unsigned char>(c));
  return state;
}
inline uint64_t fnv1a(const void* data, size_t bytes, uint64_t state) {
  return fnv1a(std::string_view(static_cast<const char*>(data), bytes), state);
}

}  // namespace rondo
