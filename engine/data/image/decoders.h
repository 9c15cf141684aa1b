// The formats that image.cc chooses from (internal to engine/data/image). Each throws InputError,
// naming the file, and asks `require_image_size` before it takes memory for the pixels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/data/image/orientation.h"

namespace rondo::image {

using Bytes = std::span<const std::byte>;

struct Format {
  const char* name;
  bool (*matches)(Bytes start);  // its first bytes; there may be fewer than it needs
  // Both as the image is shown, whichever way the file has its rows.
  ImageInfo (*info)(Bytes bytes, const std::string& name);
  GreyImage (*decode)(Bytes bytes, const std::string& name);
};

bool is_png(Bytes start);
ImageInfo png_info(Bytes bytes, const std::string& name);
GreyImage decode_png(Bytes bytes, const std::string& name);

bool is_jpeg(Bytes start);
ImageInfo jpeg_info(Bytes bytes, const std::string& name);
GreyImage decode_jpeg(Bytes bytes, const std::string& name);

bool is_tiff(Bytes start);
ImageInfo tiff_info(Bytes bytes, const std::string& name);
GreyImage decode_tiff(Bytes bytes, const std::string& name);
int32_t tiff_pages(Bytes bytes);

bool is_pnm(Bytes start);
ImageInfo pnm_info(Bytes bytes, const std::string& name);
GreyImage decode_pnm(Bytes bytes, const std::string& name);
int32_t pnm_pages(Bytes bytes);

// What was announced, before memory is taken for it.
ImageInfo require_image_size(int64_t width, int64_t height, const std::string& name);

// The sample of 16 bits that is white, by the largest one of the picture. Cameras and scanners of
// 8, 10, 12 or 14 bits write their numbers into 16 as they are: a picture that is darker than a
// quarter of white is one of these.
inline uint32_t white_of_16_bits(uint32_t largest) {
  for (const int bits : {8, 10, 12, 14}) {
    if (largest < 1u << bits) return (1u << bits) - 1;
  }
  return 65535;
}

// Samples of 0 to `white` as 0 to 255, rounded.
inline uint8_t grey_of(uint32_t sample, uint32_t white) {
  return static_cast<uint8_t>((std::min(sample, white) * 255 + white / 2) / white);
}

// ITU-R BT.601, as libjpeg and PNG's viewers weigh colours: 0.299 R + 0.587 G + 0.114 B.
inline uint8_t luminance(uint32_t r, uint32_t g, uint32_t b) {
  return static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
}

// A sample of a colour or grey, 0 to 255, times its opacity, 0 to 255, rounded as libtiff does it.
inline uint32_t multiplied(uint32_t sample, uint32_t opacity) {
  return (sample * opacity + 127) / 255;
}

// What is seen of it where it lies on white paper.
inline uint32_t on_paper(uint32_t multiplied_sample, uint32_t opacity) {
  return std::min<uint32_t>(multiplied_sample + 255 - opacity, 255);
}

}  // namespace rondo::image
