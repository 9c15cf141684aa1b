#include "tools/serve/messages/form.h"

#include <algorithm>
#include <utility>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::serve {
namespace {

constexpr size_t most_parts = 1000, most_header_bytes = 8192, most_boundary = 70;
constexpr std::string_view line_end = "\r\n";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string shown(std::string_view text) { return printable_start(text, 60); }

// A header's value: a word, and parameters behind semicolons.
struct HeaderValue {
  std::string_view word;
  std::vector<std::pair<std::string_view, std::string>> parameters;

  const std::string* find(std::string_view name) const {
    for (const auto& [key, value] : parameters)
      if (is_same(key, name)) return &value;
    return nullptr;
  }
};

// Removes a value from the beginning of `rest`: a word, or what is quoted. In quotes a backslash
// stands before a quote or another backslash; before anything else it is one, as in paths.
std::string take_value(std::string_view& rest, std::string_view whole) {
  std::string value;
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(';'), rest.size());
    value = trimmed(rest.substr(0, end));
    rest.remove_prefix(end);
    return value;
  }
  for (size_t i = 1; i < rest.size(); ++i) {
    const bool escapes =
        rest[i] == '\\' && i + 1 < rest.size() && (rest[i + 1] == '"' || rest[i + 1] == '\\');
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return value;
    }
    if (escapes) ++i;
    value += rest[i];
  }
  fail_input("the header '", shown(whole), "' has a quote that does not end");
}

HeaderValue parse_value(std::string_view text) {
  HeaderValue header;
  const size_t word_end = std::min(text.find(';'), text.size());
  header.word = trimmed(text.substr(0, word_end));
  std::string_view rest = text.substr(word_end);
  while (!rest.empty()) {
    rest = trimmed(rest);
    if (!rest.starts_with(';'))
      fail_input("the header '", shown(text), "' has '", shown(rest), "', expected a semicolon");
    rest = trimmed(rest.substr(1));
    if (rest.empty()) break;
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos)
      fail_input("the header '", shown(text), "' has '", shown(rest), "', expected NAME=VALUE");
    const std::string_view name = trimmed(rest.substr(0, equals));
    rest = trimmed(rest.substr(equals + 1));
    header.parameters.emplace_back(name, take_value(rest, text));
  }
  return header;
}

std::string boundary_of(std::string_view content_type) {
  const HeaderValue type = parse_value(content_type);
  if (!is_same(type.word, "multipart/form-data"))
    fail_input("the body is '", shown(type.word), "', expected multipart/form-data");
  const std::string* boundary = type.find("boundary");
  if (!boundary || boundary->empty() || boundary->size() > most_boundary)
    fail_input("Content-Type has ", boundary ? "a boundary of " : "no boundary, expected one of ",
               boundary ? str(boundary->size(), " bytes, expected one of ") : "", "1 to ",
               most_boundary, " bytes");
  return *boundary;
}

// The lines of a part's headers.
void take_headers(std::string_view lines, FormPart& part, size_t number) {
  bool is_named = false;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find(line_end), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + line_end.size(), lines.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos)
      fail_input("part ", number, " of the form has the header '", shown(line),
                 "', expected NAME: VALUE");
    if (!is_same(trimmed(line.substr(0, colon)), "Content-Disposition")) continue;
    const HeaderValue value = parse_value(line.substr(colon + 1));
    const std::string* name = value.find("name");
    if (!is_same(value.word, "form-data") || !name)
      fail_input("part ", number, " of the form has the header '", shown(line),
                 "', expected form-data with a name");
    is_named = true;
    part.name = *name;
    if (const std::string* file = value.find("filename")) part.file_name = *file;
  }
  if (!is_named)
    fail_input("part ", number, " of the form has no header Content-Disposition, expected one");
}

}  // namespace

std::vector<FormPart> parse_form(std::string_view content_type, std::string_view body) {
  const std::string mark = "--" + boundary_of(content_type);
  const std::string between = std::string(line_end) + mark;
  std::vector<FormPart> parts;
  // What stands before the first mark counts for nothing.
  size_t at = body.starts_with(mark) ? 0 : body.find(between);
  if (at == std::string_view::npos)
    fail_input("the form does not begin with its boundary, '", shown(mark), "'");
  at += at == 0 && body.starts_with(mark) ? mark.size() : between.size();
  while (true) {
    std::string_view rest = body.substr(at);
    if (rest.starts_with("--")) return parts;
    const size_t padding = std::min(rest.find_first_not_of(" \t"), rest.size());
    const size_t number = parts.size() + 1;
    if (!rest.substr(padding).starts_with(line_end))
      fail_input("the form is cut off, or a boundary in it has '", shown(rest.substr(0, 20)),
                 "' behind it, before part ", number);
    if (parts.size() == most_parts)
      fail_input("the form has more than ", most_parts, " parts, expected fewer");
    // A part without headers would begin with the empty line; it is refused for its name.
    rest.remove_prefix(padding);
    const size_t header_end = rest.substr(0, most_header_bytes).find("\r\n\r\n");
    if (header_end == std::string_view::npos)
      fail_input("the headers of part ", number, " of the form have no end within ",
                 most_header_bytes, " bytes");
    FormPart& part = parts.emplace_back();
    take_headers(header_end == 0 ? std::string_view() : rest.substr(2, header_end - 2), part,
                 number);
    const std::string_view content = rest.substr(header_end + 4);
    const size_t end = content.find(between);
    if (end == std::string_view::npos)
      fail_input("part ", number, " of the form, '", shown(part.name),
                 "', does not end: the body is cut off");
    part.content = content.substr(0, end);
    at = static_cast<size_t>(content.data() - body.data()) + end + between.size();
  }
}

}  // namespace rondo::serve
