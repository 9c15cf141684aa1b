// Lines that are made level and centred by their ink.
#include "engine/data/image/line_shape.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/catch.h"

using namespace rondo;

namespace {

// Strokes of letters of three kinds: short ones, some that rise, some that go down.
bool is_ink(double s, double v, double length) {
  const auto number = static_cast<int>(std::floor(s / 20));
  const double within = s - 20 * number;
  if (s < 0 || s >= length || number % 6 == 5) return false;  // between words
  const double high = number % 3 == 0 ? -38 : -24, low = number % 4 == 1 ? 12 : 0;
  return (within >= 6 && within < 12 && v >= high && v < low) ||
         (within >= 6 && within < 18 && v >= -24 && v < -20);
}

// A line whose baseline is at `base(x)`.
GreyImage line_on(int32_t width, int32_t height, const std::function<double(double)>& base,
                  uint8_t paper = 210, uint8_t ink = 30) {
  GreyImage line(width, height);
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      const bool written = is_ink(x + 0.5 - 10, y + 0.5 - base(x + 0.5), width - 20);
      // Paper is never even.
      line.row(y)[x] = static_cast<uint8_t>((written ? ink : paper) + (x * 7 + y * 13) % 11);
    }
  }
  return line;
}

// In which rows an inked column of these begins and ends: the highest and lowest of short letters.
struct Rows {
  double least = 1e9, most = -1e9;
};

Rows tops_of_letters(const GreyImage& line, bool light = false) {
  Rows rows;
  for (int32_t x = 0; x < line.width; ++x) {
    // The bar at the x-height, beside the stem.
    const double s = x + 0.5 - 10, within = s - 20 * std::floor(s / 20);
    if (!is_ink(s, -22, line.width - 20) || within < 13 || within > 17) continue;
    for (int32_t y = 0; y < line.height; ++y) {
      if ((light ? 255 - line.row(y)[x] : line.row(y)[x]) > 120) continue;
      rows.least = std::min<double>(rows.least, y);
      rows.most = std::max<double>(rows.most, y);
      break;
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("the slope of a line is told by its ink", "[shape]") {
  for (const double slope : {-0.08, -0.03, -0.005, 0.0, 0.012, 0.05, 0.1}) {
    const GreyImage line = line_on(700, 110, [&](double x) { return 62 + slope * (x - 350); });
    INFO(slope);
    CHECK(std::abs(slope_of(line, Ink::dark) - slope) < 0.0015);  // a row over the whole line
    const GreyImage light = line_on(
        700, 110, [&](double x) { return 62 + slope * (x - 350); }, 30, 210);
    CHECK(std::abs(slope_of(light, Ink::light) - slope) < 0.0015);
    CHECK(std::abs(slope_of(light, Ink::automatic) - slope) < 0.0015);
  }
  // What is short, or blank, has none.
  CHECK(slope_of(line_on(250, 110, [](double x) { return 40 + 0.1 * x; }), Ink::dark) == 0);
  for (const int32_t width : {329, 330}) {
    const GreyImage line = line_on(width, 110, [](double x) { return 50 + 0.05 * x; });
    CHECK((std::abs(slope_of(line, Ink::dark) - 0.05) < 0.005) == (width == 330));
  }
  CHECK(slope_of(GreyImage(700, 110), Ink::dark) == 0);
}

TEST_CASE("a slanting line is made level, as high as its letters", "[shape]") {
  // It lies from corner to corner: 52 rows of letters, 42 of slant.
  const auto slanting = [](double x) { return 39 + 0.06 * x; };
  const GreyImage line = line_on(700, 95, slanting);
  const Rows before = tops_of_letters(line);
  CHECK(before.most - before.least > 35);
  const GreyImage level = deskewed(line, Ink::dark);
  const Rows after = tops_of_letters(level);
  CHECK(after.most - after.least <= 2);
  CHECK(level.width == line.width);
  CHECK(level.height >= 50);
  CHECK(level.height <= 58);
  // What is level stays as it is, margins and all.
  const GreyImage straight = line_on(700, 110, [](double) { return 62; });
  CHECK(deskewed(straight, Ink::dark).pixels == straight.pixels);
  CHECK(deskewed(GreyImage(300, 20), Ink::dark).height == 20);
}

TEST_CASE("centred lines have their letters at one place and size", "[shape]") {
  const auto wave = [](double x) { return 75 + 12 * std::sin(x / 150); };
  const GreyImage line = centred(line_on(900, 130, wave), Ink::dark);
  // Letters that go up or down move the middle of level lines as well. Of the 24 rows of the wave,
  // what follows it with a Gaussian of 44 columns leaves 1, and at the ends,
  // where it sees one side alone, 3 each.
  const auto spread = [](const GreyImage& of, bool is_light = false) {
    const Rows rows = tops_of_letters(of, is_light);
    return rows.most - rows.least;
  };
  const double level = spread(centred(line_on(900, 130, [](double) { return 75; }), Ink::dark));
  CHECK(level <= 6);
  CHECK(spread(line) <= level + 5);
  CHECK(line.width == 900);
  // Margins, and where in them the line lies, make no difference.
  for (const double base : {45.0, 90.0, 150.0}) {
    INFO(base);
    const GreyImage narrow = centred(line_on(900, 64, [](double) { return 44; }), Ink::dark);
    const GreyImage wide = centred(line_on(900, 170, [&](double) { return base; }), Ink::dark);
    CHECK(std::abs(narrow.height - wide.height) <= 4);
    CHECK(std::abs(tops_of_letters(narrow).least - tops_of_letters(wide).least) <= 3);
    // All of it is there: from the highest to the lowest of the letters.
    CHECK(narrow.height >= 50);
    CHECK(tops_of_letters(narrow).least - 14 >= 0);
  }
  // Light ink, and blank paper.
  const GreyImage light = centred(line_on(900, 130, wave, 30, 210), Ink::light);
  CHECK(std::abs(light.height - line.height) <= 2);
  CHECK(spread(light, true) <= level + 5);
  CHECK(light.row(0)[0] < 60);
  CHECK(centred(GreyImage(300, 20), Ink::dark).height == 20);
}

TEST_CASE("what a configuration asks for is done along the line", "[shape]") {
  const GreyImage line = line_on(700, 95, [](double x) { return 39 + 0.06 * x; });
  const auto same = [](const GreyImage& a, const GreyImage& b) {
    return a.width == b.width && a.height == b.height && a.pixels == b.pixels;
  };
  LineConfig c;
  CHECK(same(shaped(c, line), line));
  c.deskew = true;
  const GreyImage level = deskewed(line, Ink::dark);
  CHECK(same(shaped(c, line), level));
  c.centre = true;
  const GreyImage both = centred(level, Ink::dark);
  CHECK(same(shaped(c, line), both));
  // The same of a line that is written downwards, and stands on the page as it is written.
  GreyImage standing = line;
  for (int i = 0; i < 3; ++i) standing = turned(standing, LineDirection::downwards);
  c.direction = LineDirection::downwards;
  CHECK(same(turned(shaped(c, standing), LineDirection::downwards), both));
  CHECK(shaped(c, standing).height == standing.height);
  c.direction = LineDirection::leftwards;
  const GreyImage mirrored = turned(line, LineDirection::leftwards);
  CHECK(same(turned(shaped(c, mirrored), LineDirection::leftwards), both));
}
