// Variations of lines in training.
#include "engine/data/line_distortion.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

// An upright stroke of 4 columns in the middle, 20 rows high.
Matrix stroke(int64_t columns = 101, int32_t height = 40) {
  Matrix m(columns, height);
  for (int64_t x = columns / 2 - 2; x < columns / 2 + 2; ++x)
    for (int32_t y = 10; y < 30; ++y) m.row(x)[y] = 1;
  return m;
}

double ink_of(const Matrix& m) { return std::accumulate(m.data.begin(), m.data.end(), 0.0); }

DistortConfig always() {
  DistortConfig c;
  c.probability = 1;
  return c;
}

struct Kind {
  std::string name;
  std::function<void(DistortConfig&)> on;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"slant", [](auto& c) { c.slant = 20; }},
      {"rotation", [](auto& c) { c.rotation = 5; }},
      {"size", [](auto& c) { c.size = 0.3; }},
      {"offset", [](auto& c) { c.offset = 4; }},
      {"elastic", [](auto& c) { c.elastic = 3; }},
      {"thickness", [](auto& c) { c.thickness = 1; }},
      {"blur", [](auto& c) { c.blur = 1.5; }},
      {"fade", [](auto& c) { c.fade = 0.5; }},
      {"noise", [](auto& c) { c.noise = 0.2; }},
      {"cutouts", [](auto& c) { c.cutouts = 30; }},
      {"background", [](auto& c) { c.background = 0.4; }},
      {"show_through", [](auto& c) { c.show_through = 0.4; }},
  };
  return all;
}

Matrix distorted(const DistortConfig& c, uint64_t epoch, Matrix line = stroke()) {
  distort_line(c, {7, epoch, 99}, line);
  return line;
}

// Where a column's ink is, and a row's.
double middle_of_row(const Matrix& m, int32_t y) {
  double sum = 0, weighted = 0;
  for (int64_t x = 0; x < m.frames; ++x) {
    sum += m.row(x)[y];
    weighted += static_cast<double>(x) * m.row(x)[y];
  }
  return weighted / sum;
}

}  // namespace

TEST_CASE("each kind of distortion is pure, changes the line, and stays within bounds",
          "[distort]") {
  CHECK(distorted({}, 0) == stroke());
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    DistortConfig c = always();
    kind.on(c);
    CHECK(distorted(c, 0) != stroke());
    CHECK(distorted(c, 0) == distorted(c, 0));
    CHECK(distorted(c, 0) != distorted(c, 1));
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      const Matrix m = distorted(c, epoch);
      REQUIRE(m.frames == 101);
      REQUIRE(m.dim == 40);
      for (float v : m.data) REQUIRE((v >= 0 && v <= 1));
    }
    c.probability = 0;
    CHECK(distorted(c, 0) == stroke());
    // Tiny lines have no room; that must not matter.
    c.probability = 1;
    CHECK(distorted(c, 3, Matrix(1, 4)).frames == 1);
  }
}

TEST_CASE("a slant leans strokes by at most its degrees, to both sides", "[distort]") {
  DistortConfig c = always();
  c.slant = 20;
  double least = 1e9, greatest = -1e9;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Matrix m = distorted(c, epoch);
    const double lean = (middle_of_row(m, 25) - middle_of_row(m, 15)) / 10;
    least = std::min(least, lean);
    greatest = std::max(greatest, lean);
  }
  const double most = std::tan(20 * 3.14159265 / 180);
  CHECK(greatest <= most + 0.01);
  CHECK(greatest > 0.9 * most);
  CHECK(least >= -most - 0.01);
  CHECK(least < -0.9 * most);
}

// The first and the last row with ink in the middle column, between pixels.
std::pair<double, double> ends_of_stroke(const Matrix& m) {
  double ink = 0, weighted = 0;
  for (int32_t y = 0; y < m.dim; ++y) {
    ink += m.row(50)[y];
    weighted += y * m.row(50)[y];
  }
  const double middle = weighted / ink;
  return {middle - ink / 2, middle + ink / 2};
}

TEST_CASE("lines become higher and lower about their middle by at most their share", "[distort]") {
  DistortConfig c = always();
  c.size = 0.2;
  double least = 1e9, greatest = 0;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const auto [top, bottom] = ends_of_stroke(distorted(c, epoch));
    CHECK(std::abs((top + bottom) / 2 - 19.5) < 0.1);
    least = std::min(least, bottom - top);
    greatest = std::max(greatest, bottom - top);
  }
  // The stroke is 20 rows high.
  CHECK(greatest <= 24.1);
  CHECK(greatest > 23.5);
  CHECK(least >= 15.9);
  CHECK(least < 16.5);
}

TEST_CASE("lines move up and down as a whole by at most their pixels", "[distort]") {
  DistortConfig c = always();
  c.offset = 3;
  double highest = 1e9, lowest = 0;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const auto [top, bottom] = ends_of_stroke(distorted(c, epoch));
    CHECK(std::abs(bottom - top - 20) < 0.01);
    highest = std::min(highest, top);
    lowest = std::max(lowest, top);
  }
  const double usual = ends_of_stroke(stroke()).first;
  CHECK(highest >= usual - 3.01);
  CHECK(highest < usual - 2.8);
  CHECK(lowest <= usual + 3.01);
  CHECK(lowest > usual + 2.8);
}

// A stroke of four rows in the middle, from end to end.
Matrix level_stroke() {
  Matrix m(101, 40);
  for (int64_t x = 0; x < 101; ++x)
    for (int32_t y = 18; y < 22; ++y) m.row(x)[y] = 1;
  return m;
}

double middle_of_column(const Matrix& m, int64_t x) {
  double ink = 0, weighted = 0;
  for (int32_t y = 0; y < m.dim; ++y) ink += m.row(x)[y], weighted += y * m.row(x)[y];
  return weighted / ink;
}

TEST_CASE("a rotation turns a line about its middle by at most its degrees, both ways",
          "[distort]") {
  DistortConfig c = always();
  c.rotation = 8;
  double least = 1e9, greatest = -1e9;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Matrix m = distorted(c, epoch, level_stroke());
    CHECK(std::abs(middle_of_column(m, 50) - 19.5) < 0.01);
    const double rise = (middle_of_column(m, 80) - middle_of_column(m, 20)) / 60;
    least = std::min(least, rise), greatest = std::max(greatest, rise);
  }
  const double most = std::tan(8 * 3.14159265 / 180);
  CHECK((greatest <= most + 0.01 && greatest > 0.95 * most));
  CHECK((least >= -most - 0.01 && least < -0.95 * most));
}

TEST_CASE("a line bends by at most its pixels, along it and across it", "[slow][distort]") {
  DistortConfig c = always();
  c.elastic = 3;
  double across = 0, along = 0;
  for (uint64_t epoch = 0; epoch < 300; ++epoch) {
    for (const int32_t y : {15, 20, 25}) {
      const double shift = middle_of_row(distorted(c, epoch), y) - 49.5;
      CHECK(std::abs(shift) <= 3.1);
      along = std::max(along, std::abs(shift));
    }
    for (const int64_t x : {20, 50, 80}) {
      const double shift = middle_of_column(distorted(c, epoch, level_stroke()), x) - 19.5;
      CHECK(std::abs(shift) <= 3.1);
      across = std::max(across, std::abs(shift));
    }
  }
  CHECK(along > 1.5);
  CHECK(across > 1.5);
}

TEST_CASE("cutouts are of any size up to theirs, anywhere, a fourth of them ink", "[distort]") {
  DistortConfig c = always();
  c.cutouts = 1;
  c.cutout_size = 6;
  std::vector<int> widths(8), heights(8);
  int64_t left = 99, right = 0, top = 99, bottom = 0;
  int ink = 0;
  constexpr int epochs = 1000;
  for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
    Matrix grey(30, 20);
    std::fill(grey.data.begin(), grey.data.end(), 0.5f);
    const Matrix m = distorted(c, epoch, grey);
    int64_t x0 = 99, x1 = 0, y0 = 99, y1 = 0, n = 0;
    for (int64_t x = 0; x < 30; ++x) {
      for (int64_t y = 0; y < 20; ++y) {
        const float v = m.row(x)[y];
        if (v == 0.5f) continue;
        REQUIRE((v == 0 || v == 1));
        x0 = std::min(x0, x), x1 = std::max(x1, x + 1);
        y0 = std::min(y0, y), y1 = std::max(y1, y + 1);
        ++n;
      }
    }
    REQUIRE(n == (x1 - x0) * (y1 - y0));
    ++widths.at(static_cast<size_t>(x1 - x0)), ++heights.at(static_cast<size_t>(y1 - y0));
    ink += m.row(x0)[y0] == 1;
    left = std::min(left, x0), right = std::max(right, x1);
    top = std::min(top, y0), bottom = std::max(bottom, y1);
  }
  for (size_t side = 1; side <= 6; ++side) CHECK((widths[side] > 90 && heights[side] > 90));
  CHECK(widths[7] + heights[7] == 0);
  CHECK((left == 0 && right == 30 && top == 0 && bottom == 20));
  CHECK(std::abs(ink - epochs / 4) <= 70);  // five standard deviations
}

TEST_CASE("noise, blur and fading reach what they may, and no more", "[distort]") {
  Matrix grey(100, 40);
  std::fill(grey.data.begin(), grey.data.end(), 0.5f);
  DistortConfig noisy = always(), blurred = always(), faded = always();
  noisy.noise = 0.1;
  blurred.blur = 2;
  faded.fade = 0.5;
  // The variance of a stroke's columns grows by that of the blur.
  const auto variance = [](const Matrix& m) {
    double ink = 0, sum = 0;
    for (int64_t x = 0; x < m.frames; ++x)
      ink += m.row(x)[20],
          sum += (static_cast<double>(x) - 49.5) * (static_cast<double>(x) - 49.5) * m.row(x)[20];
    return sum / ink;
  };
  double noise = 0, blur = 0, least_ink = 1, most_paper = 0;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    double squares = 0;
    for (const float v : distorted(noisy, epoch, grey).data) squares += (v - 0.5) * (v - 0.5);
    noise = std::max(noise, std::sqrt(squares / 4000));
    blur =
        std::max(blur, std::sqrt(variance(distorted(blurred, epoch)) - variance(stroke()) + 1e-6));
    const Matrix m = distorted(faded, epoch);
    least_ink = std::min<double>(least_ink, m.row(50)[20]);
    most_paper = std::max<double>(most_paper, m.row(0)[0]);
  }
  CHECK((noise > 0.094 && noise < 0.106));
  CHECK((blur > 1.85 && blur < 2.05));
  CHECK((least_ink >= 0.5 && least_ink < 0.52));
  CHECK((most_paper <= 0.5 && most_paper > 0.48));
}

TEST_CASE("strokes become wider and narrower by their share", "[distort]") {
  DistortConfig c = always();
  c.thickness = 1;
  double least = 1e9, greatest = 0;
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Matrix m = distorted(c, epoch);
    double width = 0;
    for (int64_t x = 0; x < m.frames; ++x) width += m.row(x)[20];
    least = std::min(least, width);
    greatest = std::max(greatest, width);
  }
  // 4 columns, one more or less on each side.
  CHECK(greatest <= 6);
  CHECK(greatest > 5.9);
  CHECK(least >= 2);
  CHECK(least < 2.1);
}

TEST_CASE("blur sees the outermost pixels again beyond the edges", "[distort]") {
  // All of one edge, and all on one side of the middle, which no edge is near: the blur of an epoch
  // makes the same slope of both.
  const int32_t size = 40, middle = 20;
  const auto inked = [](const auto& is_ink) {
    Matrix m(size, size);
    for (int32_t x = 0; x < size; ++x)
      for (int32_t y = 0; y < size; ++y) m.row(x)[y] = is_ink(x, y) ? 1.0f : 0.0f;
    return m;
  };
  DistortConfig c = always();
  c.blur = 2;
  float widest = 0;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const auto blurred = [&](const auto& is_ink) { return distorted(c, epoch, inked(is_ink)); };
    const Matrix step = blurred([](int32_t x, int32_t) { return x >= middle; });
    const Matrix left = blurred([](int32_t x, int32_t) { return x == 0; });
    const Matrix right = blurred([](int32_t x, int32_t) { return x == size - 1; });
    const Matrix top = blurred([](int32_t, int32_t y) { return y == 0; });
    const Matrix bottom = blurred([](int32_t, int32_t y) { return y == size - 1; });
    const Matrix corner = blurred([](int32_t x, int32_t y) { return x + y == 2 * size - 2; });
    for (int32_t i = 0; i < middle; ++i) {
      INFO("epoch " << epoch << ", " << i << " pixels from the edge");
      const float slope = step.row(middle - i)[middle];
      for (int32_t across = 0; across < size; ++across) {
        REQUIRE(std::abs(left.row(i)[across] - slope) < 1e-5f);
        REQUIRE(std::abs(right.row(size - 1 - i)[across] - slope) < 1e-5f);
        REQUIRE(std::abs(top.row(across)[i] - slope) < 1e-5f);
        REQUIRE(std::abs(bottom.row(across)[size - 1 - i] - slope) < 1e-5f);
      }
      const float beside = step.row(middle)[0];
      REQUIRE(std::abs(corner.row(size - 1)[size - 1 - i] - beside * slope) < 1e-5f);
      REQUIRE(std::abs(corner.row(size - 1 - i)[size - 1] - beside * slope) < 1e-5f);
    }
    widest = std::max(widest, step.row(middle - 5)[middle]);
  }
  CHECK(widest > 1e-3f);
}

TEST_CASE("blur keeps the ink, fading takes of it", "[distort]") {
  DistortConfig c = always();
  c.blur = 1.5;
  for (uint64_t epoch = 0; epoch < 5; ++epoch)
    CHECK(std::abs(ink_of(distorted(c, epoch)) - ink_of(stroke())) < 0.01);
  c = always();
  c.fade = 0.5;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Matrix m = distorted(c, epoch);
    CHECK(m.row(50)[20] >= 0.5f);
    CHECK(m.row(0)[0] <= 0.5f);
  }
}

TEST_CASE("a background darkens the paper unevenly, as far as it may, and leaves the ink",
          "[distort]") {
  DistortConfig c = always();
  c.background = 0.4;
  float darkest = 0;
  for (uint64_t epoch = 0; epoch < 50; ++epoch) {
    const Matrix m = distorted(c, epoch);
    CHECK(m.row(50)[20] == 1.0f);
    Matrix paper(101, 40);
    distort_line(c, {7, epoch, 99}, paper);
    const auto [lightest, most] = std::ranges::minmax(paper.data);
    CHECK(lightest == 0);
    CHECK(most <= 0.4f);
    darkest = std::max(darkest, most);
    // Neighbours are alike, and the two ends of a line need not be.
    double step = 0, apart = 0;
    for (int64_t x = 1; x < 101; ++x) {
      step += std::abs(paper.row(x)[20] - paper.row(x - 1)[20]) / 100;
      apart += std::abs(paper.row(x)[20] - paper.row((x + 50) % 101)[20]) / 100;
    }
    CHECK(step < 0.6 * apart);
  }
  CHECK(darkest > 0.38f);
}

TEST_CASE("what shows through is the line in a mirror, fainter, and not where there is ink",
          "[distort]") {
  // A wedge that begins high on the left, and ends in a point.
  Matrix wedge(161, 40);
  for (int64_t x = 0; x < 40; ++x)
    for (int32_t y = static_cast<int32_t>(x) / 2; y < 20; ++y) wedge.row(x)[y] = 1;
  DistortConfig c = always();
  c.show_through = 0.5;
  int seen_whole = 0;
  float strongest = 0;
  for (uint64_t epoch = 0; epoch < 100; ++epoch) {
    const Matrix m = distorted(c, epoch, wedge);
    std::vector<double> ink(161);
    for (int64_t x = 0; x < 161; ++x) {
      for (int32_t y = 0; y < 40; ++y) {
        const bool covered = wedge.row(x)[y] == 1;
        if (covered) CHECK(m.row(x)[y] == 1.0f);
        if (!covered) strongest = std::max(strongest, m.row(x)[y]);
        ink[static_cast<size_t>(x)] += m.row(x)[y];
      }
    }
    if (ink[44] > 0 || ink[160] > 0) continue;
    double steepest_rise = 0, steepest_fall = 0;
    for (size_t x = 45; x < 161; ++x) {
      steepest_rise = std::max(steepest_rise, ink[x] - ink[x - 1]);
      steepest_fall = std::max(steepest_fall, ink[x - 1] - ink[x]);
    }
    // Of a wedge that is beyond the upper edge but for its last rows no shape is left.
    if (steepest_fall < 0.2) continue;
    ++seen_whole;
    CHECK(steepest_fall > 1.5 * steepest_rise);
  }
  CHECK(seen_whole > 20);
  CHECK(strongest <= 0.5f);
  CHECK(strongest > 0.45f);
}

TEST_CASE("one kind does not change what another draws", "[distort]") {
  DistortConfig faded = always(), both = always();
  faded.fade = both.fade = 0.5;
  both.thickness = 1;
  // Away from the stroke only the fading shows.
  for (uint64_t epoch = 0; epoch < 10; ++epoch)
    CHECK(distorted(faded, epoch).row(0)[0] == distorted(both, epoch).row(0)[0]);
}

TEST_CASE("stretch is drawn within its share, by chance, the same every time", "[distort]") {
  DistortConfig c;
  CHECK(line_stretch(c, {1, 2, 3}) == 1000);
  c.stretch = 0.2;
  c.probability = 0.5;
  int unchanged = 0;
  int32_t least = 1000, greatest = 1000;
  for (uint64_t epoch = 0; epoch < 1000; ++epoch) {
    const int32_t s = line_stretch(c, {1, epoch, 3});
    CHECK(s == line_stretch(c, {1, epoch, 3}));
    unchanged += s == 1000;
    least = std::min(least, s);
    greatest = std::max(greatest, s);
  }
  CHECK(unchanged > 400);
  CHECK(unchanged < 600);
  CHECK(least >= least_line_stretch(c));
  CHECK(greatest <= greatest_line_stretch(c));
  CHECK(least_line_stretch(c) == 800);
  CHECK(greatest_line_stretch(c) == 1200);
  CHECK(least < 810);
  CHECK(greatest > 1190);
}

TEST_CASE("strength multiplies every kind, and 1 changes none", "[distort]") {
  const std::vector<double DistortConfig::*> parts = {
      &DistortConfig::stretch,    &DistortConfig::slant,      &DistortConfig::rotation,
      &DistortConfig::size,       &DistortConfig::offset,     &DistortConfig::elastic,
      &DistortConfig::thickness,  &DistortConfig::blur,       &DistortConfig::fade,
      &DistortConfig::noise,      &DistortConfig::background, &DistortConfig::show_through,
      &DistortConfig::cutout_size};
  const auto result = [](const DistortConfig& c, uint64_t epoch) {
    return std::pair(line_stretch(c, {1, epoch, 3}), distorted(c, epoch));
  };
  for (const auto part : parts) {
    CAPTURE(&part - parts.data());
    DistortConfig whole = always(), halved = always(), none = always();
    whole.cutouts = halved.cutouts = none.cutouts = part == &DistortConfig::cutout_size ? 3 : 0;
    whole.cutout_size = 8;
    whole.*part = part == &DistortConfig::cutout_size ? 8 : 0.25;
    halved.*part = 2 * whole.*part;
    halved.strength = 0.5;
    none.*part = whole.*part;
    none.strength = 0;
    for (uint64_t epoch = 0; epoch < 5; ++epoch) {
      CHECK(result(halved, epoch) == result(whole, epoch));
      CHECK(result(none, epoch) == result(always(), epoch));
    }
  }
}

TEST_CASE("settings out of range are named", "[distort]") {
  DistortConfig c;
  c.stretch = 0.9;
  CHECK_THROWS_AS(c.validate(), InputError);
  c = {};
  c.noise = std::nanf("");
  CHECK_THROWS_AS(c.validate(), InputError);
  c = {};
  c.stretch = 0.25;
  c.strength = 2;
  CHECK_NOTHROW(c.validate());
  c.strength = 3;
  CHECK_THROWS_WITH(c.validate(), Contains("stretch times strength is 0.75, expected 0 to 0.5"));
  for (const double bad : {-1.0, std::nan("")}) {
    c.strength = bad;
    CHECK_THROWS_WITH(c.validate(), Contains("strength is"));
  }
  // Each up to its limit.
  const std::vector<std::pair<double DistortConfig::*, double>> limits = {
      {&DistortConfig::probability, 1}, {&DistortConfig::stretch, 0.5},
      {&DistortConfig::slant, 60},      {&DistortConfig::rotation, 30},
      {&DistortConfig::size, 0.5},      {&DistortConfig::offset, 100},
      {&DistortConfig::elastic, 100},   {&DistortConfig::thickness, 10},
      {&DistortConfig::blur, 20},       {&DistortConfig::fade, 1},
      {&DistortConfig::background, 1},  {&DistortConfig::show_through, 1},
      {&DistortConfig::noise, 1}};
  for (const auto& [member, most] : limits) {
    c = {};
    for (const double good : {0.0, most}) {
      c.*member = good;
      CHECK_NOTHROW(c.validate());
    }
    for (const double bad : {-0.01, most * 1.01}) {
      c.*member = bad;
      CHECK_THROWS_AS(c.validate(), InputError);
    }
  }
}
