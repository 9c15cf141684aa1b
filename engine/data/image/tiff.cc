// TIFF, by libtiff: any compression and kind of pixel that it reads as colours.
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

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
  return require_image_size(width, height, name);
}

}  // namespace

bool is_tiff(Bytes start) {
  if (start.size() < 4) return false;
  for (const char* magic : {"II*\0", "MM\0*", "II+\0", "MM\0+"}) {
    if (std::memcmp(start.data(), magic, 4) == 0) return true;
  }
  return false;
}

ImageInfo tiff_info(Bytes bytes, const std::string& name) {
  Source source{bytes};
  const Tiff tiff = open(source, name);
  return size_of(tiff.get(), source, name);
}

GreyImage decode_tiff(Bytes bytes, const std::string& name) {
  Source source{bytes};
  const Tiff tiff = open(source, name);
  const ImageInfo size = size_of(tiff.get(), source, name);
  GreyImage out(size.width, size.height);
  std::vector<uint32_t> colours(out.pixels.size());
  constexpr int stop_at_errors = 1;
  if (!TIFFReadRGBAImageOriented(tiff.get(), static_cast<uint32_t>(size.width),
                                 static_cast<uint32_t>(size.height), colours.data(),
                                 ORIENTATION_TOPLEFT, stop_at_errors)) {
    fail(source, name);
  }
  for (size_t i = 0; i < colours.size(); ++i) {
    const uint32_t c = colours[i];
    // libtiff has multiplied the colours by the opacity already.
    const auto shown = [&](uint32_t sample) { return on_paper(sample, TIFFGetA(c)); };
    out.pixels[i] = luminance(shown(TIFFGetR(c)), shown(TIFFGetG(c)), shown(TIFFGetB(c)));
  }
  return out;
}

}  // namespace rondo::image
