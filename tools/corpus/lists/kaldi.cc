// Data directories of Kaldi.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/base/error.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// What is wrong with a line: a clause without the place.
class BadLine : public InputError {
 public:
  BadLine(Finding what_finding, const std::string& what)
      : InputError(what), finding(what_finding) {}
  const Finding finding;
};

[[noreturn]] void fail_line(const std::string& what, Finding finding = Finding::bad_line) {
  throw BadLine(finding, what);
}

bool has_file(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored) || fs::exists(file.string() + ".gz", ignored);
}

// "12.5"
double seconds_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value < 1e9))
    fail_line(str("'", text, "' is no time, expected seconds"));
  return value;
}

std::string place_of(const KeyedLine& line, const fs::path& file) {
  return str(file.string(), ":", line.number);
}

// A relative path is seen from the working directory.
std::string absolute(const std::string& path) {
  return recording_called(fs::absolute(path).lexically_normal().string());
}

void require_no_command(const KeyedLine& line) {
  if (!line.value.ends_with("|")) return;
  fail_line(str("'", line.key, "' is the output of a command (", line.value, ")"),
            Finding::command);
}

std::string recording_of(const KeyedLine& line) {
  if (line.value.empty()) fail_line("names no recording", Finding::names_nothing);
  require_no_command(line);
  return absolute(line.value);
}

// "FILE:12345", where a matrix begins.
FilePart matrix_of(const KeyedLine& line) {
  require_no_command(line);
  const size_t colon = line.value.rfind(':');
  const std::string number = colon == std::string::npos ? "" : line.value.substr(colon + 1);
  constexpr size_t most_digits = 18;
  if (number.empty() || number.size() > most_digits ||
      number.find_first_not_of("0123456789") != std::string::npos) {
    fail_line(str("'", line.value, "' is no matrix in an archive, expected FILE:OFFSET"));
  }
  return {absolute(line.value.substr(0, colon)), std::stoull(number)};
}

// What is said of utterances by their names. Of a name that is there twice the first line counts.
class Descriptions {
 public:
  explicit Descriptions(const fs::path& folder) : file_(folder / "text"), texts_(file_) {
    const fs::path speakers = folder / "utt2spk";
    if (has_file(speakers)) speakers_ = ByKey(speakers);
  }

  ListedUtterance describe(const std::string& name, const std::string& where) {
    ListedUtterance u;
    u.where = where;
    u.id = name;
    const size_t text = texts_.find(name);
    u.has_text = text != ByKey::none;
    if (u.has_text) {
      u.text = texts_.lines[text].value;
      texts_.marks[text] |= is_used;
    }
    if (const size_t s = speakers_.find(name); s != ByKey::none)
      u.speaker = speakers_.lines[s].value;
    return u;
  }

  // Whether this is the first time that the name is listed.
  bool is_first(const std::string& name) {
    const size_t text = texts_.find(name);
    if (text == ByKey::none) return listed_without_text_.insert(name).second;
    return !(std::exchange(texts_.marks[text], texts_.marks[text] | is_listed) & is_listed);
  }

  // Texts that nobody asked for, and those of a name that has another.
  void add_unused(std::vector<ListedUtterance>& list, const char* missing_in) const {
    size_t first = 0;
    for (size_t i = 0; i < texts_.lines.size(); ++i) {
      const KeyedLine& line = texts_.lines[i];
      if (line.key != texts_.lines[first].key) first = i;
      if (i > first) {
        const bool same = texts_.lines[first].value == line.value;
        add(list, same ? Finding::doubled : Finding::doubled_otherwise, line.number,
            str("'", line.key, "' is there twice"));
      } else if (!(texts_.marks[i] & is_used)) {
        add(list, Finding::text_alone, line.number, str("'", line.key, "' is not in ", missing_in));
      }
    }
  }

 private:
  static constexpr uint8_t is_used = 1, is_listed = 2;

  // The lines of a file, by their keys and of equal keys by their numbers. (Data of a million
  // utterances come: a map would need twice the memory.)
  struct ByKey {
    static constexpr size_t none = static_cast<size_t>(-1);

    ByKey() = default;
    explicit ByKey(const fs::path& file) : lines(keyed_lines(file)), marks(lines.size()) {
      std::stable_sort(lines.begin(), lines.end(),
                       [](const KeyedLine& a, const KeyedLine& b) { return a.key < b.key; });
    }
    // The first with the key, or none.
    size_t find(const std::string& key) const {
      const auto at =
          std::lower_bound(lines.begin(), lines.end(), key,
                           [](const KeyedLine& a, const std::string& k) { return a.key < k; });
      return at != lines.end() && at->key == key ? static_cast<size_t>(at - lines.begin()) : none;
    }

    std::vector<KeyedLine> lines;
    std::vector<uint8_t> marks;
  };

  void add(std::vector<ListedUtterance>& list, Finding finding, int64_t line,
           const std::string& problem) const {
    ListedUtterance& u = list.emplace_back();
    u.where = str(file_.string(), ":", line);
    u.problem = problem;
    u.finding = finding;
  }

  const fs::path file_;
  ByKey texts_, speakers_;
  std::set<std::string> listed_without_text_;
};

// Fills in what a line says; where that is wrong, it is the utterance's problem.
template <class Fill>
void fill_or_tell(ListedUtterance& u, const Fill& fill) {
  try {
    fill();
  } catch (const BadLine& e) {
    u.problem = e.what();
    u.finding = e.finding;
  }
}

// segments: UTTERANCE RECORDING BEGIN END.
void set_segment(const KeyedLine& line, const std::map<std::string, FilePart>& recordings,
                 ListedUtterance& u) {
  std::istringstream words(line.value);
  std::vector<std::string> parts;
  for (std::string word; words >> word;) parts.push_back(word);
  if (parts.size() < 3) fail_line("expected UTTERANCE RECORDING BEGIN END, in seconds");
  const auto recording = recordings.find(parts[0]);
  if (recording == recordings.end())
    fail_line(str("recording '", parts[0], "' is not in wav.scp, or cannot be used"));
  u.file = recording->second;
  u.offset = seconds_of(parts[1]);
  if (parts[2] == "-1") return;  // the end of the recording
  u.duration = seconds_of(parts[2]) - u.offset;
  if (!(u.duration > 0))
    fail_line(str("ends at ", parts[2], " s, which is not after ", parts[1], " s"));
}

double frame_seconds(const fs::path& folder) {
  constexpr double usual = 0.01;
  const fs::path file = folder / "frame_shift";
  if (!has_file(file)) return usual;
  try {
    return seconds_of(text_of_file(file));
  } catch (const BadLine& e) {
    fail_input(file.string(), ": ", e.what());
  }
}

std::vector<ListedUtterance> list_features(const fs::path& folder) {
  Descriptions descriptions(folder);
  const fs::path file = folder / "feats.scp";
  const double seconds = frame_seconds(folder);
  const std::vector<KeyedLine> lines = keyed_lines(file);
  std::vector<ListedUtterance> list;
  list.reserve(lines.size());
  for (const KeyedLine& line : lines) {
    ListedUtterance& u = list.emplace_back(descriptions.describe(line.key, place_of(line, file)));
    u.kind = InputKind::features;
    u.seconds_per_frame = seconds;
    fill_or_tell(u, [&] { u.file = matrix_of(line); });
  }
  descriptions.add_unused(list, "feats.scp");
  return list;
}

}  // namespace

std::vector<ListedUtterance> list_kaldi(const std::string& folder, bool features) {
  const fs::path root = existing_folder(folder);
  const fs::path recordings_file = root / "wav.scp", segments = root / "segments";
  if (features || (!has_file(recordings_file) && has_file(root / "feats.scp"))) {
    return list_features(root);
  }
  Descriptions descriptions(root);
  const bool is_cut = has_file(segments);
  std::map<std::string, FilePart> recordings;
  std::vector<ListedUtterance> list;
  std::vector<KeyedLine> named = keyed_lines(recordings_file);
  if (!is_cut) list.reserve(named.size());
  for (KeyedLine& line : named) {
    const std::string where = place_of(line, recordings_file);
    ListedUtterance u;
    if (!is_cut) u = descriptions.describe(line.key, where);
    u.where = where;
    fill_or_tell(u, [&] {
      u.file = recording_of(line);
      const bool is_new = is_cut ? recordings.try_emplace(line.key, u.file).second
                                 : descriptions.is_first(line.key);
      if (!is_new) fail_line(str("'", line.key, "' is there twice"), Finding::doubled);
    });
    line = {};
    // Of recordings that are cut into segments those alone are entries that cannot be used.
    if (!is_cut || !u.problem.empty()) list.push_back(std::move(u));
  }
  if (is_cut) {
    const std::vector<KeyedLine> lines = keyed_lines(segments);
    list.reserve(list.size() + lines.size());
    for (const KeyedLine& line : lines) {
      ListedUtterance& u =
          list.emplace_back(descriptions.describe(line.key, place_of(line, segments)));
      fill_or_tell(u, [&] { set_segment(line, recordings, u); });
    }
  }
  descriptions.add_unused(list, is_cut ? "segments" : "wav.scp");
  return list;
}

}  // namespace rondo::corpus
