// Lines of PAGE-XML and ALTO files, and the data made of them.
#include "engine/page/page_file.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/page/page_writers.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/corpus/page_files.h"
#include "tests/data/temporary_folder.h"
#include "tools/corpus/examination/list_corpus.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace fs = std::filesystem;
using namespace test;

namespace {

std::vector<std::string> texts(const PageFile& page) {
  std::vector<std::string> all;
  for (const PageLine& l : page.lines) all.push_back(l.text);
  return all;
}

using Texts = std::vector<std::string>;

std::string text_of_line(const std::string& content) {
  const PageFile page = parse_page(
      page_xml("<TextRegion><TextLine>" + content + "</TextLine></TextRegion>"), "p.xml");
  return page.lines.at(0).has_text ? page.lines[0].text : "(none)";
}

std::string text_of_alto(const std::string& content) {
  return parse_page(alto("<TextLine>" + content + "</TextLine>"), "p.xml").lines.at(0).text;
}

std::string equiv(const std::string& text, const std::string& attribute = "") {
  return "<TextEquiv " + attribute + "><Unicode>" + text + "</Unicode></TextEquiv>";
}

}  // namespace

TEST_CASE("lines of PAGE-XML", "[page]") {
  const PageFile page = parse_page(
      page_xml(region("r1", line("l1", " eins\n") + line("l2", "zwei &amp; &#x17F;")) +
                   "<TableRegion id=\"t\">" +
                   region("r2", line("l3", "drei", "1.5,2 30,2.5 -3,40")) + "</TableRegion>",
               "imageFilename=\"scans/p.png\" imageWidth=\"300\" imageHeight=\"200\""),
      "p.xml");
  CHECK(page.format == PageFormat::page);
  CHECK(page.image_name == "scans/p.png");
  CHECK((page.width == 300 && page.height == 200));
  REQUIRE(texts(page) == Texts{"eins", "zwei & \xc5\xbf", "drei"});
  CHECK((page.lines[0].id == "l1" && page.lines[0].block == "r1" && page.lines[2].block == "r2"));
  REQUIRE(page.lines[2].outline.size() == 3);
  CHECK((page.lines[2].outline[0].x == 1.5 && page.lines[2].outline[2].x == -3));
  // With prefixes, and a name for a line that has none.
  const PageFile prefixed = parse_page(
      "<pc:PcGts xmlns:pc=\"x\"><pc:Page "
      "imageFilename=\"a\"><pc:TextRegion><pc:TextLine><pc:Coords "
      "points=\"0,0 9,0 "
      "9,9\"/><pc:TextEquiv><pc:Unicode>a</pc:Unicode></pc:TextEquiv></pc:TextLine>"
      "</pc:TextRegion></pc:Page></pc:PcGts>",
      "p.xml");
  CHECK(texts(prefixed) == Texts{"a"});
  CHECK(prefixed.lines[0].id == "line_1");
}

TEST_CASE("which text of a line is taken", "[page]") {
  CHECK(text_of_line("") == "(none)");
  CHECK(text_of_line(equiv("")) == "");
  CHECK(text_of_line(equiv("b", "index='1'") + equiv("a", "index='0'")) == "a");
  CHECK(text_of_line(equiv("b", "index='0'") + equiv("a")) == "a");
  CHECK(text_of_line(equiv("a", "index='2'") + equiv("b", "index='2'")) == "a");
  CHECK(text_of_line("<TextEquiv><PlainText>p</PlainText></TextEquiv>") == "p");
  CHECK(text_of_line("<TextEquiv><PlainText>p</PlainText><Unicode>u</Unicode></TextEquiv>") == "u");
  CHECK(text_of_line("<TextEquiv><Unicode><![CDATA[a<b]]></Unicode></TextEquiv>") == "a<b");
  const std::string words =
      "<Word>" + equiv("ein") + "</Word><Word/><Word>" + equiv("Wort") + "</Word>";
  CHECK(text_of_line(words) == "ein Wort");
  CHECK(text_of_line(words + equiv("eine Zeile")) == "eine Zeile");
  CHECK(text_of_alto("<String CONTENT='ein'/><SP/><String CONTENT='Wort'/>") == "ein Wort");
  CHECK(text_of_alto("<String CONTENT='ein'/><String CONTENT='Wort'/><HYP CONTENT='='/>") ==
        "ein Wort=");
  CHECK(text_of_alto("<String CONTENT='a&quot;'/><HYP/>") == "a\"-");
  CHECK_FALSE(parse_page(alto("<TextLine/>"), "p.xml").lines.at(0).has_text);
}

TEST_CASE("regions stand in reading order", "[page]") {
  const std::string order =
      "<ReadingOrder><OrderedGroup id='g'><RegionRefIndexed index='2' regionRef='a'/>"
      "<UnorderedGroupIndexed index='1' id='h'><RegionRef regionRef='d'/><RegionRef regionRef='c'/>"
      "</UnorderedGroupIndexed></OrderedGroup></ReadingOrder>";
  const std::string regions = region("a", line("1", "a1") + line("2", "a2")) +
                              region("b", line("3", "b")) + region("c", line("4", "c")) +
                              region("d", line("5", "d"));
  CHECK(texts(parse_page(page_xml(order + regions), "p")) == Texts{"d", "c", "a1", "a2", "b"});
  CHECK(texts(parse_page(page_xml(regions), "p")) == Texts{"a1", "a2", "b", "c", "d"});
  // Groups in groups go by their own numbers, 10 behind 9; one without a number is the first. What
  // is named twice stands where it was named first, and what is not there takes no place.
  const std::string nested =
      "<ReadingOrder><OrderedGroup id='g'><OrderedGroupIndexed index='10' id='h'>"
      "<RegionRefIndexed index='10' regionRef='a'/><RegionRefIndexed index='9' regionRef='c'/>"
      "<OrderedGroupIndexed index='11' id='i'><RegionRefIndexed index='1' regionRef='lost'/>"
      "<RegionRefIndexed index='2' regionRef='c'/></OrderedGroupIndexed></OrderedGroupIndexed>"
      "<RegionRefIndexed index='9' regionRef='d'/><RegionRefIndexed regionRef='b'/>"
      "</OrderedGroup></ReadingOrder>";
  CHECK(texts(parse_page(page_xml(nested + regions), "p")) == Texts{"b", "d", "c", "a1", "a2"});
  // Numbers of a group without order are none.
  const std::string unordered =
      "<ReadingOrder><UnorderedGroup id='g'><RegionRef index='2' regionRef='c'/>"
      "<OrderedGroup id='h' index='1'><RegionRefIndexed index='1' regionRef='d'/>"
      "<RegionRefIndexed index='0' regionRef='b'/></OrderedGroup></UnorderedGroup></ReadingOrder>";
  CHECK(texts(parse_page(page_xml(unordered + regions), "p")) == Texts{"c", "b", "d", "a1", "a2"});
}

TEST_CASE("lines without an outline say what is wrong", "[page]") {
  const auto problem = [](const std::string& points) {
    return parse_page(page_xml(region("r", line("l", "a", points))), "p.xml").lines.at(0).problem;
  };
  CHECK(problem("0,0 9,0 9,9").empty());
  CHECK(problem("0 0 9 0 9 9").empty());
  CHECK(problem("") == "Coords has 0 numbers, expected x and y of 3 to 4096 points");
  CHECK_THAT(problem("0,0 9,0"), Contains("has 4 numbers"));
  CHECK_THAT(problem("0,0 9,0 9,9 3"), Contains("has 7 numbers"));
  for (const char* wrong : {"0,0 9,0 9,x", "0,0 9,0 9,nan", "0,0 9,0 9,1e30", "0,0 9,0 9;4"})
    CHECK_THAT(problem(wrong),
               Contains("Coords is \"0,0 9,0 9") && Contains("expected numbers of pixels"));
  CHECK(parse_page(page_xml("<TextRegion><TextLine/></TextRegion>"), "p").lines.at(0).problem ==
        "has no Coords with points, expected a polygon, nor a Baseline");
  for (const char* box :
       {"", "HPOS='1' VPOS='2' WIDTH='3'", "HPOS='1' VPOS='2' WIDTH='3' HEIGHT='0'",
        "HPOS='1' VPOS='2' WIDTH='3' HEIGHT='4px'"})
    CHECK_THAT(parse_page(alto(str("<TextLine ", box, "/>")), "p").lines.at(0).problem,
               Contains("neither a Shape/Polygon nor HPOS"));
}

TEST_CASE("what is no page is refused by name", "[page]") {
  CHECK_THROWS_WITH(parse_page("<PcGts>\n<Page>\n</PcGts>", "p.xml"),
                    Contains("p.xml:3: is no whole XML document"));
  CHECK_THROWS_WITH(parse_page("", "p.xml"), Contains("p.xml:1: is no whole XML document"));
  CHECK_THROWS_WITH(parse_page("<html/>", "p.xml"),
                    Contains("p.xml: is XML of 'html', expected a page: PAGE-XML (PcGts) or ALTO"));
  CHECK_THROWS_WITH(parse_page("<PcGts/>", "p.xml"), Contains("p.xml: has no Page"));
  CHECK_THROWS_WITH(parse_page("<alto><Layout><Page/><Page/></Layout></alto>", "p.xml"),
                    Contains("p.xml: has 2 pages, expected a file for each"));
  CHECK_THROWS_WITH(parse_page(page_xml(region("\xff", line("l", "a"))), "p.xml"),
                    Contains("p.xml: "));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "<TextRegion>";
  for (int i = 0; i < 1000; ++i) deep += "</TextRegion>";
  CHECK_THROWS_WITH(parse_page(page_xml(deep), "p.xml"),
                    Contains("p.xml: has elements more than 128 deep"));
  // As deep as that, and one deeper: of elements, counted from the page's own, and of groups.
  const auto nested = [](const std::string& name, int levels) {
    std::string begin, end;
    for (int i = 0; i < levels; ++i) begin += "<" + name + ">", end += "</" + name + ">";
    return begin + "<Labels/>" + end;
  };
  const std::string lines = region("r", line("l", "a"));
  CHECK(parse_page(page_xml(nested("TextRegion", 128) + lines), "p.xml").lines.size() == 1);
  CHECK_THROWS_WITH(parse_page(page_xml(nested("TextRegion", 129) + lines), "p.xml"),
                    Contains("p.xml: has elements more than 128 deep"));
  const auto ordered = [&](int levels) {
    return page_xml("<ReadingOrder>" + nested("OrderedGroup", levels) + "</ReadingOrder>" + lines);
  };
  CHECK(parse_page(ordered(127), "p.xml").lines.size() == 1);
  CHECK_THROWS_WITH(parse_page(ordered(128), "p.xml"),
                    Contains("p.xml: has a ReadingOrder more than 128 deep"));
}

TEST_CASE("the image of a page is found, and outlines fit it", "[page]") {
  const TemporaryFolder folder;
  const ImageFileReader images;
  const auto open = [&](const std::string& name, const std::string& xml) {
    fs::create_directories(fs::path(folder.path(name)).parent_path());
    return open_page(folder.write(name, xml), images);
  };
  save_page_image(folder.path("p.png"), 2);  // 220 x 80
  save_page_image(folder.path("scans/q.png"), 2);
  const std::string one = region("r", line("l", "a", "10,0 110,0 110,40 10,40"));
  CHECK(open("0.xml", page_xml(one)).image == folder.path("p.png"));
  CHECK(open("page/0.xml", page_xml(one)).image == folder.path("p.png"));
  CHECK(open("page/1.xml", page_xml(one, "imageFilename=\"C:\\\\old\\p.png\"")).image ==
        folder.path("p.png"));
  CHECK(open("page/2.xml", page_xml(one, "imageFilename=\"scans/q.png\"")).image ==
        folder.path("scans/q.png"));
  CHECK(open("page/p.xml", page_xml(one, "imageFilename=\"lost.tif\"")).image ==
        folder.path("p.png"));
  CHECK(open("p.xml", page_xml(one, "")).image == folder.path("p.png"));
  CHECK_THROWS_WITH(
      open("x.xml", page_xml(one, "imageFilename=\"lost.tif\"")),
      Contains("x.xml: its image 'lost.tif' is not there, and none called like the page"));
  CHECK_THROWS_WITH(open("x.xml", page_xml(one, "")), Contains("x.xml: its image has no name"));

  // Endings are compared without regard to small letters and capitals; the page's own folder comes
  // first, and of several images the one of the first ending.
  for (const char* name : {"m/a.PNG", "m/b.Png", "m/c.JpG", "m/d.TIFF", "m/e.pGm", "m/f.Jpeg",
                           "m/g.Tif", "m/g.Png", "m/h.tif", "h.png", "m/sub/i.e.Png"})
    save_page_image(folder.path(name), 2);
  for (const char* name :
       {"a.PNG", "b.Png", "c.JpG", "d.TIFF", "e.pGm", "f.Jpeg", "g.Png", "h.tif", "sub/i.e.Png"}) {
    const std::string stem = fs::path(name).replace_extension(".xml").string();
    CHECK(open("m/" + stem, page_xml(one, "")).image == folder.path(str("m/", name)));
  }
  CHECK(open("m/page/c.xml", page_xml(one, "")).image == folder.path("m/c.JpG"));
  fs::create_directories(folder.path("m/j.Png"));  // no file
  save_page_image(folder.path("m/jj.Png"), 2);
  CHECK_THROWS_WITH(open("m/j.xml", page_xml(one, "")), Contains("none called like the page is"));

  // So does a name that the page gives: as it is written before its last part, and of each the one
  // in the page's own folder.
  for (const char* name : {"n/k.png", "n/o/k.png", "n/sub/l.png", "n/o/l.png"})
    save_page_image(folder.path(name), 2);
  CHECK(open("n/o/x.xml", page_xml(one, "imageFilename=\"k.png\"")).image ==
        folder.path("n/o/k.png"));
  CHECK(open("n/o/x.xml", page_xml(one, "imageFilename=\"sub/l.png\"")).image ==
        folder.path("n/sub/l.png"));
  CHECK(open("n/o/x.xml", page_xml(one, "imageFilename=\"lost/k.png\"")).image ==
        folder.path("n/o/k.png"));

  const ImageRegion box = ImageRegion::of_box({10, 0, 100, 40});
  CHECK(open("0.xml", page_xml(one)).lines[0].region == box);
  CHECK(open("0.xml", page_xml(one)).size.width == 220);
  // A page twice as large, and one of 100ths of an inch or so.
  const std::string twice = region("r", line("l", "a", "20,0 220,0 220,80 20,80"));
  CHECK(open("0.xml",
             page_xml(twice, "imageFilename=\"p.png\" imageWidth=\"440\" imageHeight=\"160\""))
            .lines[0]
            .region == box);
  const std::string in_units = "<TextLine HPOS='1' VPOS='0' WIDTH='10' HEIGHT='4'/>";
  CHECK(open("0.xml", alto(in_units, "WIDTH='22' HEIGHT='8'", "mm10")).lines[0].region == box);
  CHECK_THROWS_WITH(open("0.xml", alto(in_units, "", "mm10")),
                    Contains("coordinates are not in pixels"));
  CHECK_THROWS_WITH(
      open("0.xml", alto(in_units, "WIDTH='22' HEIGHT='9'", "mm10")),
      Contains("0.xml: its page is 22 x 9, its image '") && Contains("220 x 80 pixels"));
  // Of several pictures the first is read, and the page says so.
  const std::string picture = "P5 220 80 255\n" + std::string(220 * 80, 'x');
  folder.write("one.pgm", picture);
  folder.write("two.pgm", picture + picture);
  CHECK(open("0.xml", page_xml(one, "imageFilename=\"one.pgm\"")).warning.empty());
  CHECK_THAT(open("0.xml", page_xml(one, "imageFilename=\"two.pgm\"")).warning,
             Contains("two.pgm: holds 2 pictures, of which the first is read"));
  folder.write("bad.png", "\x89PNG\r\n");
  CHECK_THROWS_WITH(open("bad.xml", page_xml(one, "imageFilename=\"bad.png\"")),
                    Contains("bad.png: "));
}

TEST_CASE("baselines of lines", "[page]") {
  const auto with = [](const std::string& baseline, const std::string& coords) {
    return "<TextLine>" + (coords.empty() ? "" : "<Coords points=\"" + coords + "\"/>") +
           "<Baseline points=\"" + baseline + "\"/></TextLine>";
  };
  const auto first = [](const std::string& lines) {
    PageFile page = parse_page(page_xml(region("r", lines)), "p.xml");
    set_regions(page, {400, 300});
    return page.lines.at(0);
  };
  const std::string outline = "0,0 200,0 200,40 0,40";
  using Points = std::vector<ImagePoint>;
  CHECK(first(with("0,30 100,32.4 200,30", outline)).region.baseline ==
        Points{{0, 30}, {100, 32}, {200, 30}});
  CHECK(first(with("200,30 0,32", outline)).region.baseline == Points{{0, 32}, {200, 30}});
  // One point, or the same twice, says nothing.
  for (const char* none : {"", " ", "7,30", "7,30 7,30"}) {
    CHECK(first(with(none, outline)).region == ImageRegion::of_box({0, 0, 200, 40}));
    CHECK_FALSE(first(with(none, "")).problem.empty());
  }
  CHECK_THAT(first(with("7,30 8", outline)).problem, Contains("Baseline has 3 numbers"));
  CHECK_THAT(first(with("7,30 x", outline)).problem, Contains("Baseline is \"7,30 x\""));
  CHECK_THAT(first("<TextLine/>").problem, Contains("expected a polygon, nor a Baseline"));
  // ALTO has a number, or points.
  const auto in_alto = [](const std::string& baseline) {
    PageFile page = parse_page(
        alto("<TextLine HPOS='0' VPOS='0' WIDTH='100' HEIGHT='20' BASELINE='" + baseline + "'/>",
             "WIDTH='200' HEIGHT='150'"),
        "p.xml");
    set_regions(page, {400, 300});
    return page.lines.at(0);
  };
  CHECK(in_alto("17").region == ImageRegion::of_box({0, 0, 200, 40}));
  CHECK(in_alto("0,15 100,17").region.baseline == Points{{0, 30}, {200, 34}});
  CHECK(in_alto("0 15 100 17").region.baseline == Points{{0, 30}, {200, 34}});
  CHECK_THAT(in_alto("17px").problem, Contains("BASELINE is \"17px\""));
}

TEST_CASE("a baseline without an outline has what its neighbours leave", "[page]") {
  const auto line_on = [](const std::string& points, const std::string& more = "") {
    return "<TextLine>" + more + "<Baseline points=\"" + points + "\"/></TextLine>";
  };
  const auto bounds = [](const std::string& lines) {
    PageFile page = parse_page(page_xml(region("r", lines)), "p.xml");
    set_regions(page, {1000, 900});
    std::vector<std::vector<int32_t>> all;
    for (const PageLine& l : page.lines) {
      CHECK(l.problem.empty());
      const ImageBox b = l.region.bounds();
      all.push_back({b.left, b.top, b.width, b.height});
    }
    return all;
  };
  using Boxes = std::vector<std::vector<int32_t>>;
  // Beside them another column, whose lines stand elsewhere; the last is a paragraph's.
  const std::string lines = line_on("10,100 400,100") + line_on("10,140 400,140") +
                            line_on("10,180 300,180") + line_on("500,110 900,110") +
                            line_on("500,150 900,150") + line_on("10,400 400,400");
  CHECK(bounds(lines) == Boxes{{10, 72, 390, 40},
                               {10, 112, 390, 40},
                               {10, 152, 290, 40},
                               {500, 82, 400, 40},
                               {500, 122, 400, 40},
                               {10, 358, 390, 60}});
  // One that has nothing above it or below has what is usual on the page, not what its length says.
  CHECK(bounds(lines + line_on("920,300 990,300")).back() ==
        std::vector<int32_t>{920, 272, 70, 40});
  CHECK(bounds(line_on("10,100 400,100") + line_on("500,110 900,110")) ==
        Boxes{{10, 86, 390, 20}, {500, 96, 400, 20}});
  // An outline that is only the baseline's box, as of programs that have no better.
  const std::string flat = "<Coords points=\"10,100 400,100 400,101 10,101\"/>";
  CHECK(bounds(line_on("10,100 400,100", flat) + line_on("10,140 400,140")) ==
        Boxes{{10, 72, 390, 40}, {10, 112, 390, 40}});
  // Alone, a twentieth of its length.
  CHECK(bounds(line_on("10,100 410,100")) == Boxes{{10, 86, 400, 20}});
  // Yet no more than the image is high, which may be an image of the line alone.
  for (const auto& [height, up, down] : {std::tuple(40, 14, 6), {12, 8, 4}, {5, 6, 2}}) {
    PageFile flat_page = parse_page(page_xml(region("r", line_on("10,4 410,4"))), "p.xml");
    set_regions(flat_page, {1000, height});
    const ImageBox b = flat_page.lines.at(0).region.bounds();
    CHECK((b.top == 4 - up && b.height == up + down));
  }
  // However many points it has, and wherever most of these are.
  for (const int last : {25, 26, 40, 41}) {
    std::string begins, ends = "10,100";
    for (int x = 10; x < last; ++x) begins += str(x, ",100 ");
    for (int x = 410 - (last - 10); x <= 410; ++x) ends += str(" ", x, ",100");
    CHECK(bounds(line_on(begins + "410,100")) == Boxes{{10, 86, 400, 20}});
    CHECK(bounds(line_on(ends)) == Boxes{{10, 86, 400, 20}});
  }
  // A short one far down the page is level all the same, and keeps an outline of its own.
  const std::string high = "<Coords points=\"600,760 690,760 690,810 600,810\"/>";
  CHECK(bounds(line_on("600,800 690,800", high)) == Boxes{{600, 760, 90, 50}});
  CHECK(bounds(line_on("600,800 690,800", "<Coords points=\"590,800 700,800 700,801\"/>")) ==
        Boxes{{600, 794, 90, 8}});
  // Many of these in three columns, neither from top to bottom nor from left to right: each has its
  // own column's next one above or below.
  std::string many;
  for (int i = 0; i < 72; ++i) {
    const int n = i * 29 % 72, column = n % 3, row = n / 3;
    const int left = 20 + 320 * column + row * 11 % 24 * 4, y = 100 + 30 * row + column;
    many += line_on(str(left, ",", y, " ", left + 200, ",", y));
  }
  for (const std::vector<int32_t>& box : bounds(many)) CHECK(box[3] == 30);
  // Seven lines of other columns stand between the two of one, and what is usual is further apart.
  std::string between;
  for (int i = 0; i < 9; ++i)
    between +=
        line_on(str(100 * (i % 8), ",", 100 + 5 * i, " ", 100 * (i % 8) + 80, ",", 100 + 5 * i));
  for (int i = 0; i < 4; ++i) between += line_on(str("820,", 500 + 60 * i, " 990,", 500 + 60 * i));
  const Boxes apart = bounds(between);
  CHECK((apart[0][3] == 40 && apart[8][3] == 40 && apart[1][3] == 60 && apart[12][3] == 60));
  // Lines that go up the page have their letters on the left.
  const PageFile upwards = [&] {
    PageFile page = parse_page(
        page_xml(region("r", line_on("100,500 100,100") + line_on("140,500 140,100"))), "p.xml");
    set_regions(page, {1000, 900});
    return page;
  }();
  CHECK(upwards.lines[0].region.bounds().left == 72);
  CHECK(upwards.lines[0].region.bounds().width == 40);
}

TEST_CASE("characters reach half-way to their neighbours", "[page]") {
  const std::vector<SeenLabel> labels = {
      {"a", 12, 14, 0.5}, {"b", 18, 20, 1}, {" ", 26, 28, 1}, {"c", 32, 40, 0.7}};
  const ReadLine line = arrange(labels, 10, 100);
  CHECK(line.text == "ab c");
  CHECK(line.confidence == Approx(0.8));
  REQUIRE((line.words.size() == 2 && line.words[0].size() == 2 && line.words[1].size() == 1));
  const auto reach = [&](size_t word, size_t at) {
    return std::pair(line.words[word][at].first, line.words[word][at].last);
  };
  CHECK(reach(0, 0) == std::pair(10.0, 16.0));
  CHECK(reach(0, 1) == std::pair(16.0, 23.0));
  CHECK(reach(1, 0) == std::pair(30.0, 42.0));
  // Seen the other way round, as in a line from right to left.
  std::vector<SeenLabel> leftwards;
  for (const SeenLabel& l : labels) leftwards.push_back({l.text, 100 - l.end, 100 - l.begin, 1});
  const ReadLine mirrored = arrange(leftwards, 0, 90);
  CHECK(mirrored.text == "ab c");
  CHECK((mirrored.words[0][1].first == 77 && mirrored.words[0][1].last == 84));
  CHECK((mirrored.words[1][0].first == 58 && mirrored.words[1][0].last == 70));
  CHECK(arrange({}, 0, 10).words.empty());
  const std::vector<SeenLabel> alone = {{"a", 12, 14, 0.5}};
  CHECK(arrange(alone, 10, 100).words.at(0).at(0).last <= 100);
}

TEST_CASE("a letter and its combining marks have one place", "[page]") {
  const std::string e_above = "\u0364", acute = "\u0301";
  const std::vector<SeenLabel> labels = {{"u", 12, 14, 0.75},  {e_above, 15, 16, 0.5},
                                         {acute, 17, 18, 0.9}, {"b", 22, 24, 1},
                                         {" ", 26, 28, 1},     {acute, 30, 31, 0.8}};
  const ReadLine line = arrange(labels, 10, 100);
  CHECK(line.text == "u" + e_above + acute + "b " + acute);
  REQUIRE((line.words.size() == 2 && line.words[0].size() == 2 && line.words[1].size() == 1));
  const ReadCharacter& first = line.words[0][0];
  CHECK(first.text == "u" + e_above + acute);
  CHECK((first.first == 10 && first.last == 20));
  CHECK(first.confidence == 0.5);
  CHECK(line.words[0][1].first == 20);
  CHECK(line.words[1][0].text == acute);
  CHECK(line.confidence == Approx((0.5 + 1 + 1 + 0.8) / 4));
  // Seen the other way round: the mark before its letter.
  const std::vector<SeenLabel> leftwards = {{"b", 30, 32, 1}, {"u", 20, 22, 1}, {acute, 16, 18, 1}};
  const ReadLine mirrored = arrange(leftwards, 0, 90);
  REQUIRE(mirrored.words.at(0).size() == 2);
  CHECK((mirrored.words[0][1].first == 12 && mirrored.words[0][1].last == 26));
}

TEST_CASE("lines of pages are listed, and kept together", "[page][lists]") {
  const TemporaryFolder folder;
  for (int p = 0; p < 6; ++p) {
    const std::string name = str("p", p);
    save_page_image(folder.path(name + ".png"), 4);
    std::string lines;
    for (int l = 0; l < 4; ++l)
      lines += line(str("l", l), str("a", p),
                    str("0,", 40 * l, " 200,", 40 * l, " 200,", 40 * l + 39, " 0,", 40 * l + 40));
    folder.write(name + ".xml", page_xml(region("r", lines), "imageFilename=\"" + name + ".png\""));
  }
  const std::string more = line("far", "a", "900,0 990,0 990,40") + line("two", "a", "0,0 9,9") +
                           line("empty", "") +
                           "<TextLine id='none'><Coords points='0,0 90,0 90,40 0,40'/></TextLine>";
  save_page_image(folder.path("q.png"), 1);
  folder.write("q.xml", page_xml(region("r", more), "imageFilename=\"q.png\""));
  folder.write("broken.xml", "<PcGts><Page>");
  folder.write("mets.xml", "<mets/>");
  save_page_image(folder.path("alone.png"), 1);
  folder.write("alone.gt.txt", "aaaa");
  // The text of a whole page, as some programs export it, makes no line of its image; it is named.
  folder.write("p0.gt.txt", "a\na\na\na");

  const auto list = corpus::list_lines(folder.path(""));
  const auto called = [&](const std::string& id) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& u) { return u.id == id; });
    REQUIRE(found != list.end());
    return *found;
  };
  CHECK(list.size() == 24 + 4 + 1 + 1 + 1);
  CHECK(std::any_of(list.begin(), list.end(), [](const auto& u) {
    return u.problem.find("p0.gt.txt: is the text of p0.xml once more") != std::string::npos;
  }));
  CHECK(called("p3.xml:l2").text == "a3");
  CHECK(called("p3.xml:l2").region.corners.at(0) == ImagePoint{0, 80});
  CHECK_THAT(called("q.xml:two").problem, Contains("q.xml:two: Coords has 4 numbers"));

  PrepareListOptions o;
  o.kind = "lines";
  o.out = folder.path("out");
  o.dev = o.test = 0.2;
  const SndfileReader audio;
  const ImageFileReader images;
  // A line by itself belongs to no page.
  const DataSummary mixed = prepare_list(list, {&audio, &images}, o);
  CHECK_THAT(mixed.division, Contains("by line"));
  const corpus::Findings& f = mixed.findings;
  CHECK(f.of(corpus::Finding::unreadable).count == 2 + 1);
  CHECK(f.of(corpus::Finding::empty_text).examples.at(0).what == "q.xml:empty: its text is empty");
  CHECK(f.of(corpus::Finding::no_text).examples.at(0).what == "q.xml:none: no text goes with it");
  fs::remove(folder.path("alone.gt.txt"));
  fs::remove(folder.path("alone.png"));
  fs::remove(folder.path("p0.gt.txt"));
  const DataSummary s = prepare_list(corpus::list_lines(folder.path("")), {&audio, &images}, o);
  CHECK(s.division == "by page: none is in two parts");
  std::map<std::string, std::string> part_of_page;
  for (const char* part : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : read_manifest(folder.path("out/") + part + ".jsonl").entries) {
      CHECK(part_of_page.try_emplace(e.path, part).first->second == part);
      CHECK(e.region.corners.size() == 4);
      CHECK_THAT(e.name(), Contains(".xml:l"));
    }
  }
  CHECK(part_of_page.size() == 6);
}
