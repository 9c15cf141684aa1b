#include "engine/graph/trace.h"

#include <algorithm>

#include "engine/graph/bound_graph.h"
#include "kernels/base/error.h"
#include "kernels/base/gpu/nvtx_ranges.h"

namespace rondo {
namespace {

thread_local Trace* recording = nullptr;

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::weight_gradient:
      return "weight_gradient";
  }
  return "";
}

// The forward node that makes a value; nullptr: none does.
const Node* maker_of(const Graph& graph, ValueId id) {
  for (const Node& node : graph.nodes) {
    if (std::ranges::find(node.outputs, id) != node.outputs.end()) return &node;
  }
  return nullptr;
}

// Of a node with weights what their names have in common, "lstm0.1" of "lstm0.1.weight_ih"; of
// another the name of its value. Gradients are their forward node's.
std::string layer_of(const Graph& graph, const Node& node) {
  const Node* const forward =
      node.gradient_of == no_value ? &node : maker_of(graph, node.gradient_of);
  if (!forward) return node.op;
  for (ValueId id : forward->inputs) {
    if (id == no_value) continue;
    const Node* const cast = maker_of(graph, id);
    if (cast && rule_of(cast->op).converts) id = cast->inputs.at(0);
    const Value& value = graph.value(id);
    if (value.role == ValueRole::parameter) return value.name.substr(0, value.name.rfind('.'));
  }
  const ValueId made = forward->outputs.empty() ? no_value : forward->outputs.front();
  return made == no_value ? node.op : graph.value(made).name;
}

TraceSpan span_of(const BoundGraph& bound, const Node& node) {
  TraceSpan span{TraceSpan::Track::device, layer_of(bound.graph(), node), name_of(node.phase)};
  for (ValueId id : node.outputs) {
    if (id == no_value) continue;
    const Shape& shape = bound.graph().shape(id);
    span.numbers = {{"rows", static_cast<double>(bound.live_rows(shape))},
                    {"columns", static_cast<double>(shape.cols)}};
    break;
  }
  const WorkFunction work = rule_of(node.op).work;
  const auto sequences = static_cast<double>(bound.live_rows(Shape::sequences(1)));
  if (!work || sequences == 0) return span;
  const auto rows = static_cast<double>(bound.live_rows(Shape::frames(0, 1)));
  const BatchShape batch{.sequences = sequences, .frames = rows / sequences};
  span.numbers.emplace_back("gflop", 1e-9 * work(bound.graph(), node, batch).operations);
  return span;
}

}  // namespace

Trace::Trace(Device& device, Stream& stream) : device_(device), stream_(stream) {}

Trace::~Trace() {
  if (recording == this) recording = nullptr;
}

Trace* Trace::current() { return recording; }

void Trace::start() {
  RONDO_CHECK(!recording, "a trace records in this thread already");
  spans_.clear();
  marks_.clear();
  origin_ = device_.make_timed_event();
  stream_.synchronize();
  began_ = Clock::now();
  origin_.record(stream_);
  stream_.synchronize();  // the device passes it now, not when it has other work
  recording = this;
}

void Trace::stop() {
  RONDO_CHECK(recording == this, "a trace stops that does not record in this thread");
  recording = nullptr;
  stream_.synchronize();
  for (Marks& m : marks_) {
    m.end.synchronize();
    spans_[m.span].begin = m.begin.seconds_since(origin_);
    spans_[m.span].end = m.end.seconds_since(origin_);
  }
  marks_.clear();
}

double Trace::seconds_at(Clock::time_point time) const {
  return std::chrono::duration<double>(time - began_).count();
}

void Trace::add(TraceSpan::Track track, std::string name, Clock::time_point begin,
                Clock::time_point end) {
  spans_.push_back({track, std::move(name), {}, seconds_at(begin), seconds_at(end)});
}

void Trace::add(TraceSpan::Track track, std::string name, Event& begin, Event& end) {
  if (begin.seconds_since(origin_) < 0) return;  // of an update before
  spans_.push_back(
      {track, std::move(name), {}, begin.seconds_since(origin_), end.seconds_since(origin_)});
}

size_t Trace::open(TraceSpan span) {
  span.begin = seconds_at(Clock::now());
  spans_.push_back(std::move(span));
  return spans_.size() - 1;
}

size_t Trace::open(TraceSpan span, Stream& stream) {
  spans_.push_back(std::move(span));
  marks_.push_back({spans_.size() - 1, device_.make_timed_event(), device_.make_timed_event()});
  marks_.back().begin.record(stream);
  return marks_.size() - 1;
}

void Trace::close_on_host(size_t span) { spans_[span].end = seconds_at(Clock::now()); }

void Trace::close(size_t marks, Stream& stream) { marks_[marks].end.record(stream); }

Span::Span(const char* name) : trace_(recording) {
  nvtx::begin_range(name);
  if (trace_) at_ = trace_->open({TraceSpan::Track::host, name});
}

Span::Span(const Context& context, const char* name) : trace_(recording), stream_(context.stream) {
  nvtx::begin_range(name);
  if (trace_) at_ = trace_->open({TraceSpan::Track::device, name}, *stream_);
}

Span::Span(const BoundGraph& bound, size_t node)
    : trace_(bound.context().stream ? recording : nullptr), stream_(bound.context().stream) {
  nvtx::begin_range(bound.node(node).op.c_str());
  if (trace_) at_ = trace_->open(span_of(bound, bound.node(node)), *stream_);
}

Span::~Span() {
  nvtx::end_range();
  if (!trace_) return;
  try {
    stream_ ? trace_->close(at_, *stream_) : trace_->close_on_host(at_);
  } catch (const Error&) {  // of the device, which tells it whoever waits for it next
  }
}

}  // namespace rondo
