// Texts that do not lie beside their recordings, found by the recordings' names.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <unordered_map>

#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "engine/io/file.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/list_files.h"

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
// `name_of_text` gives "" for what is no candidate.
template <class NameOfRecording, class NameOfText>
void join(std::vector<ListedUtterance>& list, const NameOfRecording& name_of_recording,
          const NameOfText& name_of_text, const char* note) {
  const ByName texts = by_name(list, Finding::text_alone, name_of_text);
  if (texts.empty()) return;
  std::set<size_t> joined;
  for (const auto& [name, place] : by_name(list, Finding::no_text, name_of_recording)) {
    const auto text = name.empty() ? texts.end() : texts.find(name);
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

// Lines "NAME TEXT" of a file, NAME with folders and an ending or without.
struct TextList {
  std::string path;
  std::vector<KeyedLine> lines;
};

// A list has a name of a recording in most of its lines.
bool is_list_of(const ByName& recordings, const TextList& list) {
  size_t known = 0;
  for (const KeyedLine& line : list.lines)
    known += !line.value.empty() && recordings.contains(stem_of(line.key));
  return known > 0 && 2 * known >= list.lines.size();
}

using Fields = std::vector<std::string>;

Fields fields_of(const KeyedLine& line) {
  const std::string whole = line.key + " " + line.value;
  Fields fields;
  for (size_t at = 0; at <= whole.size();) {
    const size_t end = std::min(whole.find('|', at), whole.size());
    fields.push_back(trimmed(std::string_view(whole).substr(at, end - at)));
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

std::vector<KeyedLine> lines_of(const std::string& file) {
  std::vector<KeyedLine> lines = keyed_lines(file);
  const auto has_bar = [](const KeyedLine& l) {
    return l.key.find('|') != std::string::npos || l.value.find('|') != std::string::npos;
  };
  if (!std::all_of(lines.begin(), lines.end(), has_bar)) return lines;
  std::vector<Fields> fields;
  for (const KeyedLine& line : lines) fields.push_back(fields_of(line));
  const size_t text = field_of_texts(fields);
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool has_text = text < fields[i].size() && !fields[i][text].empty();
    lines[i].key = fields[i][0];
    lines[i].value = fields[i][has_text ? text : 1];
  }
  return lines;
}

std::vector<TextList> text_lists(const ByName& recordings, const std::vector<std::string>& files) {
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
    if (is_list_of(recordings, list)) lists.push_back(std::move(list));
  }
  return lists;
}

bool may_be_list(const std::string& file) {
  const std::string ending = ending_of(file);
  return ending.empty() || ending == ".txt" || ending == ".tsv" || ending == ".trn";
}

void read_lists(std::vector<std::string>& others, std::vector<ListedUtterance>& list) {
  const ByName recordings = by_name(list, Finding::no_text, stem_of);
  if (recordings.empty()) return;
  std::vector<std::string> files;
  for (const std::string& file : others)
    if (may_be_list(file)) files.push_back(file);
  for (const ListedUtterance& u : list)
    if (u.finding == Finding::text_alone) files.push_back(u.file.path);
  std::set<std::string> read;
  std::vector<ListedUtterance> unknown;
  for (TextList& texts : text_lists(recordings, files)) {
    read.insert(texts.path);
    for (KeyedLine& line : texts.lines) {
      const auto at = recordings.find(stem_of(line.key));
      ListedUtterance* const u =
          at == recordings.end() || at->second == several ? nullptr : &list[at->second];
      const std::string where = str(texts.path, ":", line.number);
      if (u && u->finding == Finding::no_text) {
        give_text(*u);
        u->text = std::move(line.value);
        u->notes.push_back({Finding::text_elsewhere, str(u->file.path, ": its text is ", where)});
        continue;
      }
      ListedUtterance& other = unknown.emplace_back();
      other.where = where;
      other.file.path = texts.path;
      other.has_text = false;
      other.finding = u ? Finding::doubled : Finding::text_alone;
      other.problem = u ? str("'", line.key, "' has a text already")
                        : str("no recording, or several, are called '", line.key, "'");
    }
  }
  std::erase_if(list, [&](const ListedUtterance& u) {
    return u.finding == Finding::text_alone && read.contains(u.file.path);
  });
  std::erase_if(others, [&](const std::string& file) { return read.contains(file); });
  std::move(unknown.begin(), unknown.end(), std::back_inserter(list));
}

// What reads such a file, behind "rondo prepare"; empty: nothing does.
std::string command_for(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::string folder = file.parent_path().string();
  const std::string start = data::read_file_start(file.string(), 4096);
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

std::string hint_about(const std::vector<std::string>& others) {
  constexpr size_t most = 3;
  std::set<std::string> commands;
  std::string hint;
  for (const std::string& file : others) {
    const std::string command = command_for(file);
    if (command.empty() || !commands.insert(command).second) continue;
    hint += str(hint.empty() ? "" : "\n", "texts may be in ", file, ", which 'rondo prepare ",
                command, "' reads");
    if (commands.size() == most) break;
  }
  return hint;
}

}  // namespace

std::string find_texts_elsewhere(std::vector<std::string>& others,
                                 std::vector<ListedUtterance>& list) {
  join(list, beside, beside, "");
  // Where one text lies beside its recording, all should: another's is not looked for afar.
  const bool are_apart = std::none_of(
      list.begin(), list.end(), [](const ListedUtterance& u) { return !u.text_file.empty(); });
  if (are_apart) {
    join(list, stem_of, stem_of, ": its text is ");
    read_lists(others, list);
  }
  const bool is_missing = std::any_of(list.begin(), list.end(), [](const ListedUtterance& u) {
    return u.finding == Finding::no_text || u.finding == Finding::text_alone;
  });
  return list.empty() || is_missing ? hint_about(others) : std::string();
}

}  // namespace rondo::corpus
