// Lines that are straightened along their baselines.
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/data/image/image_region.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

constexpr double length = 800, above = 45, below = 20;  // of the line of text

// The grey of a line of text that is level: upright strokes, of which every third rises to the
// height of an l, and every fourth goes down like a p's; their edges are soft, as of a scan. `s`
// runs along the baseline, `v` downwards from it.
double grey_of_text(double s, double v) {
  constexpr double pitch = 24, wide = 8, soft = 2;
  const double number = std::floor(s / pitch), within = s - number * pitch;
  const auto n = static_cast<int>(number);
  if (n < 0 || n >= static_cast<int>(length / pitch)) return 220;
  const double high = n % 3 == 0 ? -40 : -25, low = n % 4 == 0 ? 14 : 0;
  const double inside = std::min({within - 8, 8 + wide - within, v - high, low - v});
  return 220 - 200 * std::clamp(0.5 + inside / soft, 0.0, 1.0);
}

struct Point {
  double x, y;
};

// A way to bend text: from a point of the page to one of the level line, and back.
struct Bend {
  std::function<Point(Point)> level, page;
};

// Around a circle, its middle below the line (or above): the text climbs and falls again.
Bend around(Point middle, double radius, bool hill) {
  const double half = length / 2, sign = hill ? 1 : -1;
  return {[=](Point p) {
            const double dx = p.x - middle.x, dy = sign * (middle.y - p.y);
            return Point{radius * std::atan2(dx, dy) + half, sign * (radius - std::hypot(dx, dy))};
          },
          [=](Point p) {
            const double angle = (p.x - half) / radius, r = radius - sign * p.y;
            return Point{middle.x + r * std::sin(angle), middle.y - sign * r * std::cos(angle)};
          }};
}

Bend turned_by(Point begin, double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  return {[=](Point p) {
            const double dx = p.x - begin.x, dy = p.y - begin.y;
            return Point{c * dx + s * dy, c * dy - s * dx};
          },
          [=](Point p) {
            return Point{begin.x + c * p.x - s * p.y, begin.y + s * p.x + c * p.y};
          }};
}

GreyImage page_of(const Bend& bend, int32_t width, int32_t height) {
  GreyImage page(width, height);
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      const Point p = bend.level({x + 0.5, y + 0.5});
      // Ink all over, where the line is not: what a polygon is for.
      const bool is_line = p.y > -above - 3 && p.y < below + 3;
      page.row(y)[x] = static_cast<uint8_t>(is_line ? std::lround(grey_of_text(p.x, p.y)) : 20);
    }
  }
  return page;
}

ImagePoint rounded(Point p) {
  return {static_cast<int32_t>(std::lround(p.x)), static_cast<int32_t>(std::lround(p.y))};
}

// As programs give it: a baseline with a point now and then, and a polygon around the line.
ImageRegion region_of(const Bend& bend) {
  ImageRegion region;
  constexpr int points = 16;
  for (int i = 0; i <= points; ++i) {
    const double s = length * i / points;
    region.baseline.push_back(rounded(bend.page({s, 0})));
    region.corners.push_back(rounded(bend.page({s, -above})));
  }
  for (int i = points; i >= 0; --i)
    region.corners.push_back(rounded(bend.page({length * i / points, below})));
  return region;
}

// The mean difference of greys between a line and the level text, at the best of some shifts: where
// a line begins is a matter of a pixel or two.
double difference(const GreyImage& line) {
  double best = 255;
  for (double dx = -8; dx <= 3; dx += 0.5) {
    for (double dy = -above - 4; dy <= -above + 4; dy += 0.5) {
      double sum = 0, n = 0;
      for (int32_t y = 5; y < line.height - 5; ++y) {
        for (int32_t x = 5; x < line.width - 5; ++x, ++n)
          sum += std::abs(line.row(y)[x] - grey_of_text(x + 0.5 + dx, y + 0.5 + dy));
      }
      best = std::min(best, sum / n);
    }
  }
  return best;
}

bool same(const GreyImage& a, const GreyImage& b) {
  return a.width == b.width && a.height == b.height && a.pixels == b.pixels;
}

GreyImage numbered(int32_t width, int32_t height) {
  GreyImage g(width, height);
  for (size_t i = 0; i < g.pixels.size(); ++i) g.pixels[i] = static_cast<uint8_t>(i * 37 % 251);
  return g;
}

}  // namespace

TEST_CASE("text along a curve becomes as it was before it was bent", "[baseline][slow]") {
  // A mean difference of 200 would be ink for paper everywhere. Half a pixel of shift at the edges
  // of these strokes makes 8; lines that have nothing in common differ by 14 and more.
  constexpr double close = 5, far = 12;
  for (const auto& [bend, what] :
       {std::pair(around({450, 760}, 600, true), "a hill"),
        std::pair(around({450, -300}, 600, false), "a valley"),
        std::pair(around({450, 460}, 300, true), "half a circle, almost"),
        std::pair(turned_by({60, 100}, 0.25), "slanting"),
        std::pair(turned_by({150, 60}, 1.4), "steep"),
        std::pair(turned_by({300, 860}, -1.57), "upwards")}) {
    INFO(what);
    const GreyImage page = page_of(bend, 900, 900);
    ImageRegion region = region_of(bend);
    const GreyImage line = cut_out(page, region, "p");
    // At the ends of a line that is bent, a corner of the polygon lies further out.
    CHECK(std::abs(line.width - length) <= 12);
    CHECK(std::abs(line.height - (above + below)) <= 5);
    CHECK(difference(line) < close);
    region.baseline.clear();
    CHECK(difference(cut_out(page, region, "p")) > far);
  }
}

TEST_CASE("along a level baseline pixels stay what they are", "[baseline]") {
  const GreyImage page = numbered(120, 60);
  const ImageRegion box = ImageRegion::of_box({10, 20, 80, 25});
  CHECK(same(cut_out(page, {box.corners, {{10, 40}, {90, 40}}}, "p"), cut_out(page, box, "p")));
  // What lies beyond the ends of the baseline belongs to the line as well.
  CHECK(same(cut_out(page, {box.corners, {{30, 40}, {70, 40}}}, "p"), cut_out(page, box, "p")));
  // Drawn the other way round, or with points that are there twice.
  CHECK(same(cut_out(page, {box.corners, {{90, 40}, {50, 40}, {50, 40}, {10, 40}}}, "p"),
             cut_out(page, box, "p")));
  // A polygon that is high in the middle is not made level: its baseline is.
  const ImageRegion roof{{{10, 30}, {50, 20}, {90, 10}, {90, 45}, {10, 45}}};
  const GreyImage level = cut_out(page, {roof.corners, {{10, 40}, {90, 40}}}, "p");
  CHECK((level.width == 80 && level.height == 35));
  CHECK(level.row(34)[0] == page.row(44)[10]);
  CHECK(level.row(34)[79] == page.row(44)[89]);
  // Half of it is beyond the page.
  const ImageRegion beyond{ImageRegion::of_box({-40, 20, 80, 60}).corners, {{-40, 40}, {40, 40}}};
  CHECK(same(cut_out(page, beyond, "p"), cut_out(page, ImageRegion::of_box({0, 20, 40, 40}), "p")));
}

TEST_CASE("a baseline that runs down or up the page turns the line", "[baseline]") {
  const GreyImage page = numbered(60, 120);
  const ImageRegion box = ImageRegion::of_box({20, 10, 25, 80});
  const GreyImage down = cut_out(page, {box.corners, {{30, 10}, {30, 90}}}, "p");
  REQUIRE((down.width == 80 && down.height == 25));
  const GreyImage up = cut_out(page, {box.corners, {{30, 90}, {30, 10}}}, "p");
  REQUIRE((up.width == 80 && up.height == 25));
  for (int32_t x = 0; x < 80; ++x) {
    for (int32_t y = 0; y < 25; ++y) {
      INFO(x << ", " << y);
      CHECK(down.row(y)[x] == page.row(10 + x)[44 - y]);
      CHECK(up.row(y)[x] == page.row(89 - x)[20 + y]);
    }
  }
}

TEST_CASE("places along a baseline are places on the page", "[baseline]") {
  const Bend bend = around({450, 760}, 600, true);
  const ImageRegion region = region_of(bend);
  const LinePlaces places(region, {900, 900}, "p");
  CHECK(places.first() == 0);
  CHECK(std::abs(places.end() - length) <= 6);
  for (double s = 20; s < length - 40; s += 60) {
    const ImageBox box = places.between(s, s + 20);
    // What a strip of the level line is on the page.
    double left = 1e9, top = 1e9, right = 0, bottom = 0;
    for (double at : {s, s + 10, s + 20}) {
      for (double v : {-above, below}) {
        const Point p = bend.page({at, v});
        left = std::min(left, p.x), right = std::max(right, p.x);
        top = std::min(top, p.y), bottom = std::max(bottom, p.y);
      }
    }
    INFO("at " << s);
    CHECK(std::abs(box.left - left) <= 4);
    CHECK(std::abs(box.top - top) <= 4);
    CHECK(std::abs(box.left + box.width - right) <= 4);
    CHECK(std::abs(box.top + box.height - bottom) <= 4);
  }
  const ImageBox all = places.between(-50, 5000), around = box_on(region, {900, 900}, "p");
  CHECK((all.left == around.left && all.top == around.top && all.width == around.width));
}

TEST_CASE("baselines that fit no line are refused", "[baseline]") {
  const GreyImage page = numbered(200, 100);
  const ImageRegion box = ImageRegion::of_box({10, 20, 80, 25});
  CHECK_THROWS_WITH(cut_out(page, {box.corners, {{10, 95}, {90, 5000}}}, "p.png"),
                    Contains("p.png: the baseline from 10,95 on is 4906 pixels long, in a region "
                             "of 80 x 25"));
  CHECK_THROWS_WITH(cut_out(page, {box.corners, {{-400, 30}, {-390, 30}}}, "p.png"),
                    Contains("p.png: nothing of the region from x 10, y 20 on lies along its "
                             "baseline from -400,30 to -390,30"));
}
