// Texts that do not lie beside their recordings or images, found by their names.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <unordered_map>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/csv.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/read_text.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

// A name without folders and ending, with accents in one form.
std::string stem_of(std::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  const size_t dot = path.rfind('.');
  const bool has_ending = dot != std::string_view::npos && dot > 0;
  return composed_name(std::string(path.substr(0, has_ending ? dot : path.size())));
}

void give_text(ListedUtterance& u) {
  u.has_text = true;
  u.problem.clear();
  u.finding = ListedUtterance().finding;
}

void leave_out(const std::set<size_t>& entries, std::vector<ListedUtterance>& list) {
  size_t i = 0;
  std::erase_if(list, [&](const ListedUtterance&) { return entries.contains(i++); });
}

// Where entries of a kind are, by a name; of two with the same name the place is `several`.
constexpr size_t several = SIZE_MAX;
using ByName = std::unordered_map<std::string, size_t>;

template <class Name>
ByName by_name(const std::vector<ListedUtterance>& list, Finding finding, const Name& name) {
  ByName places;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].finding != finding) continue;
    const auto [at, is_new] = places.emplace(name(list[i].file.path), i);
    if (!is_new) at->second = several;
  }
  return places;
}

// Joins each recording without a text with the text that has the name, if each is the only one.
template <class NameOfRecording, class NameOfText>
void join(std::vector<ListedUtterance>& list, const NameOfRecording& name_of_recording,
          const NameOfText& name_of_text, const char* note) {
  const ByName texts = by_name(list, Finding::text_alone, name_of_text);
  if (texts.empty()) return;
  std::set<size_t> joined;
  for (const auto& [name, place] : by_name(list, Finding::no_text, name_of_recording)) {
    const auto text = texts.find(name);
    if (place == several || text == texts.end() || text->second == several) continue;
    ListedUtterance& u = list[place];
    give_text(u);
    u.text_file = list[text->second].file.path;
    if (*note) u.notes.push_back({Finding::text_elsewhere, str(u.file.path, note, u.text_file)});
    joined.insert(text->second);
  }
  leave_out(joined, list);
}

// The names of systems that write accents in other forms.
std::string beside(const std::string& path) {
  return composed_name(fs::path(path).replace_extension().string());
}

using Fields = std::vector<std::string>;

Fields fields_of(std::string_view line, char delimiter) {
  Fields fields;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(delimiter, at), line.size());
    fields.push_back(trimmed(line.substr(at, end - at)));
    at = end + 1;
  }
  return fields;
}

// Which field of "a.wav|5 Mr.|five mister" and "a.wav|anna|five" is the text: the third, unless it
// is a number or, as speakers are, far more often the same than the second.
size_t field_of_texts(const std::vector<Fields>& lines) {
  std::set<std::string> second, third;
  bool are_numbers = true;
  for (const Fields& f : lines) {
    if (f.size() < 3 || f[2].empty()) continue;
    second.insert(f[1]);
    third.insert(f[2]);
    are_numbers = are_numbers && f[2].find_first_not_of("0123456789.,:") == std::string::npos;
  }
  return !third.empty() && !are_numbers && 2 * third.size() >= second.size() ? 2 : 1;
}

bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to": the lines of the IAM database.
bool is_of_iam(std::string_view line) {
  const Fields f = fields_of(line, ' ');
  return f.size() >= 9 && (f[1] == "ok" || f[1] == "err") &&
         std::all_of(f.begin() + 2, f.begin() + 8, is_number);
}

void split_iam_line(std::string_view line, KeyedLine& split) {
  const Fields f = fields_of(line, ' ');
  split.key = f[0];
  for (size_t i = 8; i < f.size(); ++i) split.value += (i > 8 ? " " : "") + f[i];
  std::replace(split.value.begin(), split.value.end(), '|', ' ');
}

// Two columns, with quotes where there are commas: "word_1.png, "Tea, please"". None: it is no
// such table.
std::vector<KeyedLine> rows_of(std::string_view content) {
  std::vector<KeyedLine> rows;
  CsvReader reader(content, ',', quoting_of(content, ','));
  for (CsvRow row; reader.next(row); row = {}) {
    if (!row.problem.empty() || row.fields.size() != 2) return {};
    rows.push_back({row.line, trimmed(row.fields[0]), trimmed(row.fields[1])});
  }
  return rows;
}

// metadata.jsonl of Hugging Face's image folders: {"file_name": "1.png", "text": "..."}. None: it
// is none, or its texts are of parts of images.
std::vector<KeyedLine> objects_of(std::string_view content) {
  std::vector<KeyedLine> lines;
  int64_t number = 0;
  for (const std::string_view line : split_lines(content)) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    KeyedLine split{number, {}, {}};
    try {
      const Json object = Json::parse(line);
      for (const auto& [name, value] : object.members()) {
        if (name == "region") return {};
        if (value.is_string() && is_usual_of_recordings(name)) split.key = value.get<std::string>();
        if (value.is_string() && is_usual_of_texts(name))
          split.value = trimmed(value.get<std::string>());
      }
    } catch (const JsonError&) {
      return {};
    }
    lines.push_back(std::move(split));
  }
  return lines;
}

// Lines "NAME TEXT", NAME with folders and an ending or without; what is between them all lines
// have.
std::vector<KeyedLine> lines_of(const std::string& file) {
  const std::string content = read_text(file);
  if (has_ending(file, ".jsonl")) return objects_of(content);
  std::vector<std::string_view> lines;
  std::vector<KeyedLine> split;
  int64_t number = 0;
  for (const std::string_view line : split_lines(content)) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string_view::npos || line.starts_with('#')) continue;
    lines.push_back(line);
    split.push_back({number, {}, {}});
  }
  const auto all_have = [&](std::string_view text) {
    return std::all_of(lines.begin(), lines.end(), [&](std::string_view line) {
      return line.find(text) != std::string_view::npos;
    });
  };
  if (has_ending(file, ".csv") || all_have(", \"")) return rows_of(content);
  const bool is_iam = std::all_of(lines.begin(), lines.end(), is_of_iam);
  const char delimiter = all_have("\t") ? '\t' : all_have("|") ? '|' : ' ';
  std::vector<Fields> fields;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is_iam) {
      split_iam_line(lines[i], split[i]);
    } else if (delimiter == ' ') {
      const std::string line = trimmed(lines[i]);
      const size_t end = std::min(line.find_first_of(" \t"), line.size());
      split[i].key = line.substr(0, end);
      split[i].value = trimmed(std::string_view(line).substr(end));
    } else {
      fields.push_back(fields_of(lines[i], delimiter));
    }
  }
  const size_t text = field_of_texts(fields);
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool has_text = text < fields[i].size() && !fields[i][text].empty();
    split[i].key = fields[i][0];
    split[i].value = fields[i][has_text ? text : 1];
  }
  return split;
}

// Recordings and images without a text, by what a list may call them.
class Nameless {
 public:
  Nameless(const fs::path& root, const std::vector<ListedUtterance>& list)
      : root_(root),
        by_path_(by_name(list, Finding::no_text, [](const std::string& path) { return path; })),
        by_stem_(by_name(list, Finding::no_text, stem_of)) {}

  bool empty() const { return by_stem_.empty(); }

  // The place of what a line of this file names, or `several`; none.
  std::optional<size_t> find(std::string key, const std::string& file) const {
    std::replace(key.begin(), key.end(), '\\', '/');
    for (const fs::path& folder : {fs::path(file).parent_path(), root_}) {
      const auto at = by_path_.find((folder / key).lexically_normal().string());
      if (at != by_path_.end()) return at->second;
    }
    const auto at = by_stem_.find(stem_of(key));
    return at == by_stem_.end() ? std::nullopt : std::optional(at->second);
  }

 private:
  const fs::path root_;
  const ByName by_path_, by_stem_;
};

struct TextList {
  std::string path;
  std::vector<KeyedLine> lines;
};

// A list has names of what lacks a text in most of its lines.
bool is_list_of(const Nameless& nameless, const TextList& list) {
  size_t known = 0;
  for (const KeyedLine& line : list.lines)
    known += !line.value.empty() && nameless.find(line.key, list.path).has_value();
  return known > 0 && 2 * known >= list.lines.size();
}

std::vector<TextList> text_lists(const Nameless& nameless, const std::vector<std::string>& files) {
  constexpr uint64_t most_bytes = uint64_t{1} << 28;
  std::vector<TextList> lists;
  for (const std::string& file : files) {
    std::error_code error;
    if (fs::file_size(file, error) > most_bytes || error) continue;
    TextList list{file, {}};
    try {
      const std::string start = data::read_file_start(file, 4096);
      if (start.find('\0') != std::string::npos && !is_utf16(start)) continue;
      list.lines = lines_of(file);
    } catch (const InputError&) {
      continue;  // what cannot be read is told where it is listed
    }
    if (is_list_of(nameless, list)) lists.push_back(std::move(list));
  }
  return lists;
}

// A manifest of recordings has more to say than their texts: "prepare nemo" reads it.
bool may_be_list(const std::string& file, InputKind kind) {
  const std::string ending = ending_of(file);
  return ending.empty() || ending == ".txt" || ending == ".tsv" || ending == ".trn" ||
         ending == ".csv" || (ending == ".jsonl" && kind == InputKind::image);
}

void read_lists(const fs::path& root, std::vector<std::string>& others,
                std::vector<ListedUtterance>& list) {
  const Nameless nameless(root, list);
  if (nameless.empty()) return;
  std::vector<std::string> files;
  for (const std::string& file : others)
    if (may_be_list(file, list.front().kind)) files.push_back(file);
  for (const ListedUtterance& u : list)
    if (u.finding == Finding::text_alone) files.push_back(u.file.path);
  std::set<std::string> read;
  std::vector<ListedUtterance> unknown;
  for (TextList& texts : text_lists(nameless, files)) {
    read.insert(texts.path);
    for (KeyedLine& line : texts.lines) {
      const std::optional<size_t> at = nameless.find(line.key, texts.path);
      ListedUtterance* const u = !at || *at == several ? nullptr : &list[*at];
      const std::string where = str(texts.path, ":", line.number);
      if (u && u->finding == Finding::no_text) {
        give_text(*u);
        u->text = std::move(line.value);
        u->notes.push_back({Finding::text_elsewhere, str(u->file.path, ": its text is ", where)});
        continue;
      }
      const bool is_heading = line.number == 1 && is_usual_of_recordings(line.key);
      if (is_heading) continue;
      ListedUtterance& other = unknown.emplace_back();
      other.where = where;
      other.kind = list.front().kind;
      other.file.path = texts.path;
      other.has_text = false;
      other.finding = u ? Finding::doubled : Finding::names_nothing;
      other.problem = u ? str("'", line.key, "' has a text already")
                        : str("nothing, or more than one, is called '", line.key, "'");
    }
  }
  std::erase_if(list, [&](const ListedUtterance& u) {
    return u.finding == Finding::text_alone && read.contains(u.file.path);
  });
  std::erase_if(others, [&](const std::string& file) { return read.contains(file); });
  std::move(unknown.begin(), unknown.end(), std::back_inserter(list));
}

std::string start_of(const fs::path& file) {
  try {
    return data::read_file_start(file.string(), 4096);
  } catch (const InputError&) {
    return {};  // it may not be read
  }
}

// What reads such a file, behind "rondo prepare"; empty: nothing does.
std::string command_for(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string folder = file.parent_path().string();
  const std::string start = start_of(file);
  const auto has = [&](const char* text) { return start.find(text) != std::string::npos; };
  if (name == "wav.scp") return str("kaldi ", folder, " OUT");
  if (has_ending(name, ".jsonl") || (has_ending(name, ".json") && start.starts_with('{')))
    return has("\"audio") || has("\"file_name\"") ? str("nemo OUT ", file.string()) : "";
  if (name == "metadata.csv" && has("|")) return str("ljspeech ", folder, " OUT");
  if (has_ending(name, ".tsv") && fs::is_directory(file.parent_path() / "clips"))
    return str("common-voice ", folder, " OUT");
  const bool is_table = has_ending(name, ".csv") || has_ending(name, ".tsv");
  return is_table ? str("csv ", file.string(), " OUT") : "";
}

}  // namespace

void find_texts_elsewhere(const fs::path& root, std::vector<std::string>& others,
                          std::vector<ListedUtterance>& list) {
  join(list, beside, beside, "");
  // Where one text lies beside its recording, all should: another's is not looked for afar.
  if (std::any_of(list.begin(), list.end(), [](const ListedUtterance& u) { return u.has_text; }))
    return;
  const auto stem_of_text = [](const std::string& path) {
    const std::string stem = stem_of(path);
    return has_ending(path, ".gt.txt") ? stem.substr(0, stem.size() - 3) : stem;
  };
  join(list, stem_of, stem_of_text, ": its text is ");
  read_lists(root, others, list);
}

std::string tables_that_may_hold_texts(const std::vector<std::string>& others,
                                       const std::vector<ListedUtterance>& list) {
  if (std::any_of(list.begin(), list.end(), [](const ListedUtterance& u) { return u.has_text; }))
    return {};
  constexpr size_t most = 3;
  std::set<std::string> commands;
  std::string told;
  for (const std::string& file : others) {
    const std::string command = command_for(file);
    if (command.empty() || !commands.insert(command).second) continue;
    told += str(told.empty() ? "" : "\n", "texts may be in ", file, ", which 'rondo prepare ",
                command, "' reads");
    if (commands.size() == most) break;
  }
  return told;
}

}  // namespace rondo::corpus
