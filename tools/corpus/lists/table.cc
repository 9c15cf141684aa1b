// Tables with a row per recording.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"
#include "tools/corpus/lists/csv.h"
#include "tools/corpus/lists/findings.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/read_text.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

constexpr std::array delimiters = {',', '\t', ';', '|'};

std::string name_of_delimiter(char c) {
  switch (c) {
    case '\t':
      return "tab";
    case ';':
      return "semicolon";
    case '|':
      return "bar";
    default:
      return "comma";
  }
}

// Blanks around it aside, and whether its accents are characters of their own.
bool is_called(const std::string& column, const std::string& wanted) {
  return composed_name(trimmed(column)) == composed_name(trimmed(wanted));
}

// The one column that has a usual name.
std::optional<size_t> usual_column(const std::vector<std::string>& header,
                                   bool (*is_usual)(std::string_view name)) {
  std::optional<size_t> found;
  for (size_t i = 0; i < header.size(); ++i) {
    if (!is_usual(header[i])) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<size_t> find_column(const std::vector<std::string>& header,
                                  const std::string& wanted) {
  for (size_t i = 0; i < header.size(); ++i)
    if (is_called(header[i], wanted)) return i;
  return std::nullopt;
}

// `folder`: in which the table's recordings are.
[[noreturn]] void fail_column(const std::vector<std::string>& header, const std::string& wanted,
                              char delimiter, const std::string& file, const fs::path& folder) {
  std::vector<std::string> trimmed_names;
  std::string names;
  for (const std::string& field : header) {
    trimmed_names.push_back(trimmed(field));
    names += (names.empty() ? "" : ", ") + trimmed_names.back();
  }
  if (names.find('\0') != std::string::npos)
    fail_input(file,
               ": is no text, expected a table in CSV or TSV; a spreadsheet has to be saved as ",
               "one, in UTF-8");
  const std::string nearest = nearest_word(wanted, trimmed_names);
  std::string advice;
  if (!is_utf8(names)) {
    advice = str("; the table is not in UTF-8 (", kind_of(Finding::text_no_utf8).hint, ")");
  } else if (!nearest.empty()) {
    advice = "; did you mean '" + nearest + "'?";
  }
  const auto is_file = [&](const std::string& name) {
    std::error_code ignored;
    return !name.empty() && fs::is_regular_file(folder / name, ignored);
  };
  if (std::ranges::any_of(trimmed_names, is_file))
    advice =
        "; its first line is a recording's already: begin it with a line that names the columns";
  for (const char other : delimiters) {
    if (header.size() == 1 && other != delimiter && names.find(other) != std::string::npos)
      advice =
          "; its columns seem to be divided otherwise: --delimiter " + name_of_delimiter(other);
  }
  if (wanted.empty())
    fail_input(file, ": which of its columns holds the recordings, which the texts? It has ", names,
               advice.empty() ? "; expected --audio-column NAME and --text-column NAME" : advice);
  fail_input(file, ": has no column '", wanted, "', it has ", names, advice);
}

// The columns that are asked for.
struct Columns {
  size_t audio = 0;
  std::vector<size_t> texts;
  std::optional<size_t> speaker;
  size_t count = 0;  // of a row
};

class Table {
 public:
  Table(const TableLayout& layout, const TableLayout::File& file)
      : layout_(layout), file_(file), content_(read_text(file.path)) {
    text_ = content_;
    take_named_delimiter();
    if (delimiter_ == 0) delimiter_ = layout.delimiter;
    if (delimiter_ == 0) delimiter_ = guessed_delimiter();
    folder_ =
        layout.folder.empty() ? fs::absolute(file.path).parent_path() : fs::absolute(layout.folder);
  }

  void list(std::vector<ListedUtterance>& entries, std::string* chosen) {
    const Quoting quoting = layout_.quotes ? quoting_of(text_, delimiter_) : Quoting::none;
    CsvReader reader(text_, delimiter_, quoting);
    CsvRow row;
    if (!reader.next(row)) fail_input(file_.path, ": holds no rows");
    if (!row.problem.empty())
      fail_input(file_.path, ":", row.line + skipped_, ": ", row.problem,
                 ", expected the end of the field");
    columns_ = columns_of(row.fields);
    const auto name = [&](size_t column) { return trimmed(row.fields[column]); };
    audio_name_ = layout_.header ? name(columns_.audio) : layout_.audio;
    if (layout_.header && chosen && layout_.audio.empty())
      *chosen =
          str("recordings: column '", name(columns_.audio), "', --audio-column names another");
    if (layout_.header && chosen && layout_.text.front().empty())
      *chosen += str(chosen->empty() ? "" : "\n", "texts: column '", name(columns_.texts.front()),
                     "', --text-column names another");
    const auto lines = std::count(text_.begin(), text_.end(), '\n');
    entries.reserve(entries.size() + static_cast<size_t>(lines) + 1);
    if (!layout_.header) entries.push_back(entry_of(row));
    while (reader.next(row)) {
      entries.push_back(entry_of(row));
    }
  }

 private:
  // Excel's "sep=;" before the header.
  void take_named_delimiter() {
    constexpr std::string_view key = "sep=";
    const bool is_line = text_.size() > key.size() + 1 && text_.starts_with(key) &&
                         (text_[key.size() + 1] == '\r' || text_[key.size() + 1] == '\n');
    if (!is_line || !layout_.header) return;
    delimiter_ = text_[key.size()];
    text_.remove_prefix(key.size() + 1);
    if (text_.starts_with("\r\n")) text_.remove_prefix(1);
    text_.remove_prefix(1);
    skipped_ = 1;
  }

  // By which most of the wanted columns are there; of equal ones, by which there are most columns.
  char guessed_delimiter() const {
    char best = ',';
    if (!layout_.header) return best;
    std::pair<int, size_t> most{0, 1};
    for (const char c : delimiters) {
      CsvReader reader(text_, c, layout_.quotes ? Quoting::doubled : Quoting::none);
      CsvRow row;
      if (!reader.next(row)) continue;
      const int found = find_column(row.fields, layout_.audio).has_value() +
                        find_column(row.fields, layout_.text.front()).has_value();
      const std::pair<int, size_t> here{found, row.fields.size()};
      if (here <= most) continue;
      most = here;
      best = c;
    }
    return best;
  }

  size_t column_of(const std::vector<std::string>& header, const std::string& wanted,
                   bool (*is_usual)(std::string_view name)) const {
    if (!layout_.header) return static_cast<size_t>(std::stoul(wanted));
    const std::optional<size_t> at =
        wanted.empty() ? usual_column(header, is_usual) : find_column(header, wanted);
    if (!at) fail_column(header, wanted, delimiter_, file_.path, folder_);
    for (size_t i = *at + 1; i < header.size() && !wanted.empty(); ++i) {
      if (is_called(header[i], wanted))
        fail_input(file_.path, ": has two columns '", trimmed(wanted), "', expected one");
    }
    return *at;
  }

  Columns columns_of(const std::vector<std::string>& first) const {
    Columns columns;
    columns.audio = column_of(first, layout_.audio, is_usual_of_recordings);
    for (const std::string& name : layout_.text)
      columns.texts.push_back(column_of(first, name, is_usual_of_texts));
    if (!layout_.speaker.empty()) {
      columns.speaker = column_of(first, layout_.speaker, nullptr);
    }
    columns.count = first.size();
    if (!layout_.header) {
      columns.count = columns.audio + 1;
      for (size_t c : columns.texts) columns.count = std::max(columns.count, c + 1);
    }
    return columns;
  }

  // The fields that are needed, and no more than the table has columns. A delimiter too many within
  // the last column, that of the text, belongs to the text.
  void fit(CsvRow& row, ListedUtterance& u) const {
    std::vector<std::string>& fields = row.fields;
    const size_t count = columns_.count, given = fields.size();
    while (fields.size() > count && fields.back().empty()) fields.pop_back();  // "a,b,,,"
    // Without a header the first text will do.
    const size_t least = layout_.header ? count : columns_.texts.front() + 1;
    const bool ends_in_text = columns_.texts.back() + 1 == count;
    if (fields.size() > count && ends_in_text && layout_.header) {
      for (size_t i = count; i < fields.size(); ++i)
        fields[count - 1] += std::string(1, delimiter_) + fields[i];
      fields.resize(count);
      u.notes.push_back({Finding::joined_text, str("has ", given, " fields, the first line ", count,
                                                   "; the text is '", fields.back(), "'")});
    } else if (fields.size() > count || fields.size() < least) {
      u.problem = str("has ", given, given == 1 ? " field" : " fields", ", expected ", count,
                      layout_.header ? ", as the first line has" : "");
      u.finding = Finding::wrong_fields;
    }
  }

  ListedUtterance entry_of(CsvRow& row) const {
    ListedUtterance u;
    u.where = str(file_.path, ":", row.line + skipped_);
    u.split = file_.split;
    if (!row.problem.empty()) {
      u.problem = row.problem;
      u.finding = Finding::bad_row;
      return u;
    }
    fit(row, u);
    const auto field = [&](size_t column) {
      return column < row.fields.size() ? row.fields[column] : std::string();
    };
    const std::string audio = trimmed(field(columns_.audio));
    if (!u.problem.empty()) return u;
    if (audio.empty()) {
      u.problem = str("names no recording in column '", audio_name_, "'");
      u.finding = Finding::names_nothing;
      return u;
    }
    u.file.path =
        recording_called((folder_ / (audio + layout_.ending)).lexically_normal().string());
    if (const std::string other = in_capitals(u.file.path); !other.empty()) u.file.path = other;
    for (size_t column : columns_.texts) {
      if (!field(column).empty()) u.text = trimmed(field(column));
    }
    if (columns_.speaker) u.speaker = trimmed(field(*columns_.speaker));
    return u;
  }

  // The name that the file has instead of this one, where only its ending is in capitals.
  std::string in_capitals(const std::string& path) const {
    std::error_code ignored;
    if (layout_.ending.empty() || fs::exists(path, ignored)) return {};
    const size_t stem = path.size() - layout_.ending.size();
    std::string other = path;
    std::transform(other.begin() + static_cast<ptrdiff_t>(stem), other.end(),
                   other.begin() + static_cast<ptrdiff_t>(stem), [](char c) {
                     return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
                   });
    return fs::exists(other, ignored) ? other : std::string();
  }

  const TableLayout& layout_;
  const TableLayout::File& file_;
  const std::string content_;
  std::string_view text_;
  char delimiter_ = 0;
  int64_t skipped_ = 0;  // lines before the header
  fs::path folder_;
  Columns columns_;
  std::string audio_name_;
};

}  // namespace

std::vector<ListedUtterance> list_table(const TableLayout& layout, std::string* chosen) {
  std::vector<ListedUtterance> list;
  for (const TableLayout::File& file : layout.files) Table(layout, file).list(list, chosen);
  return list;
}

}  // namespace rondo::corpus
