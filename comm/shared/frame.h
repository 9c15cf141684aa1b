// What travels through a stream between two ranks of one machine: frames, some followed by bytes.
// Internal to the shared transport.
#pragma once

#include <cstring>
#include <span>

#include "comm/transport.h"
#include "kernels/base/error.h"

namespace rondo::shared_transport {

enum class FrameKind : uint64_t {
  announce = 1,  // "recv `number` waits for `size` bytes under `tag`"
  data = 2,      // `size` bytes for recv `number` follow, padded to whole frames
  mismatch = 3,  // the send that met recv `number` has `size` bytes
  revoke = 4,    // "recv `number` under `tag` no longer wants them"
  revoked = 5,   // the answer, if nothing had been sent yet
};

struct Frame {
  FrameKind kind = FrameKind::announce;
  uint64_t number = 0;
  Tag tag = 0;
  uint64_t size = 0;
};
// So that a frame never lies across the end of a stream.
constexpr size_t frame_bytes = 32;
static_assert(sizeof(Frame) == frame_bytes);
constexpr uint64_t padded(uint64_t bytes) {
  return (bytes + frame_bytes - 1) / frame_bytes * frame_bytes;
}
constexpr uint64_t largest_message = uint64_t{1} << 48;

// Throws Error for what no rank writes.
inline Frame parse_frame(std::span<const std::byte> bytes) {
  RONDO_CHECK(bytes.size() >= frame_bytes, "a frame of ", bytes.size(), " bytes");
  Frame f;
  std::memcpy(&f, bytes.data(), frame_bytes);
  RONDO_CHECK(f.kind >= FrameKind::announce && f.kind <= FrameKind::revoked, "a frame of kind ",
              static_cast<uint64_t>(f.kind));
  RONDO_CHECK(f.size <= largest_message, "a frame of ", f.size, " bytes");
  return f;
}

}  // namespace rondo::shared_transport
