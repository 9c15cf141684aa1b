#include "engine/page/page_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/data/image/orientation.h"
#include "engine/page/xml.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// With the folders in its name and without; those of other systems have other separators.
std::vector<fs::path> names_of(const std::string& name) {
  const size_t slash = name.find_last_of("/\\");
  std::vector<fs::path> names{name};
  if (slash != std::string::npos) names.emplace_back(name.substr(slash + 1));
  return names;
}

constexpr std::array<std::string_view, 8> image_endings = {".png",  ".tif", ".tiff", ".jpg",
                                                           ".jpeg", ".pgm", ".ppm",  ".pbm"};

// The one in the folder that is called `stem` and an ending of images; of several, that of the
// first ending.
std::optional<fs::path> image_called(const fs::path& folder, const std::string& stem) {
  // As nearly all are called: a folder of many pages is not read once for each.
  for (const std::string_view ending : image_endings) {
    std::string capitals(ending);
    for (char& c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    for (const std::string& name : {stem + std::string(ending), stem + capitals}) {
      const fs::path path = path_in_any_form((folder / name).string());
      if (is_there(path)) return path;
    }
  }
  std::optional<std::pair<size_t, std::string>> first;
  std::error_code ignored;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, ignored), end; at != end;
       at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(stem + ".")) continue;
    for (size_t i = 0; i < image_endings.size(); ++i) {
      if (name.size() != stem.size() + image_endings[i].size()) continue;
      const std::pair found(i, name);
      if (has_ending(name, image_endings[i]) && is_there(at->path()) && (!first || found < *first))
        first = found;
    }
  }
  if (!first) return std::nullopt;
  return folder / first->second;
}

std::string find_image(const PageFile& page) {
  const fs::path file(page.path);
  const fs::path own = file.parent_path();
  // Programs put the descriptions of pages into a folder beside the images; one word is no folder.
  const fs::path above = own.empty() ? fs::path("..") : own / "..";
  if (!page.image_name.empty() && page.image_name.find('\0') == std::string::npos) {
    for (const fs::path& name : names_of(page.image_name)) {
      for (const fs::path& folder : {own, above}) {
        const fs::path path = path_in_any_form((folder / name).string());
        if (is_there(path)) return path.lexically_normal().string();
      }
    }
  }
  for (const fs::path& folder : {own, above}) {
    if (const auto path = image_called(folder, file.stem().string()))
      return path->lexically_normal().string();
  }
  fail_input(page.path, ": its image ",
             page.image_name.empty() ? "has no name" : str("'", page.image_name, "'"),
             page.image_name.empty() ? "" : " is not there",
             ", and none called like the page is; looked in its folder and the one above");
}

}  // namespace

bool is_page_file(const std::string& path) {
  if (!has_ending(path, ".xml")) return false;
  constexpr size_t enough = 1 << 16;  // for comments and declarations before the first element
  std::string start = data::read_file_start(path, enough);
  std::erase(start, '\0');  // of UTF-16
  for (const std::string root : {"<PcGts", ":PcGts", "<alto", ":alto"}) {
    for (size_t at = start.find(root); at != std::string::npos; at = start.find(root, at + 1)) {
      const size_t end = at + root.size();
      if (end < start.size() &&
          std::string_view(" \t\r\n/>").find(start[end]) != std::string_view::npos)
        return true;
    }
  }
  return false;
}

namespace {

// Whether an image of this shape is that of the page; sets the scales if so.
bool fits(PageFile& page, double width, double height) {
  constexpr double most_unlike = 0.02;  // pages and their images are rounded differently
  const double x_scale = width / page.width, y_scale = height / page.height;
  if (!(std::abs(x_scale / y_scale - 1) <= most_unlike)) return false;
  page.x_scale = x_scale, page.y_scale = y_scale;
  return true;
}

// How large a unit of the file is, and which way the image is that it speaks of.
void set_scales(PageFile& page, ImageInfo image) {
  if (!(page.width > 0) && !page.in_pixels) {
    fail_input(page.path,
               ": its coordinates are not in pixels, and its Page has no WIDTH and "
               "HEIGHT to scale them by");
  }
  const bool is_sized = page.width > 0, is_turned = image.orientation != Orientation::top_left;
  const ImageInfo stored = with_sides_of(image, image.orientation);
  const bool fits_stored = is_turned && is_sized && fits(page, stored.width, stored.height);
  const bool fits_shown = !is_sized || fits(page, image.width, image.height);
  page.is_as_stored = fits_stored && !fits_shown;
  if (is_sized && !fits_stored && !fits_shown) {
    fail_input(page.path, ": its page is ", page.width, " x ", page.height, ", its image '",
               page.image, "' ", image.width, " x ", image.height,
               " pixels; expected the same shape");
  }
  if (is_turned && !page.is_as_stored && (fits_stored || !is_sized)) {
    page.warning = str(page.path, ": its image '", page.image,
                       "' says that it is to be turned to be seen, and the page does not say "
                       "whether its places are of the image before or after: they are taken as "
                       "after");
  }
}

}  // namespace

void set_regions(PageFile& page, ImageInfo image) {
  set_scales(page, image);
  page.size = image;
  const ImageInfo stored = with_sides_of(image, image.orientation);
  const auto pixel = [](double at) {
    const double most = greatest_corner;
    return static_cast<int32_t>(std::lround(std::clamp(at, -most, most)));
  };
  const auto pixels = [&](const std::vector<PagePoint>& points) {
    std::vector<ImagePoint> out;
    for (const PagePoint& p : points) {
      ShownPoint at{p.x * page.x_scale, p.y * page.y_scale};
      if (page.is_as_stored)
        at = shown_at(at.x, at.y, stored.width, stored.height, image.orientation);
      out.push_back({pixel(at.x), pixel(at.y)});
    }
    return out;
  };
  for (PageLine& line : page.lines) {
    line.region = {pixels(line.outline), in_reading_order(pixels(line.baseline))};
    if (!has_length(line.region.baseline)) line.region.baseline.clear();
  }
  page::outline_baselines(page.lines, image);
  for (PageLine& line : page.lines) {
    if (line.problem.empty() && line.region.corners.empty())
      line.problem = "has no outline, and a baseline without length";
    if (line.problem.empty() && !is_on(line.region, image)) {
      line.problem =
          str("lies beyond its image, which has ", image.width, " x ", image.height, " pixels");
    }
  }
}

PageFile open_page(const std::string& path, const ImageReader& images) {
  const uint64_t bytes = data::regular_file_size(path);
  if (bytes > most_page_bytes) {
    fail_input(path, ": has ", bytes, " bytes, expected a page of at most ", most_page_bytes);
  }
  PageFile page = parse_page(data::read_regular_file(path), path);
  page.image = find_image(page);
  set_regions(page, images.info(page.image));
  const int32_t pictures = images.pages(page.image);
  if (page.warning.empty()) page.warning = pictures_warning(pictures, page.image);
  return page;
}

std::string name_of(const PageFile& page, const PageLine& line) {
  return str(page.path, ":", line.id);
}

}  // namespace rondo
