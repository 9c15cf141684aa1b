// Documents of what was read on a page: new ones, and the file that the page is from with other
// texts.
#include <regex>
#include <set>

#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"
#include "engine/text/unicode.h"
#include "tests/catch.h"
#include "tests/corpus/page_files.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

namespace {

using Texts = std::vector<std::string>;

// Of an image of 220 x 160 pixels.
PageFile opened(const TemporaryFolder& folder, const std::string& xml) {
  const std::string path = folder.write("a.xml", xml);
  PageFile page = parse_page(xml, path);
  set_regions(page, {220, 160});
  page.image = "p.png";
  return page;
}

// Each line with its text, by their order in the page.
std::vector<ReadLine> readings(const Texts& texts) {
  std::vector<ReadLine> lines;
  for (const std::string& text : texts) {
    std::vector<SeenLabel> labels;
    for (const char32_t c : code_points(text)) {
      const double at = 10.0 * static_cast<double>(labels.size());
      labels.push_back({to_utf8(c), at, at + 8, 0.5});
    }
    lines.push_back(arrange(labels, 0, 200));
  }
  return lines;
}

Texts texts_of(const std::string& document) {
  Texts texts;
  for (const PageLine& l : parse_page(document, "written.xml").lines) texts.push_back(l.text);
  return texts;
}

// What a document matches in its first group, again and again.
Texts found(const std::string& document, const std::string& pattern) {
  Texts all;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(document.begin(), document.end(), regex), end; at != end; ++at)
    all.push_back(at->str(1));
  return all;
}

// Of regions: those of lines have a confidence.
Texts region_texts(const std::string& document) {
  return found(document, "<TextEquiv>\\s*<Unicode>([^<]*)</Unicode>");
}

std::string box_of(int row) {
  return str("HPOS='0' VPOS='", 40 * row, "' WIDTH='200' HEIGHT='40'");
}

}  // namespace

TEST_CASE("nothing of the old reading stays in ALTO that is filled in", "[page]") {
  const TemporaryFolder folder;
  const std::string xml =
      alto("<TextLine ID='a' " + box_of(0) +
           "><String CONTENT='alt'/><SP/><String CONTENT='alt'/><HYP CONTENT='='/></TextLine>"
           "<TextLine ID='b' " +
           box_of(1) +
           "><Shape><Polygon POINTS='0,40 200,40 200,80'/></Shape>"
           "</TextLine><TextLine ID='c' " +
           box_of(2) +
           "><String CONTENT='alt'/><HYP/></TextLine>"
           "<TextLine ID='d'><String CONTENT='alt'/><HYP/></TextLine><TextLine ID='e' " +
           box_of(3) + "><HYP/><String CONTENT='alt'/><HYP/></TextLine>");
  const PageFile page = opened(folder, xml);
  REQUIRE(page.lines.size() == 5);
  CHECK_FALSE(page.lines[3].problem.empty());
  // The third is read as nothing; the fourth, which has no place, cannot be read.
  const std::vector<ReadLine> lines = readings({"neu", "zwei Wörter", "", "", "n"});
  const std::string filled = to_alto(page, lines, "test");
  CHECK(texts_of(filled) == Texts{"neu", "zwei Wörter", "", "", "n"});
  CHECK(filled.find("HYP") == std::string::npos);
  CHECK(found(filled, "<TextLine ID=\"(.)\"") == Texts{"a", "b", "c", "d", "e"});
  // In elements with a prefix too.
  const std::string prefixed =
      std::regex_replace(std::regex_replace(xml, std::regex("<(/?)(?=[A-Za-z])"), "<$1x:"),
                         std::regex("xmlns="), "xmlns:x=");
  const std::string with_prefix = to_alto(opened(folder, prefixed), lines, "test");
  CHECK(texts_of(with_prefix) == Texts{"neu", "zwei Wörter", "", "", "n"});
  CHECK(found(with_prefix, "<([a-zA-Z]+)[ />]").empty());
  // A new document has no line that has no place.
  CHECK(texts_of(to_page_xml(page, lines, "test")) == Texts{"neu", "zwei Wörter", "", "n"});
}

TEST_CASE("regions of PAGE-XML get the texts of their own lines, whatever is read first",
          "[page]") {
  const TemporaryFolder folder;
  const auto at = [](const std::string& id, int row) {
    return line(id, "alt", str("0,", 40 * row, " 200,", 40 * row, " 200,", 40 * row + 40));
  };
  const std::string order =
      "<ReadingOrder><OrderedGroup id='g'><RegionRefIndexed index='1' regionRef='r1'/>"
      "<RegionRefIndexed index='0' regionRef='r2'/></OrderedGroup></ReadingOrder>";
  // The second has a line that cannot be read, and one that is read as nothing.
  const std::string regions =
      region("r1", at("a", 0)) +
      region("r2", at("b", 1) + line("no", "alt", "0,0 9") + at("c", 2) + at("d", 3)) +
      region("r3", "");
  const PageFile page = opened(folder, page_xml(order + regions));
  REQUIRE(page.lines.size() == 5);
  CHECK((page.lines[0].id == "b" && page.lines[4].id == "a"));
  const std::vector<ReadLine> lines = readings({"B", "", "", "D", "A"});
  const std::string filled = to_page_xml(page, lines, "test");
  CHECK(texts_of(filled) == Texts{"B", "", "", "D", "A"});
  CHECK(region_texts(filled) == Texts{"A", "B\nD"});
  CHECK(filled.find("alt") == std::string::npos);
  // A new document stands in reading order itself.
  PageFile anew = page;
  anew.path.clear();
  const std::string made = to_page_xml(anew, lines, "test");
  CHECK(found(made, "<TextRegion id=\"([^\"]*)\"") == Texts{"r2", "r1"});
  CHECK(texts_of(made) == Texts{"B", "", "D", "A"});
  CHECK(region_texts(made) == Texts{"B\nD", "A"});
  CHECK(texts_of(to_alto(anew, lines, "test")) == Texts{"B", "", "D", "A"});
}

TEST_CASE("no two blocks of a new document have one name", "[page]") {
  const TemporaryFolder folder;
  // Of the three that need one, two would be called as others are already.
  const std::string regions = region("block_2", line("a", "")) + "<TextRegion>" + line("b", "") +
                              "</TextRegion>" + region("r", line("c", "")) +
                              region("block_2", line("d", "")) + region("block_1", line("e", "")) +
                              "<TextRegion>" + line("f", "") + "</TextRegion>";
  PageFile page = opened(folder, page_xml(regions));
  page.path.clear();
  const std::vector<ReadLine> lines = readings({"a", "b", "c", "d", "e", "f"});
  const std::string as_page = to_page_xml(page, lines, "test");
  const std::string as_alto = to_alto(page, lines, "test");
  const std::string as_hocr = to_hocr(page, lines, "test");
  const Texts names = found(as_page, "<TextRegion id=\"([^\"]*)\"");
  CHECK(names.size() == 6);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == 6);
  CHECK((names.at(0) == "block_2" && names.at(2) == "r" && names.at(4) == "block_1"));
  CHECK(found(as_alto, "<TextBlock ID=\"([^\"]*)\"") == names);
  CHECK(found(as_hocr, "class=\"ocr_carea\"[^>]* id=\"([^\"]*)\"") == names);
}
