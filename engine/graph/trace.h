// What a rank did and when: for a picture that shows where the time of a few updates goes.
//
// Whatever may take time opens a Span: a call of the host, or work on a stream. Each is a range for
// NVIDIA's profilers (kernels/base/gpu/nvtx_ranges.h), and is written down where a Trace records in
// its thread. As long as one does, every node is launched by itself, so that its time can be told
// (engine/graph/recording.h). Results stay the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/op.h"

namespace rondo {

class BoundGraph;

struct TraceSpan {
  enum class Track : uint8_t { host, device, messages };
  Track track = Track::host;
  std::string name;           // "update"; of a node that of its layer, "lstm0.1"
  std::string phase = {};     // of a node: "forward", "backward", "weight_gradient"
  double begin = 0, end = 0;  // seconds since Trace::start()
  // Of a node: "rows" and "columns" of its first output, "gflop".
  std::vector<std::pair<std::string, double>> numbers = {};
};

// One thread.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  // Both are borrowed. Spans of all streams of the device are told on the clock of this one.
  Trace(Device& device, Stream& stream);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  // What is on the stream ends first. From now on spans of this thread are this trace's, which
  // forgets those of before. Throws Error while another one records in this thread.
  void start();
  // Waits for the stream. Nothing may be open.
  void stop();
  // After stop(), in the order in which they began to be recorded.
  const std::vector<TraceSpan>& spans() const { return spans_; }

  // That which records in this thread; null: none.
  static Trace* current();
  // A span that somebody else has measured; events are timed ones that have been passed.
  void add(TraceSpan::Track track, std::string name, Clock::time_point begin,
           Clock::time_point end);
  void add(TraceSpan::Track track, std::string name, Event& begin, Event& end);

 private:
  friend class Span;
  struct Marks {
    size_t span = 0;
    Event begin, end;
  };
  double seconds_at(Clock::time_point time) const;
  size_t open(TraceSpan span);
  size_t open(TraceSpan span, Stream& stream);
  void close_on_host(size_t span);
  void close(size_t marks, Stream& stream);

  Device& device_;
  Stream& stream_;
  Clock::time_point began_;
  Event origin_;
  std::vector<TraceSpan> spans_;
  std::vector<Marks> marks_;  // of what runs on the device
};

// From its construction to its end.
class Span {
 public:
  explicit Span(const char* name);                 // what the host does, or waits for
  Span(const Context& context, const char* name);  // what is enqueued meanwhile
  Span(const BoundGraph& bound, size_t node);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span();

 private:
  Trace* const trace_;
  Stream* const stream_ = nullptr;  // nullptr: of the host
  size_t at_ = 0;
};

}  // namespace rondo
