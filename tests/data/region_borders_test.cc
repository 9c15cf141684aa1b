// Regions where pages end and polygons are odd: beyond the image, the other way round, without
// area, along baselines that bend, beside paper of another grey.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/data/image/image_region.h"
#include "engine/data/image/line_cut.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

using Corners = std::vector<ImagePoint>;

// No two pixels near each other are the same, and neither of the greys that paper has is there.
GreyImage numbered(int32_t width, int32_t height) {
  GreyImage g(width, height);
  for (int32_t y = 0; y < height; ++y)
    for (int32_t x = 0; x < width; ++x) g.row(y)[x] = static_cast<uint8_t>((x * 31 + y * 17) % 200);
  return g;
}

void fill(GreyImage& g, ImageBox b, uint8_t grey) {
  for (int32_t y = b.top; y < b.top + b.height; ++y) std::fill_n(g.row(y) + b.left, b.width, grey);
}

bool same(const GreyImage& a, const GreyImage& b) {
  return a.width == b.width && a.height == b.height && a.pixels == b.pixels;
}

std::vector<int32_t> numbers(const ImageBox& b) { return {b.left, b.top, b.width, b.height}; }
using Box = std::vector<int32_t>;

GreyImage part_of(const GreyImage& page, ImageBox b) {
  GreyImage part(b.width, b.height);
  for (int32_t y = 0; y < b.height; ++y)
    std::copy_n(page.row(b.top + y) + b.left, b.width, part.row(y));
  return part;
}

}  // namespace

TEST_CASE("what of a region is on the image, at every border", "[borders]") {
  const ImageInfo image{100, 60};
  const auto on = [&](int32_t left, int32_t top, int32_t width, int32_t height) {
    return numbers(box_on(ImageRegion::of_box({left, top, width, height}), image, "p"));
  };
  CHECK(on(0, 0, 100, 60) == Box{0, 0, 100, 60});
  CHECK(on(-5, 10, 20, 20) == Box{0, 10, 15, 20});
  CHECK(on(90, 10, 20, 20) == Box{90, 10, 10, 20});
  CHECK(on(10, -7, 20, 20) == Box{10, 0, 20, 13});
  CHECK(on(10, 55, 20, 20) == Box{10, 55, 20, 5});
  CHECK(on(-50, -50, 500, 500) == Box{0, 0, 100, 60});
  CHECK(on(99, 59, 1, 1) == Box{99, 59, 1, 1});
  CHECK(on(greatest_corner - 1 - 2 * greatest_corner, 0, greatest_corner + 1 + 4, 5)[2] == 4);
  // A pixel's width away from each side, nothing of it is.
  for (const ImageBox& away : {ImageBox{-10, 0, 10, 10}, ImageBox{100, 0, 10, 10},
                               ImageBox{0, -10, 10, 10}, ImageBox{0, 60, 10, 10}}) {
    const ImageRegion region = ImageRegion::of_box(away);
    CHECK_FALSE(is_on(region, image));
    CHECK_THROWS_WITH(
        box_on(region, image, "p.png"),
        Contains(str("p.png: is 100 x 60 pixels, and the region from x ", away.left, " to ",
                     away.left + 10, ", y ", away.top, " to ", away.top + 10)));
    ImageBox touching = away;
    touching.left += away.left < 0 ? 1 : away.left == 100 ? -1 : 0;
    touching.top += away.top < 0 ? 1 : away.top == 60 ? -1 : 0;
    CHECK(is_on(ImageRegion::of_box(touching), image));
    const ImageBox b = box_on(ImageRegion::of_box(touching), image, "p");
    CHECK(b.width * b.height == 10);
  }
}

TEST_CASE("a polygon is the same whichever way round and from whichever corner", "[borders]") {
  const GreyImage page = numbered(140, 60);
  Corners corners = {{10, 12}, {60, 5}, {120, 12}, {120, 40}, {70, 48}, {10, 40}};
  const ImageRegion first{corners};
  const GreyImage level = cut_out(page, first, "p");
  const Corners baseline = {{10, 38}, {120, 38}};
  const GreyImage along = cut_out(page, {corners, baseline}, "p");
  const LinePlaces places(first, page.info(), "p");
  for (const bool reversed : {false, true}) {
    if (reversed) std::reverse(corners.begin(), corners.end());
    for (size_t turn = 0; turn < corners.size(); ++turn) {
      std::rotate(corners.begin(), corners.begin() + 1, corners.end());
      CHECK(same(cut_out(page, {corners}, "p"), level));
      CHECK(same(cut_out(page, {corners, baseline}, "p"), along));
      const ImageBox word = LinePlaces({corners}, page.info(), "p").between(30, 50);
      CHECK(numbers(word) == numbers(places.between(30, 50)));
    }
  }
  // Closed by its first corner once more, as GeoJSON does it, and with points on its sides.
  Corners closed = first.corners;
  closed.push_back(closed.front());
  closed.insert(closed.begin() + 3, {120, 26});
  CHECK(same(cut_out(page, {closed}, "p"), level));
  CHECK(same(cut_out(page, {closed, baseline}, "p"), along));
  // A box whichever way round has all its pixels.
  const Corners box = {{10, 50}, {110, 50}, {110, 10}, {10, 10}};
  CHECK(same(cut_out(page, {box}, "p"), part_of(page, {10, 10, 100, 40})));
}

TEST_CASE("polygons that leave the page are cut where it ends", "[borders]") {
  const GreyImage page = numbered(120, 60);
  // Not boxes, so that polygons are crossed: each is the box within the page, with a corner more.
  const auto five = [](int32_t left, int32_t top, int32_t right, int32_t bottom) {
    return Corners{
        {left, top}, {(left + right) / 2, top}, {right, top}, {right, bottom}, {left, bottom}};
  };
  for (const auto& [corners, box] :
       {std::pair(five(-30, 10, 90, 40), ImageBox{0, 10, 90, 30}),
        std::pair(five(20, 10, 400, 40), ImageBox{20, 10, 100, 30}),
        std::pair(five(20, -9, 110, 20), ImageBox{20, 0, 90, 20}),
        std::pair(five(20, 35, 110, 100), ImageBox{20, 35, 90, 25}),
        std::pair(five(-30, -30, 400, 400), ImageBox{0, 0, 120, 60})}) {
    INFO(box.left << ", " << box.top);
    const GreyImage wanted = part_of(page, box);
    CHECK(same(cut_out(page, {corners}, "p"), wanted));
    CHECK(numbers(LinePlaces({corners}, page.info(), "p").between(box.left + 5, box.left + 15)) ==
          Box{box.left + 5, box.top, 10, box.height});
    const int32_t y = std::min(box.top + box.height - 4, 56);
    // The baseline ends where the region does, beyond the page, or within it.
    for (const Corners& baseline : {Corners{{corners[0].x, y}, {corners[2].x, y}},
                                    Corners{{box.left, y}, {box.left + box.width, y}},
                                    Corners{{box.left + 20, y}, {box.left + 60, y}}}) {
      const ImageRegion region{corners, baseline};
      if (corners[2].x - corners[0].x > 2 * (box.width + box.height) &&
          baseline[0].x == corners[0].x)
        continue;  // far longer than what is on the page
      CHECK(same(cut_out(page, region, "p"), wanted));
      const LinePlaces places(region, page.info(), "p");
      CHECK((places.first() == 0 && places.end() == box.width));
      CHECK(numbers(places.between(0, 10)) == Box{box.left, box.top, 10, box.height});
      CHECK(numbers(places.between(box.width - 10, box.width)) ==
            Box{box.left + box.width - 10, box.top, 10, box.height});
    }
  }
}

TEST_CASE("the sides of a polygon part pixels by their middles", "[borders]") {
  // A triangle whose side rises by one in three: nothing of it is at half a pixel.
  const GreyImage page = numbered(120, 60);
  const GreyImage part =
      cut_out(page, {{{10, 50}, {100, 20}, {100, 50}}, {{10, 50}, {100, 50}}}, "p");
  REQUIRE((part.width == 90 && part.height == 30));
  for (int32_t x = 0; x < 90; ++x) {
    const double top = 30 - (x + 0.5) / 3;  // of the side, from the upper edge of the box
    for (int32_t y = 0; y < 30; ++y) {
      INFO(x << ", " << y);
      const bool is_page = part.row(y)[x] == page.row(20 + y)[10 + x];
      if (y + 0.5 > top) CHECK(is_page);
      // Just above the side there is paper, which is of the page's grey by chance at most.
      if (y + 0.5 < top && y + 1.5 > top && x % 3 != 1) CHECK(part.row(y)[x] == part.row(0)[x]);
    }
  }
}

TEST_CASE("a line that rises is made level as one that falls", "[borders]") {
  const GreyImage page = numbered(420, 120);
  const auto line_of = [&](int32_t left, int32_t right) {
    return cut_out(page, {{{0, left}, {400, right}, {400, right + 20}, {0, left + 20}}}, "p");
  };
  const GreyImage falls = line_of(20, 60), rises = line_of(60, 20);
  CHECK((falls.width == 400 && rises.width == 400));
  CHECK((falls.height <= 22 && rises.height <= 22));
}

TEST_CASE("what is nearly as high as it is wide is left as it is", "[borders]") {
  const GreyImage page = numbered(200, 120);
  // 60 by 60, and 170 by 60, falling by one in three.
  for (const int32_t right : {70, 180}) {
    const int32_t fall = (right - 10) / 3;
    const Corners corners = {{10, 0}, {right, fall}, {right, fall + 60}, {10, 60}};
    const GreyImage part = cut_out(page, {corners}, "p");
    CHECK(part.width == right - 10);
    CHECK(part.height == fall + 60);
    CHECK(part.row(30)[0] == page.row(30)[10]);
    CHECK(part.row(fall + 30)[right - 11] == page.row(fall + 30)[right - 1]);
  }
  // Exactly three times as wide as high is wide enough; a column less is not.
  CHECK(cut_out(page, {{{0, 0}, {192, 48}, {192, 112}, {0, 64}}}, "p").height <= 66);
  CHECK(cut_out(page, {{{0, 0}, {188, 47}, {188, 111}, {0, 64}}}, "p").height == 111);
}

TEST_CASE("a polygon has an area, or no line", "[borders]") {
  const GreyImage page = numbered(120, 60);
  // A line to and fro, above each other and aslant; three times the same corner.
  for (const Corners& flat :
       {Corners{{10, 20}, {60, 20}, {100, 20}}, Corners{{10, 10}, {50, 50}, {10, 10}},
        Corners{{10, 20}, {10, 20}, {10, 20}}, Corners{{30, 5}, {30, 50}, {30, 20}}}) {
    CHECK_THROWS_AS(cut_out(page, {flat}, "p"), InputError);
    CHECK_THROWS_AS(cut_out(page, {flat, {{10, 20}, {100, 20}}}, "p"), InputError);
  }
  // Two halves that cross in the middle: what is within either belongs to the line.
  const ImageRegion bow{{{10, 10}, {110, 50}, {110, 10}, {10, 50}}};
  const GreyImage part = cut_out(page, bow, "p");
  REQUIRE((part.width == 100 && part.height == 40));
  CHECK(part.row(20)[2] == page.row(30)[12]);
  CHECK(part.row(20)[97] == page.row(30)[107]);
  // Around a hole, which is none of it (even-odd rule): paper, the median of what is.
  GreyImage ring = page;
  fill(ring, {0, 0, 120, 60}, 180);
  fill(ring, {40, 20, 40, 20}, 7);
  const ImageRegion with_hole{{{10, 10},
                               {110, 10},
                               {110, 50},
                               {10, 50},
                               {10, 10},
                               {40, 20},
                               {40, 40},
                               {80, 40},
                               {80, 20},
                               {40, 20}}};
  const GreyImage holed = cut_out(ring, with_hole, "p");
  CHECK(holed.row(20)[50] == 180);
  CHECK(std::count(holed.pixels.begin(), holed.pixels.end(), 7) == 0);
}

TEST_CASE("the paper of a line is the median of what is near", "[borders]") {
  // Paper of three greys along the line, a sixth of it ink, all that is not the line black.
  GreyImage page(600, 60);
  for (int32_t y = 0; y < 60; ++y)
    for (int32_t x = 0; x < 600; ++x)
      page.row(y)[x] = x % 6 == 0 ? 30 : x < 200 ? 210 : x < 400 ? 150 : 90;
  fill(page, {0, 0, 600, 10}, 0);
  fill(page, {0, 40, 600, 20}, 0);
  // The lower side has teeth of 10 pixels, between which the page is black.
  Corners corners = {{0, 10}, {600, 10}};
  for (int32_t x = 600; x > 0; x -= 20) {
    for (const ImagePoint& p : Corners{{x, 40}, {x - 10, 40}, {x - 10, 30}, {x - 20, 30}})
      corners.push_back(p);
  }
  for (const bool has_baseline : {false, true}) {
    ImageRegion region{corners};
    if (has_baseline) region.baseline = {{0, 35}, {600, 35}};
    const GreyImage line = cut_out(page, region, "p");
    REQUIRE((line.width == 600 && line.height == 30));
    for (int32_t x = 0; x < 600; ++x) {
      const bool is_tooth = x % 20 >= 10;
      INFO(x);
      if (is_tooth) CHECK(line.row(25)[x] == page.row(35)[x]);
      // Where another grey begins within a height, it may be either.
      const bool is_clear = std::abs(x - 200) > 30 && std::abs(x - 400) > 30;
      if (!is_tooth && is_clear) CHECK(line.row(25)[x] == (x < 200 ? 210 : x < 400 ? 150 : 90));
      if (!is_tooth) CHECK(line.row(25)[x] >= 90);
    }
    // Up to the middle of the two it is the one, from there on the other.
    CHECK(line.row(25)[189 - 189 % 20] == 210);
    CHECK(line.row(25)[220] == 150);
  }
}

TEST_CASE("of as many light pixels as dark ones the paper is the darker", "[borders]") {
  GreyImage page(20, 4);
  for (int32_t y = 0; y < 4; ++y) fill(page, {0, y, 20, 1}, y % 2 == 0 ? 100 : 200);
  const GreyImage part =
      cut_out(page, {{{0, 0}, {20, 0}, {20, 4}, {12, 4}, {12, 2}, {10, 2}, {10, 4}, {0, 4}}}, "p");
  REQUIRE((part.width == 20 && part.height == 4));
  for (const int32_t x : {10, 11}) CHECK((part.row(2)[x] == 100 && part.row(3)[x] == 100));
  CHECK((part.row(3)[9] == 200 && part.row(3)[12] == 200));
}

TEST_CASE("near are as many columns to either side as the line has rows", "[borders]") {
  // A column of ten rows, then eleven of none, then columns of a row each.
  GreyImage page(40, 10);
  fill(page, {0, 0, 40, 10}, 0);
  fill(page, {0, 0, 1, 10}, 100);
  fill(page, {12, 0, 28, 1}, 200);
  const Corners corners = {{0, 0},  {1, 0},  {12, 0}, {40, 0}, {40, 1},
                           {12, 1}, {12, 0}, {1, 0},  {1, 10}, {0, 10}};
  const GreyImage line = cut_out(page, {corners, {{0, 9}, {40, 9}}}, "p");
  REQUIRE((line.width == 40 && line.height == 10));
  for (int32_t x = 1; x < 40; ++x) {
    INFO(x);
    CHECK(line.row(5)[x] == (x <= 10 ? 100 : 200));
  }
}

TEST_CASE("bounds of words along a baseline that bends", "[borders]") {
  // Level, then down by 45 degrees, then level again; the stripe has 20 above and 10 below.
  const Corners baseline = {{20, 40}, {120, 40}, {220, 140}, {320, 140}};
  const Corners corners = {{20, 20},   {128, 20},  {228, 120}, {320, 120},
                           {320, 150}, {216, 150}, {116, 50},  {20, 50}};
  const ImageInfo image{340, 200};
  const LinePlaces places({corners, baseline}, image, "p");
  const double length = 200 + std::hypot(100, 100);
  CHECK(std::abs(places.end() - length) <= 2);
  CHECK(numbers(places.between(10, 60)) == Box{30, 20, 50, 30});
  const ImageBox last = places.between(places.end() - 60, places.end() - 10);
  CHECK((std::abs(last.left - 260) <= 1 && std::abs(last.left + last.width - 310) <= 1));
  CHECK((last.top == 120 && last.height == 30));
  // In the middle of what slants: 20 along it and the stripe across it, turned by 45 degrees.
  const double middle = length / 2;
  const ImageBox word = places.between(middle - 10, middle + 10);
  const double half = std::sqrt(0.5);
  CHECK(std::abs(word.left - (170 - 10 * half - 10 * half)) <= 3);
  CHECK(std::abs(word.top - (90 - 10 * half - 20 * half)) <= 3);
  CHECK(std::abs(word.left + word.width - (170 + 10 * half + 20 * half)) <= 3);
  CHECK(std::abs(word.top + word.height - (90 + 10 * half + 10 * half)) <= 3);
  // Every word lies within the region, and words side by side meet.
  for (double s = 0; s + 20 < places.end(); s += 20) {
    const ImageBox a = places.between(s, s + 20), b = places.between(s + 20, s + 40);
    CHECK((a.left >= 20 && a.top >= 20 && a.left + a.width <= 320 && a.top + a.height <= 150));
    CHECK(b.left <= a.left + a.width);
    CHECK(b.left >= a.left);
  }
}

TEST_CASE("beyond both ends a line goes on as it was there", "[borders]") {
  // Level, then down by 45 degrees; the region goes on by 40 before it and by 100 behind it.
  const Corners baseline = {{60, 60}, {160, 60}, {230, 130}};
  const Corners corners = {{20, 40}, {168, 40}, {315, 187}, {294, 208}, {156, 70}, {20, 70}};
  const GreyImage page = numbered(340, 230);
  const GreyImage line = cut_out(page, {corners, baseline}, "p");
  CHECK(std::abs(line.width - (40 + 100 + std::hypot(70, 70) + 100)) <= 3);
  // Backwards, as a line that runs up the page.
  const Corners up = {{60, 200}, {60, 120}, {100, 80}};
  const Corners around_up = {{40, 220}, {40, 112}, {110, 42}, {131, 63}, {70, 124}, {70, 220}};
  CHECK(std::abs(cut_out(page, {around_up, up}, "p").width - (20 + 80 + std::hypot(40, 40) + 34)) <=
        4);
}

TEST_CASE("a line that climbs back over itself keeps to its own part", "[borders]") {
  // A hairpin: to the right above, back to the left below. Columns above do not reach what is
  // below.
  GreyImage page(400, 240);
  fill(page, {0, 0, 400, 240}, 200);
  fill(page, {20, 20, 300, 20}, 10);   // ink of the way there
  fill(page, {20, 180, 300, 20}, 90);  // and of the way back
  const Corners baseline = {{20, 40}, {320, 40}, {340, 110}, {320, 180}, {20, 180}};
  const Corners corners = {{20, 15},  {330, 15},  {370, 110}, {330, 205}, {20, 205},
                           {20, 175}, {310, 175}, {325, 110}, {310, 45},  {20, 45}};
  const GreyImage line = cut_out(page, {corners, baseline}, "p");
  const int32_t quarter = line.width / 4;
  bool has_first = false, has_second = false;
  for (int32_t y = 0; y < line.height; ++y) {
    has_first = has_first || line.row(y)[quarter] == 10;
    CHECK(line.row(y)[quarter] != 90);
    has_second = has_second || line.row(y)[3 * quarter] == 90;
    CHECK(line.row(y)[3 * quarter] != 10);
  }
  CHECK((has_first && has_second));
}

TEST_CASE("another part of a bent line is not beyond its end", "[borders]") {
  // Down and back: the way back ends far to the left of where the line begins.
  const Corners baseline = {{200, 40}, {320, 40}, {340, 110}, {320, 180}, {20, 180}};
  const Corners corners = {{200, 20}, {330, 20},  {365, 110}, {330, 200}, {20, 200},
                           {20, 170}, {310, 170}, {325, 110}, {310, 50},  {200, 50}};
  const double length = 120 + 2 * std::hypot(20, 70) + 300;
  const GreyImage line = cut_out(numbered(400, 240), {corners, baseline}, "p");
  CHECK(std::abs(line.width - length) <= 3);
}

TEST_CASE("one point, or the same twice, is no baseline", "[borders]") {
  CHECK_FALSE(has_length({}));
  CHECK_FALSE(has_length({{3, 4}}));
  CHECK_FALSE(has_length({{3, 4}, {3, 4}, {3, 4}}));
  CHECK(has_length({{3, 4}, {3, 4}, {3, 5}}));
  const auto order = [](const Corners& line) { return in_reading_order(line); };
  CHECK(order({}).empty());
  CHECK(order({{9, 1}}) == Corners{{9, 1}});
  CHECK(order({{90, 1}, {50, 5}, {0, 9}}) == Corners{{0, 9}, {50, 5}, {90, 1}});
  CHECK(order({{0, 9}, {90, 1}}) == Corners{{0, 9}, {90, 1}});
  // As much down as to the left, or more: it runs down the page.
  for (const Corners& down :
       {Corners{{90, 0}, {0, 90}}, Corners{{50, 0}, {0, 90}}, Corners{{0, 90}, {0, 0}}})
    CHECK(order(down) == down);
  CHECK(order({{91, 0}, {0, 90}}) == Corners{{0, 90}, {91, 0}});
  // The last piece of a baseline is a slip of the hand: the line goes on as it was before.
  const GreyImage page = numbered(200, 60);
  const Corners box = ImageRegion::of_box({10, 10, 180, 40}).corners;
  const GreyImage line = cut_out(page, {box, {{30, 40}, {150, 40}, {151, 38}}}, "p");
  CHECK(std::abs(line.width - 180) <= 2);
  CHECK(std::abs(line.height - 40) <= 6);
}

TEST_CASE("columns that meet a corner or a side count it once", "[borders]") {
  const ImageRegion rhomb{{{50, 10}, {90, 50}, {50, 90}, {10, 50}}};
  std::vector<double> crossings;
  const auto cross = [&](const ImageRegion& region, double x) {
    image::cross(region, {x, 0, 0, 1}, crossings);
    return crossings;
  };
  using Distances = std::vector<double>;
  CHECK(cross(rhomb, 50) == Distances{10, 90});
  CHECK(cross(rhomb, 30) == Distances{30, 70});
  for (const double x : {9.0, 91.0}) CHECK(cross(rhomb, x).empty());
  for (const double x : {10.0, 90.0}) CHECK(cross(rhomb, x).size() % 2 == 0);
  const ImageRegion box = ImageRegion::of_box({10, 20, 30, 40});
  CHECK((cross(box, 10).size() == 2) != (cross(box, 40).size() == 2));
  CHECK(cross({}, 10).empty());
  // From the lower end upwards, and from within.
  image::cross(box, {20, 100, 0, -1}, crossings);
  CHECK(crossings == Distances{40, 80});
  image::cross(box, {20, 30, 0, 1}, crossings);
  CHECK(crossings == Distances{-10, 30});
  double from = 0, to = 0;
  CHECK(image::clip({20, 30, 0, 1}, {100, 60}, from, to));
  CHECK((from == -30 && to == 30));
  CHECK_FALSE(image::clip({-1, 30, 0, 1}, {100, 60}, from, to));
  CHECK_FALSE(image::clip({101, 30, 0, 1}, {100, 60}, from, to));
  CHECK(image::clip({50, 30, -std::sqrt(0.5), std::sqrt(0.5)}, {100, 60}, from, to));
  CHECK(std::abs(to - 30 * std::sqrt(2)) < 1e-9);
  CHECK(std::abs(from + 30 * std::sqrt(2)) < 1e-9);
}
