// Images of lines: decoding, and frames out of them.
#include "engine/data/image/image.h"

#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine/data/image/decoders.h"
#include "engine/data/image/image_region.h"
#include "engine/data/image/ink_levels.h"
#include "engine/data/image/line_features.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/jpeg_of.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using namespace std::string_literals;

namespace {

// A white page with a black bar, `from` to `to` across, and a grey corner.
GreyImage bar(int32_t width, int32_t height, int32_t from, int32_t to) {
  GreyImage g(width, height);
  std::fill(g.pixels.begin(), g.pixels.end(), uint8_t{255});
  for (int32_t y = 0; y < height; ++y)
    for (int32_t x = from; x < to; ++x) g.row(y)[x] = 0;
  g.row(0)[0] = 128;
  return g;
}

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

std::string jpeg_of(const GreyImage& g, bool progressive = false) {
  return test::jpeg_of(g.width, g.height, 1, progressive,
                       [&](uint32_t y) { return g.row(static_cast<int32_t>(y)); });
}

std::string tiff_of(const GreyImage& g, const std::string& path, uint16_t compression) {
  TIFF* t = TIFFOpen(path.c_str(), "w");
  TIFFSetField(t, TIFFTAG_IMAGEWIDTH, g.width);
  TIFFSetField(t, TIFFTAG_IMAGELENGTH, g.height);
  TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, 8);
  TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, 1);
  TIFFSetField(t, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  TIFFSetField(t, TIFFTAG_COMPRESSION, compression);
  TIFFSetField(t, TIFFTAG_ROWSPERSTRIP, 4);
  for (int32_t y = 0; y < g.height; ++y)
    TIFFWriteScanline(t, const_cast<uint8_t*>(g.row(y)), static_cast<uint32_t>(y), 0);
  TIFFClose(t);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string pgm_of(const GreyImage& g) {
  return str("P5\n# a comment\n", g.width, " ", g.height, "\n255\n") +
         std::string(g.pixels.begin(), g.pixels.end());
}

std::string failure_of(const std::string& bytes) {
  try {
    decode_image(bytes_of(bytes), "x.png");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every format gives the pixels that were written", "[image]") {
  const TemporaryFolder folder;
  const GreyImage g = bar(37, 12, 10, 20);
  for (const std::string& bytes :
       {make_png(g), pgm_of(g), tiff_of(g, folder.path("a.tif"), COMPRESSION_NONE),
        tiff_of(g, folder.path("b.tif"), COMPRESSION_LZW),
        tiff_of(g, folder.path("c.tif"), COMPRESSION_ADOBE_DEFLATE)}) {
    const GreyImage back = decode_image(bytes_of(bytes), "x");
    CHECK(back.width == 37);
    CHECK(back.height == 12);
    CHECK(back.pixels == g.pixels);
    CHECK(image_info(bytes_of(bytes), "x").width == 37);
  }
  for (const bool progressive : {false, true}) {
    const GreyImage back = decode_image(bytes_of(jpeg_of(g, progressive)), "x");
    REQUIRE(back.pixels.size() == g.pixels.size());
    int largest = 0;
    for (size_t i = 0; i < g.pixels.size(); ++i)
      largest = std::max(largest, std::abs(back.pixels[i] - g.pixels[i]));
    CHECK(largest <= 6);
  }
}

TEST_CASE("a JPEG in printers' colours is as grey as its inks", "[image]") {
  // Black ink, no ink, half of the black, cyan alone, 16 pixels each.
  constexpr int patch = 16;
  const std::array<std::array<uint8_t, 4>, 4> inks = {
      {{0, 0, 0, 255}, {0, 0, 0, 0}, {0, 0, 0, 128}, {255, 0, 0, 0}}};
  const std::array<int, 4> greys = {0, 255, 127, 179};
  for (const test::Inks stored : {test::Inks::plain, test::Inks::adobe, test::Inks::ycck}) {
    const bool adobe = stored != test::Inks::plain;
    std::vector<uint8_t> row;
    for (const auto& ink : inks)
      for (int x = 0; x < patch; ++x)
        for (const uint8_t sample : ink)
          row.push_back(adobe ? static_cast<uint8_t>(255 - sample) : sample);
    const std::string bytes = test::jpeg_of(
        4 * patch, patch, 4, false, [&](uint32_t) { return row.data(); }, stored);
    const GreyImage back = decode_image(bytes_of(bytes), "x");
    REQUIRE(back.width == 4 * patch);
    REQUIRE(back.height == patch);
    for (int i = 0; i < 4; ++i) {
      INFO(static_cast<int>(stored) << " " << i);
      CHECK(std::abs(back.row(patch / 2)[i * patch + patch / 2] - greys[static_cast<size_t>(i)]) <=
            2);
    }
  }
}

TEST_CASE("netpbm's six kinds are read", "[image]") {
  const auto pixels = [](const std::string& bytes) {
    return decode_image(bytes_of(bytes), "x").pixels;
  };
  using Pixels = std::vector<uint8_t>;
  CHECK(pixels("P1\n3 2\n101\n0 1 0\n") == Pixels{0, 255, 0, 255, 0, 255});
  CHECK(pixels("P2 #c\n2 1 4 0 4\n") == Pixels{0, 255});
  CHECK(pixels("P3\n2 1\n255\n255 0 0  0 255 0\n") == Pixels{76, 150});
  CHECK(pixels(std::string("P4\n10 1\n\x80\x40", 10)) ==
        Pixels{0, 255, 255, 255, 255, 255, 255, 255, 255, 0});
  // Rows begin with a byte of their own; what fills up the last one is nothing.
  Pixels rows(20, 255);
  rows[0] = rows[9] = rows[11] = rows[18] = 0;
  CHECK(pixels(std::string("P4\n10 2\n\x80\x7f\x40\x80", 12)) == rows);
  CHECK(pixels(std::string("P5 3 2 15\n\x00\x0f\x07\x0e\x01\x08", 16)) ==
        Pixels{0, 255, 119, 238, 17, 136});
  CHECK(pixels(std::string("P6 2 1 1023\n\x03\xff\x03\xff\x03\xff\x00\x00\x02\x00\x00\x00", 24)) ==
        Pixels{255, 75});
  CHECK(pixels("P2\n# one\n2 # two\n2\n# three\n3 0 1\n# four\n2 3") == Pixels{0, 85, 170, 255});
  CHECK(pixels(std::string("P5 2 1 65535\n\x80\x00\xff\xff", 17)) == Pixels{128, 255});
  CHECK(pixels(std::string("P6 1 1 255\n\x00\x00\xff", 14)) == Pixels{29});
}

TEST_CASE("numbers of 16 bits are as white as the most that so many bits hold", "[image]") {
  using image::white_of_16_bits;
  for (const auto& [largest, white] : std::vector<std::pair<uint32_t, uint32_t>>{{0, 255},
                                                                                 {255, 255},
                                                                                 {256, 1023},
                                                                                 {1023, 1023},
                                                                                 {1024, 4095},
                                                                                 {4095, 4095},
                                                                                 {4096, 16383},
                                                                                 {16383, 16383},
                                                                                 {16384, 65535},
                                                                                 {65535, 65535}})
    CHECK(white_of_16_bits(largest) == white);
  CHECK(image::grey_of(1, 510) == 1);  // a half is rounded up
  CHECK(image::grey_of(600, 510) == 255);
  CHECK(image::multiplied(255, 128) == 128);
  CHECK(image::on_paper(0, 255) == 0);
  CHECK(image::on_paper(0, 0) == 255);
}

TEST_CASE("of so many greys the share is counted from the darkest", "[image]") {
  const auto at = [](std::vector<int> pixels, double share) {
    image::Greys greys{};
    for (const int v : pixels) ++greys[static_cast<size_t>(v)];
    return image::level(greys, share);
  };
  for (const auto& [share, grey] : std::vector<std::pair<double, float>>{
           {0, 10}, {0.24, 10}, {0.25, 20}, {0.5, 30}, {0.74, 30}, {0.75, 40}, {1, 255}})
    CHECK(at({10, 20, 30, 40, 255}, share) == grey);
  CHECK(at({7, 7, 7, 90}, 0.5) == 7);
  CHECK(at({7, 90, 90, 90}, 0.5) == 90);
  CHECK(at({7}, 0.99) == 7);
}

TEST_CASE("what is no whole image is named in one sentence", "[image]") {
  const TemporaryFolder folder;
  const GreyImage g = bar(64, 48, 10, 20);
  CHECK_THAT(failure_of(""), Contains("x.png: is empty"));
  CHECK_THAT(failure_of("hello, world"), Contains("x.png: is no image that can be read"));
  const std::string webp = "RIFF\x10\0\0\0WEBPVP8 "s;
  CHECK_THAT(failure_of(webp),
             EndsWith("; it is WebP, convert it: convert x.png x.new.png (Debian: imagemagick)"));
  CHECK_THAT(failure_of("\0\0\0\x0cjP  \r\n\x87\n"s),
             Contains("it is JPEG 2000, convert it: opj_decompress -i x.png -o"));
  CHECK_THAT(failure_of("%PDF-1.7\n"),
             EndsWith("convert it: pdftoppm -r 300 -png x.png x (Debian: poppler-utils)"));
  CHECK_THAT(failure_of("RIFF\x10\0\0\0WAVE"s), EndsWith("PGM, PPM or PBM)"));
  CHECK_THAT(failure_of("P5 3"), Contains("is truncated"));
  CHECK_THAT(failure_of("P5 3 3 255\nab"), Contains("3 x 3 pixels take 9 bytes, it has 2"));
  CHECK_THAT(failure_of("P5 0 3 255\nab"), Contains("is 0 x 3 pixels"));
  CHECK_THAT(failure_of("P2 1 1 x 1"), Contains("the largest sample, a number, at byte 7"));
  // All formats, cut short at many places: an error each time, and never a picture.
  for (const std::string& whole : {make_png(g), pgm_of(g), jpeg_of(g), jpeg_of(g, true),
                                   tiff_of(g, folder.path("a.tif"), COMPRESSION_LZW)}) {
    for (size_t keep = 3; keep + 12 < whole.size();
         keep += std::max<size_t>(whole.size() / 40, 1)) {
      INFO(whole.substr(1, 3) << " cut to " << keep << " of " << whole.size());
      CHECK_THAT(failure_of(whole.substr(0, keep)), Contains("x.png: "));
    }
  }
}

TEST_CASE("a TIFF of numbers that are no greys is told by its kind", "[image]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("float.tif");
  TIFF* t = TIFFOpen(path.c_str(), "w");
  TIFFSetField(t, TIFFTAG_IMAGEWIDTH, 2);
  TIFFSetField(t, TIFFTAG_IMAGELENGTH, 1);
  TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, 32);
  TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, 1);
  TIFFSetField(t, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_IEEEFP);
  TIFFSetField(t, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  float row[2] = {0, 1};
  TIFFWriteScanline(t, row, 0, 0);
  TIFFClose(t);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  CHECK(failure_of(bytes) ==
        "x.png: is a TIFF of floating-point numbers of 32 bits, expected whole ones of at most 16");
}

TEST_CASE("a small file that announces a huge picture is refused", "[slow][image]") {
  CHECK_THAT(failure_of("P5 1000000 1000000 255\n"), Contains("1000000 x 1000000 pixels"));
  CHECK_THAT(failure_of("P4 99999999 1\n"), Contains("expected at most"));
  GreyImage wide(1000000, 70);
  const std::string bomb = make_png(wide);
  CHECK(bomb.size() < (1 << 18));
  CHECK_THAT(failure_of(bomb), Contains("1000000 x 70 pixels, expected at most 67108864"));
}

TEST_CASE("a file is what it holds, and its header is enough for its size", "[image]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("line.jpg");
  std::ofstream(path, std::ios::binary) << make_png(bar(100, 40, 1, 2));
  const ImageFileReader reader;
  CHECK(reader.info(path).width == 100);
  CHECK(reader.read(path).height == 40);
  std::ofstream(path, std::ios::binary | std::ios::app) << std::string(100, 'x');
  CHECK(reader.info({path, 0, 60}).width == 100);
  CHECK_THROWS_AS(reader.read({path, 0, 60}), InputError);
  // A TIFF has its header at the end, which may be far.
  const std::string far = folder.path("far.tif");
  const std::string tiff = tiff_of(bar(400, 300, 1, 2), far, COMPRESSION_NONE);
  REQUIRE(tiff.size() > 100'000);
  CHECK(reader.info(far).width == 400);
  CHECK(reader.info(far).height == 300);
  CHECK(reader.pages(far) == 1);
  std::ofstream(far, std::ios::binary) << tiff.substr(0, 70'000);
  CHECK_THROWS_WITH(reader.info(far), Contains("far.tif: "));
  CHECK_THROWS_AS(reader.read(folder.path("none.png")), InputError);
  CHECK_THROWS_AS(reader.read(folder.path("")), InputError);
  CHECK(is_image_name("a/b.PNG"));
  CHECK(is_image_name("b.bin.tif"));
  CHECK_FALSE(is_image_name("png"));
  CHECK_FALSE(is_image_name("a.png.txt"));
}

TEST_CASE("a line becomes columns of ink", "[image]") {
  LineConfig c;
  c.height = 12;
  c.padding = 3;
  const GreyImage g = bar(60, 24, 20, 40);
  REQUIRE(c.scaled_width(g.info()) == 30);
  CHECK(c.scaled_width(g.info(), 1100) == 33);
  CHECK(c.scaled_width({1, 100}) == 1);
  const Matrix m = line_features(c, g, 30);
  REQUIRE(m.frames == 36);
  REQUIRE(m.dim == 12);
  for (int64_t x : {0, 2, 6, 9, 28, 33, 35}) CHECK(m.row(x)[6] == 0);
  for (int64_t x : {15, 18, 20}) CHECK(m.row(x)[6] == 1);
  // Of the ink as much as the picture has: a third of 30 columns.
  double sum = 0;
  for (int64_t x = 0; x < m.frames; ++x) sum += m.row(x)[6];
  CHECK(std::abs(sum - 10) < 0.01);
}

TEST_CASE("specks lighter than the paper are not the paper", "[image]") {
  GreyImage line = bar(80, 20, 30, 40);
  for (uint8_t& v : line.pixels) v = v == 0 ? 90 : 170;
  // One pixel of twenty.
  for (size_t i = 0; i < line.pixels.size(); i += 20) line.pixels[i] = 255;
  LineConfig c;
  c.height = 20;
  c.padding = 0;
  const Matrix m = line_features(c, line, 80);
  CHECK(m.row(5)[10] < 1e-5f);
  CHECK(m.row(65)[3] < 1e-5f);
  CHECK(m.row(35)[10] == 1);
}

TEST_CASE("as in Tesseract, lines are scaled and sharpened by Leptonica's rules", "[image]") {
  GreyImage g(20, 15);
  for (int32_t y = 0; y < 15; ++y)
    for (int32_t x = 0; x < 20; ++x)
      g.row(y)[x] = static_cast<uint8_t>(x * x * 3 + y * 29 + x * y * 7);
  LineConfig c;
  c.padding = 0;
  c.contrast = false;
  c.scaling = LineScaling::tesseract;
  // The row above the middle, as Leptonica's pixScale has it (1.82); its means are rounded more
  // often.
  struct Case {
    int32_t height;
    double bound;
    std::vector<int> row;
  };
  const std::vector<Case> cases = {
      {12, 0.01, {181, 177, 24, 134, 169, 38, 143, 56, 164, 193, 147, 113, 184, 135, 138, 57}},
      {8, 2.01, {196, 76, 126, 98, 119, 105, 163, 140, 137, 152, 211}},
      {18, 0.01, {192, 232, 107, 48,  124, 174, 68,  51,  125, 119, 74, 88,
                  211, 152, 155, 136, 124, 149, 118, 169, 169, 91,  66, 108}}};
  for (const Case& one : cases) {
    c.height = one.height;
    const Matrix m = line_features(c, g, c.scaled_width(g.info()));
    REQUIRE(m.frames == static_cast<int64_t>(one.row.size()));
    for (size_t x = 0; x < one.row.size(); ++x) {
      INFO(one.height << ", " << x);
      const double grey = 255 * (1 - m.row(static_cast<int64_t>(x))[one.height / 2 - 1]);
      CHECK_FALSE(!(std::abs(grey - one.row[x]) <= one.bound));
    }
  }
}

TEST_CASE("as in Tesseract, a line's greys are those of its strokes along the middle row",
          "[image]") {
  // Strokes of two darknesses on paper of two greys, and elsewhere what is darker and lighter yet.
  GreyImage g(8, 4);
  std::fill(g.pixels.begin(), g.pixels.end(), uint8_t{255});
  const std::array<uint8_t, 8> middle = {200, 40, 200, 60, 210, 40, 40, 210};
  std::copy(middle.begin(), middle.end(), g.row(2));
  g.row(0)[0] = 0;
  LineConfig c;
  c.height = 4;
  c.padding = 0;
  c.scaling = LineScaling::tesseract;
  const Matrix m = line_features(c, g, 8);
  // Minima: 40 at three places (of two neighbours each is one), 60 once; the lower quartile is the
  // first of four, a third into the pixels of 40. Maxima: 200 and 210; the upper one is half-way.
  const double black = 40 + 1.0 / 3, white = 210 + 0.5;
  for (int64_t x = 0; x < 8; ++x) {
    const double ink = (white - middle[static_cast<size_t>(x)]) / (white - black);
    CHECK(m.row(x)[2] == Approx(std::clamp(ink, 0.0, 1.0)).margin(1e-6));
  }
  CHECK((m.row(3)[0] == 0 && m.row(0)[0] == 1));
  // Light ink is the same with greys the other way round.
  for (uint8_t& v : g.pixels) v = static_cast<uint8_t>(255 - v);
  c.ink = Ink::light;
  CHECK(line_features(c, g, 8) == m);
  // Without any stroke black and white are the ends.
  std::fill(g.pixels.begin(), g.pixels.end(), uint8_t{90});
  c.ink = Ink::dark;
  CHECK(line_features(c, g, 8).row(1)[1] == Approx((256 - 90) / 255.0));
}

TEST_CASE("a thin stroke becomes grey wherever it is, and does not vanish", "[image]") {
  LineConfig c;
  c.height = 12;
  c.padding = 0;
  c.contrast = false;
  // One row, or column, of ink in an image that becomes an eighth as large: its eighth stays.
  for (int32_t at = 8; at < 88; ++at) {
    GreyImage across(96, 96), down(96, 96);
    std::fill(across.pixels.begin(), across.pixels.end(), uint8_t{255});
    down.pixels = across.pixels;
    for (int32_t i = 0; i < 96; ++i) across.row(at)[i] = down.row(i)[at] = 0;
    const Matrix rows = line_features(c, across, 12), columns = line_features(c, down, 12);
    double of_rows = 0, of_columns = 0;
    for (int64_t i = 0; i < 12; ++i) of_rows += rows.row(6)[i], of_columns += columns.row(i)[6];
    INFO(at);
    CHECK(std::abs(of_rows - 0.125) < 0.02);
    CHECK(std::abs(of_columns - 0.125) < 0.02);
  }
}

TEST_CASE("a line is turned so that its beginning is on the left", "[image]") {
  GreyImage g(3, 2);
  g.pixels = {1, 2, 3, 4, 5, 6};
  CHECK(turned(g, LineDirection::rightwards).pixels == g.pixels);
  CHECK(turned(g, LineDirection::leftwards).pixels == std::vector<uint8_t>{3, 2, 1, 6, 5, 4});
  const GreyImage down = turned(g, LineDirection::downwards);
  CHECK((down.width == 2 && down.height == 3));
  // The top row becomes the first column; what was on its right is above.
  CHECK(down.pixels == std::vector<uint8_t>{3, 6, 2, 5, 1, 4});
  LineConfig c;
  c.height = 12;
  c.padding = 0;
  c.direction = LineDirection::downwards;
  CHECK(c.scaled_width({24, 60}) == 30);
  const GreyImage line = bar(24, 60, 0, 12);
  const Matrix m = line_features(c, line, 30);
  REQUIRE((m.frames == 30 && m.dim == 12));
  CHECK(m.row(15)[2] == 0);
  CHECK(m.row(15)[9] == 1);
  c.direction = LineDirection::leftwards;
  const Matrix mirrored = line_features(c, bar(60, 24, 0, 10), 30);
  CHECK(mirrored.row(2)[6] == 0);
  CHECK(mirrored.row(28)[6] == 1);
}

TEST_CASE("paper and ink have their own grey, whichever is darker", "[image]") {
  GreyImage faint = bar(80, 20, 30, 40);
  for (uint8_t& v : faint.pixels) v = v == 0 ? 90 : 170;
  LineConfig c;
  c.height = 20;
  c.padding = 0;
  CHECK(line_features(c, faint, 80).row(35)[10] == 1);
  CHECK(line_features(c, faint, 80).row(5)[10] < 1e-5f);
  c.contrast = false;
  CHECK(std::abs(line_features(c, faint, 80).row(35)[10] - 165.0 / 255) < 1e-5);
  GreyImage inverted = bar(80, 20, 30, 40);
  for (uint8_t& v : inverted.pixels) v = static_cast<uint8_t>(255 - v);
  for (const Ink ink : {Ink::light, Ink::automatic}) {
    c.ink = ink;
    CHECK(line_features(c, inverted, 80).row(35)[10] == 1);
    CHECK(line_features(c, inverted, 80).row(5)[10] < 1e-5f);
  }
  CHECK(line_features(c, bar(80, 20, 30, 40), 80).row(35)[10] == 1);
  CHECK_FALSE(is_blank(faint));
  GreyImage blank = bar(80, 20, 0, 0);
  CHECK(is_blank(blank));
}

// Lines of letters, upright strokes 20 pixels high with a bar below, one every 30 rows; they fall
// by `slope` rows a column.
GreyImage page_of(int32_t lines, int32_t width = 800, double slope = 0) {
  const auto fall = static_cast<int32_t>(slope * width);
  GreyImage g(width, 30 * lines + fall);
  for (int32_t y = 0; y < g.height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      const auto at = y - static_cast<int32_t>(slope * x);
      const bool written = at >= 0 && at < 30 * lines && at % 30 >= 5 && at % 30 < 25 &&
                           (x % 20 < 4 || (x % 20 < 12 && at % 30 >= 22));
      g.row(y)[x] = static_cast<uint8_t>((written ? 20 : 230) + (x * 7 + y * 13) % 11);
    }
  }
  return g;
}

void fill(GreyImage& g, ImageBox box, uint8_t grey) {
  for (int32_t y = box.top; y < box.top + box.height; ++y)
    std::fill_n(g.row(y) + box.left, box.width, grey);
}

TEST_CASE("a page that was given as a line is noticed", "[image]") {
  LineConfig c;
  CHECK(count_lines(page_of(5), c) == 5);
  CHECK(count_lines(page_of(12), c) == 12);
  CHECK(count_lines(page_of(12, 800, 0.04), c) == 12);
  CHECK(page_warning(page_of(12), c, "x.png") ==
        "x.png: seems to be a page of about 12 lines, and is read as one line; give a PAGE-XML or "
        "ALTO file that says where the lines are, or an image of each");
  // The last line is short; a verse leaves half of the page free; of two columns one begins later.
  GreyImage page = page_of(12);
  fill(page, {100, 330, 700, 30}, 230);
  CHECK(count_lines(page, c) == 11);
  page = page_of(12);
  fill(page, {400, 0, 400, 360}, 230);
  CHECK(count_lines(page, c) == 12);
  GreyImage columns = page;
  for (int32_t y = 0; y < 345; ++y) std::copy_n(page.row(y), 400, columns.row(y + 15) + 400);
  CHECK(count_lines(columns, c) == 12);
  // A strip, a quarter of the page, is all columns between its edges: in each of these pages two
  // columns have the ink of one strip, and one of them alone would be too few.
  for (const auto& [width, inked] : std::map<int32_t, std::array<int32_t, 2>>{
           {64, {16, 46}}, {65, {30, 63}}, {66, {0, 49}}, {67, {33, 65}}}) {
    CAPTURE(width);
    GreyImage narrow(width, 40);
    fill(narrow, {0, 0, width, 40}, 230);
    for (const int32_t left : inked) {
      for (int32_t top = 0; top < 40; top += 8) fill(narrow, {left, top + 1, 2, 6}, 20);
    }
    CHECK(count_lines(narrow, c) == 5);
  }
  // Light ink, and lines from top to bottom, the first one on the right.
  for (uint8_t& v : page.pixels) v = static_cast<uint8_t>(255 - v);
  for (const Ink ink : {Ink::light, Ink::automatic}) {
    c.ink = ink;
    CHECK(count_lines(page, c) == 12);
  }
  c.ink = Ink::dark;
  c.direction = LineDirection::downwards;
  GreyImage down = page_of(7);
  for (int quarter = 0; quarter < 3; ++quarter) down = turned(down, c.direction);
  CHECK(count_lines(down, c) == 7);
}

TEST_CASE("a line is not taken for a page", "[image]") {
  const LineConfig c;
  for (const int32_t lines : {1, 2, 3, 4}) CHECK(count_lines(page_of(lines), c) == 0);
  CHECK(page_warning(page_of(1), c, "x.png").empty());
  CHECK(count_lines(GreyImage(800, 400), c) == 0);
  CHECK(count_lines(GreyImage(2, 400), c) == 0);
  // Accents above the letters, and rules below.
  GreyImage line = page_of(4);
  fill(line, {0, 30, 800, 90}, 230);
  for (const int32_t top : {30, 40, 50, 60, 80, 100}) fill(line, {0, top, 800, 4}, 20);
  fill(line, {100, 0, 50, 2}, 20);
  CHECK(count_lines(line, c) == 0);
  // Letters below each other are a line that was not turned.
  CHECK(count_lines(page_of(20, 60), c) == 0);
  // Specks, few to many, on a line and on empty paper.
  for (const uint32_t share : {2, 5, 10, 20, 40}) {
    for (GreyImage noise : {page_of(1), GreyImage(800, 400)}) {
      uint32_t state = share;
      for (uint8_t& v : noise.pixels) {
        state = state * 1664525 + 1013904223;
        if ((state >> 16) % 100 < share) v = 255;
        if ((state >> 8) % 100 < share) v = 0;
      }
      CAPTURE(share, noise.height);
      CHECK(count_lines(noise, c) == 0);
    }
  }
}

TEST_CASE("what is too wide for a line is refused before memory is taken", "[image]") {
  const LineConfig c;
  CHECK_NOTHROW(c.require_line({3000, 60}, "x"));
  // 65,536 columns at a height of 48 are allowed, one more is not.
  CHECK_NOTHROW(c.require_line({65536, 48}, "x"));
  CHECK_THROWS_WITH(c.require_line({65537, 48}, "x"), Contains("65537 columns at a height of 48"));
  CHECK_THROWS_AS(c.require_line({1 << 20, 10}, "x"), InputError);
}
