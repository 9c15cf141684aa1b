// PNG files of every kind as tests want them, by libpng.
#pragma once

#include <png.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rondo::test {

using Samples = std::vector<uint32_t>;

// A picture of samples of `depth` bits, row by row, a pixel's channels side by side.
struct Picture {
  uint32_t width = 0, height = 0;
  int depth = 8, channels = 1;
  Samples samples;

  uint32_t largest() const { return (1u << depth) - 1; }
};

// Samples of less than a byte side by side, of 16 bits the high byte first.
inline std::string packed_row(const Picture& p, uint32_t y) {
  const size_t count = p.width * static_cast<size_t>(p.channels);
  std::string row((count * static_cast<size_t>(p.depth) + 7) / 8, '\0');
  for (size_t i = 0; i < count; ++i) {
    const uint32_t v = p.samples[y * count + i];
    if (p.depth == 16) {
      row[2 * i] = static_cast<char>(v >> 8);
      row[2 * i + 1] = static_cast<char>(v);
    } else {
      const size_t bit = i * static_cast<size_t>(p.depth);
      const size_t left = 8 - static_cast<size_t>(p.depth) - bit % 8;
      row[bit / 8] = static_cast<char>(static_cast<uint8_t>(row[bit / 8]) | v << left);
    }
  }
  return row;
}

inline void append(png_structp png, png_bytep bytes, size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), count);
}

// `set` adds what else stands in the header. libpng ends the program where the test is wrong.
inline std::string png_of(const Picture& p, int kind, bool interlaced,
                          const std::function<void(png_structp, png_infop)>& set = {}) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, append, nullptr);
  png_set_IHDR(png, info, p.width, p.height, p.depth, kind,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (set) set(png, info);
  png_write_info(png, info);
  for (int pass = png_set_interlace_handling(png); pass > 0; --pass) {
    for (uint32_t y = 0; y < p.height; ++y) {
      const std::string row = packed_row(p, y);
      png_write_row(png, reinterpret_cast<png_const_bytep>(row.data()));
    }
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

}  // namespace rondo::test
