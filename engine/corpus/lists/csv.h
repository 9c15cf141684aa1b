// Tables as text: CSV as RFC 4180 has it, and lines without quotes between tabs or bars.
//
// Errors: InputError that names the file and the line. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::corpus {

struct CsvRow {
  int64_t line = 0;  // from 1, where the row begins
  std::vector<std::string> fields;
};

// `quotes`: a field may be quoted by ", hold delimiters and line breaks then, and " as "". Lines
// end in LF or CR LF; empty ones and a byte order mark at the start are skipped. A quote that does
// not end, and what follows a closed one but a delimiter, are errors.
std::vector<CsvRow> parse_csv(std::string_view text, char delimiter, bool quotes,
                              const std::string& name);

}  // namespace rondo::corpus
