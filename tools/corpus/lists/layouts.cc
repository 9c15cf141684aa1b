#include "tools/corpus/lists/layouts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/data/audio/sound_format.h"
#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/lists/tar.h"
#include "tools/corpus/read_text.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// "train-clean-100" and "my-dev.csv" say what they are for: the first of their words that does.
std::string split_named(const std::string& name) {
  const auto is_letter = [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; };
  for (auto begin = name.begin(); begin != name.end();) {
    begin = std::find_if(begin, name.end(), is_letter);
    const auto end = std::find_if_not(begin, name.end(), is_letter);
    if (std::string split = split_called({begin, end}); !split.empty()) return split;
    begin = end;
  }
  return {};
}

// Where nothing is to train with, names say something else.
void forget_splits_without_train(std::vector<TableLayout::File>& files) {
  if (std::any_of(files.begin(), files.end(), [](const auto& f) { return f.split == "train"; }))
    return;
  for (TableLayout::File& file : files) file.split.clear();
}

}  // namespace

std::vector<ListedUtterance> list_librispeech(const std::string& folder) {
  std::vector<ListedUtterance> list;
  const fs::path root = existing_folder(folder);
  const auto is_transcript = [](const fs::path& p) { return has_ending(p.string(), ".trans.txt"); };
  const auto split_of = [&](const fs::path& file) {
    std::string split;
    for (const fs::path& part : file.lexically_relative(root.parent_path())) {
      if (split.empty()) split = split_named(part.string());
    }
    return split;
  };
  std::set<std::string> named;
  std::vector<fs::path> recordings, transcripts;
  std::vector<NotWalked> others;
  const auto is_wanted = [&](const fs::path& p) {
    return is_transcript(p) || is_recording_file(p.string());
  };
  for (const fs::path& file : files_below(root, is_wanted, &others))
    (is_transcript(file) ? transcripts : recordings).push_back(file);
  std::map<std::string, std::string> by_stem;  // the first of a name
  for (const fs::path& file : recordings)
    by_stem.try_emplace(fs::path(file).replace_extension().string(), file.string());
  for (const fs::path& file : transcripts) {
    const std::string split = split_of(file);
    for (KeyedLine& line : keyed_lines(file)) {
      ListedUtterance u;
      u.where = str(file.string(), ":", line.number);
      const std::string stem = (file.parent_path() / line.key).string();
      const auto recording = by_stem.find(stem);
      u.file.path = recording != by_stem.end() ? recording->second : stem + ".flac";
      u.text = std::move(line.value);
      u.speaker = line.key.substr(0, line.key.find('-'));
      u.split = split;
      named.insert(u.file.path);
      list.push_back(std::move(u));
    }
  }
  if (list.empty()) fail_input(folder, ": holds no .trans.txt files, as LibriSpeech has them");
  for (const fs::path& file : recordings) {
    if (named.contains(file.string())) continue;
    ListedUtterance& u = list.emplace_back();
    u.file.path = file.string();
    u.problem = file.string() + ": no .trans.txt names it";
    u.finding = Finding::recording_alone;
    u.split = split_of(file);
  }
  add_not_walked(others, list);
  // One folder alone that says nothing of splits is divided like any other.
  const bool all_said = std::all_of(list.begin(), list.end(), [](const auto& u) {
    return !u.split.empty() || !u.problem.empty();
  });
  const bool trains =
      std::any_of(list.begin(), list.end(), [](const auto& u) { return u.split == "train"; });
  if (!all_said || !trains) {
    for (ListedUtterance& u : list) u.split.clear();
  }
  return list;
}

namespace {

// What is beside a recording: text, or an object of JSON.
void read_text_member(const std::string& archive, const TarMember& member, ListedUtterance& u) {
  std::string content =
      decoded_text(data::read_regular_file({archive, member.first, member.size}), u.where);
  u.has_text = true;
  if (!has_ending(member.name, ".json")) {
    u.text = trimmed(content);
    return;
  }
  try {
    const Json object = Json::parse(content);
    const auto string = [&](const char* name) {
      const Json* value = object.is_object() ? object.find(name) : nullptr;
      return value && value->is_string() ? value->get<std::string>() : std::string();
    };
    u.text = trimmed(string("text"));
    u.speaker = string("speaker");
  } catch (const JsonError& e) {
    u.problem = str(member.name, " is not valid JSON near byte ", e.byte, ": ", e.what());
    u.finding = Finding::bad_line;
  }
}

void list_archive(const std::string& archive, std::vector<ListedUtterance>& list) {
  const std::vector<TarMember> members = tar_members(archive);
  const auto stem = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  const auto is_text = [](const std::string& name) {
    return has_ending(name, ".txt") || has_ending(name, ".json");
  };
  std::map<std::string, const TarMember*> texts, recordings;
  for (const TarMember& m : members) {
    if (is_text(m.name)) texts[stem(m.name)] = &m;
  }
  const std::string path = fs::absolute(archive).lexically_normal().string();
  for (const TarMember& m : members) {
    if (!is_recording_name(m.name) && (is_text(m.name) || !holds_sound({path, m.first, m.size})))
      continue;
    ListedUtterance u;
    u.where = str(archive, ":", m.name);
    u.id = stem(m.name);
    u.file = {path, m.first, m.size};
    const auto text = texts.find(u.id);
    u.has_text = text != texts.end();
    const auto [first, is_new] = recordings.try_emplace(u.id, &m);
    if (!is_new) {
      u.problem = str("'", first->second->name, "' has the same name, and is used");
      u.finding = Finding::same_name;
    } else if (u.has_text) {
      try {
        read_text_member(archive, *text->second, u);
      } catch (const InputError& e) {
        u.problem = e.what();
      }
    }
    list.push_back(std::move(u));
  }
  for (const auto& [name, text] : texts) {
    if (recordings.contains(name)) continue;
    ListedUtterance& u = list.emplace_back();
    u.where = str(archive, ":", text->name);
    u.file = {path, text->first, text->size};
    u.problem = "no recording goes with it";
    u.finding = Finding::text_alone;
  }
}

}  // namespace

std::vector<ListedUtterance> list_tar(const std::vector<std::string>& archives) {
  std::vector<TableLayout::File> files;
  for (const TableLayout::File& file : files_with_splits(archives)) {
    if (!fs::is_directory(file.path)) {
      files.push_back(file);
      continue;
    }
    const auto is_archive = [](const fs::path& p) { return has_ending(p.string(), ".tar"); };
    const fs::path root = existing_folder(file.path);
    const std::vector<fs::path> found = files_below(root, is_archive);
    if (found.empty()) fail_input(file.path, ": holds no tar archives (.tar)");
    for (const fs::path& f : found) {
      std::string split = file.split.empty() ? split_of(f, root) : file.split;
      files.push_back({f.string(), split.empty() ? split_named(f.filename().string()) : split});
    }
  }
  forget_splits_without_train(files);
  std::vector<ListedUtterance> list;
  for (const TableLayout::File& file : files) {
    const size_t first = list.size();
    list_archive(file.path, list);
    for (size_t i = first; i < list.size(); ++i) list[i].split = file.split;
  }
  if (list.empty())
    fail_input(archives.empty() ? "" : archives.front(),
               ": holds no recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  return list;
}

TableLayout common_voice(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  TableLayout layout;
  for (const char* split : {"train", "dev", "test"}) {
    const fs::path file = root / (std::string(split) + ".tsv");
    if (fs::exists(file) || fs::exists(file.string() + ".gz"))
      layout.files.push_back({file.string(), split});
  }
  if (layout.files.empty()) {
    fail_input(folder, ": holds no train.tsv, dev.tsv or test.tsv, as Common Voice has them");
  }
  layout.delimiter = '\t';
  layout.quotes = false;
  layout.audio = "path";
  layout.text = {"sentence"};
  layout.speaker = "client_id";
  layout.folder = (root / "clips").string();
  return layout;
}

TableLayout lj_speech(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  TableLayout layout;
  layout.files = {{(root / "metadata.csv").string(), ""}};
  layout.delimiter = '|';
  layout.quotes = false;
  layout.header = false;
  layout.audio = "0";
  layout.text = {"1", "2"};
  layout.folder = (root / "wavs").string();
  layout.ending = ".wav";
  return layout;
}

std::vector<TableLayout::File> files_with_splits(const std::vector<std::string>& files) {
  std::vector<TableLayout::File> all;
  for (const std::string& file : files) {
    const size_t equals = file.find('=');
    const std::string name = file.substr(0, equals == std::string::npos ? 0 : equals);
    const bool is_named = name == "train" || name == "dev" || name == "test";
    const std::string path = is_named ? file.substr(equals + 1) : file;
    all.push_back({path, is_named ? name : split_named(fs::path(path).filename().string())});
  }
  forget_splits_without_train(all);
  return all;
}

TableLayout deep_speech(const std::vector<std::string>& files) {
  TableLayout layout;
  layout.files = files_with_splits(files);
  layout.audio = "wav_filename";
  layout.text = {"transcript"};
  return layout;
}

}  // namespace rondo::corpus
