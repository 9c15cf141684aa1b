// What is written of pages is valid by the schemas of ALTO and PAGE, whatever is read.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"
#include "engine/text/unicode.h"
#include "tests/catch.h"
#include "tests/corpus/page_files.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using namespace rondo::test;

namespace fs = std::filesystem;

namespace {

// Exits as skipped without xmllint or the schemas.
std::string require_schemas() {
  const char* given = std::getenv("RONDO_SHARED");
  const std::string schemas = std::string(given ? given : RONDO_DEFAULT_SHARED) + "/schemas";
  if (!fs::exists(schemas + "/page-2019.xsd")) {
    std::printf("skipped: no schemas at %s (set RONDO_SHARED)\n", schemas.c_str());
    std::exit(77);
  }
  if (std::system("xmllint --version > /dev/null 2>&1") != 0) {
    std::puts("skipped: no xmllint (package libxml2-utils)");
    std::exit(77);
  }
  return schemas;
}

void check_valid(const TemporaryFolder& folder, const std::string& document,
                 const std::string& schema) {
  const std::string path = folder.write("written.xml", document), log = folder.path("log");
  INFO(document);
  const int failed = std::system(str("xmllint --noout --nonet --schema '", require_schemas(), "/",
                                     schema, "' '", path, "' 2> '", log, "'")
                                     .c_str());
  INFO(data::read_regular_file(log));
  CHECK(failed == 0);
}

// Letters with marks that have no composed form, quotes and other signs of XML, control characters,
// what is read from right to left, a mark alone, nothing, spaces alone, a letter beyond 16 bits.
const std::vector<std::string> readings = {"u\u0364ber die\u0301\u0323 e\u0301",
                                           "\"<&'>\" ]]> a\u0001b\ufffe",
                                           "\u05d0\u05bc\u05d1 12% \u0627\u064b",
                                           "\u0301",
                                           "",
                                           "   ",
                                           "\U0001d516\u0301 \u00a0",
                                           "n"};

std::vector<ReadLine> read(size_t lines) {
  std::vector<ReadLine> all;
  for (size_t i = 0; i < lines; ++i) {
    std::vector<SeenLabel> labels;
    for (const char32_t c : code_points(readings[i % readings.size()])) {
      const double at = 5.0 * static_cast<double>(labels.size());
      labels.push_back({to_utf8(c), at, at + 4, 0.5});
    }
    all.push_back(arrange(labels, 0, 200));
  }
  return all;
}

PageFile opened(const TemporaryFolder& folder, const std::string& xml) {
  PageFile page = parse_page(xml, folder.write("a.xml", xml));
  set_regions(page, {220, 400});
  page.image = "a \"b\" & c.png";
  return page;
}

std::string coords(size_t row) {
  return str("<Coords points=\"0,", 30 * row, " 200,", 30 * row, " 200,", 30 * row + 30, " 0,",
             30 * row + 30, "\"/>");
}

std::string place(size_t row) {
  return str("HPOS=\"0\" VPOS=\"", 30 * row, "\" WIDTH=\"200\" HEIGHT=\"30\"");
}

const std::string page_begin =
    "<PcGts xmlns=\"http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15\"><Metadata>"
    "<Creator>c</Creator><Created>2020-01-01T00:00:00</Created><LastChange>2020-01-01T00:00:00"
    "</LastChange></Metadata><Page imageFilename=\"p.png\" imageWidth=\"220\" imageHeight=\"400\">"
    "<TextRegion id=\"r\"><Coords points=\"0,0 9,0 9,9\"/>";
const std::string page_end = "</TextRegion></Page></PcGts>";

}  // namespace

TEST_CASE("new documents are valid, whatever names lines had", "[.][schemas]") {
  const TemporaryFolder folder;
  require_schemas();
  std::string regions;
  // Names that begin with digits, have signs, are missing, and occur twice, as a region's too.
  const std::vector<std::string> names = {"12", "a b:c",  "",       "l",        "l",
                                          "r",  "line_9", "\u00e9", "word_1_1", "-"};
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string id = names[i].empty() ? "" : " id=\"" + names[i] + "\"";
    const std::string baseline =
        i % 3 == 0 ? str("<Baseline points=\"0,", 30 * i + 20, " 200,", 30 * i + 25, "\"/>") : "";
    regions += "<TextRegion id=\"" + std::string(i < 4 ? "r" : "7") + "\"><TextLine" + id + ">" +
               coords(i) + baseline + "</TextLine></TextRegion>";
  }
  PageFile page = opened(folder, page_xml(regions));
  page.path.clear();
  const std::vector<ReadLine> lines = read(page.lines.size());
  check_valid(folder, to_page_xml(page, lines, "test"), "page-2019.xsd");
  for (const char* schema : {"alto-4-2.xsd", "alto-4-4.xsd"})
    check_valid(folder, to_alto(page, lines, "test"), schema);
  // A single image, which is a page of one line.
  PageFile alone;
  alone.image = "line.png";
  alone.size = {220, 40};
  alone.lines.emplace_back().id = "line_1";
  for (const std::vector<ReadLine>& one : {read(1), std::vector<ReadLine>(1)}) {
    check_valid(folder, to_page_xml(alone, one, "test"), "page-2019.xsd");
    check_valid(folder, to_alto(alone, one, "test"), "alto-4-4.xsd");
  }
}

TEST_CASE("valid documents that are filled in stay valid", "[.][schemas]") {
  const TemporaryFolder folder;
  const std::string word =
      "<Coords points=\"0,0 9,0 9,9\"/><Glyph id=\"G\"><Coords points=\"0,0 9,0 9,9\"/></Glyph>"
      "<TextEquiv><Unicode>alt</Unicode></TextEquiv><TextStyle bold=\"true\"/></Word>";
  std::string page_lines, alto_lines;
  for (size_t i = 0; i < readings.size(); ++i) {
    page_lines += str("<TextLine id=\"l", i, "\">", coords(i), "<Baseline points=\"0,1 9,1\"/>");
    for (size_t w = 0; w < i % 4; ++w) {
      std::string one = word;
      one.replace(one.find("\"G\""), 3, str("\"g", i, "_", w, "\""));
      page_lines += str("<Word id=\"w", i, "_", w, "\">", one);
    }
    page_lines +=
        "<TextEquiv><Unicode>alt</Unicode></TextEquiv><TextStyle bold=\"true\"/></TextLine>";
    alto_lines +=
        str("<TextLine ID=\"l", i, "\" ", place(i), "><String CONTENT=\"alt\"/></TextLine>");
  }
  const PageFile page = opened(folder, page_begin + page_lines + page_end);
  const std::vector<ReadLine> lines = read(readings.size());
  check_valid(folder, page_begin + page_lines + page_end, "page-2019.xsd");
  check_valid(folder, to_page_xml(page, lines, "test"), "page-2019.xsd");
  const std::string alto =
      "<alto xmlns=\"http://www.loc.gov/standards/alto/ns-v4#\"><Description><MeasurementUnit>pixel"
      "</MeasurementUnit><sourceImageInformation><fileName>p.png</fileName>"
      "</sourceImageInformation></Description><Layout><Page ID=\"p\" PHYSICAL_IMG_NR=\"1\" "
      "WIDTH=\"220\" HEIGHT=\"400\"><PrintSpace HPOS=\"0\" VPOS=\"0\" WIDTH=\"220\" HEIGHT=\"400\">"
      "<TextBlock ID=\"b\" HPOS=\"0\" VPOS=\"0\" WIDTH=\"220\" HEIGHT=\"400\">" +
      alto_lines + "</TextBlock></PrintSpace></Page></Layout></alto>";
  check_valid(folder, alto, "alto-4-4.xsd");
  const std::string filled = to_alto(opened(folder, alto), lines, "test");
  for (const char* schema : {"alto-4-2.xsd", "alto-4-4.xsd"}) check_valid(folder, filled, schema);
}
