// Lines along their baselines: the columns of a line follow the length of a polyline, and each goes
// across it.
#include <algorithm>
#include <cmath>

#include "engine/data/image/line_cut.h"
#include "kernels/base/error.h"

namespace rondo {
namespace image {
namespace {

struct Vector {
  double x = 0, y = 0;

  friend Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y}; }
  friend Vector operator-(Vector a, Vector b) { return {a.x - b.x, a.y - b.y}; }
  friend Vector operator*(double s, Vector a) { return {s * a.x, s * a.y}; }
  double length() const { return std::hypot(x, y); }
};

double dot(Vector a, Vector b) { return a.x * b.x + a.y * b.y; }
Vector vector_of(const ImagePoint& p) {
  return {static_cast<double>(p.x), static_cast<double>(p.y)};
}

// A polyline by the length from its beginning, which goes on straight beyond both ends.
class Polyline {
 public:
  explicit Polyline(const std::vector<ImagePoint>& points) {
    for (const ImagePoint& p : points) {
      const Vector at = vector_of(p);
      const double step = points_.empty() ? 0 : (at - points_.back()).length();
      if (!points_.empty() && step == 0) continue;
      lengths_.push_back(points_.empty() ? 0 : lengths_.back() + step);
      points_.push_back(at);
    }
    RONDO_CHECK(points_.size() > 1, "a baseline without length");
  }

  double length() const { return lengths_.back(); }

  // The ends go on in the direction that they have over this length: the last corner of a baseline
  // is often a slip of the hand, or of a program.
  void set_ends(double over) {
    const double reach = std::min(over, length());
    const auto direction = [](Vector v, Vector otherwise) {
      if (!(v.length() > 0)) v = otherwise;
      return (1 / v.length()) * v;
    };
    const size_t n = points_.size();
    before_ = direction(at(reach) - points_[0], points_[1] - points_[0]);
    behind_ = direction(points_[n - 1] - at(length() - reach), points_[n - 1] - points_[n - 2]);
  }

  Vector begin() const { return points_.front(); }
  Vector end() const { return points_.back(); }
  Vector begins_towards() const { return before_; }
  Vector ends_towards() const { return behind_; }

  Vector at(double s) const {
    if (s <= 0) return points_.front() + s * before_;
    if (s >= length()) return points_.back() + (s - length()) * behind_;
    const auto next = std::upper_bound(lengths_.begin(), lengths_.end(), s);
    const auto i = static_cast<size_t>(next - lengths_.begin());
    const double share = (s - lengths_[i - 1]) / (lengths_[i] - lengths_[i - 1]);
    return points_[i - 1] + share * (points_[i] - points_[i - 1]);
  }

 private:
  std::vector<Vector> points_;
  std::vector<double> lengths_;  // up to each point
  Vector before_, behind_;
};

// Of a polygon, wherever it lies.
double area_of(const std::vector<ImagePoint>& corners) {
  double twice = 0;
  for (size_t i = 0; i < corners.size(); ++i) {
    const Vector a = vector_of(corners[i]), b = vector_of(corners[(i + 1) % corners.size()]);
    twice += a.x * b.y - b.x * a.y;
  }
  return std::abs(twice) / 2;
}

// How far the region goes on beyond an end of its line: as far as those corners that lie there.
double beyond(const ImageRegion& region, Vector end, Vector outwards, double reach) {
  double most = 0;
  for (const ImagePoint& c : region.corners) {
    const Vector from = vector_of(c) - end;
    const double across = from.x * outwards.y - from.y * outwards.x;
    if (std::abs(across) <= reach) most = std::max(most, dot(from, outwards));
  }
  return most;
}

}  // namespace

LineCut columns_along(const ImageRegion& region, const ImageBox& box, const std::string& name) {
  Polyline line(in_reading_order(region.baseline));
  // All around the box: no text is longer, and what is would take the memory of many.
  const double most_length = 2.0 * (box.width + box.height);
  if (line.length() > most_length) {
    fail_input(name, ": the baseline from ", region.baseline.front().x, ",",
               region.baseline.front().y, " on is ", std::llround(line.length()),
               " pixels long, in a region of ", box.width, " x ", box.height);
  }
  const double thickness = std::clamp(area_of(region.corners) / line.length(), 4.0, most_length);
  line.set_ends(thickness);
  // Of a line that is curved, the region's other parts lie further away than its own.
  const double reach = 3 * thickness;
  const auto columns = [&](double pixels) {
    return static_cast<int64_t>(std::ceil(std::min(pixels, most_length)));
  };
  const int64_t first = -columns(beyond(region, line.begin(), -1 * line.begins_towards(), reach));
  const int64_t end =
      columns(line.length()) + columns(beyond(region, line.end(), line.ends_towards(), reach));
  LineCut cut{{}, 0, -reach, reach};
  cut.columns.reserve(static_cast<size_t>(end - first));
  Vector along = line.begins_towards();
  for (int64_t i = first; i < end; ++i) {
    const double s = static_cast<double>(i) + 0.5;
    // Where a polyline has a corner, letters turn over their own width, and are not torn.
    const Vector chord = line.at(s + thickness / 2) - line.at(s - thickness / 2);
    if (chord.length() > 0) along = (1 / chord.length()) * chord;
    const Vector at = line.at(s);
    cut.columns.push_back({at.x, at.y, -along.y, along.x});
  }
  return cut;
}

}  // namespace image

std::vector<ImagePoint> in_reading_order(std::vector<ImagePoint> baseline) {
  if (baseline.empty()) return baseline;
  const int64_t dx = int64_t{baseline.back().x} - baseline.front().x;
  const int64_t dy = int64_t{baseline.back().y} - baseline.front().y;
  if (dx < 0 && -dx > std::abs(dy)) std::reverse(baseline.begin(), baseline.end());
  return baseline;
}

bool has_length(const std::vector<ImagePoint>& baseline) {
  return std::any_of(baseline.begin(), baseline.end(),
                     [&](const ImagePoint& p) { return p != baseline.front(); });
}

}  // namespace rondo
