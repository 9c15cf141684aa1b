// Images as they are shown: turned by what their files say, white where their bits end.
#include "engine/data/image/orientation.h"

#include <tiffio.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "engine/data/image/image.h"
#include "engine/data/image/image_region.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/jpeg_of.h"
#include "tests/data/png_of.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

using Pixels = std::vector<uint8_t>;

// The stored image is 1 2 3 above 4 5 6; what is shown of it by orientation, from the figure of
// TIFF 6.0's section on Orientation (page 36).
struct Shown {
  int width, height;
  Pixels pixels;
};
const std::array<Shown, 8> all_shown = {{{3, 2, {1, 2, 3, 4, 5, 6}},
                                         {3, 2, {3, 2, 1, 6, 5, 4}},
                                         {3, 2, {6, 5, 4, 3, 2, 1}},
                                         {3, 2, {4, 5, 6, 1, 2, 3}},
                                         {2, 3, {1, 4, 2, 5, 3, 6}},
                                         {2, 3, {4, 1, 5, 2, 6, 3}},
                                         {2, 3, {6, 3, 5, 2, 4, 1}},
                                         {2, 3, {3, 6, 2, 5, 1, 4}}}};

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

// Numbers of 2 or 4 bytes, the low byte first or last.
std::string number(uint32_t value, int bytes, bool low_first) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    const int shift = 8 * (low_first ? i : bytes - 1 - i);
    text += static_cast<char>(value >> shift);
  }
  return text;
}

// EXIF data of two entries, of which the second is the orientation.
std::string exif(uint32_t orientation, bool low_first, uint32_t type = 3) {
  const auto n = [&](uint32_t value, int bytes) { return number(value, bytes, low_first); };
  std::string text = low_first ? "II" : "MM";
  text += n(42, 2) + n(8, 4) + n(2, 2);
  text += n(256, 2) + n(3, 2) + n(1, 4) + n(6, 2) + n(0, 2);
  text += n(274, 2) + n(type, 2) + n(1, 4);
  text += type == 3 ? n(orientation, 2) + n(0, 2) : n(orientation, 4);
  return text + n(0, 4);
}

// A marker of a JPEG behind its first two bytes.
std::string with_marker(const std::string& jpeg, const std::string& content) {
  return jpeg.substr(0, 2) + "\xff\xe1" +
         number(static_cast<uint32_t>(content.size() + 2), 2, false) + content + jpeg.substr(2);
}

std::string jpeg_of(const Pixels& pixels, int width) {
  return test::jpeg_of(width, static_cast<int>(pixels.size()) / width, 1, false,
                       [&](uint32_t y) { return pixels.data() + y * static_cast<size_t>(width); });
}

struct TiffKind {
  uint16_t bits = 8, channels = 1, photometric = PHOTOMETRIC_MINISBLACK, orientation = 1;
  uint32_t kind = 0;  // of what file the page is
};

// Pages of the same samples, one of each kind.
std::string tiff_of(const std::vector<uint16_t>& samples, uint32_t width,
                    const std::vector<TiffKind>& pages) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.tif");
  TIFF* t = TIFFOpen(path.c_str(), "w");
  for (const TiffKind& k : pages) {
    const size_t row_samples = size_t{width} * k.channels;
    TIFFSetField(t, TIFFTAG_SUBFILETYPE, k.kind);
    TIFFSetField(t, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(t, TIFFTAG_IMAGELENGTH, static_cast<uint32_t>(samples.size() / row_samples));
    TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, k.bits);
    TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, k.channels);
    TIFFSetField(t, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(t, TIFFTAG_PHOTOMETRIC, k.photometric);
    TIFFSetField(t, TIFFTAG_ORIENTATION, k.orientation);
    TIFFSetField(t, TIFFTAG_ROWSPERSTRIP, 1);
    for (size_t y = 0; y * row_samples < samples.size(); ++y) {
      std::vector<uint16_t> wide(samples.begin() + static_cast<ptrdiff_t>(y * row_samples),
                                 samples.begin() + static_cast<ptrdiff_t>((y + 1) * row_samples));
      Pixels narrow(wide.begin(), wide.end());
      void* row = k.bits == 16 ? static_cast<void*>(wide.data()) : narrow.data();
      TIFFWriteScanline(t, row, static_cast<uint32_t>(y), 0);
    }
    TIFFWriteDirectory(t);
  }
  TIFFClose(t);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string png_with_exif(const std::string& data) {
  const test::Picture p{3, 2, 8, 1, {1, 2, 3, 4, 5, 6}};
  return test::png_of(p, PNG_COLOR_TYPE_GRAY, false, [&](png_structp png, png_infop info) {
    std::string copy = data;
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(copy.size()),
                   reinterpret_cast<png_bytep>(copy.data()));
  });
}

void check_shown(const std::string& bytes, const Shown& wanted, int scale = 1, int off = 0) {
  const GreyImage image = decode_image(bytes_of(bytes), "x");
  const ImageInfo info = image_info(bytes_of(bytes), "x");
  CHECK((info.width == wanted.width && info.height == wanted.height));
  REQUIRE((image.width == wanted.width && image.height == wanted.height));
  for (size_t i = 0; i < image.pixels.size(); ++i)
    CHECK(std::abs(image.pixels[i] - scale * wanted.pixels[i]) <= off);
}

}  // namespace

TEST_CASE("an image is turned as its file says", "[orientation]") {
  const Pixels stored = {1, 2, 3, 4, 5, 6};
  Pixels greys;
  for (const uint8_t v : stored) greys.push_back(static_cast<uint8_t>(40 * v));
  const std::vector<uint16_t> samples(stored.begin(), stored.end());
  for (uint16_t o = 1; o <= 8; ++o) {
    const Shown& wanted = all_shown[o - 1u];
    INFO("orientation " << o);
    for (const bool low_first : {true, false}) {
      const std::string data = exif(o, low_first);
      check_shown(png_with_exif(data), wanted);
      // The edges of so small a JPEG are smeared a little.
      check_shown(with_marker(jpeg_of(greys, 3), std::string("Exif\0\0", 6) + data), wanted, 40, 8);
      check_shown(png_with_exif(exif(o, low_first, 4)), wanted);
    }
    check_shown(tiff_of(samples, 3, {{8, 1, PHOTOMETRIC_MINISBLACK, o}}), wanted);
    // To and fro.
    const auto turn = static_cast<Orientation>(o);
    GreyImage image(3, 2);
    image.pixels = stored;
    CHECK(shown(shown(image, turn), inverse(turn)).pixels == stored);
    const ShownPoint there = shown_at(0.5, 1.5, 3, 2, turn);
    const ShownPoint back = shown_at(there.x, there.y, wanted.width, wanted.height, inverse(turn));
    CHECK((back.x == 0.5 && back.y == 1.5));
  }
}

TEST_CASE("what says nothing of an orientation turns nothing", "[orientation]") {
  const Shown& as_it_is = all_shown[0];
  const Pixels greys = {40, 80, 120, 160, 200, 240};
  const std::string jpeg = jpeg_of(greys, 3), name("Exif\0\0", 6), six = exif(6, true);
  for (const uint32_t none : {0u, 9u, 65535u})
    check_shown(png_with_exif(exif(none, true)), as_it_is);
  // Of another tag, cut short at every length, of a directory that is elsewhere or endless.
  for (size_t keep = 0; keep + 8 < six.size(); ++keep) {
    INFO("cut to " << keep);
    check_shown(with_marker(jpeg, name + six.substr(0, keep)), as_it_is, 40, 8);
  }
  std::string wrong = six;
  wrong[4] = '\xff', wrong[7] = '\x7f';
  check_shown(with_marker(jpeg, name + wrong), as_it_is, 40, 8);
  wrong = six;
  wrong[8] = wrong[9] = '\xff', wrong[22] = '\0';
  check_shown(with_marker(jpeg, name + wrong), as_it_is, 40, 8);
  // The same number of a tag behind the orientation's, a resolution.
  wrong = six;
  wrong[22] = '\x1a';
  check_shown(with_marker(jpeg, name + wrong), as_it_is, 40, 8);
  // The first marker is often another one's, such as XMP's.
  const std::string xmp = "http://ns.adobe.com/xap/1.0/";
  check_shown(with_marker(jpeg, xmp), as_it_is, 40, 8);
  check_shown(with_marker(with_marker(jpeg, name + six), xmp), all_shown[5], 40, 8);
}

TEST_CASE("a region is of the image that is shown", "[orientation]") {
  const TemporaryFolder folder;
  std::ofstream(folder.path("p.png"), std::ios::binary) << png_with_exif(exif(6, false));
  const ImageFileReader reader;
  const ImageRegion upper = ImageRegion::of_box({0, 0, 2, 2});
  const ImageInfo size = region_info(reader, folder.path("p.png"), upper);
  CHECK((size.width == 2 && size.height == 2));
  CHECK(read_region(reader, folder.path("p.png"), upper).pixels == Pixels{4, 1, 5, 2});
  CHECK(reader.read_page(folder.path("p.png"))->pixels == all_shown[5].pixels);
}

TEST_CASE("samples of fewer bits than their file has end at white", "[orientation]") {
  for (const uint32_t bits : {8u, 10u, 12u, 14u}) {
    const uint32_t white = (1u << bits) - 1;
    std::vector<uint16_t> samples;
    Pixels wanted;
    for (const uint32_t share : {0u, 20u, 51u, 102u, 204u, 255u}) {
      samples.push_back(static_cast<uint16_t>(white * share / 255));
      wanted.push_back(static_cast<uint8_t>(std::lround(255.0 * samples.back() / white)));
    }
    Pixels inverted;
    for (const uint8_t v : wanted) inverted.push_back(static_cast<uint8_t>(255 - v));
    INFO(bits << " bits");
    const auto decoded = [](const std::string& bytes) {
      return decode_image(bytes_of(bytes), "x").pixels;
    };
    const test::Samples words(samples.begin(), samples.end());
    for (const bool interlaced : {false, true})
      CHECK(decoded(test::png_of({3, 2, 16, 1, words}, PNG_COLOR_TYPE_GRAY, interlaced)) == wanted);
    // An opacity is none of the samples, and has all of its bits: half of black is grey.
    CHECK(decoded(test::png_of({2, 1, 16, 2, {0, 32768, white, 65535}}, PNG_COLOR_TYPE_GRAY_ALPHA,
                               false)) == Pixels{127, 255});
    test::Samples with_opacity, colours;
    for (const uint32_t v : words) {
      with_opacity.insert(with_opacity.end(), {v, 65535});
      colours.insert(colours.end(), {v, v, v});
    }
    CHECK(decoded(test::png_of({3, 2, 16, 2, with_opacity}, PNG_COLOR_TYPE_GRAY_ALPHA, false)) ==
          wanted);
    CHECK(decoded(test::png_of({3, 2, 16, 3, colours}, PNG_COLOR_TYPE_RGB, false)) == wanted);
    CHECK(decoded(tiff_of(samples, 3, {{16}})) == wanted);
    CHECK(decoded(tiff_of(samples, 3, {{16, 1, PHOTOMETRIC_MINISWHITE}})) == inverted);
    const std::vector<uint16_t> rgb(colours.begin(), colours.end());
    CHECK(decoded(tiff_of(rgb, 3, {{16, 3, PHOTOMETRIC_RGB}})) == wanted);
    std::string plain = "P2 3 2 65535\n", raw = "P5 3 2 65535\n";
    for (const uint16_t v : samples) plain += str(v, " "), raw += number(v, 2, false);
    CHECK(decoded(plain) == wanted);
    CHECK(decoded(raw) == wanted);
  }
  // What reaches a quarter of white is what it says.
  const std::vector<uint16_t> dark = {0, 16384, 100, 200, 300, 12850};
  const Pixels wanted = {0, 64, 0, 1, 1, 50};
  CHECK(decode_image(bytes_of(tiff_of(dark, 3, {{16}})), "x").pixels == wanted);
  const test::Samples words(dark.begin(), dark.end());
  CHECK(decode_image(bytes_of(test::png_of({3, 2, 16, 1, words}, PNG_COLOR_TYPE_GRAY, false)), "x")
            .pixels == wanted);
  // And a header that says what is white is believed.
  CHECK(decode_image(bytes_of(std::string("P2 2 1 20000\n0 100\n")), "x").pixels == Pixels{0, 1});
}

TEST_CASE("pictures behind the first are counted", "[orientation]") {
  const std::vector<uint16_t> samples = {1, 2, 3, 4, 5, 6};
  const auto pages = [](const std::string& bytes) { return image_pages(bytes_of(bytes)); };
  CHECK(pages(tiff_of(samples, 3, {{}})) == 1);
  CHECK(pages(tiff_of(samples, 3, {{}, {}, {}})) == 3);
  // A small copy for lists of pictures is no page.
  CHECK(pages(tiff_of(samples, 3, {{}, {8, 1, 1, 1, FILETYPE_REDUCEDIMAGE}, {}})) == 2);
  CHECK(pages(png_with_exif(exif(1, true))) == 1);
  CHECK(pages("P5 2 1 255\nabP5 2 1 255\ncdP4 9 1\nef") == 3);
  CHECK(pages("P5 2 1 255\nab\n") == 1);
  CHECK(pages("P5 2 1 255\nabP5 2") == 1);
  const TemporaryFolder folder;
  const std::string path = folder.path("a.tif");
  std::ofstream(path, std::ios::binary) << tiff_of(samples, 3, {{}, {}});
  CHECK(ImageFileReader().pages(path) == 2);
  CHECK(ImageFileReader().read(path).pixels == Pixels{1, 2, 3, 4, 5, 6});
  CHECK(pictures_warning(1, "a.tif").empty());
  CHECK_THAT(pictures_warning(2, "a.tif"),
             Contains("a.tif: holds 2 pictures, of which the first is read"));
}
