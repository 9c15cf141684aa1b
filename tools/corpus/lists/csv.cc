#include "tools/corpus/lists/csv.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo::corpus {

CsvReader::CsvReader(std::string_view text, char delimiter, Quoting quoting)
    : text_(text),
      delimiter_(delimiter),
      quoting_(quoting),
      line_end_(text.find('\n') == std::string_view::npos ? '\r' : '\n') {}

bool CsvReader::next(CsvRow& row) {
  while (at_ < text_.size()) {
    read_row(row);
    const bool is_blank = row.fields.size() == 1 && row.problem.empty() &&
                          row.fields.front().find_first_not_of(" \t") == std::string::npos;
    if (!is_blank) return true;
  }
  return false;
}

bool CsvReader::at_end_of_line() const {
  if (at_ == text_.size() || text_[at_] == line_end_) return true;
  return text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n');
}

void CsvReader::end_line() {
  const size_t end = text_.find(line_end_, at_);
  at_ = end == std::string_view::npos ? text_.size() : end + 1;
  ++line_;
}

void CsvReader::read_row(CsvRow& row) {
  const size_t begin = at_;
  row.line = line_;
  row.problem.clear();
  row.fields.clear();
  row.fields.push_back(read_field(row));
  while (row.problem.empty() && at_ < text_.size() && text_[at_] == delimiter_) {
    ++at_;
    row.fields.push_back(read_field(row));
  }
  if (row.problem.empty() && !at_end_of_line())
    row.problem = str("a quoted field is followed by '", text_[at_], "'");
  if (!row.problem.empty()) {
    // The quote may have taken lines with it that have nothing to do with this one.
    at_ = begin;
    line_ = row.line;
  }
  end_line();
}

bool CsvReader::is_quoted_field() const {
  if (quoting_ == Quoting::none) return false;
  const size_t at = text_.find_first_not_of(' ', at_);
  return at != std::string_view::npos && text_[at] == '"';
}

std::string CsvReader::read_field(CsvRow& row) {
  if (is_quoted_field()) return read_quoted(row);
  const size_t begin = at_;
  while (!at_end_of_line() && text_[at_] != delimiter_) ++at_;
  return std::string(text_.substr(begin, at_ - begin));
}

std::string CsvReader::read_quoted(CsvRow& row) {
  std::string field;
  const auto is_next = [&](char c) { return at_ + 1 < text_.size() && text_[at_ + 1] == c; };
  const bool escapes = quoting_ == Quoting::backslash;
  for (at_ = text_.find('"', at_) + 1; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (escapes && c == '\\' && (is_next('"') || is_next('\\'))) {
      field += text_[++at_];
    } else if (c != '"') {
      line_ += c == line_end_;
      field += c;
    } else if (is_next('"')) {
      field += text_[at_++];
    } else {
      ++at_;
      while (at_ < text_.size() && text_[at_] == ' ') ++at_;
      return field;
    }
  }
  row.problem = "a quote is opened and not closed";
  return field;
}

namespace {

// How many rows are wrong, or have another number of fields than the first.
int64_t faults_of(std::string_view text, char delimiter, Quoting quoting) {
  CsvReader reader(text, delimiter, quoting);
  int64_t faults = 0;
  size_t fields = 0;
  for (CsvRow row; reader.next(row);) {
    if (fields == 0) fields = row.fields.size();
    faults += !row.problem.empty() || row.fields.size() != fields;
  }
  return faults;
}

// Whether a field begins and ends with a quote, where nothing is known of quoting.
bool is_quoted_well(std::string_view text, char delimiter) {
  CsvReader reader(text, delimiter, Quoting::none);
  for (CsvRow row; reader.next(row);) {
    for (const std::string& field : row.fields)
      if (field.size() >= 2 && field.front() == '"' && field.back() == '"') return true;
  }
  return false;
}

}  // namespace

Quoting quoting_of(std::string_view text, char delimiter) {
  if (text.find('"') == std::string_view::npos) return Quoting::doubled;
  const int64_t faults = faults_of(text, delimiter, Quoting::doubled);
  if (faults == 0) return Quoting::doubled;
  if (faults_of(text, delimiter, Quoting::backslash) < faults) return Quoting::backslash;
  if (delimiter != '\t' && delimiter != '|') return Quoting::doubled;
  const bool quotes_mean_nothing =
      !is_quoted_well(text, delimiter) && faults_of(text, delimiter, Quoting::none) < faults;
  return quotes_mean_nothing ? Quoting::none : Quoting::doubled;
}

}  // namespace rondo::corpus
