// The small messages by which the two ends of a Gloo channel arrange the transfer of the large
// ones. Internal to rondo_gloo. All ranks run the same program on machines of one byte order; the
// greeting's magic number differs otherwise.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "comm/sha256.h"
#include "comm/transport.h"
#include "kernels/base/error.h"

namespace rondo::gloo_transport {

enum class LetterKind : uint32_t {
  hello = 1,      // the first one: `size` is letter_magic, the body the proof of the job token
  announce = 2,   // "recv `number` waits for `size` bytes under `tag`"
  revoke = 3,     // "recv `number` under `tag` no longer wants them"
  revoked = 4,    // the answer, if nothing had been sent yet
  body = 5,       // the bytes of a small message, for recv `number`
  sent = 6,       // the bytes for recv `number` have gone out, before this letter
  mismatch = 7,   // the send that met recv `number` has `size` bytes
  abort = 8,      // rank `number` has given up, the body is the reason
  bye = 9,        // this rank has finished
  bye_seen = 10,  // the answer to that, and to abort
};

struct LetterHead {
  LetterKind kind = LetterKind::hello;
  uint32_t body_bytes = 0;
  uint64_t number = 0;
  Tag tag = 0;
  uint64_t size = 0;
};

constexpr uint64_t letter_magic = 0x3130'4f4f'4c47'4452;
constexpr size_t max_body_bytes = 2048;
constexpr size_t max_letter_bytes = sizeof(LetterHead) + max_body_bytes;

// Gloo's slots, apart from those of its own collectives (1 to 8 in the top byte).
constexpr uint64_t letter_slot = uint64_t{0x41} << 56;
constexpr uint64_t data_slot(uint64_t number) { return uint64_t{0x40} << 56 | number; }

// A letter as it came. `body` points into `bytes`.
struct LetterView {
  LetterHead head;
  std::span<const std::byte> body;
};

// Reads a letter in the memory it was received into, which may be longer than it. Believes nothing
// that it says: InputError for an unknown kind, a body longer than the memory or the limit, or a
// body that letters of its kind do not have.
inline LetterView parse_letter(std::span<const std::byte> bytes) {
  LetterView letter;
  if (bytes.size() < sizeof(LetterHead)) fail_input("a letter without a head");
  std::memcpy(&letter.head, bytes.data(), sizeof(LetterHead));
  const auto kind = static_cast<uint32_t>(letter.head.kind);
  if (kind < static_cast<uint32_t>(LetterKind::hello) ||
      kind > static_cast<uint32_t>(LetterKind::bye_seen)) {
    fail_input("a letter of unknown kind ", kind);
  }
  const size_t size = letter.head.body_bytes;
  if (size > max_body_bytes || size > bytes.size() - sizeof(LetterHead)) {
    fail_input("a letter of impossible length ", size);
  }
  const bool may_have_body = letter.head.kind == LetterKind::hello ||
                             letter.head.kind == LetterKind::body ||
                             letter.head.kind == LetterKind::abort;
  if (size > 0 && !may_have_body) fail_input("a letter of kind ", kind, " with a body");
  letter.body = bytes.subspan(sizeof(LetterHead), size);
  return letter;
}

// What rank `from` sends to rank `to`, who has left `nonce` in the store.
inline Digest hello_proof(std::string_view token, std::string_view rendezvous_id, int from, int to,
                          std::string_view nonce) {
  return hmac_sha256(token, str("rondo gloo ", from, " ", to, " ", rendezvous_id, " ", nonce));
}

}  // namespace rondo::gloo_transport
