// PNG, by libpng. Its way out of an error is a jump, so what lies between has no destructors.
//
// The samples are taken as the file has them. Its gamma and colour profile, which hardly any
// scanner knows, are left aside as those of the other formats are, so that the same samples are the
// same grey in any format.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/data/image/decoders.h"
#include "engine/data/image/image.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace image {
namespace {

// The state of libpng for one picture, with what it says of it.
struct Png {
  png_structp state = nullptr;
  png_infop info = nullptr;
  Bytes bytes;
  size_t at = 0;
  std::jmp_buf out;
  char message[256] = "";

  explicit Png(Bytes bytes_) : bytes(bytes_) {
    state = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, jump_out, ignore);
    RONDO_CHECK(state, "libpng has no memory, or is another one than its header");
  }
  ~Png() { png_destroy_read_struct(&state, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  [[noreturn]] void fail(const std::string& name) const {
    fail_input(name, ": is no whole PNG: ", message);
  }

  [[noreturn]] static void jump_out(png_structp state, png_const_charp message) {
    auto* png = static_cast<Png*>(png_get_error_ptr(state));
    std::snprintf(png->message, sizeof png->message, "%s", message);
    std::longjmp(png->out, 1);
  }
  static void ignore(png_structp, png_const_charp) {}
  static void take(png_structp state, png_bytep to, size_t wanted) {
    auto* png = static_cast<Png*>(png_get_io_ptr(state));
    if (png->bytes.size() - png->at < wanted) png_error(state, "it ends too early");
    copy_bytes(to, png->bytes.data() + png->at, wanted);
    png->at += wanted;
  }
};

bool read_header(Png& png) {
  if (setjmp(png.out)) return false;
  png.info = png_create_info_struct(png.state);
  if (!png.info) png_error(png.state, "libpng has no memory");
  png_set_read_fn(png.state, &png, Png::take);
  png_read_info(png.state, png.info);
  return true;
}

// Samples of 8 or 16 bits, without a palette: grey or RGB, and behind them the opacity if there is
// any.
// `passes` are those that an interlaced picture takes.
bool set_format(Png& png, int& passes) {
  if (setjmp(png.out)) return false;
  png_set_expand(png.state);
  passes = png_set_interlace_handling(png.state);
  png_read_update_info(png.state, png.info);
  return true;
}

bool read_row(Png& png, png_bytep row) {
  if (setjmp(png.out)) return false;
  png_read_row(png.state, row, nullptr);
  return true;
}

void make_grey(const uint8_t* samples, int channels, uint8_t* grey, int32_t width) {
  const bool has_colour = channels >= 3, has_opacity = channels % 2 == 0;
  for (int32_t x = 0; x < width; ++x, samples += channels) {
    const uint32_t opacity = has_opacity ? samples[channels - 1] : 255;
    const auto shown = [&](int channel) {
      return on_paper(multiplied(samples[channel], opacity), opacity);
    };
    grey[x] = has_colour ? luminance(shown(0), shown(1), shown(2)) : static_cast<uint8_t>(shown(0));
  }
}

// Of 16 bits in the file's order.
uint32_t sample_of_16_bits(const uint8_t* bytes) { return uint32_t{bytes[0]} << 8 | bytes[1]; }

// The largest sample that is no opacity.
uint32_t largest_sample(const std::vector<uint8_t>& samples, int channels) {
  const auto colours = static_cast<size_t>(channels - (channels % 2 == 0));
  uint32_t largest = 0;
  for (size_t i = 0, channel = 0; i + 1 < samples.size(); i += 2) {
    if (channel < colours) largest = std::max(largest, sample_of_16_bits(&samples[i]));
    if (++channel == static_cast<size_t>(channels)) channel = 0;
  }
  return largest;
}

// The row's samples of 16 bits as 8, in their place.
void narrow_row(uint8_t* row, int channels, uint32_t white, int32_t width) {
  const int colours = channels - (channels % 2 == 0);
  const uint8_t* from = row;
  for (int32_t x = 0; x < width; ++x) {
    for (int c = 0; c < channels; ++c, from += 2)
      *row++ = grey_of(sample_of_16_bits(from), c < colours ? white : 65535);
  }
}

Orientation orientation_of(const Png& png) {
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 count = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(png.state, png.info, &count, &exif) && exif)
    return image::orientation_of(Bytes(reinterpret_cast<const std::byte*>(exif), count));
#endif
  return Orientation::top_left;
}

// As it is stored.
ImageInfo begin(Png& png, const std::string& name) {
  if (!read_header(png)) png.fail(name);
  ImageInfo info = require_image_size(png_get_image_width(png.state, png.info),
                                      png_get_image_height(png.state, png.info), name);
  info.orientation = orientation_of(png);
  return info;
}

}  // namespace

ImageInfo png_info(Bytes bytes, const std::string& name) {
  Png png(bytes);
  const ImageInfo info = begin(png, name);
  return with_sides_of(info, info.orientation);
}

GreyImage decode_png(Bytes bytes, const std::string& name) {
  Png png(bytes);
  const ImageInfo size = begin(png, name);
  GreyImage out(size.width, size.height);
  int passes = 1;
  if (!set_format(png, passes)) png.fail(name);
  const int channels = png_get_channels(png.state, png.info);
  const size_t row_bytes = png_get_rowbytes(png.state, png.info);
  const bool is_wide = png_get_bit_depth(png.state, png.info) == 16;
  // Each pass adds to the rows of those before it, and what is white in 16 bits is known at the
  // end: then all rows are kept, else one.
  const bool keeps_rows = passes > 1 || is_wide;
  std::vector<uint8_t> samples(row_bytes * (keeps_rows ? static_cast<size_t>(size.height) : 1));
  for (int pass = 1; pass <= passes; ++pass) {
    for (int32_t y = 0; y < size.height; ++y) {
      uint8_t* row = samples.data() + (keeps_rows ? static_cast<size_t>(y) * row_bytes : 0);
      if (!read_row(png, row)) png.fail(name);
      if (pass == passes && !is_wide) make_grey(row, channels, out.row(y), size.width);
    }
  }
  if (is_wide) {
    const uint32_t white = white_of_16_bits(largest_sample(samples, channels));
    for (int32_t y = 0; y < size.height; ++y) {
      uint8_t* row = samples.data() + static_cast<size_t>(y) * row_bytes;
      narrow_row(row, channels, white, size.width);
      make_grey(row, channels, out.row(y), size.width);
    }
  }
  return shown(std::move(out), size.orientation);
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
