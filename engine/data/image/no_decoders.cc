#include "engine/data/image/decoders.h"
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
