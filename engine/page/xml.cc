#include "engine/page/xml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <pugixml.hpp>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo::page {
namespace {

// From the text's start, or NaN; what was read is taken away.
double take_number(std::string_view& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value))
    return std::numeric_limits<double>::quiet_NaN();
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

void skip_separators(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" ,\t\r\n"), text.size()));
}

// The line of a place, which the parser counts in bytes of the document as UTF-8.
int64_t line_at(std::string_view xml, pugi::xml_encoding encoding, ptrdiff_t place) {
  using namespace pugi;
  const bool is_wide = encoding == encoding_utf16_le || encoding == encoding_utf16_be;
  const bool is_widest = encoding == encoding_utf32_le || encoding == encoding_utf32_be;
  const bool is_low_first = encoding == encoding_utf16_le || encoding == encoding_utf32_le;
  const size_t unit = is_widest ? 4 : is_wide ? 2 : 1;
  const auto bytes_of = [&](uint32_t value) {
    if (value < 0x80 || encoding == encoding_utf8) return 1;
    if (value < 0x800 || (is_wide && value >= 0xd800 && value < 0xe000)) return 2;
    return value < 0x10000 ? 3 : 4;
  };
  int64_t line = 1;
  ptrdiff_t passed = 0;
  for (size_t at = 0; passed < place && xml.size() - at >= unit; at += unit) {
    uint32_t value = 0;
    for (size_t i = 0; i < unit; ++i)
      value = value << 8 | static_cast<uint8_t>(xml[at + (is_low_first ? unit - 1 - i : i)]);
    line += value == '\n';
    passed += bytes_of(value);
  }
  return line;
}

bool is_utf8(std::string_view text) {
  try {
    code_points(text);
  } catch (const InputError&) {
    return false;
  }
  return true;
}

}  // namespace

bool parse_xml(pugi::xml_document& document, std::string_view xml, const std::string& path) {
  // Comments and the like are kept for those who write the document again. UTF-16 is known by its
  // byte order mark, or by the zeros in its beginning.
  const pugi::xml_parse_result result =
      document.load_buffer(xml.data(), xml.size(),
                           (pugi::parse_default & ~pugi::parse_escapes) | pugi::parse_comments |
                               pugi::parse_declaration | pugi::parse_doctype | pugi::parse_pi);
  const auto fail = [&](ptrdiff_t offset, const std::string& what) {
    fail_input(path, ":", line_at(xml, result.encoding, offset), ": ", what);
  };
  if (!result) fail(result.offset, str("is no whole XML document: ", result.description()));
  expand_references(document, fail);
  return result.encoding != pugi::encoding_utf8 || is_utf8(xml);
}

std::string_view local_name(const pugi::xml_node& node) {
  const std::string_view name = node.name();
  return name.substr(name.rfind(':') + 1);
}

bool is_named(const pugi::xml_node& node, std::string_view name) {
  return local_name(node) == name;
}

pugi::xml_node child_of(const pugi::xml_node& node, std::string_view name) {
  for (const pugi::xml_node& child : node.children()) {
    if (is_named(child, name)) return child;
  }
  return {};
}

void for_each_below(const pugi::xml_node& top, const std::function<void(pugi::xml_node)>& visit) {
  int level = 0;
  for (pugi::xml_node at = top.first_child(); at;) {
    visit(at);
    if (at.first_child()) {
      if (++level > most_levels)
        fail_input("has elements more than ", most_levels, " deep in each other");
      at = at.first_child();
      continue;
    }
    while (at && !at.next_sibling()) {
      at = at.parent();
      --level;
      if (at == top) return;
    }
    at = at.next_sibling();
  }
}

pugi::xml_node around(const pugi::xml_node& node, std::string_view name) {
  pugi::xml_node at = node.parent();
  while (at && !is_named(at, name)) at = at.parent();
  return at;
}

std::string text_of(const pugi::xml_node& node) {
  std::string text;
  for (const pugi::xml_node& child : node.children()) {
    if (child.type() == pugi::node_pcdata || child.type() == pugi::node_cdata)
      text += child.value();
  }
  constexpr std::string_view space = " \t\r\n";
  text.erase(0, text.find_first_not_of(space));
  text.erase(text.find_last_not_of(space) + 1);
  return text;
}

namespace {

// None, and the problem is set, unless there are `least` to `most`.
std::vector<PagePoint> read_points(PageLine& line, const char* what, std::string_view points,
                                   size_t least, size_t most) {
  std::vector<double> numbers;
  std::string_view rest = points;
  for (skip_separators(rest); !rest.empty(); skip_separators(rest)) {
    numbers.push_back(take_number(rest));
    const bool ends = rest.empty() || std::string_view(" ,\t\r\n").find(rest[0]) != rest.npos;
    if (!ends || !(std::abs(numbers.back()) <= greatest_corner)) {
      line.problem = str(what, " is \"", points.substr(0, 40), points.size() > 40 ? "..." : "",
                         "\", expected numbers of pixels: x,y x,y ...");
      return {};
    }
  }
  const size_t count = numbers.size() / 2;
  if (numbers.size() % 2 != 0 || count < least || count > most) {
    line.problem = str(what, " has ", numbers.size(), " numbers, expected x and y of ", least,
                       " to ", most, " points");
    return {};
  }
  std::vector<PagePoint> read;
  for (size_t i = 0; i < numbers.size(); i += 2) read.push_back({numbers[i], numbers[i + 1]});
  return read;
}

}  // namespace

void read_outline(PageLine& line, const char* what, std::string_view points) {
  line.outline = read_points(line, what, points, 3, most_region_corners);
}

bool has_points(std::string_view points) {
  skip_separators(points);
  return !points.empty();
}

void read_baseline(PageLine& line, const char* what, std::string_view points) {
  if (!has_points(points)) return;
  line.baseline = read_points(line, what, points, 1, most_baseline_points);
  if (line.baseline.size() < 2) line.baseline.clear();
}

void require_place(PageLine& line, const char* what) {
  if (line.outline.empty() && line.baseline.empty() && line.problem.empty()) line.problem = what;
}

double number_of(const pugi::xml_attribute& attribute) {
  std::string_view text = attribute.value();
  const double value = take_number(text);
  return text.empty() ? value : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace rondo::page
