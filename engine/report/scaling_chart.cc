#include <algorithm>
#include <cmath>

#include "engine/report/charts.h"
#include "engine/report/svg.h"

namespace rondo {

std::string scaling_svg(const ScalingChart& chart) {
  constexpr double width = 760, height = 360, left = 64, right = 150, top = 54, bottom = 52;
  svg::Picture picture(width, height, chart.title);
  picture.text({left, 22}, chart.title, "strong");
  picture.text({left, 40}, chart.note, "note");
  double most = 2, highest = 1;
  for (const Series& s : chart.efficiency) {
    for (double x : s.x) most = std::max(most, x);
    for (double y : s.y) highest = std::max(highest, y);
  }
  const auto x_of = [&](double devices) {
    return left + std::log2(std::max(devices, 1.0)) / std::log2(most) * (width - right - left);
  };
  const auto y_of = [&](double efficiency) {
    return height - bottom - efficiency / highest * (height - bottom - top);
  };
  for (double v : svg::ticks(0, highest)) {
    picture.line({left, y_of(v)}, {width - right, y_of(v)}, "grid");
    picture.text({left - 8, y_of(v) + 4}, svg::tick_text(100 * v, 20) + "%", "note", "end");
  }
  picture.line({left, y_of(0)}, {width - right, y_of(0)}, "axis");
  for (double devices = 1; devices <= most; devices *= 2) {
    picture.line({x_of(devices), y_of(0)}, {x_of(devices), y_of(0) + 5}, "axis");
    picture.text({x_of(devices), y_of(0) + 19}, svg::number(devices), "note", "middle");
  }
  picture.text({(left + width - right) / 2, height - 14}, "devices", "label", "middle");
  picture.text({16, (top + height - bottom) / 2}, "efficiency", "label", "middle", -90);
  for (size_t i = 0; i < chart.efficiency.size(); ++i) {
    const Series& s = chart.efficiency[i];
    const std::string colour = std::to_string(i % svg::palette_size);
    std::vector<svg::Point> points;
    for (size_t j = 0; j < std::min(s.x.size(), s.y.size()); ++j) {
      if (std::isfinite(s.y[j])) points.push_back({x_of(s.x[j]), y_of(s.y[j])});
    }
    if (points.empty()) continue;
    picture.polyline(points, "s" + colour);
    for (const svg::Point& p : points) picture.circle(p, 2.5, "f" + colour);
    picture.text({width - right + 10, points.back().y + 4}, s.name, "label");
  }
  return picture.finish();
}

}  // namespace rondo
