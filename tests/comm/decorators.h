// Transports around a transport: for tests, measurements and slow links. Each borrows the inner
// one, which must outlive it, and may be stacked. Thread safety and errors as in
// comm/transport.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace rondo {

// --- Faults ---------------------------------------------------------------------------------

enum class FaultKind : uint8_t {
  delay,  // the call that posts the operation takes this long: a slow rank
  drop,   // the operation never reaches the transport; it pends until its deadline or an abort
  kill,   // `kill` is called instead of carrying the operation out
};

struct Fault {
  int rank = 0;
  uint64_t operation = 0;  // the how-manieth send or recv of that rank, from 0
  FaultKind kind = FaultKind::delay;
  CommClock::duration delay{};
};

// One line: "rank 1: drop at operation 7".
std::string describe(const Fault& fault);

// A pure function of its arguments: one to three faults among `ranks` ranks and their first
// `operations` operations, delays of up to `longest`.
std::vector<Fault> random_faults(uint64_t seed, int ranks, uint64_t operations,
                                 CommClock::duration longest);

class FaultInjector final : public Transport {
 public:
  // `faults` may be of any ranks; only those of this one count. `kill` ends this rank, one way or
  // another: raise(SIGKILL), or InProcessWorld::lose.
  FaultInjector(Transport& inner, const std::vector<Fault>& faults, std::function<void()> kill);

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int machine_of(int rank) const override { return inner_.machine_of(rank); }
  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override;
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override;
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  bool suffers_drop();

  Transport& inner_;
  std::vector<Fault> faults_;
  const std::function<void()> kill_;
  std::atomic<uint64_t> operations_{0};
};

// --- Machines -------------------------------------------------------------------------------

// Says that rank r is on machine `machines[r]`.
class OnMachines final : public Transport {
 public:
  OnMachines(Transport& inner, std::vector<int> machines)
      : inner_(inner), machines_(std::move(machines)) {}

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int machine_of(int rank) const override { return machines_.at(static_cast<size_t>(rank)); }
  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    return inner_.send(to, tag, data, deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    return inner_.recv(from, tag, data, deadline);
  }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  Transport& inner_;
  const std::vector<int> machines_;
};

// --- Traffic --------------------------------------------------------------------------------

struct Traffic {
  uint64_t messages = 0;  // posted
  uint64_t bytes = 0;     // of these messages
  uint64_t largest = 0;   // bytes of one message
  uint64_t failed = 0;    // messages
  double seconds = 0;     // from posted to done, summed over the messages that are done

  Traffic& operator+=(const Traffic& other);
};

// Counts what passes: per peer and direction, verification of collectives apart from the rest.
class Recorder final : public Transport {
 public:
  explicit Recorder(Transport& inner);

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int machine_of(int rank) const override { return inner_.machine_of(rank); }
  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override;
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override;
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

  Traffic sent() const;  // to all peers, without verification
  Traffic received() const;
  Traffic sent_to(int peer) const;
  Traffic verification() const;  // sent and received
  // {"rank": 0, "sent": {...}, "received": {...}, "verification": {...}, "peers": [{...}, ...]}
  std::string json() const;

 private:
  enum Kind : size_t { out, in, checks, kinds };
  struct Counters;
  Work note(Kind kind, int peer, Tag tag, size_t bytes, Work work);
  Traffic sum(Kind kind) const;

  Transport& inner_;
  std::shared_ptr<Counters> counters_;  // also held by operations under way
};

// --- Slow links -----------------------------------------------------------------------------

// When a cable that several ranks send over is free again. Thread-safe.
class Cable {
 public:
  // The end of a transfer of so long that begins when the cable is free.
  Deadline take(CommClock::duration transfer) {
    const std::lock_guard lock(mutex_);
    free_ = std::max(free_, CommClock::now()) + transfer;
    return free_;
  }

 private:
  std::mutex mutex_;
  Deadline free_{};
};

struct LinkLimits {
  double bytes_per_second = 0;    // of all that is sent over the cable; 0: no limit
  CommClock::duration latency{};  // added to every message
  // Limits hold for messages to other machines (Transport::machine_of) alone.
  bool between_machines = false;
  std::shared_ptr<Cable> cable = {};  // shared with other ranks; none: a rank's own
};

// Holds sends back as a link of this kind would. A message is handed on when its last byte would
// have arrived.
std::unique_ptr<Transport> make_throttled(Transport& inner, LinkLimits limits);

}  // namespace rondo
