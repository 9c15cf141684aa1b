#include "tools/corpus/lists/page_images.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "engine/data/features/files.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// What a file holds, in so far as two files of one size can be told by it; of what cannot be read
// its name.
size_t content_of(const std::string& path) {
  try {
    return std::hash<std::string>()(data::read_regular_file(path));
  } catch (const InputError&) {
    return std::hash<std::string>()(path);
  }
}

// For each of these paths the least one of a file with the same name and content.
std::map<std::string, std::string> first_copies(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> copies;
  // Those that have to be read to be told apart are few.
  using Key = std::pair<uintmax_t, std::string>;  // size and name
  std::map<Key, std::map<fs::path, std::vector<std::string>>> alike;
  for (const std::string& path : paths) {
    if (!copies.emplace(path, path).second) continue;
    std::error_code error;
    const uintmax_t size = fs::file_size(path, error);
    if (error) continue;
    const fs::path file = fs::weakly_canonical(path, error);
    alike[{size, file.filename().string()}][file].push_back(path);
  }
  for (const auto& [key, files] : alike) {
    std::map<size_t, std::vector<std::string>> by_content;
    for (const auto& [file, names] : files) {
      auto& same = by_content[files.size() > 1 ? content_of(file.string()) : 0];
      same.insert(same.end(), names.begin(), names.end());
    }
    for (const auto& [content, names] : by_content) {
      const std::string& least = *std::min_element(names.begin(), names.end());
      for (const std::string& name : names) copies[name] = least;
    }
  }
  return copies;
}

// Where a line is, and how far another description of it may be from that.
struct Place {
  size_t index = 0;  // in the list
  ImageBox box;
  double thickness = 0, slack = 0;
};

// Of the outline along its longer side: that of a slanting line is far less than its box's height.
double thickness_of(const std::vector<ImagePoint>& corners, const ImageBox& box) {
  double twice = 0;
  for (size_t i = 0; i < corners.size(); ++i) {
    const ImagePoint &a = corners[i], &b = corners[(i + 1) % corners.size()];
    twice += static_cast<double>(a.x) * b.y - static_cast<double>(b.x) * a.y;
  }
  return std::abs(twice) / 2 / std::max({box.width, box.height, 1});
}

Place place_of(const ListedUtterance& u, size_t index) {
  constexpr double rounding = 2, share = 0.15;
  const ImageBox box = u.region.bounds();
  const double thickness = thickness_of(u.region.corners, box);
  return {index, box, thickness, std::max(rounding, share * thickness)};
}

bool are_near(const ImagePoint& a, const ImagePoint& b, double slack) {
  return std::abs(a.x - b.x) <= slack && std::abs(a.y - b.y) <= slack;
}

bool are_same(const Place& a, const Place& b, const std::vector<ListedUtterance>& list) {
  const double slack = std::max(a.slack, b.slack);
  const ImagePoint a_end{a.box.left + a.box.width, a.box.top + a.box.height};
  const ImagePoint b_end{b.box.left + b.box.width, b.box.top + b.box.height};
  if (are_near({a.box.left, a.box.top}, {b.box.left, b.box.top}, slack) &&
      are_near(a_end, b_end, slack)) {
    return true;
  }
  const auto& one = list[a.index].region.baseline;
  const auto& other = list[b.index].region.baseline;
  return !one.empty() && !other.empty() && are_near(one.front(), other.front(), slack) &&
         are_near(one.back(), other.back(), slack);
}

// For comparing; what is no UTF-8 as it is.
std::string compared(const ListedUtterance& u) {
  try {
    return normalize_transcript(u.text);
  } catch (const InputError&) {
    return u.text;
  }
}

// A text in a message.
std::string shortened(const std::string& text) {
  constexpr size_t most = 60;
  std::string out;
  for (const char32_t c : code_points(text)) {
    if (out.size() >= most) return out + "…";
    out += to_utf8(c < 0x20 || c == 0x7f ? U'\ufffd' : c);
  }
  return out;
}

// `what`: whose text the one is, and whose the other.
void mark(ListedUtterance& again, const ListedUtterance& kept, const std::string& what) {
  const std::string text = compared(again), other = compared(kept);
  again.finding = Finding::doubled;
  again.problem = what;
  if (text.empty() || text == other) return;
  again.finding = Finding::doubled_otherwise;
  try {
    again.problem += str(": \"", shortened(text), "\", there \"", shortened(other), "\"");
  } catch (const InputError&) {
    again.problem += ", with a text that is not UTF-8";
  }
}

}  // namespace

std::vector<std::string> images_of_pages(const std::vector<ListedUtterance>& list) {
  std::vector<std::string> paths;
  for (const ListedUtterance& u : list) {
    if (!u.region.is_whole() && (paths.empty() || paths.back() != u.file.path))
      paths.push_back(u.file.path);
  }
  const std::map<std::string, std::string> copies = first_copies(paths);
  std::vector<std::string> images;
  for (const ListedUtterance& u : list)
    images.push_back(u.region.is_whole() ? std::string() : copies.at(u.file.path));
  return images;
}

void mark_doubles(std::vector<ListedUtterance>& list) {
  const std::vector<std::string> images = images_of_pages(list);
  std::map<std::string, std::vector<Place>> by_image;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!images[i].empty() && list[i].problem.empty())
      by_image[images[i]].push_back(place_of(list[i], i));
  }
  for (auto& [image, places] : by_image) {
    std::stable_sort(places.begin(), places.end(),
                     [](const Place& a, const Place& b) { return a.box.top < b.box.top; });
    // Only what begins at a like height is compared: of the same baseline two outlines may differ
    // by as much as the line is thick.
    double reach = 0;
    for (const Place& p : places) reach = std::max(reach, p.thickness + p.slack);
    // Of each line the place, among these, of the one that stays; a chain of like lines is one.
    std::vector<size_t> kept(places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      kept[i] = i;
      for (size_t j = i; j-- > 0 && places[i].box.top - places[j].box.top <= reach;) {
        if (kept[j] != j || !are_same(places[i], places[j], list)) continue;
        const auto rank = [&](size_t at) {
          const size_t index = places[at].index;
          return std::pair(compared(list[index]).empty(), index);
        };
        // Whatever has been found to be that one is now this one.
        const size_t stays = rank(i) < rank(j) ? i : j, goes = stays == i ? j : i;
        for (size_t k = 0; k <= i; ++k)
          if (kept[k] == goes) kept[k] = stays;
        if (goes == i) break;
      }
    }
    for (size_t i = 0; i < places.size(); ++i) {
      if (kept[i] == i) continue;
      ListedUtterance& again = list[places[i].index];
      const ListedUtterance& first = list[places[kept[i]].index];
      mark(again, first, str(again.id, ": is the line ", first.id, " once more"));
    }
  }
}

void add_double_of_page(const std::string& image, const std::string& text_file,
                        std::vector<ListedUtterance>& list) {
  ListedUtterance lines, again;
  for (const ListedUtterance& u : list) {
    if (u.file.path != image || !u.problem.empty()) continue;
    lines.page = u.page;
    lines.text += (lines.text.empty() ? "" : "\n") + u.text;
  }
  again.kind = InputKind::image;
  again.file.path = image;
  const std::string what =
      lines.page.empty() ? ": its image is that of a page whose lines cannot be used"
                         : ": is the text of " + lines.page + " once more, which has its lines";
  try {
    again.text = text_of_file(text_file);
    mark(again, lines, text_file + what);
  } catch (const InputError& e) {
    again.problem = e.what();
    again.finding = Finding::unreadable;
  }
  list.push_back(std::move(again));
}

}  // namespace rondo::corpus
