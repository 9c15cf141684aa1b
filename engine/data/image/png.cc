// PNG, by the simplified interface of libpng, which catches its own errors.
#include <png.h>

#include <algorithm>
#include <cstring>

#include "engine/data/image/decoders.h"
#include "engine/data/image/image.h"
#include "kernels/base/error.h"

namespace rondo {
namespace image {
namespace {

// The state of libpng for one picture.
class Png {
 public:
  Png() { state_.version = PNG_IMAGE_VERSION; }
  ~Png() { png_image_free(&state_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
  png_image* operator->() { return &state_; }
  png_image* get() { return &state_; }

  ImageInfo begin(Bytes bytes, const std::string& name) {
    if (!png_image_begin_read_from_memory(&state_, bytes.data(), bytes.size())) fail(name);
    return require_image_size(state_.width, state_.height, name);
  }
  [[noreturn]] void fail(const std::string& name) const {
    fail_input(name, ": is no whole PNG: ", state_.message);
  }

 private:
  png_image state_{};
};

}  // namespace

bool is_png(Bytes start) {
  static constexpr unsigned char magic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return start.size() >= sizeof magic && std::memcmp(start.data(), magic, sizeof magic) == 0;
}

ImageInfo png_info(Bytes bytes, const std::string& name) { return Png().begin(bytes, name); }

GreyImage decode_png(Bytes bytes, const std::string& name) {
  Png png;
  const ImageInfo size = png.begin(bytes, name);
  GreyImage out(size.width, size.height);
  png->format = PNG_FORMAT_GRAY;
  const png_color paper{255, 255, 255};
  if (!png_image_finish_read(png.get(), &paper, out.pixels.data(), 0, nullptr)) png.fail(name);
  return out;
}

}  // namespace image

std::string make_png(const GreyImage& image) {
  png_image state{};
  state.version = PNG_IMAGE_VERSION;
  state.width = static_cast<png_uint_32>(image.width);
  state.height = static_cast<png_uint_32>(image.height);
  state.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(state);
  std::string bytes(size, '\0');
  const bool made =
      png_image_write_to_memory(&state, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  RONDO_CHECK(made, "libpng: ", state.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace rondo
