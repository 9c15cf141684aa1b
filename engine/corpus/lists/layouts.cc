#include "engine/corpus/lists/layouts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/corpus/lists/csv.h"
#include "engine/corpus/lists/list_files.h"
#include "engine/corpus/lists/tar.h"
#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// "train-clean-100" and "my-dev.csv" say what they are for.
std::string split_named(const std::string& name) {
  const auto is_letter = [&](size_t at) {
    return at < name.size() && ((name[at] | 32) >= 'a' && (name[at] | 32) <= 'z');
  };
  for (const std::string split : {"train", "dev", "valid", "test"}) {
    const size_t at = name.find(split);
    if (at == std::string::npos || (at > 0 && is_letter(at - 1)) || is_letter(at + split.size())) {
      continue;
    }
    return split == "valid" ? "dev" : split;
  }
  return {};
}

}  // namespace

std::vector<ListedUtterance> list_folder(const std::string& folder, bool speakers_in_folders) {
  std::vector<ListedUtterance> list;
  for (const fs::path& file : files_below(existing_folder(folder), [](const fs::path& p) {
         return is_recording_name(p.string());
       })) {
    ListedUtterance u;
    u.file.path = file.string();
    fs::path text = file;
    text.replace_extension(".txt");
    u.has_text = fs::is_regular_file(text);
    if (u.has_text) u.text = text_of_file(text);
    if (speakers_in_folders) u.speaker = file.parent_path().filename().string();
    list.push_back(std::move(u));
  }
  if (list.empty())
    fail_input(folder, ": holds no recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  return list;
}

std::vector<ListedUtterance> list_librispeech(const std::string& folder) {
  std::vector<ListedUtterance> list;
  const fs::path root = existing_folder(folder);
  const auto is_transcript = [](const fs::path& p) {
    return p.filename().string().ends_with(".trans.txt");
  };
  for (const fs::path& file : files_below(root, is_transcript)) {
    std::string split;
    for (const fs::path& part : file.lexically_relative(root.parent_path())) {
      if (split.empty()) split = split_named(part.string());
    }
    for (KeyedLine& line : keyed_lines(file)) {
      ListedUtterance u;
      u.where = str(file.string(), ":", line.number);
      u.file.path = (file.parent_path() / (line.key + ".flac")).string();
      u.text = std::move(line.value);
      u.speaker = line.key.substr(0, line.key.find('-'));
      u.split = split;
      list.push_back(std::move(u));
    }
  }
  if (list.empty()) fail_input(folder, ": holds no .trans.txt files, as LibriSpeech has them");
  // One folder alone that says nothing of splits is divided like any other.
  const bool all_said =
      std::all_of(list.begin(), list.end(), [](const auto& u) { return !u.split.empty(); });
  const bool trains =
      std::any_of(list.begin(), list.end(), [](const auto& u) { return u.split == "train"; });
  if (!all_said || !trains) {
    for (ListedUtterance& u : list) u.split.clear();
  }
  return list;
}

namespace {

// What is beside a recording: text, or an object of JSON.
void read_text(const std::string& archive, const TarMember& member, ListedUtterance& u) {
  const std::string content = data::read_regular_file({archive, member.first, member.size});
  u.has_text = true;
  if (!member.name.ends_with(".json")) {
    u.text = trimmed(data::without_byte_order_mark(content));
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
    fail_input(u.where, ": ", member.name, " is not valid JSON near byte ", e.byte);
  }
}

void list_archive(const std::string& archive, std::vector<ListedUtterance>& list) {
  const std::vector<TarMember> members = tar_members(archive);
  const auto stem = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::map<std::string, const TarMember*> texts;
  for (const TarMember& m : members) {
    if (m.name.ends_with(".txt") || m.name.ends_with(".json")) texts[stem(m.name)] = &m;
  }
  const std::string path = fs::absolute(archive).lexically_normal().string();
  for (const TarMember& m : members) {
    if (!is_recording_name(m.name)) continue;
    ListedUtterance& u = list.emplace_back();
    u.where = str(archive, ":", m.name);
    u.id = stem(m.name);
    u.file = {path, m.first, m.size};
    const auto text = texts.find(u.id);
    u.has_text = text != texts.end();
    if (u.has_text) read_text(archive, *text->second, u);
  }
}

}  // namespace

std::vector<ListedUtterance> list_tar(const std::vector<std::string>& archives) {
  std::vector<ListedUtterance> list;
  for (const std::string& archive : archives) {
    if (!fs::is_directory(archive)) {
      list_archive(archive, list);
      continue;
    }
    const auto is_archive = [](const fs::path& p) { return p.extension() == ".tar"; };
    const std::vector<fs::path> files = files_below(existing_folder(archive), is_archive);
    if (files.empty()) fail_input(archive, ": holds no tar archives (.tar)");
    for (const fs::path& file : files) list_archive(file.string(), list);
  }
  if (list.empty())
    fail_input(archives.empty() ? "" : archives.front(),
               ": holds no recordings (.wav, .flac, .ogg, .opus, .mp3, ...)");
  return list;
}

namespace {

// Which column `wanted` is.
size_t column_of(const TableLayout& layout, const CsvRow& first, const std::string& wanted,
                 const std::string& file) {
  if (!layout.header) return static_cast<size_t>(std::stoul(wanted));
  const auto at = std::find(first.fields.begin(), first.fields.end(), wanted);
  if (at != first.fields.end()) return static_cast<size_t>(at - first.fields.begin());
  std::string names;
  for (const std::string& name : first.fields) names += (names.empty() ? "" : ", ") + name;
  fail_input(file, ": has no column '", wanted, "', it has ", names);
}

void list_file(const TableLayout& layout, const TableLayout::File& file,
               std::vector<ListedUtterance>& list) {
  const std::vector<CsvRow> rows =
      parse_csv(data::read_regular_file(file.path), layout.delimiter, layout.quotes, file.path);
  if (rows.empty()) fail_input(file.path, ": holds no rows");
  const CsvRow& first = rows.front();
  const size_t audio = column_of(layout, first, layout.audio, file.path);
  std::vector<size_t> texts;
  for (const std::string& name : layout.text) {
    texts.push_back(column_of(layout, first, name, file.path));
  }
  const bool has_speaker = !layout.speaker.empty();
  const size_t speaker = has_speaker ? column_of(layout, first, layout.speaker, file.path) : 0;
  const fs::path folder =
      layout.folder.empty() ? fs::absolute(file.path).parent_path() : fs::absolute(layout.folder);
  for (size_t i = layout.header ? 1 : 0; i < rows.size(); ++i) {
    const auto field = [&](size_t column) {
      return column < rows[i].fields.size() ? rows[i].fields[column] : std::string();
    };
    ListedUtterance u;
    u.where = str(file.path, ":", rows[i].line);
    if (field(audio).empty())
      fail_input(u.where, ": names no recording in column '", layout.audio, "'");
    u.file.path = (folder / (field(audio) + layout.ending)).lexically_normal().string();
    u.has_text = std::any_of(texts.begin(), texts.end(),
                             [&](size_t c) { return c < rows[i].fields.size(); });
    for (size_t column : texts) {
      if (!field(column).empty()) u.text = trimmed(field(column));
    }
    if (has_speaker) u.speaker = field(speaker);
    u.split = file.split;
    list.push_back(std::move(u));
  }
}

}  // namespace

std::vector<ListedUtterance> list_table(const TableLayout& layout) {
  std::vector<ListedUtterance> list;
  for (const TableLayout::File& file : layout.files) list_file(layout, file, list);
  return list;
}

TableLayout common_voice(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  TableLayout layout;
  for (const char* split : {"train", "dev", "test"}) {
    const fs::path file = root / (std::string(split) + ".tsv");
    if (fs::exists(file)) layout.files.push_back({file.string(), split});
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

TableLayout deep_speech(const std::vector<std::string>& files) {
  TableLayout layout;
  for (const std::string& file : files) {
    const size_t equals = file.find('=');
    const std::string name = file.substr(0, equals == std::string::npos ? 0 : equals);
    const bool is_named = name == "train" || name == "dev" || name == "test";
    const std::string path = is_named ? file.substr(equals + 1) : file;
    layout.files.push_back(
        {path, is_named ? name : split_named(fs::path(path).filename().string())});
  }
  const auto& all = layout.files;
  if (std::none_of(all.begin(), all.end(), [](const auto& f) { return f.split == "train"; })) {
    for (TableLayout::File& file : layout.files) file.split.clear();
  }
  layout.audio = "wav_filename";
  layout.text = {"transcript"};
  return layout;
}

}  // namespace rondo::corpus
