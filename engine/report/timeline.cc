#include "engine/report/timeline.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "engine/report/svg.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

using Kind = ActionKind;
using svg::Picture;

constexpr double left = 70, right = 60, top = 64, row_height = 34, gap = 12, bottom = 44;
constexpr double width = 1100;

struct Style {
  const char* fill;
  const char* legend;
};

// nullptr: not a box.
const Style* style_of(Kind kind) {
  static constexpr Style forward{"f0", "forward"}, backward{"f1", "backward"},
      weight{"f2", "weight gradient"}, reduce{"f3", "reduction"};
  switch (kind) {
    case Kind::forward:
      return &forward;
    case Kind::backward:
    case Kind::input_backward:
      return &backward;
    case Kind::weight_backward:
      return &weight;
    case Kind::reduce:
      return &reduce;
    default:
      return nullptr;
  }
}

class Drawing {
 public:
  Drawing(const PipelineTimeline& t, int ranks_per_pipeline, const std::string& title, int stride)
      : timeline_(t),
        pipeline_(static_cast<size_t>(ranks_per_pipeline)),
        stride_(static_cast<size_t>(stride)),
        end_(std::max(t.duration(), 1e-9)),
        picture_(width, height(), title) {
    picture_.text({left, 22}, title, "strong");
    several_stages_ = stages_per_rank() > 1;
  }

  std::string run() {
    legend();
    axis();
    messages();
    for (size_t r = 0; r < timeline_.ranks.size(); ++r) row(r);
    return picture_.finish();
  }

 private:
  double height() const {
    return top + static_cast<double>(timeline_.ranks.size()) * (row_height + gap) + bottom;
  }
  double x(double seconds) const { return left + seconds / end_ * (width - left - right); }
  double y(size_t rank) const { return top + static_cast<double>(rank) * (row_height + gap); }

  size_t stages_per_rank() const {
    size_t most = 0;
    for (const auto& actions : timeline_.ranks) {
      std::vector<int> stages;
      for (const TimedAction& a : actions) stages.push_back(a.action.stage);
      std::sort(stages.begin(), stages.end());
      most = std::max(
          most, static_cast<size_t>(std::unique(stages.begin(), stages.end()) - stages.begin()));
    }
    return most;
  }

  void legend() {
    double at = left;
    for (Kind k : {Kind::forward, Kind::backward, Kind::weight_backward, Kind::reduce}) {
      const Style* s = style_of(k);
      picture_.rect(at, 34, 12, 12, s->fill);
      picture_.text({at + 17, 44}, s->legend, "label");
      at += 130;
    }
    picture_.text({at, 44}, several_stages_ ? "stage (layer).micro-batch" : "number: micro-batch",
                  "label");
    picture_.text({width - right + 8, 44}, "busy", "label");
  }

  void axis() {
    const double y0 = height() - bottom + 4;
    const std::vector<double> ticks = svg::ticks(0, end_ * 1000);
    const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
    for (double t : ticks) {
      if (t > end_ * 1000) continue;
      picture_.line({x(t / 1000), top - 6}, {x(t / 1000), y0}, "grid");
      picture_.text({x(t / 1000), y0 + 16}, svg::tick_text(t, step), "label", "middle");
    }
    picture_.text({(left + width - right) / 2, y0 + 34}, "milliseconds", "label", "middle");
  }

  void row(size_t rank) {
    picture_.text({left - 8, y(rank) + row_height / 2 + 4}, str("rank ", rank), "label", "end");
    for (const TimedAction& t : timeline_.ranks[rank]) {
      const Style* s = style_of(t.action.kind);
      if (s == nullptr) continue;
      const double from = x(t.start), wide = std::max(x(t.end) - from, 0.5);
      if (t.action.kind == Kind::reduce) {
        picture_.rect(from, y(rank) + row_height - 5, wide, 5, s->fill);
        continue;
      }
      picture_.rect(from, y(rank), std::max(wide - 0.6, 0.4), row_height - 6, s->fill);
      const std::string label = several_stages_ ? str(t.action.stage, ".", t.action.micro_batch)
                                                : str(t.action.micro_batch);
      if (t.action.micro_batch < 0 || wide < 7.0 * static_cast<double>(label.size()) + 2) continue;
      picture_.text({from + wide / 2, y(rank) + row_height / 2 + 1}, label, "on", "middle");
    }
    const std::string busy =
        fixed_text(100 * (1 - timeline_.bubble(static_cast<int>(rank))), 0) + " %";
    picture_.text({width - right + 8, y(rank) + row_height / 2 + 4}, busy, "label");
  }

  void messages() {
    // By receiving rank, kind, stage, micro-batch and sender: when it was there.
    std::map<std::tuple<size_t, Kind, int, int, size_t>, double> arrived;
    for (size_t r = 0; r < timeline_.ranks.size(); ++r) {
      for (const TimedAction& t : timeline_.ranks[r]) {
        if (t.action.peer < 0) continue;
        const auto from = static_cast<size_t>(t.action.peer);
        arrived[{r, t.action.kind, t.action.stage, t.action.micro_batch, from}] = t.end;
      }
    }
    for (size_t r = 0; r < timeline_.ranks.size(); ++r) {
      const size_t base = r - r / stride_ % pipeline_ * stride_;
      for (const TimedAction& t : timeline_.ranks[r]) {
        const bool up = t.action.kind == Kind::send_activation;
        if (!up && t.action.kind != Kind::send_gradient) continue;
        const size_t to = base + static_cast<size_t>(t.action.peer) * stride_;
        const auto found = arrived.find({to, up ? Kind::recv_activation : Kind::recv_gradient,
                                         up ? t.action.stage + 1 : t.action.stage - 1,
                                         t.action.micro_batch, r / stride_ % pipeline_});
        if (found == arrived.end()) continue;
        const double from_y = to > r ? y(r) + row_height - 6 : y(r);
        const double to_y = to > r ? y(to) : y(to) + row_height - 6;
        picture_.line({x(t.start), from_y}, {x(std::max(found->second, t.start)), to_y}, "axis");
      }
    }
  }

  const PipelineTimeline& timeline_;
  const size_t pipeline_, stride_;
  const double end_;
  bool several_stages_ = false;
  Picture picture_;
};

}  // namespace

std::string timeline_svg(const PipelineTimeline& timeline, int ranks_per_pipeline,
                         const std::string& title, int stride) {
  RONDO_CHECK(ranks_per_pipeline >= 1, "a pipeline of ", ranks_per_pipeline, " ranks");
  return Drawing(timeline, ranks_per_pipeline, title, stride).run();
}

std::string timeline_text(const std::vector<TimedAction>& actions) {
  std::string text;
  for (const TimedAction& t : actions) {
    text += str(static_cast<int>(t.action.kind), " ", t.action.stage, " ", t.action.micro_batch,
                " ", t.action.peer, " ", fixed_text(t.start, 9), " ", fixed_text(t.end, 9), "\n");
  }
  return text;
}

std::vector<TimedAction> parse_timeline(const std::string& text) {
  std::vector<TimedAction> actions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    int kind = -1;
    TimedAction t{};
    words >> kind >> t.action.stage >> t.action.micro_batch >> t.action.peer >> t.start >> t.end;
    if (!words || kind < 0 || kind > static_cast<int>(Kind::reduce)) {
      fail_input("'", line, "' is no action of a timeline");
    }
    t.action.kind = static_cast<Kind>(kind);
    actions.push_back(t);
  }
  return actions;
}

}  // namespace rondo
