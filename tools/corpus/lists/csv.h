// Tables as text: CSV as RFC 4180 has it and as programs write it otherwise.
//
// A row that cannot be read does not end the table: it says what is wrong with it, and reading goes
// on at the next line. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::corpus {

struct CsvRow {
  int64_t line = 0;  // from 1, where the row begins
  std::vector<std::string> fields;
  std::string problem;  // a clause: "a quote is opened and not closed"; mostly empty
};

// How a field holds the delimiter, line breaks and quotes.
enum class Quoting : uint8_t {
  none,       // not at all: a quote is a character like others
  doubled,    // within quotes, where "" is a quote (RFC 4180, Excel)
  backslash,  // within quotes, where \" is a quote and \\ a backslash; "" is one too
};

// The rows of a text, which must outlive the reader. Lines end in LF or CR LF, or in CR where the
// text has no LF at all; empty ones are skipped. Blanks around quotes are no part of a field, and a
// quote within a field that does not begin with one is a character like others.
class CsvReader {
 public:
  CsvReader(std::string_view text, char delimiter, Quoting quoting);

  // False: there is none.
  bool next(CsvRow& row);

 private:
  bool at_end_of_line() const;
  void read_row(CsvRow& row);
  std::string read_field(CsvRow& row);
  bool is_quoted_field() const;
  std::string read_quoted(CsvRow& row);
  void end_line();

  const std::string_view text_;
  const char delimiter_;
  const Quoting quoting_;
  const char line_end_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

// The way of quoting by which the fewest rows are wrong or have another number of fields than the
// first; `doubled` where several are equal. `none` is chosen only between tabs or bars, and if no
// field is quoted well.
Quoting quoting_of(std::string_view text, char delimiter);

}  // namespace rondo::corpus
