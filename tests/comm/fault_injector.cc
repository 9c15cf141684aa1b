#include <random>
#include <thread>
#include <utility>

#include "tests/comm/decorators.h"

namespace rondo {
namespace {

// A tag that nobody sends under: a recv that waits for it stands for the operation that was
// dropped, and ends as that would: by its deadline, an abort, or the loss of the peer.
constexpr Tag dropped_tag = message_tag(0x7fff, 0xffffffff);

}  // namespace

std::string describe(const Fault& fault) {
  const std::string where = str("rank ", fault.rank, ": ");
  const std::string at = str(" at operation ", fault.operation);
  switch (fault.kind) {
    case FaultKind::delay:
      return str(where, "delay of ", std::chrono::duration<double>(fault.delay).count(), " s", at);
    case FaultKind::drop:
      return where + "drop" + at;
    case FaultKind::kill:
      return where + "kill" + at;
  }
  return where + "?";
}

std::vector<Fault> random_faults(uint64_t seed, int ranks, uint64_t operations,
                                 CommClock::duration longest) {
  // The engine's numbers are the same everywhere; the library's distributions are not.
  std::mt19937_64 random(seed);
  std::vector<Fault> faults(1 + random() % 3);
  for (Fault& f : faults) {
    f.rank = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    f.operation = random() % operations;
    f.kind = static_cast<FaultKind>(random() % 3);
    f.delay = longest * static_cast<CommClock::rep>(random() % 1000) / 1000;
  }
  return faults;
}

FaultInjector::FaultInjector(Transport& inner, const std::vector<Fault>& faults,
                             std::function<void()> kill)
    : inner_(inner), kill_(std::move(kill)) {
  for (const Fault& f : faults) {
    if (f.rank == inner.rank()) faults_.push_back(f);
  }
}

bool FaultInjector::suffers_drop() {
  const uint64_t operation = operations_++;
  bool drop = false;
  for (const Fault& f : faults_) {
    if (f.operation != operation) continue;
    if (f.kind == FaultKind::delay) std::this_thread::sleep_for(f.delay);
    if (f.kind == FaultKind::kill) kill_();
    drop = drop || f.kind == FaultKind::drop;
  }
  return drop;
}

Work FaultInjector::send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) {
  if (suffers_drop()) return inner_.recv(to, dropped_tag, {}, deadline);
  return inner_.send(to, tag, data, deadline);
}

Work FaultInjector::recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) {
  if (suffers_drop()) return inner_.recv(from, dropped_tag, {}, deadline);
  return inner_.recv(from, tag, data, deadline);
}

}  // namespace rondo
