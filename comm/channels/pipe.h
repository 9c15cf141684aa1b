// The bytes between two ranks, in order, as a Channel moves them: through memory, over TCP.
// Internal to comm.
//
// Thread safety: readable() and writable() may be called from any thread; everything else with the
// channel's lock held.
#pragma once

#include <cstddef>
#include <span>

namespace rondo::channels {

class Pipe {
 public:
  using Bytes = std::span<const std::byte>;

  virtual ~Pipe() = default;

  // Whether read() may find something, write() room. Whoever drives the channel looks again once
  // it has learnt that this has changed.
  virtual bool readable() const = 0;
  virtual bool writable() const = 0;

  // Some of what has arrived, at most to.size() bytes; 0: nothing is there now. Throws Error when
  // the other side is gone, or has done what no rank does.
  virtual size_t read(std::span<std::byte> to) = 0;
  // The same without a copy: bytes that have arrived, which lie there until some are skipped.
  virtual Bytes peek() = 0;
  virtual void skip(size_t n) = 0;
  // The beginning of these parts, one after the other; 0: there is no room now. Throws Error for
  // what no rank does; a peer that is gone is told by read(), after what it sent before.
  virtual size_t write(std::span<const Bytes> parts) = 0;

  // Something was written that the other side should look at: when it has operations under way,
  // or at once.
  virtual void written(bool /*at_once*/) {}
  // Whether this side has operations under way.
  virtual void watch(bool /*under_way*/) {}
  // After every move. `ended`: of operations, for which other threads may wait.
  virtual void moved(bool /*ended*/) {}
};

}  // namespace rondo::channels
