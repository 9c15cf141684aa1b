#include <algorithm>
#include <array>
#include <map>

#include "engine/corpus/lists/layouts.h"
#include "engine/corpus/lists/list_files.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view text_ending = ".gt.txt";

// The images for one text: the plain one first.
constexpr std::array kinds = std::to_array<std::string_view>({"", ".nrm", ".bin"});

struct Candidate {
  size_t kind = kinds.size();
  fs::path image;
};

// "a/b.bin.png" is "a/b", of the third kind.
std::pair<std::string, size_t> name_and_kind(const fs::path& image) {
  std::string name = image.string();
  name.resize(name.rfind('.'));
  for (size_t kind = 1; kind < kinds.size(); ++kind) {
    if (!name.ends_with(kinds[kind])) continue;
    name.resize(name.size() - kinds[kind].size());
    return {name, kind};
  }
  return {name, 0};
}

// Whether a folder says what it is for. Books have names of all kinds: only the bare word counts.
std::string split_called(const std::string& name) {
  if (name == "train" || name == "dev" || name == "test") return name;
  return name == "valid" || name == "val" ? "dev" : "";
}

}  // namespace

std::vector<ListedUtterance> list_lines(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  std::map<std::string, Candidate> found;
  bool has_true_texts = false;
  for (const fs::path& file : files_below(root, [](const fs::path& p) {
         return is_image_name(p.string()) || p.string().ends_with(text_ending);
       })) {
    if (!is_image_name(file.string())) {
      has_true_texts = true;
      found.try_emplace(file.string().substr(0, file.string().size() - text_ending.size()));
      continue;
    }
    const auto [name, kind] = name_and_kind(file);
    Candidate& candidate = found[name];
    if (kind < candidate.kind) candidate = {kind, file};
  }
  std::vector<ListedUtterance> list;
  for (const auto& [name, candidate] : found) {
    ListedUtterance u;
    u.kind = InputKind::image;
    u.file.path = candidate.image.empty() ? name + ".png" : candidate.image.string();
    // Beside texts called .gt.txt, a .txt is what some program has read.
    const std::string text = name + std::string(has_true_texts ? text_ending : ".txt");
    u.has_text = fs::is_regular_file(text);
    if (u.has_text) u.text = trimmed(data::read_regular_file(text));
    fs::path below = fs::path(name).parent_path().lexically_relative(root);
    if (below == ".") below.clear();
    if (!below.empty()) u.split = split_called(below.begin()->string());
    u.folder = below.string();
    list.push_back(std::move(u));
  }
  if (list.empty()) fail_input(folder, ": holds no images (.png, .jpg, .tif, .pgm, ...)");
  return list;
}

}  // namespace rondo::corpus
