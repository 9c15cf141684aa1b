#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "engine/data/audio/sound_format.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// A recording, and the folders that it lies in below the one that was listed.
struct Place {
  fs::path file;
  std::vector<std::string> folders;
};

// Where all folders at the top are splits, with those of the classes inside.
bool are_divided(const std::vector<Place>& places) {
  bool has_train = false;
  for (const Place& p : places) {
    if (p.folders.size() < 2 || split_called(p.folders.front()).empty()) return false;
    has_train = has_train || split_called(p.folders.front()) == "train";
  }
  return has_train;
}

// As it is written in the manifest: the same letters have the same bytes, whichever system wrote
// the folder's name. What cannot be a name of a class is empty.
std::string class_called(const std::string& folder) {
  try {
    const std::string name = to_nfc(folder);
    const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    });
    return is_plain && name.find_first_not_of(' ') != std::string::npos ? name : "";
  } catch (const InputError&) {
    return {};  // it is not UTF-8
  }
}

ListedUtterance utterance_at(const Place& place, bool divided) {
  ListedUtterance u;
  u.file.path = place.file.string();
  const size_t at = divided ? 1 : 0;
  if (divided) u.split = split_called(place.folders.front());
  if (place.folders.size() <= at) {
    u.problem = u.file.path + ": lies beside the folders of the classes, expected in one of them";
    return u;
  }
  u.label = class_called(place.folders[at]);
  if (u.label.empty()) u.problem = u.file.path + ": its folder's name cannot be that of a class";
  return u;
}

}  // namespace

std::vector<ListedUtterance> list_classes(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  std::vector<Place> places;
  for (const fs::path& file :
       files_below(root, [](const fs::path& p) { return is_recording_file(p.string()); })) {
    Place place{file, {}};
    const fs::path below = file.parent_path().lexically_relative(root);
    for (const fs::path& part : below)
      if (part != ".") place.folders.push_back(part.string());
    places.push_back(std::move(place));
  }
  const bool divided = are_divided(places);
  std::vector<ListedUtterance> list;
  std::set<std::string> classes;
  for (const Place& place : places) {
    list.push_back(utterance_at(place, divided));
    if (!list.back().label.empty()) classes.insert(list.back().label);
  }
  if (classes.size() < 2) {
    fail_input(folder, ": has ", places.empty() ? "no recordings" : "recordings",
               classes.empty() ? "" : str(" of one class, '", *classes.begin(), "'"),
               "; expected a folder of recordings for each of two classes or more");
  }
  return list;
}

}  // namespace rondo::corpus
