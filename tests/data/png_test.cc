// Every kind of PNG beside the same samples in PGM, PPM and TIFF, which other code reads.
#include <tiffio.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>

#include "engine/data/image/image.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/jpeg_of.h"
#include "tests/data/png_of.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

using Pixels = std::vector<uint8_t>;
using test::packed_row;
using test::Picture;
using test::png_of;
using test::Samples;

Picture picture(uint32_t width, uint32_t height, int depth, int channels,
                const std::function<uint32_t(uint32_t)>& sample) {
  Picture p{width, height, depth, channels, {}};
  const uint32_t count = width * height * static_cast<uint32_t>(channels);
  for (uint32_t i = 0; i < count; ++i) p.samples.push_back(sample(i) & p.largest());
  return p;
}

// PGM or PPM with the samples as words.
std::string pnm_of(const Picture& p) {
  std::string text =
      str(p.channels == 1 ? "P2 " : "P3 ", p.width, " ", p.height, " ", p.largest(), "\n");
  for (const uint32_t v : p.samples) text += str(v, "\n");
  return text;
}

std::string tiff_of(const Picture& p, const std::string& path) {
  TIFF* t = TIFFOpen(path.c_str(), "w");
  TIFFSetField(t, TIFFTAG_IMAGEWIDTH, p.width);
  TIFFSetField(t, TIFFTAG_IMAGELENGTH, p.height);
  TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, p.depth);
  TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, p.channels);
  TIFFSetField(t, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  TIFFSetField(t, TIFFTAG_PHOTOMETRIC, p.channels < 3 ? PHOTOMETRIC_MINISBLACK : PHOTOMETRIC_RGB);
  const uint16_t opacity = EXTRASAMPLE_UNASSALPHA;
  if (p.channels == 4) TIFFSetField(t, TIFFTAG_EXTRASAMPLES, 1, &opacity);
  TIFFSetField(t, TIFFTAG_ROWSPERSTRIP, p.height);
  for (uint32_t y = 0; y < p.height; ++y) {
    std::string row;
    for (size_t i = 0; i < p.width * static_cast<size_t>(p.channels); ++i) {
      const uint32_t v = p.samples[y * p.width * static_cast<size_t>(p.channels) + i];
      const auto wide = static_cast<uint16_t>(v);
      if (p.depth == 8) row += static_cast<char>(v);
      if (p.depth == 16) row.append(reinterpret_cast<const char*>(&wide), 2);
    }
    TIFFWriteScanline(t, row.data(), y, 0);
  }
  TIFFClose(t);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string jpeg_of(const Picture& p) {
  std::string row;
  return test::jpeg_of(static_cast<int>(p.width), static_cast<int>(p.height), 3, false,
                       [&](uint32_t y) {
                         row = packed_row(p, y);
                         return reinterpret_cast<const uint8_t*>(row.data());
                       });
}

Pixels pixels_of(const std::string& bytes) {
  return decode_image(std::as_bytes(std::span(bytes)), "x").pixels;
}

int largest_difference(const Pixels& a, const Pixels& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

uint32_t itself(uint32_t i) { return i; }
// Colours of all kinds, without an order.
uint32_t scattered(uint32_t i) { return (i * 2654435761u) >> 7; }

}  // namespace

TEST_CASE("a grey PNG has the greys of a PGM with its samples", "[image][png]") {
  const TemporaryFolder folder;
  for (const bool interlaced : {false, true}) {
    for (const int depth : {1, 2, 4, 8}) {
      INFO(depth << " bits, interlaced " << interlaced);
      const Picture p = picture(37, 11, depth, 1, itself);
      CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_GRAY, interlaced)) == pixels_of(pnm_of(p)));
    }
    const Picture wide = picture(256, 256, 16, 1, itself);
    const Pixels greys = pixels_of(png_of(wide, PNG_COLOR_TYPE_GRAY, interlaced));
    CHECK(greys == pixels_of(pnm_of(wide)));
    // libtiff takes the high byte, and rounds nothing.
    CHECK(largest_difference(greys, pixels_of(tiff_of(wide, folder.path("a.tif")))) <= 1);
  }
  const Picture ramp = picture(256, 1, 8, 1, itself);
  CHECK(pixels_of(png_of(ramp, PNG_COLOR_TYPE_GRAY, false)) ==
        pixels_of(tiff_of(ramp, folder.path("b.tif"))));
}

TEST_CASE("a coloured PNG has the greys of a PPM, TIFF and JPEG with its samples", "[image][png]") {
  const TemporaryFolder folder;
  for (const bool interlaced : {false, true}) {
    for (const int depth : {8, 16}) {
      INFO(depth << " bits, interlaced " << interlaced);
      const Picture p = picture(41, 23, depth, 3, scattered);
      CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_RGB, interlaced)) == pixels_of(pnm_of(p)));
    }
    const Picture p = picture(41, 23, 8, 3, scattered);
    CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_RGB, interlaced)) ==
          pixels_of(tiff_of(p, folder.path("a.tif"))));
  }
  // ITU-R BT.601: 0.299 * 200 is 59.8. A JPEG of one colour loses little but to rounding.
  const Picture red = picture(16, 16, 8, 3, [](uint32_t i) { return i % 3 == 0 ? 200u : 0u; });
  const Pixels greys = pixels_of(png_of(red, PNG_COLOR_TYPE_RGB, false));
  CHECK(greys == Pixels(256, 60));
  CHECK(largest_difference(greys, pixels_of(jpeg_of(red))) <= 1);
}

TEST_CASE("a PNG with a palette has the greys of its colours", "[image][png]") {
  for (const bool interlaced : {false, true}) {
    for (const int depth : {1, 2, 4, 8}) {
      INFO(depth << " bits, interlaced " << interlaced);
      const Picture p = picture(37, 11, depth, 1, scattered);
      std::vector<png_color> palette;
      for (uint32_t i = 0; i <= p.largest(); ++i) {
        palette.push_back({static_cast<png_byte>(scattered(i)),
                           static_cast<png_byte>(scattered(i + 1000)),
                           static_cast<png_byte>(scattered(i + 2000))});
      }
      Picture colours{p.width, p.height, 8, 3, {}};
      for (const uint32_t i : p.samples)
        for (const png_byte v : {palette[i].red, palette[i].green, palette[i].blue})
          colours.samples.push_back(v);
      const auto set = [&](png_structp png, png_infop info) {
        png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
      };
      CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_PALETTE, interlaced, set)) ==
            pixels_of(pnm_of(colours)));
    }
  }
}

TEST_CASE("a PNG's opacity shows white paper, as a TIFF's", "[image][png]") {
  const TemporaryFolder folder;
  const Picture p = picture(41, 23, 8, 4, scattered);
  const Pixels seen = pixels_of(tiff_of(p, folder.path("a.tif")));
  for (const bool interlaced : {false, true}) {
    INFO("interlaced " << interlaced);
    CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_RGB_ALPHA, interlaced)) == seen);
    const Picture wide =
        picture(41, 23, 16, 4, [](uint32_t i) { return (scattered(i) & 255) * 257; });
    CHECK(pixels_of(png_of(wide, PNG_COLOR_TYPE_RGB_ALPHA, interlaced)) == seen);
    // Black, grey and white, at three opacities.
    const Picture grey{
        3, 3, 8, 2, {0, 0, 0, 128, 0, 255, 100, 0, 100, 128, 100, 255, 255, 0, 255, 128, 255, 255}};
    CHECK(pixels_of(png_of(grey, PNG_COLOR_TYPE_GRAY_ALPHA, interlaced)) ==
          Pixels{255, 127, 0, 255, 177, 100, 255, 255, 255});
  }
}

TEST_CASE("a colour that a PNG calls transparent is paper", "[image][png]") {
  const auto with_colour = [](png_color_16 colour) {
    return
        [colour](png_structp png, png_infop info) { png_set_tRNS(png, info, nullptr, 0, &colour); };
  };
  for (const bool interlaced : {false, true}) {
    INFO("interlaced " << interlaced);
    const Picture grey{4, 1, 4, 1, {0, 5, 10, 15}};
    CHECK(pixels_of(png_of(grey, PNG_COLOR_TYPE_GRAY, interlaced, with_colour({0, 0, 0, 0, 5}))) ==
          Pixels{0, 255, 170, 255});
    // Two samples that are one in 8 bits: the first alone is transparent.
    const Picture wide{2, 1, 16, 1, {0x5000, 0x5001}};
    CHECK(pixels_of(png_of(wide, PNG_COLOR_TYPE_GRAY, interlaced,
                           with_colour({0, 0, 0, 0, 0x5000}))) == Pixels{255, 80});
    const Picture rgb{2, 1, 8, 3, {200, 0, 0, 0, 200, 0}};
    CHECK(pixels_of(png_of(rgb, PNG_COLOR_TYPE_RGB, interlaced, with_colour({0, 200, 0, 0, 0}))) ==
          Pixels{255, 117});
    const Picture indices{3, 1, 2, 1, {0, 1, 2}};
    const auto palette = [](png_structp png, png_infop info) {
      const png_color colours[] = {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}};
      const png_byte opacities[] = {0, 128};
      png_set_PLTE(png, info, colours, 3);
      png_set_tRNS(png, info, opacities, 2, nullptr);
    };
    CHECK(pixels_of(png_of(indices, PNG_COLOR_TYPE_PALETTE, interlaced, palette)) ==
          Pixels{255, 127, 0});
  }
}

TEST_CASE("what a PNG says of its gamma changes no grey", "[image][png]") {
  for (const int depth : {8, 16}) {
    const Picture p =
        picture(256, 1, depth, 1, [&](uint32_t i) { return depth == 8 ? i : i * 257; });
    const Pixels greys = pixels_of(pnm_of(p));
    for (const double gamma : {1.0, 0.45455}) {
      INFO(depth << " bits, gamma " << gamma);
      CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_GRAY, false, [&](png_structp png, png_infop info) {
              png_set_gAMA(png, info, gamma);
            })) == greys);
    }
    CHECK(pixels_of(png_of(p, PNG_COLOR_TYPE_GRAY, false, [](png_structp png, png_infop info) {
            png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
          })) == greys);
  }
}
