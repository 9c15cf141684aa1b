// Transport: moves bytes between ranks, and knows nothing of what they mean.
//
// A backend (threads, TCP, a GPU interconnect) or a decorator around one (fault injection,
// recorder, rate limit) implements this interface; collectives are written once on top of it.
//
//   * send and recv return at once. Either may wait for the other side: a send need not be done
//     before its recv is posted, so code that waits for sends in a cycle deadlocks on purpose.
//   * Operations with equal (from, to, tag) match in the order in which they were posted; different
//     tags are independent of each other.
//   * The sizes of the two sides must be equal; otherwise both fail with a mismatch. Empty messages
//     are messages.
//   * Every operation has a deadline.
//
// Thread safety: every member may be called from any thread.
// Errors: a rank outside [0, world_size) or one's own rank is a broken contract (Error). What goes
// wrong between ranks is a CommError, reported by the Work, never by send or recv itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/work.h"

namespace rondo {

// Any number; those of collectives have the top bit set, those of their verification the next one
// as well.
using Tag = uint64_t;

// Keeps the messages of several groups of ranks apart, and collectives from everything else.
constexpr Tag message_tag(uint16_t group, uint32_t number) { return Tag{group} << 32 | number; }
constexpr Tag collective_tag(uint16_t group, uint32_t number) {
  return Tag{1} << 63 | message_tag(group, number);
}
// The tag under which ranks compare what they are about to do in collective `number`.
constexpr Tag verification_tag(uint16_t group, uint32_t number) {
  return Tag{1} << 62 | collective_tag(group, number);
}
constexpr bool is_verification(Tag tag) { return tag >> 62 == 3; }
// "tag 7", "tag 7 of group 2", "collective 7", "collective 7 of group 2", "check of collective 7"
std::string describe_tag(Tag tag);

// What recv_add adds.
enum class Element : uint8_t { f32, f64 };
constexpr size_t size_of(Element e) { return e == Element::f32 ? 4 : 8; }

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // Ranks with the same number are on one machine, where messages cost less; all ranks know the
  // same numbers, which start at 0. Where nobody told the transport, all are on one.
  virtual int machine_of(int /*rank*/) const { return 0; }

  virtual Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) = 0;
  virtual Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) = 0;

  // Like recv, but what arrives is added to the elements of `data` rather than stored there, on the
  // way, without a pass over memory of its own. `data` is aligned as its elements are; what it
  // holds after a failure is unspecified. Only where a transport does so; elsewhere an Error.
  virtual bool adds_on_arrival(int /*from*/) const { return false; }
  virtual Work recv_add(int from, Tag tag, std::span<std::byte> data, Element element,
                        Deadline deadline);

  // Ends the world: pending and later operations of all ranks fail with CommErrorKind::aborted and
  // a message that names this rank and the reason. The first reason stays. Never blocks for long.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace rondo
