#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "engine/report/charts.h"
#include "engine/report/svg.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using svg::Picture;
using svg::Point;

constexpr double width = 760, panel_height = 220, left = 84, right = 80, top = 40, gap = 34,
                 bottom = 48, zero_strip = 20;

struct Axis {
  double low = 0, high = 1;  // data
  double from = 0, to = 1;   // pixels
  bool log = false;
  double ground = 0;  // where a logarithmic axis has its zero, in pixels

  double operator()(double v) const {
    if (log && v <= 0) return ground;
    const double share = log ? std::log(v / low) / std::log(high / low) : (v - low) / (high - low);
    return from + share * (to - from);
  }
};

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  void add(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  bool empty() const { return !(low <= high); }
};

Extent extent_of(const std::vector<Series>& all, std::vector<double> Series::*member) {
  Extent e;
  for (const Series& s : all) {
    for (double v : s.*member) e.add(v);
  }
  return e;
}

double least_positive(const std::vector<Series>& all) {
  Extent e;
  for (const Series& s : all) {
    for (double v : s.y) {
      if (v > 0) e.add(v);
    }
  }
  return e.low;
}

bool has_points(const std::vector<Series>& all) {
  return std::any_of(all.begin(), all.end(), [](const Series& s) { return !s.x.empty(); });
}

// The least and the greatest of each pixel column, in their order: what a full drawing would show.
std::vector<Point> thin(const std::vector<Point>& points) {
  if (points.size() < 2 * static_cast<size_t>(width)) return points;
  std::vector<Point> kept;
  for (size_t i = 0; i < points.size();) {
    size_t low = i, high = i, j = i;
    for (; j < points.size() && std::floor(points[j].x) == std::floor(points[i].x); ++j) {
      if (points[j].y < points[low].y) low = j;
      if (points[j].y > points[high].y) high = j;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
    i = j;
  }
  return kept;
}

// Loss and error rates fall by orders of magnitude: on a linear axis the end of a run is a line on
// the ground. Error rates may reach zero, which then has a strip of its own below the logarithmic
// part.
Axis vertical_axis(const std::vector<Series>& all, bool is_loss, double y) {
  const Extent e = extent_of(all, &Series::y);
  const double ground = y + panel_height;
  Axis axis{0, 1, ground, y};
  if (e.empty()) return axis;
  if (is_loss && e.low > 0 && e.high > 10 * e.low) {
    return {svg::log_tick_below(e.low), e.high * 1.1, ground, y, true, ground};
  }
  if (!is_loss && e.low >= 0) {
    const double least = least_positive(all);
    if (e.high > 5 * least) {
      const double foot = ground - (e.low > 0 ? 0 : zero_strip);
      return {svg::log_tick_below(least), e.high * 1.1, foot, y, true, ground};
    }
  }
  axis.low = std::min(0.0, e.low);
  axis.high = e.high > axis.low ? axis.low + (e.high - axis.low) * 1.05 : axis.low + 1;
  return axis;
}

// The mean over a window of a fiftieth of the series around each point; values that are not finite
// stay as they are.
Series running_mean(const Series& series) {
  Series smooth = series;
  const size_t n = series.y.size(), half = n / 100;
  std::vector<double> sums(n + 1), counts(n + 1);
  for (size_t i = 0; i < n; ++i) {
    const bool finite = std::isfinite(series.y[i]);
    sums[i + 1] = sums[i] + (finite ? series.y[i] : 0);
    counts[i + 1] = counts[i] + finite;
  }
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(series.y[i])) continue;
    const size_t begin = i - std::min(i, half), end = std::min(i + half + 1, n);
    smooth.y[i] = (sums[end] - sums[begin]) / (counts[end] - counts[begin]);
  }
  return smooth;
}

void draw_points(Picture& picture, const Series& series, const std::string& index, const Axis& x,
                 const Axis& y, bool faint) {
  std::vector<Point> points;
  const auto flush = [&] {
    if (points.size() == 1) picture.circle(points[0], 2.5, "f" + index);
    if (points.size() > 1)
      picture.polyline(thin(points), faint ? "thin wash s" + index : "s" + index);
    if (points.size() > 1 && points.size() <= 60) {
      for (const Point& p : points) picture.circle(p, 2.2, "f" + index);
    }
    points.clear();
  };
  for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (!std::isfinite(series.x[i])) continue;
    if (std::isfinite(series.y[i])) {
      points.push_back({x(series.x[i]), y(series.y[i])});
    } else {
      flush();
      picture.text({x(series.x[i]), y.to + 11}, "×", "f" + index, "middle");
    }
  }
  flush();
}

std::string colour_of(size_t index) { return std::to_string(index % svg::palette_size); }

// A long, noisy series is drawn faintly under its running mean. Returns what is drawn strongly.
Series draw_series(Picture& picture, const Series& series, size_t colour, const Axis& x,
                   const Axis& y) {
  const bool noisy = series.y.size() > 200;
  draw_points(picture, series, colour_of(colour), x, y, noisy);
  if (!noisy) return series;
  Series mean = running_mean(series);
  draw_points(picture, mean, colour_of(colour), x, y, false);
  return mean;
}

std::string value_text(double value, bool is_loss) {
  if (!is_loss) return svg::tick_text(value * 100, value < 0.1 ? 0.01 : 0.1) + "%";
  const double size = std::abs(value);
  return svg::tick_text(value, size < 0.1 ? 0.0001 : size < 10 ? 0.001 : 0.1);
}

struct EndValue {
  double y = 0;
  std::string text, css;
};

// Right of the panel, each beside the end of its curve, as near as the others leave room.
void draw_ends(Picture& picture, std::vector<EndValue> ends, double foot) {
  constexpr double line_height = 14;
  std::sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.y < b.y; });
  for (size_t i = 1; i < ends.size(); ++i)
    ends[i].y = std::max(ends[i].y, ends[i - 1].y + line_height);
  for (size_t i = ends.size(); i-- > 0; foot = ends[i].y - line_height)
    ends[i].y = std::min(ends[i].y, foot);
  for (const EndValue& e : ends) picture.text({width - right + 6, e.y + 4}, e.text, e.css);
}

// Which series is which, and in the same row, on its other side, the name of the line at `kept`.
// Leaves room for the larger letters that narrow pages have (html.cc).
void draw_names(Picture& picture, const std::vector<Series>& all, size_t first_colour, double y,
                std::optional<double> kept) {
  constexpr double sample = 20, letter = 14, space = 10;
  const auto width_of = [](std::string_view name) {
    return sample + letter * static_cast<double>(name.size()) + space;
  };
  double legend = -space;
  for (const Series& s : all) legend += width_of(s.name);
  const bool on_the_left = kept && *kept > (left + width - right) / 2;
  double at = on_the_left ? left : width - right - legend;
  if (kept) {
    constexpr std::string_view name = "kept model";
    const double room = letter * static_cast<double>(name.size());
    const double from = on_the_left ? left + legend + space : left;
    const double to = on_the_left ? width - right : at - space;
    // It begins or ends at its line, or as near as there is room.
    const bool begins = on_the_left ? *kept - room < from : *kept + room <= to;
    picture.text({begins ? std::max(*kept, from) : std::min(*kept, to), y - 6}, name, "label",
                 begins ? "start" : "end");
  }
  for (size_t i = 0; i < all.size(); ++i) {
    picture.rect(at, y - 12, 14, 4, "f" + colour_of(first_colour + i));
    picture.text({at + sample, y - 6}, all[i].name, "label");
    at += width_of(all[i].name);
  }
}

// Of numbers between two powers of ten, 0.15 say, all digits are wanted.
double resolution_of(double v) {
  const double mantissa = v / std::pow(10, std::floor(std::log10(v) + 1e-9));
  return std::abs(mantissa - std::round(mantissa)) < 1e-6 ? v : v / 10;
}

void draw_panel(Picture& picture, const std::vector<Series>& all, bool is_loss, const Axis& x,
                double y, size_t first_colour, std::optional<double> kept) {
  const Axis axis = vertical_axis(all, is_loss, y);
  std::vector<double> marks =
      axis.log ? svg::log_ticks(axis.low, axis.high) : svg::ticks(axis.low, axis.high);
  const double step = marks.size() > 1 ? marks[1] - marks[0] : 1;
  if (axis.log && axis.from < axis.ground) marks.insert(marks.begin(), 0);
  for (double v : marks) {
    picture.line({left, axis(v)}, {width - right, axis(v)}, "grid");
    const double resolution = !axis.log ? step : v > 0 ? resolution_of(v) : 1;
    const std::string text =
        is_loss ? svg::tick_text(v, resolution) : svg::tick_text(v * 100, resolution * 100) + "%";
    picture.text({left - 8, axis(v) + 4}, text, "note", "end");
  }
  for (double v : svg::ticks(x.low, x.high)) {
    picture.line({x(v), y + panel_height}, {x(v), y + panel_height + 5}, "axis");
  }
  picture.line({left, y + panel_height}, {width - right, y + panel_height}, "axis");
  picture.text({16, y + panel_height / 2},
               str(is_loss ? "loss" : "error rate", axis.log ? " (log)" : ""), "label", "middle",
               -90);
  if (kept) {
    kept = x(*kept);
    picture.line({*kept, y - 2}, {*kept, y + panel_height}, "axis dashed");
  }
  std::vector<EndValue> ends;
  for (size_t i = 0; i < all.size(); ++i) {
    const Series drawn = draw_series(picture, all[i], first_colour + i, x, axis);
    const auto last =
        std::find_if(drawn.y.rbegin(), drawn.y.rend(), [](double v) { return std::isfinite(v); });
    if (last == drawn.y.rend()) continue;
    ends.push_back(
        {axis(*last), value_text(*last, is_loss), "end f" + colour_of(first_colour + i)});
  }
  draw_ends(picture, std::move(ends), y + panel_height);
  draw_names(picture, all, first_colour, y, kept);
}

}  // namespace

std::string learning_curve_svg(const LearningCurve& curve) {
  std::vector<Series> both = curve.loss;
  both.insert(both.end(), curve.error_rates.begin(), curve.error_rates.end());
  const int panels = std::max(has_points(curve.loss) + has_points(curve.error_rates), 1);
  const double height = top + 14 + panels * panel_height + (panels - 1) * gap + bottom;
  Picture picture(width, height, curve.title);
  picture.text({left, 22}, curve.title, "strong");
  Extent e = extent_of(both, &Series::x);
  if (e.empty()) {
    picture.text({width / 2, height / 2}, "no measurements", "note", "middle");
    return picture.finish();
  }
  if (!(e.high > e.low)) e = {e.low - 1, e.high + 1};
  const Axis x{e.low, e.high, left, width - right};
  double y = top + 14;
  if (has_points(curve.loss)) {
    draw_panel(picture, curve.loss, true, x, y, 0, curve.kept);
    y += panel_height + gap;
  }
  if (has_points(curve.error_rates)) {
    draw_panel(picture, curve.error_rates, false, x, y, 2, curve.kept);
    y += panel_height + gap;
  }
  const double axis_y = y - gap;
  const std::vector<double> marks = svg::ticks(x.low, x.high);
  for (double v : marks) {
    const double step = marks.size() > 1 ? marks[1] - marks[0] : 1;
    picture.text({x(v), axis_y + 19}, svg::tick_text(v, step), "note", "middle");
  }
  picture.text({(left + width - right) / 2, axis_y + 38}, curve.x_label, "label", "middle");
  return picture.finish();
}

LearningCurve learning_curve_of(const TrainingLog& log, std::string title) {
  LearningCurve curve;
  curve.title = std::move(title);
  const auto take = [&](const char* key, const char* name, std::vector<Series>& into) {
    const auto it = log.series.find(key);
    if (it == log.series.end()) return;
    into.push_back(it->second);
    into.back().name = name;
  };
  take("step.loss", "training", curve.loss);
  take("validation.loss", "validation", curve.loss);
  take("validation.wer", "WER", curve.error_rates);
  take("validation.cer", "CER", curve.error_rates);
  take("validation.error", "error", curve.error_rates);
  const auto best = log.series.find("validation.best");
  if (best == log.series.end()) return curve;
  for (size_t i = 0; i < best->second.x.size(); ++i) {
    if (best->second.y[i] > 0) curve.kept = best->second.x[i];
  }
  return curve;
}

}  // namespace rondo
