// Recordings in a folder, each with its text beside it.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "engine/corpus/lists/layouts.h"
#include "engine/corpus/lists/list_files.h"
#include "engine/data/audio/audio.h"
#include "engine/data/audio/sound_format.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

std::string ending_of(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return ending;
}

// What lies beside recordings and is none: there is no need to look inside.
bool is_known_other(const std::string& ending) {
  static constexpr std::array endings = std::to_array<std::string_view>(
      {".json", ".jsonl", ".csv",  ".tsv", ".md",  ".xml", ".html", ".pdf",
       ".png",  ".jpg",   ".jpeg", ".svg", ".py",  ".sh",  ".lab",  ".textgrid",
       ".srt",  ".vtt",   ".zip",  ".gz",  ".tar", ".toml"});
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

bool is_sound(const fs::path& file) {
  try {
    return !sound_format(data::read_file_start(file.string(), sound_format_bytes)).name.empty();
  } catch (const InputError&) {
    return false;  // who uses it says why
  }
}

enum class Use { recording, text, none };

Use use_of(const fs::path& file) {
  // What macOS keeps beside files on foreign disks is called like them.
  if (file.filename().string().starts_with("._")) return Use::none;
  const std::string ending = ending_of(file);
  if (ending == ".txt") return Use::text;
  if (is_recording_name(file.string())) return Use::recording;
  return !is_known_other(ending) && is_sound(file) ? Use::recording : Use::none;
}

// What has one name but for the endings.
struct Group {
  std::vector<fs::path> recordings;
  fs::path text;
};

// Of several recordings the one that is read with the least ado.
const fs::path& chosen(const Group& group) {
  for (const char* ending : {".wav", ".flac"}) {
    for (const fs::path& file : group.recordings)
      if (ending_of(file) == ending) return file;
  }
  return group.recordings.front();
}

ListedUtterance text_alone(const fs::path& text) {
  ListedUtterance u;
  u.file.path = text.string();
  // Its name may be wrong.
  u.has_text = false;
  if (is_sound(text)) return u;
  u.problem = text.string() + ": no recording goes with it";
  u.finding = Finding::text_alone;
  return u;
}

}  // namespace

std::vector<ListedUtterance> list_folder(const std::string& folder, bool speakers_in_folders,
                                         Findings* findings) {
  std::vector<NotWalked> others;
  std::map<std::string, Group> groups;
  const fs::path root = existing_folder(folder);
  for (const fs::path& file : files_below(
           root, [](const fs::path&) { return true; }, &others)) {
    stop_if_asked();
    const Use use = use_of(file);
    if (use == Use::none) {
      if (findings) findings->add(Finding::passed_over, "", file.string());
      continue;
    }
    fs::path stem = file;
    Group& group = groups[stem.replace_extension().string()];
    if (use == Use::text)
      group.text = file;
    else
      group.recordings.push_back(file);
  }
  std::vector<ListedUtterance> list;
  bool has_recording = false;
  for (const auto& [stem, group] : groups) {
    if (group.recordings.empty()) {
      list.push_back(text_alone(group.text));
      has_recording = has_recording || list.back().problem.empty();
      continue;
    }
    has_recording = true;
    const fs::path& used = chosen(group);
    for (const fs::path& file : group.recordings) {
      ListedUtterance& u = list.emplace_back();
      u.file.path = file.string();
      u.text_file = group.text.string();
      u.has_text = !group.text.empty();
      u.split = split_of(file, root);
      if (speakers_in_folders) u.speaker = file.parent_path().filename().string();
      if (file == used) continue;
      u.problem =
          str(file.string(), ": ", used.filename().string(), " has the same name, and is used");
      u.finding = Finding::same_name;
    }
  }
  add_not_walked(others, list);
  if (!has_recording)
    fail_input(folder, ": holds no recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  return list;
}

}  // namespace rondo::corpus
