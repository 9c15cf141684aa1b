#include "engine/corpus/lists/layouts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/corpus/lists/csv.h"
#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

fs::path existing_folder(const std::string& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error) fail_input(folder, ": cannot be read as a folder: ", error.message());
  if (!fs::is_directory(path)) fail_input(folder, ": is not a folder");
  return path;
}

// Files at any depth, sorted.
template <class Wanted>
std::vector<fs::path> files_below(const fs::path& folder, const Wanted& wanted) {
  std::vector<fs::path> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (wanted(entry.path()) && entry.is_regular_file()) files.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& e) {
    fail_input(folder.string(), ": cannot be read as a folder: ", e.code().message());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(space) - begin + 1));
}

// "KEY VALUE" lines, as Kaldi's files and LibriSpeech's transcripts are.
struct KeyedLine {
  int64_t number = 0;
  std::string key, value;
};

std::vector<KeyedLine> keyed_lines(const fs::path& file) {
  const std::string text = data::read_regular_file(file.string());
  std::vector<KeyedLine> lines;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const size_t space = std::min(line.find_first_of(" \t"), line.size());
    lines.push_back({number, line.substr(0, space), trimmed(line.substr(space))});
  }
  return lines;
}

std::map<std::string, std::string> keyed_map(const fs::path& file) {
  std::map<std::string, std::string> map;
  for (KeyedLine& line : keyed_lines(file)) {
    if (!map.emplace(line.key, line.value).second) {
      fail_input(file.string(), ":", line.number, ": '", line.key, "' is there twice");
    }
  }
  return map;
}

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
    u.path = file.string();
    fs::path text = file;
    text.replace_extension(".txt");
    u.has_text = fs::is_regular_file(text);
    if (u.has_text) u.text = trimmed(data::read_regular_file(text.string()));
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
      u.path = (file.parent_path() / (line.key + ".flac")).string();
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

// "12.5"; InputError names the place.
double seconds_of(const std::string& text, const std::string& where) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value < 1e9)) {
    fail_input(where, ": '", text, "' is no time, expected seconds");
  }
  return value;
}

std::string recording_of(const KeyedLine& line, const fs::path& file) {
  if (line.value.empty()) fail_input(file.string(), ":", line.number, ": names no recording");
  if (line.value.ends_with("|")) {
    fail_input(file.string(), ":", line.number, ": '", line.key, "' is the output of a command (",
               line.value, "), expected a file: run the commands once and name what they wrote");
  }
  return fs::absolute(line.value).lexically_normal().string();
}

}  // namespace

std::vector<ListedUtterance> list_kaldi(const std::string& folder) {
  const fs::path root = existing_folder(folder);
  std::map<std::string, std::string> recordings;
  for (const KeyedLine& line : keyed_lines(root / "wav.scp")) {
    recordings[line.key] = recording_of(line, root / "wav.scp");
  }
  const auto texts = keyed_map(root / "text");
  const bool has_speakers = fs::exists(root / "utt2spk");
  const auto speakers =
      has_speakers ? keyed_map(root / "utt2spk") : std::map<std::string, std::string>();
  std::vector<ListedUtterance> list;
  const auto add = [&](const std::string& name, const std::string& recording,
                       const std::string& where) -> ListedUtterance& {
    const auto path = recordings.find(recording);
    if (path == recordings.end()) {
      fail_input(where, ": recording '", recording, "' is not in wav.scp");
    }
    ListedUtterance u;
    u.where = where;
    u.path = path->second;
    const auto text = texts.find(name);
    u.has_text = text != texts.end();
    if (u.has_text) u.text = text->second;
    if (const auto speaker = speakers.find(name); speaker != speakers.end()) {
      u.speaker = speaker->second;
    }
    list.push_back(std::move(u));
    return list.back();
  };
  const fs::path segments = root / "segments";
  if (!fs::exists(segments)) {
    for (const KeyedLine& line : keyed_lines(root / "wav.scp")) {
      add(line.key, line.key, str((root / "wav.scp").string(), ":", line.number));
    }
    return list;
  }
  for (const KeyedLine& line : keyed_lines(segments)) {
    const std::string where = str(segments.string(), ":", line.number);
    const std::vector<CsvRow> rows = parse_csv(line.value, ' ', false, where);
    std::vector<std::string> parts = rows.empty() ? std::vector<std::string>() : rows[0].fields;
    std::erase(parts, "");
    if (parts.size() < 3) {
      fail_input(where, ": expected UTTERANCE RECORDING BEGIN END, in seconds");
    }
    ListedUtterance& u = add(line.key, parts[0], where);
    u.offset = seconds_of(parts[1], where);
    // Kaldi's end of -1 is the end of the recording.
    if (parts[2] != "-1") u.duration = seconds_of(parts[2], where) - u.offset;
    if (parts[2] != "-1" && !(u.duration > 0)) {
      fail_input(where, ": ends at ", parts[2], " s, which is not after ", parts[1], " s");
    }
  }
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
    u.path = (folder / (field(audio) + layout.ending)).lexically_normal().string();
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
