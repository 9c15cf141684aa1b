// Recordings in a folder, each with its text beside it.
#include <algorithm>
#include <filesystem>
#include <span>

#include "engine/data/audio/sound_format.h"
#include "engine/data/features/endings.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

enum class Use { recording, text, none };

Use use_of(const std::string& file) {
  const std::string name = file.substr(file.rfind('/') + 1);
  if (has_ending(name, ".txt") && !name.starts_with("._")) return Use::text;
  return is_recording_file(file) ? Use::recording : Use::none;
}

// A path of a file with its use; of the path the part before the ending comes first in the order.
struct Found {
  std::string path;
  Use use;
  size_t stem_bytes;

  Found(std::string file, Use used_as) : path(std::move(file)), use(used_as) {
    const size_t slash = path.rfind('/'), dot = path.rfind('.');
    // ".txt" is a name without an ending.
    const bool has_ending = dot != std::string::npos && dot > slash + 1;
    stem_bytes = has_ending ? dot : path.size();
    // LibriTTS has the text as it is read and, which comes second, as it is printed.
    for (const std::string_view end : {".normalized", ".original"})
      if (use == Use::text && stem().ends_with(end)) stem_bytes -= end.size();
  }
  std::string_view stem() const { return std::string_view(path).substr(0, stem_bytes); }
  bool operator<(const Found& other) const {
    const int order = stem().compare(other.stem());
    return order != 0 ? order < 0 : path < other.path;
  }
};

// Of several recordings the one that is read with the least ado.
const std::string& chosen(std::span<const Found> group) {
  for (const char* ending : {".wav", ".flac", ""}) {
    for (const Found& f : group) {
      if (f.use == Use::recording && (*ending == '\0' || ending_of(f.path) == ending))
        return f.path;
    }
  }
  return group.front().path;
}

ListedUtterance text_alone(const std::string& text) {
  ListedUtterance u;
  u.file.path = text;
  // Its name may be wrong.
  u.has_text = false;
  if (holds_sound(text)) return u;
  u.problem = text + ": no recording goes with it";
  u.finding = Finding::text_alone;
  return u;
}

// What has one name but for the endings: recordings, and a text for them.
void add_group(std::span<const Found> group, bool speakers_in_folders,
               std::vector<ListedUtterance>& list) {
  const auto is_text = [](const Found& f) { return f.use == Use::text; };
  const auto text = std::find_if(group.begin(), group.end(), is_text);
  if (std::all_of(group.begin(), group.end(), is_text)) {
    for (const Found& f : group) list.push_back(text_alone(f.path));
    return;
  }
  const std::string& used = chosen(group);
  for (const Found& f : group) {
    if (is_text(f)) continue;
    ListedUtterance& u = list.emplace_back();
    u.file.path = f.path;
    u.has_text = text != group.end();
    if (u.has_text) u.text_file = text->path;
    if (u.has_text && text + 1 != group.end() && is_text(text[1]))
      u.notes.push_back({Finding::text_elsewhere,
                         str(f.path, ": its text is ", text->path, ", and not ", text[1].path)});
    if (speakers_in_folders) u.speaker = fs::path(f.path).parent_path().filename().string();
    if (!u.has_text) {
      u.problem = str(f.path, ": no text goes with it, expected ", fs::path(f.path).stem().string(),
                      ".txt beside it");
      u.finding = Finding::no_text;
    }
    if (f.path == used) continue;
    u.problem =
        str(f.path, ": ", fs::path(used).filename().string(), " has the same name, and is used");
    u.finding = Finding::same_name;
  }
}

// Other programs call texts a.lab or a.json: which of these files, which are sorted, has the name
// of a recording without a text.
void name_what_is_beside(const std::vector<std::string>& files, ListedUtterance& u) {
  if (u.finding != Finding::no_text) return;
  const std::string stem = fs::path(u.file.path).replace_extension(".").string();
  const auto beside = std::lower_bound(files.begin(), files.end(), stem);
  if (beside == files.end() || !beside->starts_with(stem)) return;
  u.problem += "; " + fs::path(*beside).filename().string() + " is there, and is not read";
}

}  // namespace

std::vector<ListedUtterance> list_folder(const std::string& folder, bool speakers_in_folders,
                                         Findings* findings) {
  std::vector<NotWalked> others;
  std::vector<Found> files;
  std::vector<std::string> passed_over;
  const auto take = [&](const fs::path& file) {
    const Use use = use_of(file.string());
    if (use != Use::none) {
      files.emplace_back(file.string(), use);
      return;
    }
    passed_over.push_back(file.string());
  };
  const fs::path root = existing_folder(folder);
  for_each_file_below(root, take, &others);
  std::sort(files.begin(), files.end());
  std::sort(passed_over.begin(), passed_over.end());
  std::vector<ListedUtterance> list;
  // A vector that grows by itself holds everything twice for a moment.
  list.reserve(files.size() + others.size());
  for (size_t begin = 0, end = 0; begin < files.size(); begin = end) {
    while (end < files.size() && files[end].stem() == files[begin].stem()) ++end;
    const size_t listed = list.size();
    add_group(std::span(files).subspan(begin, end - begin), speakers_in_folders, list);
    for (size_t i = listed; i < list.size(); ++i) {
      list[i].split = split_of(list[i].file.path, root);
      name_what_is_beside(passed_over, list[i]);
    }
    for (size_t i = begin; i < end; ++i) std::string().swap(files[i].path);
  }
  find_texts_elsewhere(root, passed_over, list);
  const std::string hint = tables_that_may_hold_texts(passed_over, list);
  const bool has_recording = std::any_of(
      list.begin(), list.end(), [](const auto& u) { return u.finding != Finding::text_alone; });
  add_not_walked(others, list);
  if (!has_recording)
    fail_input(folder, ": holds no recordings (.wav, .flac, .ogg, .opus, .mp3, ...)",
               hint.empty() ? "" : "\n", hint);
  if (!findings) return list;
  for (const std::string& file : passed_over) findings->add(Finding::passed_over, "", file);
  if (!hint.empty()) findings->add(Finding::unread_list, "", hint);
  return list;
}

}  // namespace rondo::corpus
