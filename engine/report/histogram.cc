#include <algorithm>
#include <cmath>

#include "engine/report/charts.h"
#include "engine/report/svg.h"

namespace rondo {
namespace {

// 1, 2 or 5 times a power of ten, at least as large.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::string histogram_svg(const Histogram& chart) {
  constexpr double width = 760, height = 320, left = 74, right = 24, top = 44, bottom = 52;
  constexpr int most_steps = 30;
  svg::Picture picture(width, height, chart.title);
  picture.text({left, 24}, chart.title, "strong");
  std::vector<double> sorted = chart.values;
  std::erase_if(sorted, [](double v) { return !std::isfinite(v); });
  if (sorted.empty()) return picture.finish();
  std::sort(sorted.begin(), sorted.end());
  // One in two hundred may be far out without squeezing the others.
  const double usual = std::max(sorted[(sorted.size() - 1) * 199 / 200], 1e-9);
  const double step = round_step(usual / most_steps);
  const auto steps = static_cast<size_t>(std::floor(usual / step)) + 1;
  std::vector<double> counts(steps);
  for (double v : sorted) ++counts[std::min(static_cast<size_t>(v / step), steps - 1)];
  const double highest = *std::max_element(counts.begin(), counts.end());
  const bool cut = sorted.back() >= static_cast<double>(steps) * step;
  const auto x_of = [&](double value) {
    return left + value / (static_cast<double>(steps) * step) * (width - left - right);
  };
  const auto y_of = [&](double count) {
    return height - bottom - count / highest * (height - bottom - top);
  };
  const std::vector<double> levels = svg::ticks(0, highest);
  for (double v : levels) {
    picture.line({left, y_of(v)}, {width - right, y_of(v)}, "grid");
    picture.text({left - 8, y_of(v) + 4}, svg::tick_text(v, levels[1] - levels[0]), "note", "end");
  }
  for (size_t i = 0; i < steps; ++i) {
    const double begin = x_of(static_cast<double>(i) * step),
                 end = x_of(static_cast<double>(i + 1) * step);
    if (counts[i] == 0) continue;
    picture.rect(begin + 0.5, y_of(counts[i]), end - begin - 1, y_of(0) - y_of(counts[i]), "f0");
  }
  picture.line({left, y_of(0)}, {width - right, y_of(0)}, "axis");
  const std::vector<double> marks = svg::ticks(0, static_cast<double>(steps) * step);
  for (double v : marks) {
    picture.line({x_of(v), y_of(0)}, {x_of(v), y_of(0) + 5}, "axis");
    picture.text({x_of(v), y_of(0) + 19}, svg::tick_text(v, marks[1] - marks[0]), "note", "middle");
  }
  picture.text({(left + width - right) / 2, height - 14},
               cut ? chart.x_label + " (the last step: and more)" : chart.x_label, "label",
               "middle");
  picture.text({18, (top + height - bottom) / 2}, chart.y_label, "label", "middle", -90);
  return picture.finish();
}

}  // namespace rondo
