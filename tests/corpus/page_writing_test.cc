// Documents of what was read on a page: new ones, and the file that the page is from with other
// texts.
#include <regex>
#include <set>

#include "engine/data/image/orientation.h"
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

// HPOS, VPOS, WIDTH and HEIGHT of each of these elements.
Texts boxes_of(const std::string& document, const std::string& element) {
  Texts all;
  const std::regex regex("<" + element +
                         "(?: ID=\"[^\"]*\")? HPOS=\"([^\"]*)\" VPOS=\"([^\"]*)\" "
                         "WIDTH=\"([^\"]*)\" HEIGHT=\"([^\"]*)\"");
  for (std::sregex_iterator at(document.begin(), document.end(), regex), end; at != end; ++at)
    all.push_back(at->format("$1 $2 $3 $4"));
  return all;
}

// Bounds of what has this class in hOCR.
Texts bounds_of(const std::string& document, const std::string& css) {
  return found(document, "class=\"" + css + "\" title=\"(?:x_)?bbox(?:es)? ([0-9 ]+)");
}

// Each label seen for two pixels from its place on.
ReadLine seen(const std::vector<std::pair<std::string, double>>& places, double first, double end) {
  std::vector<SeenLabel> labels;
  for (const auto& [text, at] : places) labels.push_back({text, at, at + 2, 0.5});
  return arrange(labels, first, end);
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
  // Every line has a String, as the schema wants.
  CHECK(found(filled, "<String[^>]*CONTENT=\"([^\"]*)\"") ==
        Texts{"neu", "zwei", "Wörter", "", "", "n"});
  // A new document has no line that has no place.
  CHECK(texts_of(to_page_xml(page, lines, "test")) == Texts{"neu", "zwei Wörter", "", "n"});
}

TEST_CASE("Words of PAGE-XML keep their places where as many are read", "[page]") {
  const TemporaryFolder folder;
  const auto word = [](const std::string& id, const std::string& points) {
    return "<pc:Word id=\"" + id + "\"><pc:Coords points=\"" + points +
           "\"/><pc:Glyph id=\"g\"/><pc:TextEquiv><pc:Unicode>alt</pc:Unicode></pc:TextEquiv>"
           "<pc:TextStyle/></pc:Word>";
  };
  const auto line_of = [&](const std::string& id, int row, const std::string& words) {
    return "<pc:TextLine id=\"" + id + "\"><pc:Coords points=\"" +
           str("0,", 40 * row, " 200,", 40 * row, " 200,", 40 * row + 40, " 0,", 40 * row + 40) +
           "\"/>" + words +
           "<pc:TextEquiv><pc:Unicode>alt</pc:Unicode></pc:TextEquiv></pc:TextLine>";
  };
  const std::string two = word("word_2_1", "0,0 9,0 9,9") + word("b", "9,0 20,0 20,9");
  // Twice the size of the image: as many words, more of them, none, and a line without Words.
  PageFile page =
      opened(folder,
             "<pc:PcGts xmlns:pc=\"http://schema.primaresearch.org/PAGE/gts/pagecontent/"
             "2019-07-15\"><pc:Page imageFilename=\"p.png\" imageWidth=\"440\" "
             "imageHeight=\"320\"><pc:TextRegion id=\"r\">" +
                 line_of("l1", 0, two) + line_of("l2", 1, two) + line_of("l3", 2, two) +
                 line_of("l4", 3, "") + "</pc:TextRegion></pc:Page></pc:PcGts>");
  const std::string filled = to_page_xml(page, readings({"ab c", "d e f", "", "g"}), "test");
  CHECK(texts_of(filled) == Texts{"ab c", "d e f", "", "g"});
  CHECK(found(filled, "<pc:Word id=\"([^\"]*)\"") ==
        Texts{"word_2_1", "b", "word_2_1_", "word_2_2", "word_2_3"});
  CHECK(found(filled, "<pc:Word[^>]*>\\s*<pc:Coords points=\"([^\"]*)\"") ==
        Texts{"0,0 9,0 9,9", "9,0 20,0 20,9", "0,40 18,40 18,80 0,80", "38,40 58,40 58,80 38,80",
              "78,40 98,40 98,80 78,80"});
  CHECK(found(filled, "<pc:TextEquiv conf=\"0.5\">\\s*<pc:Unicode>([^<]*)<") ==
        Texts{"ab", "c", "ab c", "d", "e", "f", "d e f", "g"});
  CHECK(filled.find("Glyph") == std::string::npos);
  // Styles stand behind texts.
  CHECK(found(filled, "</pc:TextEquiv>\\s*<pc:(TextStyle)").size() == 2);
  CHECK(filled.find("alt") == std::string::npos);
}

TEST_CASE("Words of PAGE-XML without a place go, beside those that keep theirs", "[page]") {
  const TemporaryFolder folder;
  const std::string old = "<TextEquiv><Unicode>alt</Unicode></TextEquiv></Word>";
  const std::string coords = "<Coords points='0,0 200,0 200,40 0,40'/>";
  const std::string placed = "<Word id='w'>" + coords + old, none = "<Word id='none'>" + old;
  for (const std::string& words : {none + placed, placed + none, none + placed + none + none}) {
    const PageFile page = opened(
        folder, page_xml("<TextRegion><TextLine>" + coords + words + "</TextLine></TextRegion>"));
    const std::string filled = to_page_xml(page, readings({"neu"}), "test");
    CHECK(found(filled, "<Word id=\"([^\"]*)\"") == Texts{"w"});
    CHECK(filled.find("alt") == std::string::npos);
  }
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
  // What cannot be read has no text, which is not an empty one.
  const PageFile again = parse_page(filled, "again.xml");
  CHECK((again.lines[1].id == "no" && !again.lines[1].has_text));
  CHECK((again.lines[2].id == "c" && again.lines[2].has_text));
  CHECK(filled.find("alt") == std::string::npos);
  // A new document stands in reading order itself.
  PageFile anew = page;
  anew.path.clear();
  const std::string made = to_page_xml(anew, lines, "test");
  CHECK(found(made, "<TextRegion id=\"([^\"]*)\"") == Texts{"r2", "r1"});
  CHECK(texts_of(made) == Texts{"B", "", "D", "A"});
  CHECK_THAT(made, Contains("<PcGts xmlns=\"http://schema.primaresearch.org/PAGE/gts/pagecontent/"
                            "2019-07-15\">") &&
                       Contains("<Creator>test</Creator>") &&
                       Contains("imageFilename=\"p.png\" imageWidth=\"220\" imageHeight=\"160\""));
  CHECK(region_texts(made) == Texts{"B\nD", "A"});
  const std::string alto = to_alto(anew, lines, "test");
  CHECK(texts_of(alto) == Texts{"B", "", "D", "A"});
  CHECK_THAT(alto, Contains("<alto xmlns=\"http://www.loc.gov/standards/alto/ns-v4#\" "
                            "SCHEMAVERSION=\"4.4\">") &&
                       Contains("<fileName>p.png</fileName>") &&
                       Contains("<softwareName>test</softwareName>"));
}

TEST_CASE("a region's text is that of its own lines, with regions between them and around",
          "[page]") {
  const TemporaryFolder folder;
  const std::string old = "<TextEquiv><Unicode>alt</Unicode></TextEquiv>";
  const auto at = [](const std::string& id, int row) {
    return line(id, "alt", str("0,", 40 * row, " 200,", 40 * row, " 200,", 40 * row + 40));
  };
  const PageFile page = opened(
      folder,
      page_xml(region("around", region("own", at("a", 0) + region("within", at("b", 1) + old) +
                                                  at("c", 2) + old) +
                                    old) +
               region("none", old)));
  REQUIRE(page.lines.size() == 3);
  const std::string filled = to_page_xml(page, readings({"A", "B", "C"}), "test");
  // Where no line was, nothing was read; the text stays.
  CHECK(region_texts(filled) == Texts{"B", "A\nC", "alt"});
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

TEST_CASE("a new document has no block of lines that cannot be read", "[page]") {
  const TemporaryFolder folder;
  const std::string beyond = line("b", "", "300,0 400,0 400,40"), none = line("n", "", "0,0 9");
  PageFile page =
      opened(folder, page_xml(region("first", beyond + none) +
                              region("r", none + line("a", "") + beyond) + region("last", none)));
  page.path.clear();
  REQUIRE(page.lines.size() == 6);
  const std::vector<ReadLine> lines = readings({"", "", "", "a", "", ""});
  const std::string as_page = to_page_xml(page, lines, "test");
  const std::string as_alto = to_alto(page, lines, "test");
  const std::string as_hocr = to_hocr(page, lines, "test");
  CHECK(found(as_page, "<Text[A-Za-z]* id=\"([^\"]*)\"") == Texts{"r", "a"});
  CHECK(found(as_alto, "<Text[A-Za-z]* ID=\"([^\"]*)\"") == Texts{"r", "a"});
  CHECK(found(as_hocr, "class=\"ocr_(?:carea|line)\"[^>]* id=\"([^\"]*)\"") == Texts{"r", "a"});
  CHECK(boxes_of(as_alto, "TextBlock") == Texts{"0 0 200 40"});
}

TEST_CASE("words and characters lie where they were seen, whichever way a line is written",
          "[page]") {
  const TemporaryFolder folder;
  const PageFile page =
      opened(folder, page_xml(region("r", line("right", "", "20,40 120,40 120,80 20,80") +
                                              line("left", "", "20,80 120,80 120,120 20,120") +
                                              line("down", "", "150,30 190,30 190,130 150,130"))));
  std::vector<ReadLine> lines = {seen({{"a", 30}, {"b", 50}, {" ", 70}, {"c", 90}}, 20, 120),
                                 seen({{"a", 90}, {"b", 70}, {" ", 50}, {"c", 30}}, 20, 120),
                                 seen({{"a", 40}, {"b", 60}, {" ", 80}, {"c", 100}}, 30, 130)};
  lines[2].downwards = true;
  const std::string alto = to_alto(page, lines, "test");
  CHECK(boxes_of(alto, "TextLine") == Texts{"20 40 100 40", "20 80 100 40", "150 30 40 100"});
  CHECK(boxes_of(alto, "String") == Texts{"21 40 40 40", "81 40 20 40", "61 80 40 40",
                                          "21 80 20 40", "150 31 40 40", "150 91 40 20"});
  CHECK(boxes_of(alto, "Glyph") == Texts{"21 40 20 40", "41 40 20 40", "81 40 20 40", "81 80 20 40",
                                         "61 80 20 40", "21 80 20 40", "150 31 40 20",
                                         "150 51 40 20", "150 91 40 20"});
  CHECK(boxes_of(alto, "TextBlock") == Texts{"20 30 170 100"});
  const std::string hocr = to_hocr(page, lines, "test");
  CHECK(bounds_of(hocr, "ocr_line") == Texts{"20 40 120 80", "20 80 120 120", "150 30 190 130"});
  CHECK(bounds_of(hocr, "ocrx_word") == Texts{"21 40 61 80", "81 40 101 80", "61 80 101 120",
                                              "21 80 41 120", "150 31 190 71", "150 91 190 111"});
  CHECK(bounds_of(hocr, "ocrx_cinfo").at(3) == "81 80 101 120");
  CHECK(bounds_of(hocr, "ocr_carea") == Texts{"20 30 190 130"});
  // What was seen in one place with others has a pixel of its own.
  for (ReadLine& l : lines) {
    const double first = l.downwards ? 30 : 20;
    l = seen({{"a", 50}, {"b", 50}, {"c", 50}}, first, first + 100);
  }
  lines[2].downwards = true;
  const std::string same = to_alto(page, lines, "test");
  const Texts once = {"51 40 1 40", "51 80 1 40", "150 51 40 1"};
  Texts all;
  for (const std::string& box : once) all.insert(all.end(), 3, box);
  CHECK(boxes_of(same, "Glyph") == all);
}

TEST_CASE("boxes in ALTO are in the units of its file, across and down", "[page]") {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("a.xml", alto("<TextLine HPOS='100' VPOS='300' WIDTH='500' HEIGHT='200'/>",
                                 "WIDTH='1000' HEIGHT='1000'", "mm10"));
  PageFile page = parse_page(data::read_regular_file(path), path);
  set_regions(page, {2000, 2030});
  const ReadLine line = seen({{"a", 300}, {"b", 900}}, 200, 1200);
  REQUIRE(page.lines.at(0).region == ImageRegion::of_box({200, 609, 1000, 406}));
  // From 200 to 601 and from there to 1200, of 2 and of 2.03 pixels to the unit.
  CHECK(boxes_of(to_alto(page, std::span(&line, 1), "test"), "Glyph") ==
        Texts{"100 300 200.5 200", "300.5 300 299.5 200"});
  // In a new document they are pixels.
  page.format = PageFormat::page;
  const std::string anew = to_alto(page, std::span(&line, 1), "test");
  CHECK(boxes_of(anew, "String") == Texts{"200 609 1000 406"});
  CHECK(found(anew, "<MeasurementUnit>(.*)<") == Texts{"pixel"});
}

TEST_CASE("what is read on an image that is turned is written where its file has the line",
          "[page]") {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "a.xml",
      alto("<TextLine HPOS='10' VPOS='50' WIDTH='40' HEIGHT='100'/>", "WIDTH='160' HEIGHT='440'"));
  for (const Orientation turn : {Orientation::left_top, Orientation::right_top,
                                 Orientation::right_bottom, Orientation::left_bottom}) {
    INFO(static_cast<int>(turn));
    PageFile page = parse_page(data::read_regular_file(path), path);
    ImageInfo image{220, 80};
    image.orientation = turn;
    set_regions(page, image);
    page.image = "p.jpg";
    REQUIRE(page.is_as_stored);
    const ImageBox box = page.lines.at(0).region.bounds();
    CHECK((box.width == 50 && box.height == 20));
    const ReadLine line = seen({{"a", box.left + 7}}, box.left, box.left + box.width);
    CHECK(boxes_of(to_alto(page, std::span(&line, 1), "test"), "String") == Texts{"10 50 40 100"});
  }
}

TEST_CASE("outlines, baselines and blocks of new documents stay on their page", "[page]") {
  // Higher than wide, and wider than high.
  for (const ImageInfo size : {ImageInfo{100, 200}, ImageInfo{200, 100}}) {
    const int w = size.width, h = size.height;
    INFO(w << " x " << h);
    const std::string lines =
        "<TextLine><Coords points=\"" + str("-5,-7 ", w + 9, ",-7 ", w + 9, ",40 -5,30") +
        "\"/><Baseline points=\"" + str("-5,28 ", w + 9, ",38") + "\"/></TextLine>" +
        line("b", "", str("10,", h - 30, " 60,", h - 30, " 60,", h + 20, " 10,", h + 20)) +
        line("no", "", "0,0 9") + line("beyond", "", str(w, ",0 ", w + 9, ",0 ", w + 9, ",9"));
    PageFile page = parse_page(page_xml(region("r", lines)), "");
    set_regions(page, size);
    page.image = "p.png";
    REQUIRE(page.lines.size() == 4);
    CHECK_FALSE(page.lines[3].problem.empty());
    const std::vector<ReadLine> read = readings({"a", "b", "", ""});
    const std::string document = to_page_xml(page, read, "test");
    CHECK(found(document, "<Coords points=\"([^\"]*)\"") ==
          Texts{str("0,0 ", w, ",0 ", w, ",", h, " 0,", h), str("0,0 ", w, ",0 ", w, ",40 0,30"),
                str("10,", h - 30, " 60,", h - 30, " 60,", h, " 10,", h)});
    CHECK(found(document, "<Baseline points=\"([^\"]*)\"") == Texts{str("0,28 ", w, ",38")});
    // Lines that cannot be read are in none.
    const std::string hocr = to_hocr(page, read, "test");
    CHECK(bounds_of(hocr, "ocr_line") ==
          Texts{str("0 0 ", w, " 40"), str("10 ", h - 30, " 60 ", h)});
    CHECK(bounds_of(hocr, "ocr_carea") == Texts{str("0 0 ", w, " ", h)});
    const std::string alto = to_alto(page, read, "test");
    CHECK(boxes_of(alto, "TextBlock") == Texts{str("0 0 ", w, " ", h)});
    CHECK(boxes_of(alto, "TextLine") == Texts{str("0 0 ", w, " 40"), str("10 ", h - 30, " 50 30")});
    CHECK(found(alto, "BASELINE=\"([^\"]*)\"") == Texts{str("-5,28 ", w + 9, ",38")});
    CHECK(found(alto, "<Page ID=\"rondo_page\" PHYSICAL_IMG_NR=\"1\" (WIDTH=[^>]*)>") ==
          Texts{str("WIDTH=\"", w, "\" HEIGHT=\"", h, "\"")});
  }
}

TEST_CASE("names of images are as they were in whatever is written, ids as XML wants them",
          "[page]") {
  // What ends a string or an element, begins an entity or separates properties.
  const std::string image = "a \"b\" C:\\d\\'e'; bbox <&amp;.png", id = "l\"\\'<&amp;;";
  PageFile page = parse_page(page_xml(region("r", line("l", ""))), "");
  set_regions(page, {220, 160});
  page.image = image;
  page.lines.at(0).id = id;
  page.lines[0].block = "b" + id;
  const std::vector<ReadLine> read = readings({"a"});
  for (const std::string& document :
       {to_page_xml(page, read, "test"), to_alto(page, read, "test")}) {
    const PageFile again = parse_page(document, "p.xml");
    CHECK(again.image_name == image);
    CHECK(again.lines.at(0).id == "l_____amp__");
    CHECK(again.lines[0].block == "bl_____amp__");
  }
  const std::string hocr = to_hocr(page, read, "test");
  CHECK(found(hocr, "<title>([^<]*)<") == Texts{"a \"b\" C:\\d\\'e'; bbox &lt;&amp;amp;.png"});
  // In hOCR a backslash stands before a quote in a name, and before a backslash.
  CHECK_THAT(hocr, Contains("title=\"image &quot;a \\&quot;b\\&quot; C:\\\\d\\\\'e'; bbox "
                            "&lt;&amp;amp;.png&quot;; bbox 0 0 220 160; ppageno 0\""));
  CHECK(found(hocr, "class=\"ocr_line\"[^>]* id=\"([^\"]*)\"") == Texts{"l_____amp__"});
}

TEST_CASE("how sure the model is, of characters, words and lines", "[page]") {
  const TemporaryFolder folder;
  const std::string xml = alto("<TextLine " + box_of(0) + "/>");
  const std::vector<SeenLabel> labels = {
      {"<", 10, 12, 0.25}, {"\x01", 30, 32, 0.5}, {" ", 50, 52, 1}, {"&", 70, 72, 1.0 / 3}};
  const ReadLine line = arrange(labels, 0, 200);
  for (const char* version : {"ns-v2", "ns-v3", "ns-v4"}) {
    INFO(version);
    const PageFile page = opened(folder, std::regex_replace(xml, std::regex("ns-v3"), version));
    const std::string document = to_alto(page, std::span(&line, 1), "test");
    CHECK(found(document, "<String [^>]*WC=\"([^\"]*)\"") == Texts{"0.375", "0.3333"});
    const bool has_glyphs = version != std::string("ns-v2");
    CHECK(found(document, "<Glyph [^>]*GC=\"([^\"]*)\"") ==
          (has_glyphs ? Texts{"0.25", "0.5", "0.3333"} : Texts{}));
    // What XML cannot hold, and what it holds in other words.
    CHECK(found(document, "<String [^>]*CONTENT=\"([^\"]*)\"") == Texts{"&lt;\ufffd", "&amp;"});
    const std::string as_page = to_page_xml(page, std::span(&line, 1), "test");
    CHECK(found(as_page, "conf=\"([^\"]*)\"") == Texts{"0.5208"});
    CHECK(texts_of(as_page) == Texts{"<\ufffd &"});
    const std::string hocr = to_hocr(page, std::span(&line, 1), "test");
    CHECK(found(hocr, "x_wconf ([0-9]+)\"") == Texts{"38", "33"});
    CHECK(found(hocr, "x_confs ([0-9.]+)\"") == Texts{"25", "50", "33.33"});
  }
}

TEST_CASE("a file of any encoding is filled in as UTF-8, and says so", "[page]") {
  const TemporaryFolder folder;
  const auto encoded = [](const std::string& text, bool is_wide) {
    std::string bytes = is_wide ? "\xff\xfe" : "";
    for (const char32_t c : code_points(text)) {
      bytes += static_cast<char>(c);
      if (is_wide) bytes += static_cast<char>(c >> 8);
    }
    return bytes;
  };
  const std::vector<ReadLine> lines = readings({"ſchön"});
  for (const std::string encoding : {"UTF-16", "ISO-8859-1", "latin1", "utf-8", ""}) {
    for (const bool is_alto : {true, false}) {
      INFO(encoding << (is_alto ? ", ALTO" : ", PAGE"));
      const bool is_ascii = encoding == "utf-8" || encoding.empty();
      const std::string name = is_ascii ? "page.png" : "p\u00e4ge.png";
      std::string xml =
          is_alto ? alto("<TextLine " + box_of(0) + "/>", "", "pixel", name)
                  : page_xml(region("r", line("a", "")), "imageFilename=\"" + name + "\"");
      if (!is_alto) xml.erase(0, xml.find("?>") + 2);
      const std::string said = encoding.empty() ? "" : " encoding='" + encoding + "'";
      xml = "<?xml version='1.0'" + said + "?><!-- -->" + xml;
      const PageFile page = opened(folder, encoded(xml, encoding == "UTF-16"));
      CHECK(page.image_name == name);
      const std::string filled =
          is_alto ? to_alto(page, lines, "test") : to_page_xml(page, lines, "test");
      CHECK(found(filled, "encoding=[\"']([^\"']*)[\"']") ==
            (encoding.empty() ? Texts{} : Texts{"UTF-8"}));
      CHECK(texts_of(filled) == Texts{"ſchön"});
      CHECK(parse_page(filled, "w.xml").image_name == name);
    }
  }
}

TEST_CASE("a text that is filled in stands where the schema of PAGE-XML has it", "[page]") {
  const TemporaryFolder folder;
  const std::string coords = "<Coords points='0,0 200,0 200,40 0,40'/>";
  const std::string old = "<TextEquiv><Unicode>alt</Unicode></TextEquiv>";
  const auto names = [&](const std::string& begin, const std::string& end) {
    const PageFile page = opened(
        folder, page_xml("<TextRegion><TextLine>" + begin + end + "</TextLine></TextRegion>"));
    const std::string filled = to_page_xml(page, readings({"neu"}), "test");
    const size_t first = filled.find("<TextLine>") + 10, last = filled.find("</TextLine>");
    return found(filled.substr(first, last - first), "<([A-Z][A-Za-z]*)[ />]");
  };
  // Of what may follow it, each alone and in the order of the schema.
  for (const Texts& behind : std::vector<Texts>{{},
                                                {"TextStyle"},
                                                {"UserDefined"},
                                                {"Labels"},
                                                {"TextStyle", "UserDefined", "Labels"},
                                                {"UserDefined", "Labels"}}) {
    Texts wanted = {"Coords", "Baseline", "TextEquiv", "Unicode"};
    Texts with_word = {"Coords",    "Baseline", "Word",      "Coords",
                       "TextEquiv", "Unicode",  "TextEquiv", "Unicode"};
    std::string end;
    for (const std::string& name : behind) {
      wanted.push_back(name);
      with_word.push_back(name);
      end += "<" + name + "/>";
    }
    const std::string begin = coords + "<Baseline points='0,30 200,30'/>";
    CHECK(names(begin, end) == wanted);
    CHECK(names(begin + "<Word>" + coords + old + "</Word>" + old + old, end) == with_word);
    CHECK(names(begin + "<Word>" + old + "</Word>" + old + old, end) == wanted);
  }
  // In a region its own text style alone is behind it.
  const PageFile page =
      opened(folder, page_xml("<TextRegion>" + coords + "<UserDefined/><Labels/>" +
                              line("l", "alt") + old + "<TextStyle/></TextRegion>"));
  const std::string filled = to_page_xml(page, readings({"neu"}), "test");
  const size_t behind = filled.find("</TextLine>");
  CHECK(found(filled.substr(behind), "<([A-Z][A-Za-z]*)[ />]") ==
        Texts{"TextEquiv", "Unicode", "TextStyle"});
}

TEST_CASE("a new document that is read again has its lines where they were", "[page]") {
  const std::string level = "<Baseline points='20,36 180,36'/>",
                    bent = "<Baseline points='20,108 90,112 180,108'/>";
  const std::string lines =
      line("box", "", "10,5 200,5 200,15 10,15") +
      "<TextLine id='both'><Coords points='20,16 180,16 180,40 20,40'/>" + level + "</TextLine>" +
      line("polygon", "", "10,50 200,60 190,70 20,75") +
      "<TextLine id='around'><Coords points='20,86 100,84 180,86 180,116 20,116'/>" + bent +
      "</TextLine><TextLine id='stripe'><Baseline points='20,140 180,138'/></TextLine>";
  PageFile page = parse_page(page_xml(region("r", lines)), "");
  set_regions(page, {220, 160});
  page.image = "p.png";
  REQUIRE(page.lines.size() == 5);
  const std::vector<ReadLine> read = readings({"a", "b b", "", "d", "e"});
  for (const std::string& document :
       {to_page_xml(page, read, "test"), to_alto(page, read, "test")}) {
    PageFile again = parse_page(document, "again.xml");
    // ALTO has the place of a box already.
    if (again.format == PageFormat::alto) CHECK(found(document, "<(Polygon) ").size() == 3);
    set_regions(again, {220, 160});
    REQUIRE(again.lines.size() == 5);
    for (size_t i = 0; i < 5; ++i) {
      INFO(page.lines[i].id << (again.format == PageFormat::alto ? ", ALTO" : ", PAGE"));
      CHECK(again.lines[i].id == page.lines[i].id);
      CHECK(again.lines[i].block == "r");
      CHECK(again.lines[i].region == page.lines[i].region);
      CHECK(again.lines[i].text == read[i].text);
    }
  }
}

TEST_CASE("a file that has changed since it was read is not filled in", "[page]") {
  const TemporaryFolder folder;
  const std::vector<ReadLine> lines = readings({"a"});
  const PageFile in_page = opened(folder, page_xml(region("r", line("a", ""))));
  folder.write("a.xml", page_xml(region("r", line("a", "") + line("b", ""))));
  CHECK_THROWS_WITH(to_page_xml(in_page, lines, "test"),
                    Contains("a.xml: has changed since it was read: now 2 lines, 1 before"));
  const PageFile in_alto = opened(folder, alto("<TextLine " + box_of(0) + "/>"));
  folder.write("a.xml", alto(""));
  CHECK_THROWS_WITH(to_alto(in_alto, lines, "test"), Contains("now 0 lines, 1 before"));
}
