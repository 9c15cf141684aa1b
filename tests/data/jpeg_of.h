// JPEG files as tests want them, by libjpeg at its best quality.
#pragma once

#include <cstdio>
// libjpeg's header wants size_t and FILE.
#include <jpeglib.h>

#include <cstdlib>
#include <string>

namespace rondo::test {

// How the four inks of a CMYK file are stored: as they are; with Adobe's marker, which says that
// 255 is no ink; so, and the first three as brightness and colour.
enum class Inks { plain, adobe, ycck };

// `row(y)`: the samples of a row, grey with one channel, RGB with three and CMYK with four,
// valid until the next call.
template <class Row>
std::string jpeg_of(int width, int height, int channels, bool progressive, const Row& row,
                    Inks inks = Inks::adobe) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors;
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &out, &size);
  c.image_width = static_cast<JDIMENSION>(width);
  c.image_height = static_cast<JDIMENSION>(height);
  c.input_components = channels;
  c.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&c);
  jpeg_set_quality(&c, 100, TRUE);
  if (channels == 4) {
    if (inks == Inks::ycck) jpeg_set_colorspace(&c, JCS_YCCK);
    c.write_Adobe_marker = inks == Inks::plain ? FALSE : TRUE;
  }
  if (progressive) jpeg_simple_progression(&c);
  jpeg_start_compress(&c, TRUE);
  while (c.next_scanline < c.image_height) {
    auto* samples = const_cast<JSAMPROW>(row(c.next_scanline));
    jpeg_write_scanlines(&c, &samples, 1);
  }
  jpeg_finish_compress(&c);
  jpeg_destroy_compress(&c);
  std::string bytes(reinterpret_cast<char*>(out), size);
  std::free(out);
  return bytes;
}

}  // namespace rondo::test
