// Pages as programs of all years write them: old schemas, lines at the odd places of a page, images
// that are turned.
#include <filesystem>

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

using Points = std::vector<ImagePoint>;

}  // namespace

TEST_CASE("outlines of 2010 and before are points of their own", "[page]") {
  for (const std::string year : {"2009-03-16", "2010-01-12", "2010-03-19"}) {
    const std::string xml =
        "<PcGts xmlns=\"http://schema.primaresearch.org/PAGE/gts/pagecontent/" + year +
        "\"><Page imageFilename=\"p.png\" imageWidth=\"200\" imageHeight=\"100\"><TextRegion "
        "id=\"r\"><Coords><Point x=\"0\" y=\"0\"/><Point x=\"9\" y=\"0\"/></Coords><TextLine "
        "id=\"l\"><Coords><Point x=\"10\" y=\"20\"/><Point x=\"110\" y=\"20\"/>\n<Point x=\"110\" "
        "y=\"60\"/><Point y=\"60\" x=\"10\"/></Coords><Baseline><Point x=\"10\" y=\"50\"/><Point "
        "x=\"110\" y=\"50\"/></Baseline><TextEquiv><Unicode>a</Unicode></TextEquiv></TextLine>"
        "<TextLine><Coords><Point x=\"1\"/><Point x=\"9\" y=\"0\"/><Point x=\"9\" y=\"9\"/>"
        "</Coords></TextLine></TextRegion></Page></PcGts>";
    PageFile page = parse_page(xml, "p.xml");
    set_regions(page, {200, 100});
    REQUIRE(page.lines.size() == 2);
    CHECK(page.lines[0].text == "a");
    CHECK(page.lines[0].region.corners == Points{{10, 20}, {110, 20}, {110, 60}, {10, 60}});
    CHECK(page.lines[0].region.baseline == Points{{10, 50}, {110, 50}});
    CHECK_THAT(page.lines[1].problem, Contains("Coords has 5 numbers"));
  }
}

TEST_CASE("a line that runs down the page keeps its outline", "[page]") {
  const auto region_of = [](const std::string& outline, const std::string& baseline) {
    PageFile page = parse_page(
        page_xml(region("r", "<TextLine><Coords points=\"" + outline + "\"/><Baseline points=\"" +
                                 baseline + "\"/></TextLine>")),
        "p.xml");
    set_regions(page, {700, 700});
    return page.lines.at(0).region;
  };
  const ImageRegion column = ImageRegion::of_box({554, 34, 45, 386});
  const std::string outline = "554,34 599,34 599,420 554,420";
  for (const char* baseline :
       {"576,34 576,420", "576,420 576,34", "560,34 598,420", "576,20 570,200 576,440"})
    CHECK(region_of(outline, baseline).corners == column.corners);
  // An outline that is none, as of a line that is level: the stripe along the baseline instead.
  const ImageBox stripe = region_of("576,34 577,34 577,420 576,420", "576,34 576,420").bounds();
  CHECK((stripe.top == 34 && stripe.height == 386 && stripe.width > 15));
  CHECK(stripe.left < 576);
  CHECK(stripe.left + stripe.width > 580);
}

TEST_CASE("columns without outlines have what their neighbours leave", "[page]") {
  // Twelve of them, so that the nearest are not among the first that are met; above them a line.
  std::string lines = "<TextLine><Baseline points=\"10,30 600,30\"/></TextLine>";
  for (int i = 0; i < 12; ++i) {
    const int x = 660 - 50 * i;
    lines += str("<TextLine><Baseline points=\"", x, ",60 ", x, ",", 500 + 7 * (i % 3),
                 "\"/></TextLine>");
  }
  PageFile page = parse_page(page_xml(region("r", lines)), "p.xml");
  set_regions(page, {700, 700});
  for (size_t i = 1; i < page.lines.size(); ++i) {
    INFO("column " << i);
    CHECK(page.lines[i].region.bounds().width == 50);
  }
}

TEST_CASE("stripes along baselines at the odd places of a page", "[page]") {
  const auto corners_of = [](const std::vector<std::string>& baselines) {
    std::string lines;
    for (const std::string& points : baselines)
      lines += "<TextLine><Baseline points=\"" + points + "\"/></TextLine>";
    PageFile page = parse_page(page_xml(region("r", lines)), "p.xml");
    set_regions(page, {500, 400});
    std::vector<Points> all;
    for (const PageLine& l : page.lines) all.push_back(l.region.corners);
    return all;
  };
  const auto level = [](int32_t left, int32_t right, int32_t y) {
    return Points{{left, y - 28}, {right, y - 28}, {right, y + 12}, {left, y + 12}};
  };
  // A line that was drawn twice, a pixel or three beside, is none of its own neighbours.
  CHECK(corners_of({"10,100 400,100", "10,103 400,103", "10,140 400,140", "10,180 400,180"}) ==
        std::vector<Points>{level(10, 400, 100),
                            {{10, 77}, {400, 77}, {400, 114}, {10, 114}},
                            {{10, 114}, {400, 114}, {400, 151}, {10, 151}},
                            level(10, 400, 180)});
  // Points that are there twice, and a first line above which the page ends.
  CHECK(corners_of({"10,20 10,20 200,20 200,20 400,20", "10,60 400,60"})[0] == Points{{10, -8},
                                                                                      {10, -8},
                                                                                      {200, -8},
                                                                                      {200, -8},
                                                                                      {400, -8},
                                                                                      {400, 32},
                                                                                      {200, 32},
                                                                                      {200, 32},
                                                                                      {10, 32},
                                                                                      {10, 32}});
  // Two lines that slant by 3 in 4, 40 apart across: 28 above is 17 to the right and 22 up.
  const Points slanting = corners_of({"100,100 300,250", "76,132 276,282"})[0];
  REQUIRE(slanting.size() == 4);
  const Points wanted = {{117, 78}, {317, 228}, {293, 260}, {93, 110}};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(std::abs(slanting[i].x - wanted[i].x) <= 1);
    CHECK(std::abs(slanting[i].y - wanted[i].y) <= 1);
  }
  // Lines that are not alongside each other: from the middle of the first, (300, 350), the second
  // is 312.5 away across it, from the place behind that 237.5, which is the median of three.
  const Points rising = corners_of({"100,500 500,200", "0,100 600,100"})[0];
  REQUIRE(rising.size() == 4);
  const Points expected = {{0, 367}, {400, 67}, {543, 257}, {143, 557}};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(std::abs(rising[i].x - expected[i].x) <= 1);
    CHECK(std::abs(rising[i].y - expected[i].y) <= 1);
  }
  // One line of a single point on the page says nothing, and nothing to its neighbours.
  CHECK(corners_of({"10,100 400,100", "50,120", "10,140 400,140"})[0] == level(10, 400, 100));
}

TEST_CASE("the first and the last character stay within their line", "[page]") {
  const std::vector<SeenLabel> labels = {{"a", 10, 20, 1}, {"b", 90, 98, 1}};
  const ReadLine line = arrange(labels, 5, 100);
  REQUIRE((line.words.size() == 1 && line.words[0].size() == 2));
  CHECK((line.words[0][0].first == 5 && line.words[0][0].last == 55));
  CHECK((line.words[0][1].first == 55 && line.words[0][1].last == 100));
}

TEST_CASE("the text of a line has a space between words, and none around them", "[page]") {
  std::vector<SeenLabel> labels;
  for (const char* text : {" ", "a", "b", " ", " ", "c", " "})
    labels.push_back({text, 10.0 * static_cast<double>(labels.size()), 0, 1});
  const ReadLine line = arrange(labels, 0, 100);
  CHECK(line.text == "ab c");
  CHECK(line.words.size() == 2);
  CHECK(arrange(std::span(labels).first(1), 0, 100).text.empty());
}

TEST_CASE("all white space parts words, whichever a model writes", "[page]") {
  for (const std::string space : {" ", "\t", "\u00a0", "\u2009", "\u3000", "  "}) {
    const std::vector<SeenLabel> labels = {
        {"a", 10, 12, 1}, {space, 20, 22, 1}, {"b", 30, 32, 1}, {"c", 40, 42, 1}};
    const ReadLine line = arrange(labels, 0, 100);
    CHECK(line.text == "a bc");
    CHECK((line.words.size() == 2 && line.words[1].size() == 2));
  }
}

TEST_CASE("regions within regions stand where the outer ones do", "[page]") {
  const std::string order =
      "<ReadingOrder><OrderedGroup><RegionRefIndexed index=\"0\" regionRef=\"second\"/>"
      "<RegionRefIndexed index=\"1\" regionRef=\"first\"/></OrderedGroup></ReadingOrder>";
  const PageFile page = parse_page(
      page_xml(order + region("first", region("x", line("1", "a"))) + region("z", line("2", "b")) +
               region("second", region("y", region("v", line("3", "c"))) + line("4", "d"))),
      "p.xml");
  std::string texts;
  for (const PageLine& l : page.lines) texts += l.text;
  CHECK(texts == "cdab");
}

TEST_CASE("a name that is made up is no other line's", "[page]") {
  const PageFile page = parse_page(page_xml(region("r", line("", "b") + line("line_1", "a") +
                                                            line("line_4", "a") + line("", "b"))),
                                   "p.xml");
  std::vector<std::string> names;
  for (const PageLine& l : page.lines) names.push_back(l.id);
  CHECK(names == std::vector<std::string>{"line_1_2", "line_1", "line_4", "line_4_2"});
}

TEST_CASE("outlines have as many corners as are said", "[page]") {
  const auto problem_of = [](int count) {
    std::string points;
    for (int i = 0; i < count; ++i) points += str(i % 90, ",", i % 7, " ");
    return parse_page(page_xml(region("r", line("l", "a", points))), "p.xml").lines.at(0).problem;
  };
  CHECK(problem_of(3).empty());
  CHECK(problem_of(4096).empty());
  CHECK_THAT(problem_of(2), Contains("expected x and y of 3 to 4096 points"));
  CHECK_THAT(problem_of(4097), Contains("expected x and y of 3 to 4096 points"));
}

TEST_CASE("a line may reach beyond its page on any side, however its place is given", "[page]") {
  const auto region_of = [](const std::string& xml) {
    PageFile page = parse_page(xml, "p.xml");
    set_regions(page, {220, 160});
    CHECK(page.lines.at(0).problem.empty());
    return page.lines[0].region;
  };
  for (const auto& [left, top] : std::vector<std::pair<int, int>>{
           {-5, 20}, {20, -7}, {-5, -7}, {150, 20}, {20, 130}, {150, 130}}) {
    INFO(left << ", " << top);
    const int right = left + 100, bottom = top + 40;
    const Points corners = {{left, top}, {right, top}, {right, bottom}, {left, bottom}};
    const std::string polygon =
        str(left, ",", top, " ", right, ",", top, " ", right, ",", bottom, " ", left, ",", bottom);
    const std::string baseline = str(left, ",", bottom - 8, " ", right, ",", bottom - 8);
    const std::string box =
        str("HPOS='", left, "' VPOS='", top, "' WIDTH='100' HEIGHT='40' BASELINE='", baseline, "'");
    for (const std::string& xml :
         {alto("<TextLine " + box + "/>"),
          alto("<TextLine " + box + "><Shape><Polygon POINTS='" + polygon +
               "'/></Shape></TextLine>"),
          page_xml(region("r", "<TextLine><Coords points='" + polygon + "'/><Baseline points='" +
                                   baseline + "'/></TextLine>"))}) {
      const ImageRegion region = region_of(xml);
      CHECK(region.corners == corners);
      CHECK(region.baseline == Points{{left, bottom - 8}, {right, bottom - 8}});
    }
  }
}

TEST_CASE("an empty outline is none where a line has another place", "[page]") {
  const auto region_of = [](const std::string& xml) {
    PageFile page = parse_page(xml, "p.xml");
    set_regions(page, {500, 400});
    CHECK(page.lines.at(0).problem.empty());
    return page.lines[0].region;
  };
  const std::string baseline = "10,100 410,100";
  const ImageRegion stripe{{{10, 86}, {410, 86}, {410, 106}, {10, 106}}, {{10, 100}, {410, 100}}};
  for (const std::string empty : {"", " ", "\n "}) {
    CHECK(region_of(
              page_xml(region("r", "<TextLine><Coords points='" + empty + "'/><Baseline points='" +
                                       baseline + "'/></TextLine>"))) == stripe);
    const std::string polygon = "><Shape><Polygon POINTS='" + empty + "'/></Shape></TextLine>";
    CHECK(region_of(alto("<TextLine BASELINE='" + baseline + "'" + polygon)) == stripe);
    CHECK(region_of(alto("<TextLine HPOS='10' VPOS='20' WIDTH='30' HEIGHT='40'" + polygon)) ==
          ImageRegion::of_box({10, 20, 30, 40}));
    CHECK_THAT(parse_page(alto("<TextLine" + polygon), "p.xml").lines.at(0).problem,
               Contains("neither a Shape/Polygon nor HPOS"));
  }
}

TEST_CASE("ALTO that names no unit is in pixels", "[page]") {
  std::string xml = alto("<TextLine HPOS='10' VPOS='20' WIDTH='30' HEIGHT='40'/>");
  const size_t begin = xml.find("<MeasurementUnit>"), end = xml.find("<sourceImage");
  xml.erase(begin, end - begin);
  for (const std::string unit :
       {"", "<MeasurementUnit/>", "<MeasurementUnit> pixel </MeasurementUnit>"}) {
    PageFile page = parse_page(std::string(xml).insert(begin, unit), "p.xml");
    set_regions(page, {220, 160});
    CHECK(page.lines.at(0).region == ImageRegion::of_box({10, 20, 30, 40}));
  }
}

TEST_CASE("a page that is a little wider than its image is scaled each way by itself", "[page]") {
  const std::string box = "100,100 900,100 900,200 100,200";
  PageFile page = parse_page(
      page_xml(region("r", line("l", "a", box)), "imageWidth=\"1000\" imageHeight=\"1000\""),
      "p.xml");
  set_regions(page, {2000, 2030});
  CHECK(page.lines[0].region.corners == Points{{200, 203}, {1800, 203}, {1800, 406}, {200, 406}});
  CHECK_THROWS_WITH(set_regions(page, {2000, 2050}), Contains("expected the same shape"));
  CHECK_THROWS_WITH(set_regions(page, {2050, 2000}), Contains("expected the same shape"));
}

TEST_CASE("places are of the image as it is shown, or as it is stored", "[page]") {
  // The file has rows of 80 pixels, 220 of them; it is shown as 220 x 80.
  ImageInfo image{220, 80};
  image.orientation = Orientation::right_top;
  const auto opened = [&](const std::string& size, const std::string& points,
                          const std::string& baseline = "") {
    PageFile page = parse_page(
        page_xml(
            region("r", "<TextLine id=\"l\"><Coords points=\"" + points + "\"/>" +
                            (baseline.empty() ? "" : "<Baseline points=\"" + baseline + "\"/>") +
                            "</TextLine>"),
            "imageFilename=\"p.jpg\" " + size),
        "p.xml");
    set_regions(page, image);
    return page;
  };
  const std::string as_shown = "10,0 110,0 110,40 10,40";
  const PageFile shown = opened("imageWidth=\"220\" imageHeight=\"80\"", as_shown);
  CHECK(shown.lines[0].region.corners == Points{{10, 0}, {110, 0}, {110, 40}, {10, 40}});
  CHECK(shown.warning.empty());
  // The stored row 0 is on the right, column 0 on top: (x, y) is shown at (220 - y, x).
  const PageFile stored =
      opened("imageWidth=\"80\" imageHeight=\"220\"", "0,210 0,110 40,110 40,210", "30,210 30,110");
  CHECK(stored.is_as_stored);
  CHECK(stored.lines[0].region.corners == Points{{10, 0}, {110, 0}, {110, 40}, {10, 40}});
  CHECK(stored.lines[0].region.baseline == Points{{10, 30}, {110, 30}});
  CHECK(stored.warning.empty());
  // Half as large, as other programs saw it.
  CHECK(opened("imageWidth=\"40\" imageHeight=\"110\"", "0,105 0,55 20,55 20,105")
            .lines[0]
            .region.corners == shown.lines[0].region.corners);
  CHECK_THROWS_WITH(opened("imageWidth=\"80\" imageHeight=\"80\"", as_shown),
                    Contains("expected the same shape"));
  // Without a size, or upside down, nobody can tell.
  const PageFile unsaid = opened("", as_shown);
  CHECK(unsaid.lines[0].region.corners == shown.lines[0].region.corners);
  CHECK_THAT(unsaid.warning, Contains("p.xml: its image") && Contains("turned"));
  image.orientation = Orientation::bottom_right;
  CHECK_FALSE(opened("imageWidth=\"220\" imageHeight=\"80\"", as_shown).warning.empty());
  image.orientation = Orientation::top_left;
  CHECK(opened("", as_shown).warning.empty());
}

TEST_CASE("what is read on a stored page is written where the file has it", "[page]") {
  const TemporaryFolder folder;
  const std::string box = "<TextLine ID='l' HPOS='0' VPOS='110' WIDTH='40' HEIGHT='100'/>";
  const std::string path = folder.write("a.xml", alto(box, "WIDTH='80' HEIGHT='220'"));
  PageFile page = parse_page(data::read_regular_file(path), path);
  ImageInfo image{220, 80};
  image.orientation = Orientation::right_top;
  set_regions(page, image);
  page.image = "p.jpg";
  CHECK(page.lines[0].region.corners.size() == 4);
  CHECK(page.lines[0].region.bounds().left == 10);
  const std::vector<SeenLabel> labels = {{"a", 10, 20, 1}, {"b", 100, 110, 1}};
  const ReadLine read = arrange(labels, 10, 110);
  const std::string filled = to_alto(page, std::span(&read, 1), "test");
  // From 10 to 110 across and 0 to 40 down, as it is shown.
  CHECK_THAT(filled, Contains("<String HPOS=\"0\" VPOS=\"110\" WIDTH=\"40\" HEIGHT=\"100\""));
  // A new document is of the image that is shown.
  page.format = PageFormat::page;
  CHECK_THAT(to_alto(page, std::span(&read, 1), "test"),
             Contains("<String HPOS=\"10\" VPOS=\"0\" WIDTH=\"100\" HEIGHT=\"40\""));
}

// A word of the letters of `text`, ten pixels each from `left` on.
std::vector<ReadCharacter> word(const std::string& text, double left) {
  std::vector<ReadCharacter> letters;
  for (const char c : text) {
    letters.push_back({std::string(1, c), left, left + 10, 0.5});
    left += 10;
  }
  return letters;
}

// All that is between the name of an attribute and the quote behind its value, in the order of the
// document.
std::vector<std::string> attributes(const std::string& xml, const std::string& name) {
  std::vector<std::string> values;
  const std::string begin = " " + name + "=\"";
  for (size_t at = xml.find(begin); at != xml.npos; at = xml.find(begin, at)) {
    at += begin.size();
    values.push_back(xml.substr(at, xml.find('"', at) - at));
  }
  return values;
}

TEST_CASE("a document has boxes around boxes, and no identifier twice", "[page]") {
  const auto at = [](const char* id, const std::string& box) { return line(id, "", box); };
  const std::string first =
      at("a", "10,20 110,20 110,60 10,60") + at("b", "30,65 130,65 130,99 30,99");
  PageFile page =
      parse_page(page_xml(region("r", first) + region("s", at("c", "0,100 50,100 50,140 0,140")) +
                          region("r", at("d", "60,100 99,100 99,140 60,140")) +
                          region("block_5", at("e", "0,150 20,150 20,180 0,180")) +
                          region("", at("f", "40,150 60,150 60,180 40,180")) +
                          region("t", at("block_6", "70,150 99,150 99,180 70,180"))),
                 "p.xml");
  set_regions(page, {200, 220});
  page.image = "p.png";
  std::vector<ReadLine> lines(7);
  lines[0].words = {word("ab", 20), word("c", 60)};
  lines[2].words = {word("d", 0)};
  const std::string hocr = to_hocr(page, lines, "test");
  // A region that goes on behind another one is a block of a name of its own, and so is one without
  // a name; 5 and 6 are names of others.
  const std::vector<std::string> ids = {
      "r",       "a", "word_1_1", "word_1_2", "b",       "s", "c", "word_3_1",
      "block_3", "d", "block_5",  "e",        "block_7", "f", "t", "block_6"};
  CHECK(attributes(hocr, "id") == ids);
  // Corners to the right and below are left + width, top + height: the pixel behind the last.
  std::vector<std::string> titles = attributes(hocr, "title");
  REQUIRE(titles.size() == 21);
  CHECK_THAT(titles[0], Contains("; bbox 0 0 200 220; ppageno 0"));
  titles.erase(titles.begin());
  const std::vector<std::string> boxes = {"bbox 10 20 130 99",
                                          "bbox 10 20 110 60",
                                          "bbox 20 20 40 60; x_wconf 50",
                                          "x_bboxes 20 20 30 60; x_confs 50",
                                          "x_bboxes 30 20 40 60; x_confs 50",
                                          "bbox 60 20 70 60; x_wconf 50",
                                          "x_bboxes 60 20 70 60; x_confs 50",
                                          "bbox 30 65 130 99",
                                          "bbox 0 100 50 140",
                                          "bbox 0 100 50 140",
                                          "bbox 0 100 10 140; x_wconf 50",
                                          "x_bboxes 0 100 10 140; x_confs 50",
                                          "bbox 60 100 99 140",
                                          "bbox 60 100 99 140",
                                          "bbox 0 150 20 180",
                                          "bbox 0 150 20 180",
                                          "bbox 40 150 60 180",
                                          "bbox 40 150 60 180",
                                          "bbox 70 150 99 180",
                                          "bbox 70 150 99 180"};
  CHECK(titles == boxes);
  page.path.clear();  // else the file is filled in
  const std::string xml = to_page_xml(page, lines, "test"), as_alto = to_alto(page, lines, "test");
  const std::vector<std::string> blocks = {"r",       "a", "b",       "s", "c", "block_3", "d",
                                           "block_5", "e", "block_7", "f", "t", "block_6"};
  CHECK(attributes(xml, "id") == blocks);
  CHECK_THAT(xml, Contains("<Coords points=\"10,20 130,20 130,99 10,99\""));
  std::vector<std::string> of_alto = attributes(as_alto, "ID");
  REQUIRE(of_alto.size() == 15);
  of_alto.erase(of_alto.begin(), of_alto.begin() + 2);
  CHECK(of_alto == blocks);
  CHECK_THAT(as_alto, Contains("HPOS=\"10\" VPOS=\"20\" WIDTH=\"120\" HEIGHT=\"79\""));
}
