#include "engine/corpus/lists/csv.h"

#include <algorithm>

#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

class Parser {
 public:
  Parser(std::string_view text, char delimiter, bool quotes, const std::string& name)
      : text_(text), delimiter_(delimiter), quotes_(quotes), name_(name) {}

  std::vector<CsvRow> rows() {
    std::vector<CsvRow> all;
    while (at_ < text_.size()) {
      CsvRow row = read_row();
      if (row.fields.size() > 1 || !row.fields.front().empty()) all.push_back(std::move(row));
    }
    return all;
  }

 private:
  bool at_end_of_line() const {
    return at_ == text_.size() || text_[at_] == '\n' ||
           (text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'));
  }

  CsvRow read_row() {
    CsvRow row;
    row.line = line_;
    row.fields.push_back(read_field());
    while (at_ < text_.size() && text_[at_] == delimiter_) {
      ++at_;
      row.fields.push_back(read_field());
    }
    if (!at_end_of_line()) {
      fail_input(name_, ":", line_, ": a quoted field is followed by '", text_[at_],
                 "', expected the end of the field");
    }
    const size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    ++line_;
    return row;
  }

  std::string read_field() {
    if (quotes_ && at_ < text_.size() && text_[at_] == '"') return read_quoted();
    const size_t begin = at_;
    while (!at_end_of_line() && text_[at_] != delimiter_) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string read_quoted() {
    const int64_t opened = line_;
    std::string field;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] != '"') {
        line_ += text_[at_] == '\n';
        field += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += text_[at_++];
      } else {
        ++at_;
        return field;
      }
    }
    fail_input(name_, ":", opened, ": a quote is opened and not closed");
  }

  const std::string_view text_;
  const char delimiter_;
  const bool quotes_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRow> parse_csv(std::string_view text, char delimiter, bool quotes,
                              const std::string& name) {
  return Parser(data::without_byte_order_mark(text), delimiter, quotes, name).rows();
}

}  // namespace rondo::corpus
