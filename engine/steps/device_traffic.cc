// Messages between stages from device to device.
//
// A message leaves from memory of its own, into which the bound graph's values are copied (or
// rounded), so that the stage goes on, and arrives in such memory. Events order it all:
//
//   written   the compute stream has filled what leaves          the connection sends
//   left      it has gone                                        its memory is filled again
//   arrived   the connection has received                        the compute stream reads
//   taken     the compute stream has read                        its memory receives again
//
// Where operations that wait hold a part of the device, a message is expected in its turn, and not
// before what comes before it has been computed: the schedule's order then keeps kernels and
// messages that need the same processors from waiting for each other.
#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "engine/steps/stage_messages.h"
#include "engine/steps/stage_traffic.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Not a tag of messages between stages.
constexpr uint32_t farewell_tag = 0x5ffffffe;
constexpr auto between_queries = std::chrono::microseconds(20);
constexpr int queries_in_a_row = 64;  // a simulated device advances in them

class DeviceTraffic final : public StageTraffic {
 public:
  DeviceTraffic(const Context& context, ProcessGroup& group, StageLinks* links,
                const TrafficOptions& options, RunTimeline& timeline);

  int look_ahead() const override { return in_turn_ ? 0 : options_.look_ahead; }
  void reserve(const Most& most) override;
  size_t most_bytes(const Graph& graph, const BatchCapacity& capacity,
                    std::span<const ValueId> values) const override {
    return most_device_message_bytes(graph, capacity, values, options_.wire);
  }
  size_t memory_bytes() const override {
    return most_.bytes * (arrivals_.size() + departures_per_link * departures_.size());
  }

  void begin_run() override;
  void expect(const StageMessage& m) override;
  void take(const StageMessage& m, BoundGraph& bound) override;
  bool expects(const StageMessage& m) const override { return expected_.contains(m.tag); }
  void send(const StageMessage& m, const BoundGraph& bound) override;
  void advance() override {}
  void end_run() override;
  void abort(const std::string& reason) noexcept override;

 private:
  struct Arrival {
    Buffer memory;
    Event arrived, taken;
  };
  struct Departure {
    Buffer memory;
    Event written, left;
  };
  static constexpr size_t departures_per_link = 2;
  struct Departures {
    std::array<Departure, departures_per_link> all;
    size_t next = 0;
  };

  Arrival& take_arrival(const StageMessage& m);
  // [begin of the operation, its end) on the timeline, as its stream passes.
  void note(Stream& stream, size_t place, bool end);
  void wait_for_device();

  const Context context_;
  ProcessGroup& group_;
  StageLinks* const links_;  // nullptr: a single rank
  const TrafficOptions options_;
  RunTimeline& timeline_;
  const bool in_turn_;
  Most most_;
  std::vector<Arrival> arrivals_;
  std::map<int, Departures> departures_;   // by neighbour
  std::deque<Arrival*> free_;              // of arrivals_; the one that was taken first, first
  std::map<uint32_t, Arrival*> expected_;  // by tag
  Event turn_, finished_;
  std::vector<std::byte> farewells_;
  // After what they use.
  std::vector<Work> works_, watches_;
};

DeviceTraffic::DeviceTraffic(const Context& context, ProcessGroup& group, StageLinks* links,
                             const TrafficOptions& options, RunTimeline& timeline)
    : context_(context),
      group_(group),
      links_(links),
      options_(options),
      timeline_(timeline),
      in_turn_(links != nullptr && links->hold_device()),
      turn_(context.device->make_event()),
      finished_(context.device->make_event()) {
  if (links_) farewells_.resize(links_->neighbours().size());
}

void DeviceTraffic::reserve(const Most& most) {
  RONDO_CHECK(expected_.empty(), expected_.size(), " messages have not been taken");
  if (most.bytes <= most_.bytes && most.arrivals <= arrivals_.size()) return;
  most_ = most;
  most_.bytes = std::max(most_.bytes, device_message_alignment);
  Device& device = *context_.device;
  free_.clear();
  arrivals_ = std::vector<Arrival>(most.arrivals);
  for (Arrival& a : arrivals_) {
    a.memory = Buffer(device, most_.bytes, "messages to a pipeline stage");
    a.arrived = device.make_event();
    a.taken = device.make_event();
    free_.push_back(&a);
  }
  departures_.clear();
  if (!links_) return;
  for (int peer : links_->neighbours()) {
    for (Departure& d : departures_[peer].all) {
      d.memory = Buffer(device, most_.bytes, "messages from a pipeline stage");
      d.written = device.make_event();
      d.left = device.make_event();
    }
  }
}

// A neighbour says when it is done; until then, that it is lost is heard here.
void DeviceTraffic::begin_run() {
  works_.clear();
  watches_.clear();
  if (!links_) return;
  size_t i = 0;
  for (int peer : links_->neighbours()) {
    watches_.push_back(
        group_.recv(peer, farewell_tag, std::span(&farewells_[i++], 1), Deadline::max()));
  }
}

DeviceTraffic::Arrival& DeviceTraffic::take_arrival(const StageMessage& m) {
  RONDO_CHECK(!free_.empty(), describe(m.action), ": more messages than ", arrivals_.size());
  Arrival* const a = free_.front();
  free_.pop_front();
  expected_[m.tag] = a;
  return *a;
}

void DeviceTraffic::note(Stream& stream, size_t place, bool end) {
  if (!timeline_.records()) return;
  stream.enqueue([this, place, end] {
    const auto now = CommClock::now();
    end ? timeline_.set_end(place, now) : timeline_.set_start(place, now);
  });
}

void DeviceTraffic::expect(const StageMessage& m) {
  Arrival& a = take_arrival(m);
  const size_t bytes = device_message_bytes(*m.graph, *m.layout, m.values, options_.wire);
  DeviceGroup& link = links_->from(m.action.peer);
  Stream& stream = link.stream();
  if (in_turn_) {
    turn_.record(*context_.stream);
    turn_.wait(stream);
  } else {
    a.taken.wait(stream);
  }
  const size_t recorded = timeline_.add(m.action);
  note(stream, recorded, false);
  works_.push_back(
      link.recv(0, m.tag, std::span(a.memory.as<std::byte>(), bytes), within(options_.timeout)));
  note(stream, recorded, true);
  a.arrived.record(stream);
}

void DeviceTraffic::take(const StageMessage& m, BoundGraph& bound) {
  const auto found = expected_.find(m.tag);
  RONDO_CHECK(found != expected_.end(), describe(m.action), ": its input was not expected");
  Arrival& a = *found->second;
  a.arrived.wait(*context_.stream);
  unpack_on_device(bound, m.values, options_.wire, a.memory.as<std::byte>());
  a.taken.record(*context_.stream);
  free_.push_back(&a);
  expected_.erase(found);
}

void DeviceTraffic::send(const StageMessage& m, const BoundGraph& bound) {
  Departures& departures = departures_.at(m.action.peer);
  Departure& d = departures.all[departures.next];
  departures.next = (departures.next + 1) % departures_per_link;
  const size_t bytes = device_message_bytes(*m.graph, *m.layout, m.values, options_.wire);
  DeviceGroup& link = links_->to(m.action.peer);
  Stream& stream = link.stream();
  d.left.wait(*context_.stream);
  pack_on_device(bound, m.values, options_.wire, d.memory.as<std::byte>());
  d.written.record(*context_.stream);
  d.written.wait(stream);
  const size_t recorded = timeline_.add(m.action);
  note(stream, recorded, false);
  works_.push_back(
      link.send(1, m.tag, std::span(d.memory.as<std::byte>(), bytes), within(options_.timeout)));
  note(stream, recorded, true);
  d.left.record(stream);
}

// And hears of neighbours that are lost, which the device waits for in vain.
void DeviceTraffic::wait_for_device() {
  finished_.record(*context_.stream);
  const auto all_done = [&] {
    if (!finished_.done()) return false;
    return std::all_of(works_.begin(), works_.end(), [](Work& w) { return w.poll(); });
  };
  for (int queries = 1; !all_done(); ++queries) {
    if (queries % queries_in_a_row != 0) continue;
    for (std::vector<Work>* works : {&watches_, &works_}) {
      for (Work& w : *works) {
        if (w.poll()) w.wait();
      }
    }
    std::this_thread::sleep_for(between_queries);
  }
}

void DeviceTraffic::end_run() {
  wait_for_device();
  for (Work& w : works_) w.wait();
  if (!links_) return;
  const std::byte farewell{};
  std::vector<Work> farewells;
  for (int peer : links_->neighbours()) {
    farewells.push_back(
        group_.send(peer, farewell_tag, std::span(&farewell, 1), within(options_.timeout)));
  }
  for (Work& w : farewells) w.wait();
  for (Work& w : watches_) w.wait(within(options_.timeout));
}

// What is queued still uses memory that whoever unwinds is about to free.
void DeviceTraffic::abort(const std::string& reason) noexcept {
  if (links_) links_->abort(reason);
  const auto pass = [](Stream& stream) {
    try {
      stream.synchronize();
    } catch (const std::exception&) {  // the first error is the one to tell
    }
  };
  pass(*context_.stream);
  if (!links_) return;
  for (int peer : links_->neighbours()) {
    pass(links_->to(peer).stream());
    pass(links_->from(peer).stream());
  }
}

}  // namespace

std::unique_ptr<StageTraffic> make_device_traffic(const Context& context, ProcessGroup& group,
                                                  StageLinks* links, const TrafficOptions& options,
                                                  RunTimeline& timeline) {
  return std::make_unique<DeviceTraffic>(context, group, links, options, timeline);
}

}  // namespace rondo
