#include "engine/data/image/image.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/data/features/run_program.h"
#include "engine/data/image/decoders.h"
#include "engine/data/image/kept_images.h"
#include "kernels/base/error.h"

namespace rondo {
namespace image {

ImageInfo require_image_size(int64_t width, int64_t height, const std::string& name) {
  if (width < 1 || height < 1) {
    fail_input(name, ": is ", width, " x ", height, " pixels, expected at least one");
  }
  // Each side first, so that their product is no overflow.
  if (width > most_image_side || height > most_image_side || width * height > most_image_pixels) {
    fail_input(name, ": is ", width, " x ", height, " pixels, expected at most ", most_image_pixels,
               " and ", most_image_side, " to a side");
  }
  return {static_cast<int32_t>(width), static_cast<int32_t>(height)};
}

bool is_png(Bytes start) {
  static constexpr unsigned char magic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return start.size() >= sizeof magic && std::memcmp(start.data(), magic, sizeof magic) == 0;
}

bool is_jpeg(Bytes start) {
  return start.size() >= 3 && start[0] == std::byte{0xff} && start[1] == std::byte{0xd8} &&
         start[2] == std::byte{0xff};
}

bool is_tiff(Bytes start) {
  if (start.size() < 4) return false;
  for (const char* magic : {"II*\0", "MM\0*", "II+\0", "MM\0+"}) {
    if (std::memcmp(start.data(), magic, 4) == 0) return true;
  }
  return false;
}

namespace {

constexpr std::array formats = std::to_array<Format>({
    {"PNG", is_png, png_info, decode_png},
    {"JPEG", is_jpeg, jpeg_info, decode_jpeg},
    {"TIFF", is_tiff, tiff_info, decode_tiff},
    {"PGM", is_pnm, pnm_info, decode_pnm},
});

// What other programs write and we do not read, and what makes one of ours of it.
struct ForeignFormat {
  const char* name;
  size_t at;  // where `magic` lies
  std::string_view magic;
  const char *command, *package, *ending;  // as Debian calls them; of what is made
  const char* to = " ";                    // between the two files
};
constexpr std::array foreign_formats = std::to_array<ForeignFormat>({
    {"WebP", 8, "WEBP", "convert", "imagemagick", ".png"},
    {"GIF", 0, "GIF8", "convert", "imagemagick", ".png"},
    {"BMP", 0, "BM", "convert", "imagemagick", ".png"},
    {"Photoshop (psd)", 0, "8BPS", "convert", "imagemagick", ".png"},
    {"HEIF (heic, avif)", 4, "ftyp", "heif-convert", "libheif-examples", ".png"},
    {"JPEG 2000", 4, "jP  ", "opj_decompress -i", "libopenjp2-tools", ".png", " -o "},
    {"JPEG 2000", 0, "\xff\x4f\xff\x51", "opj_decompress -i", "libopenjp2-tools", ".png", " -o "},
    {"PDF", 0, "%PDF", "pdftoppm -r 300 -png", "poppler-utils", ""},
    {"DjVu", 0, "AT&TFORM", "ddjvu -format=tiff", "djvulibre-bin", ".tif"},
});

// "; convert it: convert a.webp a.png (Debian: imagemagick)", if it is one of those.
std::string advice_for(Bytes bytes, const std::string& name) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const ForeignFormat& f : foreign_formats) {
    if (!start.substr(std::min(f.at, start.size())).starts_with(f.magic)) continue;
    std::filesystem::path made = std::filesystem::path(name).replace_extension(f.ending);
    if (made == name) made.replace_extension(str(".new", f.ending));
    return str("; it is ", f.name, ", convert it: ", f.command, " ", word_for_shell(name), f.to,
               word_for_shell(made.string()), " (Debian: ", f.package, ")");
  }
  return {};
}

const Format& format_of(Bytes bytes, const std::string& name) {
  if (bytes.empty()) fail_input(name, ": is empty, expected an image");
  for (const Format& f : formats) {
    if (f.matches(bytes)) return f;
  }
  fail_input(name, ": is no image that can be read (PNG, JPEG, TIFF, PGM, PPM or PBM)",
             advice_for(bytes, name));
}

std::string read_image_file(const FilePart& file) {
  const uint64_t size = data::regular_file_size(file);
  if (size > most_image_bytes) {
    fail_input(file.name(), ": has ", size, " bytes, expected an image of at most ",
               most_image_bytes);
  }
  return data::read_regular_file(file);
}

// Whether files of this kind may.
bool has_pages(Bytes start) { return is_tiff(start) || is_pnm(start); }

Bytes bytes_of(const std::string& content) { return std::as_bytes(std::span(content)); }

}  // namespace
}  // namespace image

ImageInfo image_info(std::span<const std::byte> bytes, const std::string& name) {
  return image::format_of(bytes, name).info(bytes, name);
}

int32_t image_pages(std::span<const std::byte> bytes) {
  if (image::is_tiff(bytes)) return image::tiff_pages(bytes);
  return image::is_pnm(bytes) ? image::pnm_pages(bytes) : 1;
}

GreyImage decode_image(std::span<const std::byte> bytes, const std::string& name) {
  return image::format_of(bytes, name).decode(bytes, name);
}

ImageFileReader::ImageFileReader(uint64_t most_kept_bytes)
    : kept_(std::make_unique<image::KeptImages>(most_kept_bytes)) {}

ImageFileReader::~ImageFileReader() = default;

ImageInfo ImageFileReader::info(const FilePart& file) const {
  // Mostly the header is there; a TIFF may have it at the end.
  constexpr size_t start_bytes = 1 << 16;
  const std::string start = data::read_file_start(file, start_bytes);
  try {
    return image_info(image::bytes_of(start), file.name());
  } catch (const InputError&) {
    if (start.size() < start_bytes) throw;
  }
  return image_info(image::bytes_of(image::read_image_file(file)), file.name());
}

int32_t ImageFileReader::pages(const FilePart& file) const {
  const std::string start = data::read_file_start(file, 8);
  if (!image::has_pages(image::bytes_of(start))) return 1;
  return image_pages(image::bytes_of(image::read_image_file(file)));
}

GreyImage ImageFileReader::read(const FilePart& file) const {
  return decode_image(image::bytes_of(image::read_image_file(file)), file.name());
}

std::shared_ptr<const GreyImage> ImageFileReader::read_page(const FilePart& file) const {
  return kept_->get(file.name(), [&] { return read(file); });
}

std::string pictures_warning(int32_t pictures, const std::string& name) {
  if (pictures < 2) return {};
  return str(name, ": holds ", pictures,
             " pictures, of which the first is read; write each into a ", "file of its own");
}

bool is_image_name(std::string_view path) {
  static constexpr std::array endings = std::to_array<std::string_view>(
      {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".pbm", ".pgm", ".ppm", ".pnm"});
  return std::find(endings.begin(), endings.end(), ending_of(path)) != endings.end();
}

}  // namespace rondo
