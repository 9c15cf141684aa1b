// JPEG, by libjpeg. Its way out of an error is a jump, so what lies between has no destructors.
#include <csetjmp>
#include <cstdio>
// libjpeg's header wants size_t and FILE.
#include <jerror.h>
#include <jpeglib.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/data/image/decoders.h"
#include "kernels/base/error.h"

namespace rondo::image {
namespace {

constexpr int exif_marker = JPEG_APP0 + 1;

struct Errors {
  jpeg_error_mgr manager;  // the first member: libjpeg knows this alone
  std::jmp_buf out;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jump_out(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<Errors*>(jpeg->err);
  errors->manager.format_message(jpeg, errors->message);
  std::longjmp(errors->out, 1);
}

// libjpeg fills up with grey what it does not find; that would be learnt.
void take_message(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) jump_out(jpeg);
}

// A small file may ask for a million passes over a large picture.
void count_scans(j_common_ptr jpeg) {
  constexpr int most_scans = 100;
  const auto* decompress = reinterpret_cast<jpeg_decompress_struct*>(jpeg);
  if (decompress->input_scan_number <= most_scans) return;
  auto* errors = reinterpret_cast<Errors*>(jpeg->err);
  std::snprintf(errors->message, sizeof errors->message, "it has more than %d scans", most_scans);
  std::longjmp(errors->out, 1);
}

struct Jpeg {
  jpeg_decompress_struct state{};
  Errors errors{};
  jpeg_progress_mgr progress{};

  Jpeg() {
    state.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = jump_out;
    errors.manager.emit_message = take_message;
    progress.progress_monitor = count_scans;
  }
  ~Jpeg() { jpeg_destroy_decompress(&state); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  [[noreturn]] void fail(const std::string& name) const {
    fail_input(name, ": is no whole JPEG: ", errors.message);
  }
};

bool read_header(Jpeg& jpeg, Bytes bytes) {
  if (setjmp(jpeg.errors.out)) return false;
  jpeg_create_decompress(&jpeg.state);
  jpeg.state.progress = &jpeg.progress;
  jpeg_mem_src(&jpeg.state, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  constexpr unsigned whole_marker = 0xffff;
  jpeg_save_markers(&jpeg.state, exif_marker, whole_marker);
  jpeg_read_header(&jpeg.state, TRUE);
  return true;
}

bool is_of_printers_colours(const Jpeg& jpeg) {
  const J_COLOR_SPACE colours = jpeg.state.jpeg_color_space;
  return colours == JCS_CMYK || colours == JCS_YCCK;
}

// A row of cyan, magenta, yellow and black as grey. 255 is all of an ink, or none in files with
// Adobe's marker.
void grey_of_inks(const JSAMPLE* inks, bool inverted, int32_t width, uint8_t* out) {
  for (int32_t x = 0; x < width; ++x, inks += 4) {
    const auto paper = [&](int ink) { return inverted ? uint32_t{inks[ink]} : 255u - inks[ink]; };
    const auto seen = [&](int ink) { return multiplied(paper(ink), paper(3)); };
    out[x] = luminance(seen(0), seen(1), seen(2));
  }
}

// `inks`: room for a row of four samples a pixel, where the colours are printers'.
bool read_pixels(Jpeg& jpeg, GreyImage& out, JSAMPLE* inks) {
  if (setjmp(jpeg.errors.out)) return false;
  jpeg.state.out_color_space = inks ? JCS_CMYK : JCS_GRAYSCALE;
  jpeg_start_decompress(&jpeg.state);
  while (jpeg.state.output_scanline < jpeg.state.output_height) {
    uint8_t* const greys = out.row(static_cast<int32_t>(jpeg.state.output_scanline));
    JSAMPROW row = inks ? inks : greys;
    jpeg_read_scanlines(&jpeg.state, &row, 1);
    if (inks) grey_of_inks(inks, jpeg.state.saw_Adobe_marker, out.width, greys);
  }
  jpeg_finish_decompress(&jpeg.state);
  return true;
}

// Of the first EXIF data; a marker of the same number may hold other things.
Orientation orientation_of(const Jpeg& jpeg) {
  for (jpeg_saved_marker_ptr m = jpeg.state.marker_list; m; m = m->next) {
    const Bytes data(reinterpret_cast<const std::byte*>(m->data), m->data_length);
    if (m->marker == exif_marker && data.size() > 4 && std::memcmp(data.data(), "Exif", 4) == 0)
      return image::orientation_of(data);
  }
  return Orientation::top_left;
}

// As it is stored.
ImageInfo begin(Jpeg& jpeg, Bytes bytes, const std::string& name) {
  if (!read_header(jpeg, bytes)) jpeg.fail(name);
  ImageInfo info = require_image_size(jpeg.state.image_width, jpeg.state.image_height, name);
  info.orientation = orientation_of(jpeg);
  return info;
}

}  // namespace

ImageInfo jpeg_info(Bytes bytes, const std::string& name) {
  Jpeg jpeg;
  const ImageInfo info = begin(jpeg, bytes, name);
  return with_sides_of(info, info.orientation);
}

GreyImage decode_jpeg(Bytes bytes, const std::string& name) {
  Jpeg jpeg;
  const ImageInfo size = begin(jpeg, bytes, name);
  GreyImage out(size.width, size.height);
  std::vector<JSAMPLE> inks;
  if (is_of_printers_colours(jpeg)) inks.resize(size_t{4} * static_cast<size_t>(size.width));
  if (!read_pixels(jpeg, out, inks.empty() ? nullptr : inks.data())) jpeg.fail(name);
  return shown(std::move(out), size.orientation);
}

}  // namespace rondo::image
