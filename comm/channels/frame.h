// What travels between two ranks of a Channel: frames, some followed by bytes. Internal to comm.
#pragma once

#include <cstring>
#include <span>

#include "comm/transport.h"
#include "kernels/base/error.h"

namespace rondo::channels {

enum class FrameKind : uint64_t {
  announce = 1,  // "recv `number` waits for `size` bytes under `tag`"
  data = 2,      // `size` bytes for recv `number` follow
  mismatch = 3,  // the send that met recv `number` has `size` bytes
  revoke = 4,    // "recv `number` under `tag` no longer wants them"
  revoked = 5,   // the answer, if nothing had been sent yet
  abort = 6,     // rank `number` has given up; `size` bytes follow, the reason
  bye = 7,       // this rank has finished
  bye_seen = 8,  // the answer to that, and to abort
};

// All ranks run the same program on machines of one byte order.
struct Frame {
  FrameKind kind = FrameKind::announce;
  uint64_t number = 0;
  Tag tag = 0;
  uint64_t size = 0;
};
constexpr size_t frame_bytes = 32;
static_assert(sizeof(Frame) == frame_bytes);
constexpr uint64_t largest_message = uint64_t{1} << 48;
constexpr size_t longest_reason = 2048;

// Throws Error for what no rank writes.
inline Frame parse_frame(std::span<const std::byte> bytes) {
  RONDO_CHECK(bytes.size() >= frame_bytes, "a frame of ", bytes.size(), " bytes");
  Frame f;
  std::memcpy(&f, bytes.data(), frame_bytes);
  RONDO_CHECK(f.kind >= FrameKind::announce && f.kind <= FrameKind::bye_seen, "a frame of kind ",
              static_cast<uint64_t>(f.kind));
  const uint64_t most = f.kind <= FrameKind::mismatch ? largest_message
                        : f.kind == FrameKind::abort  ? longest_reason
                                                      : 0;
  RONDO_CHECK(f.size <= most, "a frame of kind ", static_cast<uint64_t>(f.kind), " and ", f.size,
              " bytes");
  return f;
}

}  // namespace rondo::channels
