// Lines cut out of the images of their pages.
#include "engine/data/image/image_region.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "engine/data/image/image.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

GreyImage page_of(int32_t width, int32_t height, uint8_t grey) {
  GreyImage g(width, height);
  std::fill(g.pixels.begin(), g.pixels.end(), grey);
  return g;
}

// Every pixel has a grey of its own, up to 256 of them.
GreyImage numbered(int32_t width, int32_t height) {
  GreyImage g(width, height);
  for (size_t i = 0; i < g.pixels.size(); ++i) g.pixels[i] = static_cast<uint8_t>(i);
  return g;
}

// Says how often it was asked, and counts what is wanted of it.
class CountingReader final : public ImageReader {
 public:
  ImageInfo info(const FilePart&) const override { return {100, 50}; }
  GreyImage read(const FilePart&) const override {
    ++reads;
    return page_of(100, 50, 200);
  }
  mutable std::atomic<int> reads = 0;
};

}  // namespace

TEST_CASE("a box is cut out as it is, as far as it is on the page", "[region]") {
  const GreyImage page = numbered(12, 10);
  const GreyImage part = cut_out(page, ImageRegion::of_box({3, 2, 4, 3}), "p");
  REQUIRE((part.width == 4 && part.height == 3));
  for (int32_t y = 0; y < 3; ++y)
    for (int32_t x = 0; x < 4; ++x) CHECK(part.row(y)[x] == page.row(y + 2)[x + 3]);
  const GreyImage corner = cut_out(page, ImageRegion::of_box({-5, 8, 8, 100}), "p");
  REQUIRE((corner.width == 3 && corner.height == 2));
  CHECK(corner.row(1)[2] == page.row(9)[2]);
  const GreyImage all = cut_out(page, {}, "p");
  CHECK(all.pixels == page.pixels);
  for (const ImageBox& outside :
       {ImageBox{12, 0, 5, 5}, {0, 10, 5, 5}, {-5, 0, 5, 5}, {0, -5, 5, 5}})
    CHECK_THROWS_WITH(cut_out(page, ImageRegion::of_box(outside), "p.png"),
                      Contains("p.png: is 12 x 10 pixels, and the region from x ") &&
                          Contains("has none of them"));
}

TEST_CASE("around a polygon there is the paper of the line, not its neighbours", "[region]") {
  // Paper that is 200 on the left and 100 on the right, ink of 0 all over, and between the lines.
  GreyImage page(300, 40);
  for (int32_t y = 0; y < 40; ++y)
    for (int32_t x = 0; x < 300; ++x)
      page.row(y)[x] = y < 10 || x % 10 < 2 ? 0 : x < 150 ? 200 : 100;
  // A notch in the middle of the lower side: what is in it does not belong.
  const ImageRegion region{
      {{10, 12}, {290, 12}, {290, 30}, {250, 30}, {250, 20}, {50, 20}, {50, 30}, {10, 30}}};
  const GreyImage part = cut_out(page, region, "p");
  REQUIRE((part.width == 280 && part.height == 18));
  for (int32_t y = 0; y < 18; ++y) {
    for (int32_t x = 0; x < 280; ++x) {
      const bool inside = y < 8 || x < 40 || x >= 240;
      const uint8_t paper = x + 10 < 150 ? 200 : 100;
      INFO(x << ", " << y);
      if (inside) CHECK(part.row(y)[x] == page.row(y + 12)[x + 10]);
      if (!inside && std::abs(x + 10 - 150) > 18) CHECK(part.row(y)[x] == paper);
    }
  }
}

TEST_CASE("a pixel belongs to a polygon if its middle is inside", "[region]") {
  GreyImage page(100, 100);
  for (int32_t y = 0; y < 100; ++y)
    for (int32_t x = 0; x < 100; ++x) page.row(y)[x] = static_cast<uint8_t>((x * 7 + y * 13) % 256);
  const ImageRegion rhomb{{{50, 10}, {90, 50}, {50, 90}, {10, 50}}};
  const GreyImage part = cut_out(page, rhomb, "p");
  REQUIRE((part.width == 80 && part.height == 80));
  int differ = 0;
  for (int32_t y = 0; y < 80; ++y) {
    for (int32_t x = 0; x < 80; ++x) {
      const bool same = part.row(y)[x] == page.row(y + 10)[x + 10];
      if (std::abs(x + 0.5 - 40) + std::abs(y + 0.5 - 40) < 40) {
        CHECK(same);
      } else {
        differ += !same;  // the paper may be of the same grey
      }
    }
  }
  CHECK(differ > 0.95 * 80 * 80 / 2);
}

TEST_CASE("a slanting line is made level", "[region]") {
  // A stroke of 4 pixels that falls by one pixel in ten.
  GreyImage page = page_of(400, 100, 220);
  for (int32_t x = 0; x < 400; ++x)
    for (int32_t y = 0; y < 4; ++y) page.row(30 + x / 10 + y)[x] = 10;
  const ImageRegion region{{{0, 20}, {400, 60}, {400, 80}, {0, 40}}};
  const GreyImage line = cut_out(page, region, "p");
  CHECK(line.width == 400);
  CHECK(line.height <= 22);
  int32_t highest = 100, lowest = 0;
  for (int32_t x = 0; x < line.width; ++x) {
    int32_t inked = 0;
    for (int32_t y = 0; y < line.height; ++y) {
      if (line.row(y)[x] != 10) continue;
      ++inked;
      highest = std::min(highest, y);
      lowest = std::max(lowest, y);
    }
    CHECK(inked == 4);
  }
  CHECK(lowest - highest <= 5);
  // The reader announces what will come.
  const CountingReader reader;
  const ImageRegion other{{{0, 5}, {100, 15}, {100, 35}, {0, 25}}};
  const ImageInfo info = region_info(reader, "p", other);
  const GreyImage read = read_region(reader, "p", other);
  CHECK((info.width == read.width && info.height == read.height));
  // What is as high as it is wide is no line that slants.
  const ImageRegion rhomb{{{50, 10}, {90, 50}, {50, 90}, {10, 50}}};
  CHECK(cut_out(page, rhomb, "p").height == 80);
}

TEST_CASE("far from any pixel of the polygon the paper is the last that was seen", "[region]") {
  GreyImage page = page_of(200, 10, 0);
  for (int32_t y = 0; y < 10; ++y)
    for (int32_t x = 0; x < 200; ++x) page.row(y)[x] = x < 20 ? 100 : x >= 180 ? 200 : 0;
  // Two boxes with a neck between them that has no thickness.
  const ImageRegion region{
      {{0, 0}, {200, 0}, {200, 10}, {180, 10}, {180, 0}, {20, 0}, {20, 10}, {0, 10}}};
  const GreyImage part = cut_out(page, region, "p");
  REQUIRE(part.width == 200);
  for (const int32_t x : {5, 25, 60, 169}) CHECK(part.row(4)[x] == 100);
  for (const int32_t x : {170, 178, 195}) CHECK(part.row(4)[x] == 200);
}

TEST_CASE("the box around a word is that of its columns", "[region]") {
  const ImageInfo image{100, 60};
  const auto box = [&](const ImageRegion& region, double left, double right) {
    const ImageBox b = LinePlaces(region, image, "p").between(left, right);
    return std::vector<int32_t>{b.left, b.top, b.width, b.height};
  };
  using Box = std::vector<int32_t>;
  CHECK(box({}, 10.4, 20.6) == Box{10, 0, 11, 60});
  CHECK(box({}, -5, 200) == Box{0, 0, 100, 60});
  CHECK(box({}, 300, 400) == Box{99, 0, 1, 60});
  CHECK(box({}, 50, 50) == Box{50, 0, 1, 60});
  // A stripe of ten rows that falls by a row in five columns, and leaves the image.
  const ImageRegion stripe{{{0, 40}, {100, 60}, {100, 70}, {0, 50}}};
  CHECK(box(stripe, 0, 5) == Box{0, 40, 5, 11});
  CHECK(box(stripe, 50, 60) == Box{50, 50, 10, 10});
  CHECK(box(stripe, 95, 100) == Box{95, 59, 5, 1});
  CHECK_THROWS_AS(LinePlaces(ImageRegion::of_box({200, 0, 5, 5}), image, "p"), InputError);
}

TEST_CASE("polygons that hold no pixel are refused", "[region]") {
  const GreyImage page = numbered(12, 10);
  const ImageRegion flat{{{1, 4}, {9, 4}, {5, 4}}}, thin{{{2, 2}, {8, 8}, {2, 2}}};
  CHECK_THROWS_WITH(cut_out(page, flat, "p.png"), Contains("p.png: is 12 x 10 pixels"));
  CHECK_THROWS_WITH(cut_out(page, thin, "p.png"),
                    Contains("p.png: no pixel lies within the region's 3 corners"));
}

TEST_CASE("a page is decoded once for all its lines", "[region]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("page.png"), second = folder.path("second.png");
  std::ofstream(path, std::ios::binary) << make_png(numbered(64, 32));
  std::ofstream(second, std::ios::binary) << make_png(numbered(32, 64));
  const ImageFileReader reader;
  const auto kept = reader.read_page(path);
  CHECK(reader.read_page(path) == kept);
  std::vector<std::shared_ptr<const GreyImage>> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i)
    threads.emplace_back([&, i] { seen[i] = reader.read_page(second); });
  for (std::thread& t : threads) t.join();
  for (const auto& s : seen) CHECK(s == seen[0]);
  CHECK(reader.read_page(path) == kept);
  // Room for one page of 2048 pixels: the other pushes it out.
  const ImageFileReader narrow(3000);
  const auto first = narrow.read_page(path);
  CHECK(narrow.read_page(path) == first);
  const auto other = narrow.read_page(second);
  CHECK(narrow.read_page(second) == other);
  CHECK(narrow.read_page(path) != first);
  // Room for two: the one that was asked for longest ago goes, and that one alone.
  const std::string third = folder.path("third.png");
  std::ofstream(third, std::ios::binary) << make_png(numbered(16, 128));
  const ImageFileReader for_two(5000);
  const auto a = for_two.read_page(path), b = for_two.read_page(second);
  CHECK(for_two.read_page(path) == a);
  const auto c = for_two.read_page(third);
  CHECK(for_two.read_page(path) == a);
  CHECK(for_two.read_page(third) == c);
  CHECK(for_two.read_page(second) != b);
  CHECK(for_two.read_page(third) == c);
  // What cannot be read is not kept, and is read once it can.
  const std::string late = folder.path("late.png");
  CHECK_THROWS_AS(reader.read_page(late), InputError);
  std::ofstream(late, std::ios::binary) << make_png(numbered(64, 32));
  CHECK(reader.read_page(late)->width == 64);
}
