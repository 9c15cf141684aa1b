#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/page/page_file.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/lists/page_images.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view text_ending = ".gt.txt";

// The images for one text: the plain one first.
constexpr std::array kinds = std::to_array<std::string_view>({"", ".nrm", ".bin"});

// Pictures that cannot be read: whoever has them beside texts took them for lines.
bool is_other_picture_name(const fs::path& file) {
  static constexpr std::array endings = std::to_array<std::string_view>(
      {".webp", ".gif", ".bmp", ".jp2", ".j2k", ".jxl", ".heic", ".avif", ".svg"});
  return std::find(endings.begin(), endings.end(), ending_of(file.string())) != endings.end();
}

struct Candidate {
  size_t kind = kinds.size();
  fs::path image;
};

// "a/b.bin.png" is "a/b", of the third kind.
std::pair<std::string, size_t> name_and_kind(const fs::path& image) {
  std::string name = image.string();
  name.resize(name.rfind('.'));
  for (size_t kind = 1; kind < kinds.size(); ++kind) {
    if (!has_ending(name, kinds[kind])) continue;
    name.resize(name.size() - kinds[kind].size());
    return {composed_name(name), kind};
  }
  return {composed_name(name), 0};
}

// The folder, and the split that its name may be.
void set_folder(ListedUtterance& u, const fs::path& file, const fs::path& root) {
  fs::path below = file.parent_path().lexically_relative(root);
  if (below == ".") below.clear();
  u.split = split_of(file, root);
  u.folder = below.string();
}

void add_page(const fs::path& file, const fs::path& root, std::vector<ListedUtterance>& list) {
  ListedUtterance u;
  u.kind = InputKind::image;
  u.page = file.lexically_relative(root).string();
  set_folder(u, file, root);
  PageFile page;
  try {
    page = open_page(file.string(), ImageFileReader());
  } catch (const InputError& e) {
    u.file.path = file.string();
    u.problem = e.what();
    list.push_back(std::move(u));
    return;
  }
  u.file.path = page.image;
  if (!page.warning.empty()) u.notes.push_back({Finding::page_image, page.warning});
  for (PageLine& line : page.lines) {
    list.push_back(u);
    u.notes.clear();  // of the whole page, once
    ListedUtterance& added = list.back();
    added.id = u.page + ":" + line.id;
    if (!line.problem.empty()) added.problem = str(name_of(page, line), ": ", line.problem);
    added.region = std::move(line.region);
    added.text = std::move(line.text);
    added.has_text = line.has_text;
  }
}

void set_no_text(ListedUtterance& u, const fs::path& name) {
  u.has_text = false;
  u.problem = str(u.file.path, ": no text goes with it, expected ", name.filename().string(),
                  ".gt.txt beside it");
  u.finding = Finding::no_text;
}

using Candidates = std::map<std::string, Candidate>;

bool has_image(const Candidates& found) {
  return std::any_of(found.begin(), found.end(),
                     [](const auto& one) { return !one.second.image.empty(); });
}

// Of images none of which has its text beside it.
std::vector<ListedUtterance> lines_with_texts_elsewhere(const fs::path& root,
                                                        const Candidates& found) {
  std::vector<ListedUtterance> list;
  for (const auto& [name, candidate] : found) {
    if (candidate.image.empty()) continue;
    ListedUtterance& u = list.emplace_back();
    u.kind = InputKind::image;
    u.file.path = candidate.image.string();
    set_folder(u, name, root);
    set_no_text(u, name);
  }
  std::vector<std::string> others;
  for (const fs::path& file :
       files_below(root, [](const fs::path& p) { return !is_image_name(p.string()); })) {
    if (!has_ending(file.string(), ".txt")) {
      others.push_back(file.string());
      continue;
    }
    ListedUtterance& u = list.emplace_back();
    u.kind = InputKind::image;
    u.file.path = file.string();
    u.has_text = false;
    u.problem = str(u.file.path, ": no image goes with it");
    u.finding = Finding::text_alone;
  }
  find_texts_elsewhere(root, others, list);
  return list;
}

}  // namespace

std::vector<ListedUtterance> list_lines(const std::string& folder, FileChoice* choice) {
  const fs::path root = existing_folder(folder);
  std::vector<ListedUtterance> list;
  const auto is_chosen = [&](const fs::path& p) {
    return !choice || choice->takes(p.lexically_relative(root).string());
  };
  std::vector<std::string> unwanted_pages;
  for (const fs::path& file :
       files_below(root, [](const fs::path& p) { return is_page_file(p.string()); })) {
    if (is_chosen(file)) {
      add_page(file, root, list);
    } else {
      unwanted_pages.push_back(composed_name(fs::path(file).replace_extension().string()));
    }
  }
  mark_doubles(list);
  std::set<std::string> images_of_pages;
  for (const ListedUtterance& u : list) images_of_pages.insert(u.file.path);
  std::map<std::string, Candidate> found;
  std::map<std::string, fs::path> others;
  std::map<std::string, std::string> true_texts, texts;
  std::map<std::string, std::string> pages;
  std::vector<std::string> unwanted;
  for (const fs::path& file : files_below(root, [&](const fs::path& p) {
         return is_image_name(p.string()) || has_ending(p.string(), ".txt") ||
                is_other_picture_name(p);
       })) {
    // What the image of a page is called nobody chooses by.
    if (images_of_pages.contains(file.string())) {
      pages.emplace(name_and_kind(file).first, file.string());
      continue;
    }
    if (has_ending(file.string(), ".txt") && !has_ending(file.string(), text_ending)) {
      texts.emplace(composed_name(fs::path(file).replace_extension().string()), file.string());
      continue;
    }
    const bool is_wanted = is_chosen(file);
    if (is_other_picture_name(file)) {
      if (is_wanted) others.try_emplace(name_and_kind(file).first, file);
      continue;
    }
    if (!is_image_name(file.string())) {
      const std::string name =
          composed_name(file.string().substr(0, file.string().size() - text_ending.size()));
      true_texts.emplace(name, file.string());
      if (is_wanted) found.try_emplace(name);
      continue;
    }
    const auto [name, kind] = name_and_kind(file);
    if (!is_wanted) {
      unwanted.push_back(name);
      continue;
    }
    Candidate& candidate = found[name];
    if (kind < candidate.kind) candidate = {kind, file};
  }
  // A text beside the image of a page is the page's, which says it too.
  for (const auto& [name, image] : pages) {
    const auto text = true_texts.find(name);
    if (found.erase(name) > 0 && text != true_texts.end())
      add_double_of_page(image, text->second, list);
  }
  // The image of a page that is not wanted is no line, unless it has a line's text.
  for (const std::string& name : unwanted_pages)
    if (!true_texts.contains(name)) found.erase(name);
  // And a text beside an image that is not wanted is none without an image.
  for (const std::string& name : unwanted) {
    const auto text = found.find(name);
    if (text != found.end() && text->second.image.empty()) found.erase(text);
  }
  // Beside texts called .gt.txt, a .txt is what some program has read.
  if (!true_texts.empty()) texts = std::move(true_texts);
  for (const auto& [name, file] : others) {
    if (!texts.contains(name)) continue;
    Candidate& candidate = found[name];
    if (candidate.image.empty()) candidate.image = file;
  }
  const bool has_pair = std::any_of(found.begin(), found.end(), [&](const auto& one) {
    return !one.second.image.empty() && texts.contains(one.first);
  });
  if (list.empty() && !has_pair && has_image(found)) return lines_with_texts_elsewhere(root, found);
  for (const auto& [name, candidate] : found) {
    ListedUtterance u;
    u.kind = InputKind::image;
    u.file.path = candidate.image.empty() ? name + ".png" : candidate.image.string();
    const auto text = texts.find(name);
    u.has_text = text != texts.end();
    if (u.has_text) {
      u.text = text_of_file(text->second);
    } else {
      set_no_text(u, name);
    }
    set_folder(u, name, root);
    list.push_back(std::move(u));
  }
  if (list.empty()) {
    fail_input(
        folder,
        ": holds neither images (.png, .jpg, .tif, .pgm, ...) nor pages (PAGE-XML or ALTO, .xml)",
        choice && choice->passed_over > 0 ? " that --only and --exclude leave" : "");
  }
  return list;
}

}  // namespace rondo::corpus
