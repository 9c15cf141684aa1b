// Messages between stages through host memory.
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/steps/stage_messages.h"
#include "engine/steps/stage_traffic.h"

namespace rondo {
namespace {

class HostTraffic final : public StageTraffic {
 public:
  HostTraffic(ProcessGroup& group, const TrafficOptions& options, RunTimeline& timeline)
      : group_(group), options_(options), timeline_(timeline) {}

  int look_ahead() const override { return options_.look_ahead; }
  void reserve(const Most&) override {}
  size_t most_bytes(const Graph&, const BatchCapacity&, std::span<const ValueId>) const override {
    return 0;
  }
  size_t memory_bytes() const override { return 0; }

  void begin_run() override {}
  void expect(const StageMessage& m) override;
  void take(const StageMessage& m, BoundGraph& bound) override;
  bool expects(const StageMessage& m) const override { return arriving_.contains(m.tag); }
  void send(const StageMessage& m, const BoundGraph& bound) override;
  void advance() override { drop_departed(false); }
  void end_run() override { drop_departed(true); }
  void abort(const std::string&) noexcept override {}  // whoever unwinds does it

 private:
  // A message on its way. The work ends before the bytes.
  struct Parcel {
    std::vector<std::byte> bytes;
    Work work;
    size_t recorded = 0;  // its place in the timeline
  };
  std::vector<std::byte> take_spare() {
    if (spare_.empty()) return {};
    std::vector<std::byte> bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }
  void drop_departed(bool wait);

  ProcessGroup& group_;
  const TrafficOptions options_;
  RunTimeline& timeline_;
  std::map<uint32_t, Parcel> arriving_;  // by tag
  std::deque<Parcel> departing_;
  std::vector<std::vector<std::byte>> spare_;
};

void HostTraffic::expect(const StageMessage& m) {
  Parcel& parcel = arriving_[m.tag];
  parcel.bytes = take_spare();
  parcel.bytes.resize(message_bytes(*m.graph, *m.layout, m.values, options_.wire));
  parcel.recorded = timeline_.add(m.action);
  timeline_.set_start(parcel.recorded, CommClock::now());
  parcel.work = group_.recv(m.action.peer, m.tag, parcel.bytes, within(options_.timeout));
}

void HostTraffic::take(const StageMessage& m, BoundGraph& bound) {
  Parcel& parcel = arriving_.at(m.tag);
  parcel.work.wait();
  timeline_.set_end(parcel.recorded, parcel.work.end());
  unpack_values(bound, m.values, options_.wire, parcel.bytes);
  spare_.push_back(std::move(parcel.bytes));
  arriving_.erase(m.tag);
}

void HostTraffic::send(const StageMessage& m, const BoundGraph& bound) {
  const size_t recorded = timeline_.add(m.action);
  timeline_.set_start(recorded, CommClock::now());
  Parcel& parcel = departing_.emplace_back();
  parcel.recorded = recorded;
  parcel.bytes = take_spare();
  parcel.bytes.resize(message_bytes(*m.graph, *m.layout, m.values, options_.wire));
  pack_values(bound, m.values, options_.wire, parcel.bytes);
  parcel.work = group_.send(m.action.peer, m.tag, parcel.bytes, within(options_.timeout));
}

void HostTraffic::drop_departed(bool wait) {
  while (!departing_.empty() && (wait || departing_.front().work.poll())) {
    Parcel& parcel = departing_.front();
    parcel.work.wait();
    timeline_.set_end(parcel.recorded, parcel.work.end());
    spare_.push_back(std::move(parcel.bytes));
    departing_.pop_front();
  }
}

}  // namespace

std::unique_ptr<StageTraffic> make_host_traffic(ProcessGroup& group, const TrafficOptions& options,
                                                RunTimeline& timeline) {
  return std::make_unique<HostTraffic>(group, options, timeline);
}

}  // namespace rondo
