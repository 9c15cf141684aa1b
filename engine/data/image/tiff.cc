// TIFF, by libtiff: any compression and kind of pixel that it reads as colours.
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "engine/data/image/decoders.h"
#include "engine/data/image/image.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo::image {
namespace {

// A file in memory, and what libtiff says of it.
struct Source {
  Bytes bytes;
  uint64_t at = 0;
  char message[256] = "";

  static Source* of(thandle_t handle) { return static_cast<Source*>(handle); }
  static tmsize_t read(thandle_t handle, void* to, tmsize_t wanted) {
    Source* s = of(handle);
    if (wanted < 0 || s->at >= s->bytes.size()) return 0;
    const size_t n = std::min<size_t>(static_cast<size_t>(wanted), s->bytes.size() - s->at);
    copy_bytes(to, s->bytes.data() + s->at, n);
    s->at += n;
    return static_cast<tmsize_t>(n);
  }
  static tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t seek(thandle_t handle, toff_t offset, int whence) {
    Source* s = of(handle);
    const uint64_t from = whence == SEEK_CUR ? s->at : whence == SEEK_END ? s->bytes.size() : 0;
    return s->at = from + offset;
  }
  static int close(thandle_t) { return 0; }
  static toff_t size(thandle_t handle) { return of(handle)->bytes.size(); }
  // The first thing that went wrong is the cause of the others.
  static int error(TIFF*, void* user, const char*, const char* format, va_list words) {
    auto* s = static_cast<Source*>(user);
    if (!s->message[0]) std::vsnprintf(s->message, sizeof s->message, format, words);
    return 1;
  }
  static int ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }
};

struct Close {
  void operator()(TIFF* t) const { TIFFClose(t); }
};
using Tiff = std::unique_ptr<TIFF, Close>;

[[noreturn]] void fail(const Source& source, const std::string& name) {
  fail_input(name,
             ": is no whole TIFF: ", source.message[0] ? source.message : "libtiff cannot read it");
}

Tiff open(Source& source, const std::string& name) {
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  // Room for most_image_pixels as libtiff keeps them, and no more, whatever the file announces.
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), most_image_pixels * 8);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), Source::error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), Source::ignore, &source);
  // "m": not mapped, for the bytes are in memory.
  Tiff tiff(TIFFClientOpenExt("", "rm", &source, Source::read, Source::write, Source::seek,
                              Source::close, Source::size, nullptr, nullptr, options.get()));
  if (!tiff) fail(source, name);
  return tiff;
}

ImageInfo size_of(TIFF* tiff, const Source& source, const std::string& name) {
  uint16_t bits = 1, kind = SAMPLEFORMAT_UINT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &kind);
  if (kind == SAMPLEFORMAT_IEEEFP || bits > 16) {
    fail_input(name, ": is a TIFF of ", kind == SAMPLEFORMAT_IEEEFP ? "floating-point" : "whole",
               " numbers of ", bits, " bits, expected whole ones of at most 16");
  }
  uint32_t width = 0, height = 0;
  if (!TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) ||
      !TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height)) {
    fail(source, name);
  }
  uint16_t orientation = ORIENTATION_TOPLEFT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
  ImageInfo size = require_image_size(width, height, name);
  size.orientation = orientation_of(orientation);
  return size;
}

// What libtiff makes of the pixels on their way to a raster of colours.
class Raster {
 public:
  Raster(TIFF* tiff, Source& source, const std::string& name);
  ~Raster() { TIFFRGBAImageEnd(&image_); }
  Raster(const Raster&) = delete;
  Raster& operator=(const Raster&) = delete;

  // The raster holds samples of 16 bits, not colours.
  bool has_wide_greys() const { return image_.put.contig == put_wide_greys; }
  bool is_inverted() const { return image_.photometric == PHOTOMETRIC_MINISWHITE; }
  // Of colours of 16 bits, which the raster has in 8.
  bool was_wide() const { return image_.bitspersample == 16; }
  void set_white(uint32_t white) {
    for (uint32_t i = 0; image_.Bitdepth16To8 && i < 65536; ++i)
      image_.Bitdepth16To8[i] = grey_of(i, white);
  }
  // False: the source has the message.
  bool read(std::vector<uint32_t>& pixels) {
    return TIFFRGBAImageGet(&image_, pixels.data(), image_.width, image_.height) != 0;
  }

 private:
  // libtiff itself takes the upper byte of each.
  static void put_wide_greys(TIFFRGBAImage* image, uint32_t* to, uint32_t, uint32_t, uint32_t width,
                             uint32_t height, int32_t from_skew, int32_t to_skew,
                             unsigned char* from) {
    const ptrdiff_t step = image->samplesperpixel;
    const auto* samples = reinterpret_cast<const uint16_t*>(from);
    for (uint32_t y = 0; y < height; ++y, to += to_skew, samples += from_skew * step) {
      for (uint32_t x = 0; x < width; ++x, samples += step) *to++ = *samples;
    }
  }

  TIFFRGBAImage image_{};
};

Raster::Raster(TIFF* tiff, Source& source, const std::string& name) {
  char message[1024] = "";
  constexpr int stop_at_errors = 1;
  if (!TIFFRGBAImageOK(tiff, message) ||
      !TIFFRGBAImageBegin(&image_, tiff, stop_at_errors, message)) {
    if (!source.message[0]) std::snprintf(source.message, sizeof source.message, "%.255s", message);
    fail(source, name);
  }
  image_.req_orientation = image_.orientation;  // as it is stored
  const bool is_grey =
      image_.photometric == PHOTOMETRIC_MINISBLACK || image_.photometric == PHOTOMETRIC_MINISWHITE;
  if (is_grey && image_.isContig && was_wide()) image_.put.contig = put_wide_greys;
}

// The largest of red, green and blue in 8 bits.
uint32_t largest_of(const std::vector<uint32_t>& colours) {
  uint32_t largest = 0;
  for (const uint32_t c : colours)
    largest = std::max({largest, TIFFGetR(c), TIFFGetG(c), TIFFGetB(c)});
  return largest;
}

void make_grey(const std::vector<uint32_t>& colours, GreyImage& out) {
  for (size_t i = 0; i < colours.size(); ++i) {
    const uint32_t c = colours[i];
    // libtiff has multiplied the colours by the opacity already.
    const auto seen = [&](uint32_t sample) { return on_paper(sample, TIFFGetA(c)); };
    out.pixels[i] = luminance(seen(TIFFGetR(c)), seen(TIFFGetG(c)), seen(TIFFGetB(c)));
  }
}

void make_grey_of_wide(const std::vector<uint32_t>& samples, bool inverted, GreyImage& out) {
  const uint32_t white = white_of_16_bits(*std::max_element(samples.begin(), samples.end()));
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint8_t grey = grey_of(samples[i], white);
    out.pixels[i] = inverted ? static_cast<uint8_t>(255 - grey) : grey;
  }
}

}  // namespace

ImageInfo tiff_info(Bytes bytes, const std::string& name) {
  Source source{bytes};
  const Tiff tiff = open(source, name);
  const ImageInfo size = size_of(tiff.get(), source, name);
  return with_sides_of(size, size.orientation);
}

int32_t tiff_pages(Bytes bytes) {
  Source source{bytes};
  const Tiff tiff = open(source, "");
  int32_t pages = 1;
  while (TIFFReadDirectory(tiff.get())) {
    // A smaller copy of a page, or what of it is transparent, is no page.
    uint32_t kind = 0;
    TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_SUBFILETYPE, &kind);
    pages += (kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) == 0;
  }
  return pages;
}

GreyImage decode_tiff(Bytes bytes, const std::string& name) {
  Source source{bytes};
  const Tiff tiff = open(source, name);
  const ImageInfo size = size_of(tiff.get(), source, name);
  GreyImage out(size.width, size.height);
  std::vector<uint32_t> colours(out.pixels.size());
  Raster raster(tiff.get(), source, name);
  if (!raster.read(colours)) fail(source, name);
  if (raster.has_wide_greys()) {
    make_grey_of_wide(colours, raster.is_inverted(), out);
    return shown(std::move(out), size.orientation);
  }
  // At least what it was in 16 bits.
  const auto largest =
      static_cast<uint32_t>(std::max(257 * int64_t{largest_of(colours)} - 128, int64_t{0}));
  const uint32_t white = white_of_16_bits(largest);
  if (raster.was_wide() && white < 65535) {
    raster.set_white(white);
    if (!raster.read(colours)) fail(source, name);
  }
  make_grey(colours, out);
  return shown(std::move(out), size.orientation);
}

}  // namespace rondo::image
