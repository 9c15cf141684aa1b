// Decoding and writing image files: PNG by libpng, JPEG by libjpeg, TIFF by libtiff, and PBM, PGM
// and PPM (netpbm's formats), which are read here.
//
// What a file is, its first bytes say, not its name. Of a TIFF the first page is read, of netpbm's
// files the first picture. Colours become their luminance (ITU-R BT.601), what is transparent shows
// white paper, 16 bits become 8: of a picture none of whose samples reaches a quarter of white, as
// cameras and scanners of 8 to 14 bits write them, white is the largest number of its bits.
// An image is turned and mirrored as it is to be shown, which JPEG and PNG say in EXIF data and
// TIFF in a tag (orientation.h). Otherwise samples are taken as the file has them, without regard
// to its gamma or colour profile.
//
// Errors: InputError, one sentence that names the file, for one that is missing, unreadable, empty,
// truncated, damaged or no image, and for one of more than `most_image_pixels`, whatever it takes
// in the file: a small file may announce gigabytes. What is no regular file (a pipe, a device) is
// refused without waiting for it. Thread safety: every function may be called from several threads
// at once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/image/grey_image.h"

namespace rondo {

// Lines have less than a hundredth of them.
inline constexpr int64_t most_image_pixels = int64_t{1} << 26;
inline constexpr int32_t most_image_side = 1 << 20;
inline constexpr uint64_t most_image_bytes = uint64_t{1} << 28;

// Pixels of pages that are kept for their next lines: a hundred pages of a book, at 300 dpi.
inline constexpr uint64_t most_kept_page_bytes = uint64_t{1} << 30;

namespace image {
class KeptImages;
}

class ImageFileReader final : public ImageReader {
 public:
  explicit ImageFileReader(uint64_t most_kept_bytes = most_kept_page_bytes);
  ~ImageFileReader() override;

  ImageInfo info(const FilePart& file) const override;
  int32_t pages(const FilePart& file) const override;
  GreyImage read(const FilePart& file) const override;
  // Decoded once while it is among the pages that are kept. A file that has changed since is not
  // noticed.
  std::shared_ptr<const GreyImage> read_page(const FilePart& file) const override;

 private:
  std::unique_ptr<image::KeptImages> kept_;
};

// The same from memory (standard input, a test); `name` stands for the file in messages.
ImageInfo image_info(std::span<const std::byte> bytes, const std::string& name);
int32_t image_pages(std::span<const std::byte> bytes);  // at least 1
GreyImage decode_image(std::span<const std::byte> bytes, const std::string& name);

// Where a file holds several pictures: a sentence that says so. Else empty.
std::string pictures_warning(int32_t pictures, const std::string& name);

// Whether a file is called like an image (.png, .jpg, .jpeg, .tif, .tiff, .pbm, .pgm, .ppm, .pnm,
// in either case): for choosing among the files of a folder.
bool is_image_name(std::string_view path);

// The bytes of a PNG of 8-bit grey.
std::string make_png(const GreyImage& image);

}  // namespace rondo
