#include <zlib.h>

#include "engine/data/image/decoders.h"
#include "engine/data/image/image.h"
#include "kernels/base/error.h"

// In place of png.cc, jpeg.cc and tiff.cc in a build without their libraries.
namespace rondo::image {
namespace {

[[noreturn]] void fail(const std::string& name, const char* format) {
  fail_input(name, ": is ", format,
             ", which a build without libpng, libjpeg and libtiff does not read; expected PGM, PPM "
             "or PBM");
}

}  // namespace

ImageInfo png_info(Bytes, const std::string& name) { fail(name, "PNG"); }
GreyImage decode_png(Bytes, const std::string& name) { fail(name, "PNG"); }

ImageInfo jpeg_info(Bytes, const std::string& name) { fail(name, "JPEG"); }
GreyImage decode_jpeg(Bytes, const std::string& name) { fail(name, "JPEG"); }

ImageInfo tiff_info(Bytes, const std::string& name) { fail(name, "TIFF"); }
GreyImage decode_tiff(Bytes, const std::string& name) { fail(name, "TIFF"); }
int32_t tiff_pages(Bytes) { return 1; }

}  // namespace rondo::image

namespace rondo {
namespace {

void put32(std::string& to, uint64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 0xff);
}

// Name and data of a part of a PNG, between their size and their checksum (W3C PNG, 5.3).
void put_chunk(std::string& to, const std::string& part) {
  put32(to, part.size() - 4);
  to += part;
  put32(to, crc32_z(0, reinterpret_cast<const Bytef*>(part.data()), part.size()));
}

}  // namespace

std::string make_png(const GreyImage& image) {
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  std::string rows;  // before each one, that no filter was used
  for (size_t y = 0; y < height; ++y) {
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(image.pixels.data()) + y * width, width);
  }
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  const int status = compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                              reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  RONDO_CHECK(status == Z_OK, "zlib: status ", status);
  packed.resize(size);
  std::string header = "IHDR";
  put32(header, width);
  put32(header, height);
  header += {8, 0, 0, 0, 0};  // bits, grey, and the only ways to compress, to filter and to order
  std::string png = "\x89PNG\r\n\x1a\n";
  for (const std::string& part : {header, "IDAT" + packed, std::string("IEND")})
    put_chunk(png, part);
  return png;
}

}  // namespace rondo
