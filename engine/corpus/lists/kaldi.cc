// Data directories of Kaldi.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "engine/corpus/lists/csv.h"
#include "engine/corpus/lists/layouts.h"
#include "engine/corpus/lists/list_files.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// "12.5"; InputError names the place.
double seconds_of(const std::string& text, const std::string& where) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value < 1e9)) {
    fail_input(where, ": '", text, "' is no time, expected seconds");
  }
  return value;
}

std::string place_of(const KeyedLine& line, const fs::path& file) {
  return str(file.string(), ":", line.number);
}

// A relative path is seen from the working directory.
std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

void require_no_command(const KeyedLine& line, const std::string& where) {
  if (!line.value.ends_with("|")) return;
  fail_input(where, ": '", line.key, "' is the output of a command (", line.value,
             "), expected a file: run the commands once and name what they wrote");
}

std::string recording_of(const KeyedLine& line, const std::string& where) {
  if (line.value.empty()) fail_input(where, ": names no recording");
  require_no_command(line, where);
  return absolute(line.value);
}

// "FILE:12345", where a matrix begins.
FilePart matrix_of(const KeyedLine& line, const std::string& where) {
  require_no_command(line, where);
  const size_t colon = line.value.rfind(':');
  const std::string number = colon == std::string::npos ? "" : line.value.substr(colon + 1);
  constexpr size_t most_digits = 18;
  if (number.empty() || number.size() > most_digits ||
      number.find_first_not_of("0123456789") != std::string::npos) {
    fail_input(where, ": '", line.value, "' is no matrix in an archive, expected FILE:OFFSET");
  }
  return {absolute(line.value.substr(0, colon)), std::stoull(number)};
}

// What is said of utterances by their names.
class Descriptions {
 public:
  explicit Descriptions(const fs::path& folder) : texts_(keyed_map(folder / "text")) {
    if (fs::exists(folder / "utt2spk")) speakers_ = keyed_map(folder / "utt2spk");
  }

  ListedUtterance describe(const std::string& name, const std::string& where) const {
    ListedUtterance u;
    u.where = where;
    u.id = name;
    const auto text = texts_.find(name);
    u.has_text = text != texts_.end();
    if (u.has_text) u.text = text->second;
    if (const auto s = speakers_.find(name); s != speakers_.end()) u.speaker = s->second;
    return u;
  }

 private:
  std::map<std::string, std::string> texts_, speakers_;
};

// segments: UTTERANCE RECORDING BEGIN END.
void set_segment(const KeyedLine& line, const std::string& where,
                 const std::map<std::string, std::string>& recordings, ListedUtterance& u) {
  const std::vector<CsvRow> rows = parse_csv(line.value, ' ', false, where);
  std::vector<std::string> parts = rows.empty() ? std::vector<std::string>() : rows[0].fields;
  std::erase(parts, "");
  if (parts.size() < 3) fail_input(where, ": expected UTTERANCE RECORDING BEGIN END, in seconds");
  const auto recording = recordings.find(parts[0]);
  if (recording == recordings.end()) {
    fail_input(where, ": recording '", parts[0], "' is not in wav.scp");
  }
  u.file = recording->second;
  u.offset = seconds_of(parts[1], where);
  if (parts[2] == "-1") return;  // the end of the recording
  u.duration = seconds_of(parts[2], where) - u.offset;
  if (!(u.duration > 0)) {
    fail_input(where, ": ends at ", parts[2], " s, which is not after ", parts[1], " s");
  }
}

std::vector<ListedUtterance> list_features(const fs::path& folder) {
  const Descriptions descriptions(folder);
  const fs::path file = folder / "feats.scp", shift = folder / "frame_shift";
  constexpr double usual_shift = 0.01;
  const double seconds =
      fs::exists(shift)
          ? seconds_of(trimmed(data::read_regular_file(shift.string())), shift.string())
          : usual_shift;
  std::vector<ListedUtterance> list;
  for (const KeyedLine& line : keyed_lines(file)) {
    const std::string where = place_of(line, file);
    ListedUtterance& u = list.emplace_back(descriptions.describe(line.key, where));
    u.file = matrix_of(line, where);
    u.kind = InputKind::features;
    u.seconds_per_frame = seconds;
  }
  return list;
}

}  // namespace

std::vector<ListedUtterance> list_kaldi(const std::string& folder, bool features) {
  const fs::path root = existing_folder(folder);
  const fs::path recordings_file = root / "wav.scp", segments = root / "segments";
  if (features || (!fs::exists(recordings_file) && fs::exists(root / "feats.scp"))) {
    return list_features(root);
  }
  const Descriptions descriptions(root);
  const std::vector<KeyedLine> lines = keyed_lines(recordings_file);
  std::map<std::string, std::string> recordings;
  std::vector<ListedUtterance> whole;
  for (const KeyedLine& line : lines) {
    const std::string where = place_of(line, recordings_file);
    recordings[line.key] = recording_of(line, where);
    whole.push_back(descriptions.describe(line.key, where));
    whole.back().file = recordings[line.key];
  }
  if (!fs::exists(segments)) return whole;
  std::vector<ListedUtterance> list;
  for (const KeyedLine& line : keyed_lines(segments)) {
    const std::string where = place_of(line, segments);
    set_segment(line, where, recordings, list.emplace_back(descriptions.describe(line.key, where)));
  }
  return list;
}

}  // namespace rondo::corpus
