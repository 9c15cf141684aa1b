// Memory that the ranks of one machine share. Every rank owns an inbox: a bell, and a stream of
// bytes from each of those that it shares memory with. Internal to the shared transport.
//
// No lock lies in it, so a rank that is stopped or killed at any point keeps nobody from going on.
// A stream has one writer and one reader; each changes its own position alone. What the other side
// wrote there is checked before it is used.
//
// Sleeping and waking: who waits for messages calls sleep() after it has seen no work, and looks
// once more in between (`idle`); who makes work calls ring() after it is visible. All of this is
// sequentially consistent, so one of the two sees the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/sha256.h"
#include "comm/work.h"
#include "kernels/base/error.h"

namespace rondo::shared_transport {

// Positions count bytes since the beginning.
struct StreamHead {
  alignas(64) std::atomic<uint64_t> written;
  std::atomic<uint32_t> room_wanted;  // by the writer, who waits for the reader
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> unwatched;  // the reader has nothing under way: letters may lie
};

// Whom to wake. `leader`: a thread that waits for a message of its own; while there is one it looks
// after all of them. Else the pump, a thread that exists for this.
enum class Leader : uint32_t { none, awake, asleep };

struct Bell {
  alignas(64) std::atomic<uint32_t> leader;
  std::atomic<uint32_t> leader_rings;
  alignas(64) std::atomic<uint32_t> pump_rings;
  std::atomic<uint32_t> pump_asleep;

  // There is work: for the leader, else for the pump.
  void ring();
  // An operation has ended. It may be the one that the leader waits for while it sleeps.
  void ring_leader();
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Until `word` is no longer `value`, or the deadline.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, Deadline deadline);
void futex_wake(std::atomic<uint32_t>& word);

// One end of a stream. Move and copy as you like: it points into a mapping that must live.
class Stream {
 public:
  Stream() = default;
  Stream(StreamHead* head, std::byte* bytes, uint64_t capacity)
      : head_(head), bytes_(bytes), capacity_(capacity) {}

  StreamHead& head() const { return *head_; }

  bool empty() const { return head_->written.load() == head_->read.load(); }
  bool full() const { return head_->written.load() - head_->read.load() == capacity_; }
  bool half_empty() const { return head_->written.load() - head_->read.load() <= capacity_ / 2; }

  // The writer's contiguous free memory; empty when there is none.
  std::span<std::byte> room() const;
  void wrote(size_t n) const;
  // The reader's contiguous bytes; empty when there are none. Throws Error when positions are
  // impossible.
  std::span<const std::byte> arrived() const;
  void took(size_t n) const;

 private:
  StreamHead* head_ = nullptr;
  std::byte* bytes_ = nullptr;
  uint64_t capacity_ = 0;
};

// What others need in order to find an inbox. Travels as it is: all ranks run the same program.
struct Card {
  static constexpr uint32_t this_version = 2;
  static constexpr int32_t most_streams = 1 << 16;
  uint32_t version = this_version;
  int32_t file = -1;  // of process `pid`; -1: there is none
  int64_t pid = 0;
  uint64_t user = 0;
  uint64_t stream_bytes = 0;
  int32_t streams = 0;
  int32_t stream = -1;  // that of the rank which is given this card
  // Equal where processes see each other: kernel since its start, name spaces of processes and of
  // networks. Ranks in different networks count as ranks on different machines.
  char place[192] = {};
  Digest secret{};
};

// A mapped inbox; one's own, or another rank's. Move-only.
class Inbox {
 public:
  Inbox() = default;
  // One's own, with so many streams. Throws Error when the system has no such memory.
  Inbox(int streams, uint64_t stream_bytes);
  // Another one's. Throws Error with the reason if it cannot be reached from here.
  explicit Inbox(const Card& card);
  Inbox(Inbox&& other) noexcept;
  Inbox& operator=(Inbox&& other) noexcept;
  ~Inbox();

  const Card& card() const { return card_; }
  // Others can no longer map it.
  void close_file();
  Bell& bell() const;
  Stream stream(int number) const;

 private:
  void map(int file);
  static size_t bytes_of(int streams, uint64_t stream_bytes);

  Card card_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

// The place of this process for a Card; "" when it cannot be known.
std::string place_of_process();

}  // namespace rondo::shared_transport
