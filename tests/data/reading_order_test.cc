// Lines from right to left against Unicode's own tests, and the way back against a search through
// all texts.
#include "engine/text/reading_order.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/unicode.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

using Points = std::vector<char32_t>;

Points in_order(const Points& of, const std::vector<size_t>& order) {
  REQUIRE(order.size() == of.size());
  Points out;
  for (const size_t i : order) out.push_back(of.at(i));
  return out;
}

// A file of Debian's package unicode-data. Exits as skipped without it.
std::ifstream unicode_data(const std::string& name) {
  std::ifstream file("/usr/share/unicode/" + name);
  if (file) return file;
  std::printf("skipped: no /usr/share/unicode/%s (package unicode-data)\n", name.c_str());
  std::exit(77);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line.substr(0, line.find('#')));
  for (std::string field; std::getline(in, field, ';');) fields.push_back(field);
  return fields;
}

int bidi_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->bidi_class;
}

// An order of the file, with marks behind their letters and without what has no place in it.
std::vector<size_t> with_marks_behind(const Points& text, std::vector<size_t> order) {
  const auto is_mark = [&](size_t i) { return bidi_class(text[i]) == UTF8PROC_BIDI_CLASS_NSM; };
  std::reverse(order.begin(), order.end());
  for (auto first = order.begin(); first != order.end();) {
    auto letter = std::find_if_not(first, order.end(), is_mark);
    if (letter == order.end()) break;
    if (letter != first && *letter < *std::prev(letter)) std::reverse(first, std::next(letter));
    first = std::next(letter);
  }
  return order;
}

// Whether any text is shown as `met`. Such a text has parts of it turned round, between characters
// that are not.
bool is_shown_of_some_text(const Points& met) {
  for (unsigned turned = 0; turned >> met.size() == 0; ++turned) {
    Points text = met;
    for (size_t first = 0, end = 0; first < text.size(); first = end + 1) {
      end = first;
      while (end < text.size() && (turned >> end & 1) != 0) ++end;
      std::reverse(text.begin() + static_cast<ptrdiff_t>(first),
                   text.begin() + static_cast<ptrdiff_t>(end));
    }
    if (in_order(text, leftward_order(text)) == met) return true;
  }
  return false;
}

std::string shown(const Points& points) {
  std::string text;
  for (const char32_t c : points) text += to_utf8(c);
  return text;
}

struct Found {
  int64_t lines = 0, of_no_text = 0;
};

void check_way_back(const Points& met, Found& found) {
  const std::vector<size_t> order = logical_order(met);
  std::vector<size_t> all = order;
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == i);
  const Points text = in_order(met, order);
  ++found.lines;
  if (in_order(text, leftward_order(text)) == met) return;
  INFO(shown(met));
  REQUIRE_FALSE(is_shown_of_some_text(met));
  ++found.of_no_text;
}

// Letters from right to left (Hebrew, Arabic) and from left to right, digits of both kinds, a sign,
// a separator, a percent sign, a space, brackets.
const std::u32string classes = U"\u05d0\u0627a1\u0661-,% ()";

}  // namespace

TEST_CASE("lines from right to left are as Unicode's test of characters has them",
          "[.][unicode_data]") {
  std::ifstream file = unicode_data("BidiCharacterTest.txt");
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 5 || fields[2] != "1") continue;  // the paragraph's level
    Points text;
    std::istringstream codes(fields[0]);
    for (uint32_t c = 0; codes >> std::hex >> c;) text.push_back(c);
    const bool has_controls = std::any_of(text.begin(), text.end(), [](char32_t c) {
      return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    });
    if (has_controls) continue;
    std::vector<size_t> expected;
    std::istringstream places(fields[4]);
    for (size_t i = 0; places >> i;) expected.push_back(i);
    std::vector<size_t> order = leftward_order(text);
    std::erase_if(order, [&](size_t i) { return bidi_class(text[i]) == UTF8PROC_BIDI_CLASS_BN; });
    INFO(line);
    REQUIRE(order == with_marks_behind(text, expected));
    ++lines;
  }
  CHECK(lines > 10000);
}

TEST_CASE("brackets are paired as Unicode pairs them", "[.][unicode_data]") {
  std::ifstream file = unicode_data("BidiBrackets.txt");
  std::vector<char32_t> closing(0x110000);
  int64_t pairs = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 3 || fields[2].find('o') == std::string::npos) continue;
    closing[std::stoul(fields[0], nullptr, 16)] =
        static_cast<char32_t>(std::stoul(fields[1], nullptr, 16));
    ++pairs;
  }
  CHECK(pairs > 50);
  for (char32_t c = 0; c < closing.size(); ++c) {
    INFO(describe(c));
    if (closing_bracket(c) != closing[c]) FAIL("another bracket closes it");
  }
}

TEST_CASE("what is met is shown of the text that is taken from it, if it is of any text",
          "[slow][text]") {
  Found found;
  for (size_t length = 0; length <= 4; ++length) {
    std::vector<size_t> digits(length);
    for (bool more = true; more;) {
      Points met;
      for (const size_t d : digits) met.push_back(classes[d]);
      check_way_back(met, found);
      more = false;
      for (size_t& d : digits) {
        more = ++d < classes.size();
        if (more) break;
        d = 0;
      }
    }
  }
  CHECK(found.lines == 1 + 11 + 121 + 1331 + 14641);
  CHECK((found.of_no_text > 0 && found.of_no_text < found.lines / 50));
  // Longer ones, with brackets that are equivalent, marks, a sign that joins letters, and more
  // signs.
  std::mt19937 random(7);
  const std::u32string more =
      classes + U"\u05d1\u0628b2\u0662+$:/.[]\u2329\u3009\u05bc\u0301\u200d";
  for (int n = 0; n < 3000; ++n) {
    const std::u32string& some = n % 2 == 0 ? classes : more;
    Points met;
    for (size_t length = 5 + random() % 5; length > 0; --length)
      met.push_back(some[random() % some.size()]);
    check_way_back(met, found);
  }
}

TEST_CASE("a line that is shown of no text has its phrases turned as a whole", "[text]") {
  // Seen as "2 words" from left to right, with which no text from right to left begins or ends.
  CHECK(in_logical_order("\u05d0 sdrow 2") == "\u05d0 2 words");
  CHECK(in_leftward_order("\u05d0 2 words") == "\u05d0 2 sdrow");
  CHECK(in_logical_order("\u05d0 2 sdrow") == "\u05d0 words 2");
}

TEST_CASE("texts with numbers come back as they are typed", "[text]") {
  const std::vector<std::pair<std::string, std::string>> hebrew = {
      {"12.34", "43.21"}, {"12:34", "43:21"}, {"12-34", "43-21"},        {"12+34", "43+21"},
      {"12%", "%21"},     {"$12", "21$"},     {"12/34/56", "65/43/21"},  {"(12)", "(21)"},
      {"-12", "-21"},     {"12,34", "43,21"}, {"\u20ac 12", "\u20ac 21"}};
  // Behind an Arabic letter European digits are as Arabic ones, which only , . : / join.
  const std::vector<std::pair<std::string, std::string>> arabic = {
      {"12.34", "43.21"},
      {"12:34", "43:21"},
      {"12-34", "21-43"},
      {"12+34", "21+43"},
      {"12%", "21%"},
      {"$12", "$21"},
      {"12/34/56", "65/43/21"},
      {"(12)", "(21)"},
      {"-12", "-21"},
      {"12,34", "43,21"},
      {"\u0661\u0662\u066a", "\u0662\u0661\u066a"}};
  const auto check = [](const std::string& letters, const std::string& number,
                        const std::string& met) {
    for (const std::string& behind : {std::string(), " " + letters, " abc " + letters}) {
      const std::string text = letters + " " + number + behind;
      INFO(text);
      if (behind.size() <= 1 + letters.size()) {
        CHECK(in_leftward_order(text) == letters + " " + met + behind);
        CHECK(in_logical_order(in_leftward_order(text)) == text);
      }
      const std::string again = in_logical_order(in_leftward_order(text));
      CHECK(in_leftward_order(again) == in_leftward_order(text));
    }
  };
  for (const auto& [number, met] : hebrew) check("\u05d0\u05d1", number, met);
  for (const auto& [number, met] : arabic) check("\u0627\u0628", number, met);
}
