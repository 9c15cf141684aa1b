// A grey picture in memory, and what can read one: engine/data/image/image.h does, by libpng,
// libjpeg and libtiff.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/features/file_part.h"

namespace rondo {

enum class Orientation : uint8_t;  // orientation.h

struct ImageInfo {
  int32_t width = 0, height = 0;  // pixels, of the image as it is shown
  Orientation orientation{1};     // of the file's rows
};

struct GreyImage {
  int32_t width = 0, height = 0;  // pixels
  std::vector<uint8_t> pixels;    // [height, width], rows from the top; 0 is black, 255 white

  GreyImage() = default;
  GreyImage(int32_t width_, int32_t height_)
      : width(width_),
        height(height_),
        pixels(static_cast<size_t>(width_) * static_cast<size_t>(height_)) {}
  ImageInfo info() const { return {width, height}; }
  uint8_t* row(int32_t y) { return pixels.data() + static_cast<size_t>(y) * stride(); }
  const uint8_t* row(int32_t y) const { return pixels.data() + static_cast<size_t>(y) * stride(); }

 private:
  size_t stride() const { return static_cast<size_t>(width); }
};

// The seam between the data code, which knows no library of images, and one that does.
// Thread safety: const members may be called from several threads at once.
class ImageReader {
 public:
  virtual ~ImageReader() = default;
  // Reads the header alone, where the format has one. Throws InputError, naming the file.
  virtual ImageInfo info(const FilePart& file) const = 0;
  // How many pictures the file holds, of which the first is read.
  virtual int32_t pages(const FilePart&) const { return 1; }
  // Decoded; colours become their luminance. Throws InputError, naming the file.
  virtual GreyImage read(const FilePart& file) const = 0;
  // The same of an image that will be asked for again, as pages are. Who can keep it does.
  virtual std::shared_ptr<const GreyImage> read_page(const FilePart& file) const {
    return std::make_shared<const GreyImage>(read(file));
  }
};

}  // namespace rondo
