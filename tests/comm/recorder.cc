#include <algorithm>
#include <array>

#include "comm/work_state.h"
#include "tests/comm/decorators.h"

namespace rondo {

struct Recorder::Counters {
  std::mutex mutex;
  std::vector<std::array<Traffic, kinds>> peers;
};

Traffic& Traffic::operator+=(const Traffic& other) {
  messages += other.messages;
  bytes += other.bytes;
  largest = std::max(largest, other.largest);
  failed += other.failed;
  seconds += other.seconds;
  return *this;
}

Recorder::Recorder(Transport& inner) : inner_(inner), counters_(std::make_shared<Counters>()) {
  counters_->peers.resize(static_cast<size_t>(inner.world_size()));
}

Work Recorder::note(Kind kind, int peer, Tag tag, size_t bytes, Work work) {
  if (is_verification(tag)) kind = checks;
  const auto p = static_cast<size_t>(peer);
  {
    std::lock_guard lock(counters_->mutex);
    counters_->peers[p][kind] += {.messages = 1, .bytes = bytes, .largest = bytes};
  }
  // The state, which keeps the function, is alive when it calls it.
  const detail::WorkState* const state = work.shared_state().get();
  work.shared_state()->on_done([counters = counters_, state, p, kind] {
    const double seconds = std::chrono::duration<double>(state->end() - state->start()).count();
    const bool failed = state->error().has_value();
    std::lock_guard lock(counters->mutex);
    counters->peers[p][kind] += {.failed = failed ? 1u : 0u, .seconds = seconds};
  });
  return work;
}

Work Recorder::send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) {
  return note(out, to, tag, data.size(), inner_.send(to, tag, data, deadline));
}

Work Recorder::recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) {
  return note(in, from, tag, data.size(), inner_.recv(from, tag, data, deadline));
}

Traffic Recorder::sum(Kind kind) const {
  std::lock_guard lock(counters_->mutex);
  Traffic all;
  for (const auto& peer : counters_->peers) all += peer[kind];
  return all;
}

Traffic Recorder::sent() const { return sum(out); }
Traffic Recorder::received() const { return sum(in); }
Traffic Recorder::verification() const { return sum(checks); }

Traffic Recorder::sent_to(int peer) const {
  RONDO_CHECK(peer >= 0 && peer < world_size(), "rank ", peer, " of a world of ", world_size());
  std::lock_guard lock(counters_->mutex);
  return counters_->peers[static_cast<size_t>(peer)][out];
}

namespace {

std::string to_json(const Traffic& t) {
  return str("{\"messages\": ", t.messages, ", \"bytes\": ", t.bytes, ", \"largest\": ", t.largest,
             ", \"failed\": ", t.failed, ", \"seconds\": ", t.seconds, "}");
}

}  // namespace

std::string Recorder::json() const {
  std::string text = str("{\"rank\": ", rank(), ", \"sent\": ", to_json(sent()),
                         ", \"received\": ", to_json(received()),
                         ", \"verification\": ", to_json(verification()), ", \"peers\": [");
  std::lock_guard lock(counters_->mutex);
  for (size_t p = 0; p < counters_->peers.size(); ++p) {
    const auto& peer = counters_->peers[p];
    text += str(p == 0 ? "" : ", ", "{\"rank\": ", p, ", \"sent\": ", to_json(peer[out]),
                ", \"received\": ", to_json(peer[in]), "}");
  }
  return text + "]}";
}

}  // namespace rondo
