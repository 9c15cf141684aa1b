// Lines of pages as lists: what is there twice, what is chosen, and how they are divided.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "engine/data/audio/audio.h"
#include "tests/catch.h"
#include "tests/corpus/page_files.h"
#include "tests/data/temporary_folder.h"
#include "tools/corpus/examination/division.h"
#include "tools/corpus/examination/list_corpus.h"
#include "tools/corpus/lists/file_choice.h"
#include "tools/corpus/lists/page_images.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;
using corpus::FileChoice;
using corpus::ListedUtterance;

namespace {

namespace fs = std::filesystem;

std::string row(int n, int from = 0, int to = 200) {
  return str(from, ",", 40 * n, " ", to, ",", 40 * n, " ", to, ",", 40 * n + 40, " ", from, ",",
             40 * n + 40);
}

class Pages {
 public:
  std::string path(const std::string& name) const { return folder_.path("data/" + name); }
  void page(const std::string& name, const std::string& lines,
            const std::string& image = "p.png") const {
    fs::create_directories(fs::path(path(name)).parent_path());
    data::write_whole_file(path(name),
                           page_xml(region("r", lines), "imageFilename=\"" + image + "\""));
  }
  std::vector<ListedUtterance> list(FileChoice* choice = nullptr) const {
    return corpus::list_lines(path(""), choice);
  }
  DataSummary prepare(double dev = 0, double test = 0) const {
    PrepareListOptions o;
    o.kind = "lines";
    o.out = folder_.path("out");
    o.dev = dev, o.test = test;
    const SndfileReader audio;
    const ImageFileReader images;
    return prepare_list(list(), {&audio, &images}, o);
  }
  // The parts that the lines of each image are in.
  std::map<std::string, std::set<std::string>> parts() const {
    std::map<std::string, std::set<std::string>> all;
    for (const char* part : {"train", "dev", "test"}) {
      const std::string file = folder_.path("out/") + part + ".jsonl";
      if (!fs::exists(file)) continue;
      for (const ManifestEntry& e : read_manifest(file).entries)
        all[fs::path(e.path).filename().string()].insert(part);
    }
    return all;
  }

 private:
  TemporaryFolder folder_;
};

// Of each line that is listed twice.
std::map<std::string, std::string> doubles(const std::vector<ListedUtterance>& list) {
  std::map<std::string, std::string> causes;
  for (const ListedUtterance& u : list)
    if (!u.problem.empty()) causes[u.id] = corpus::kind_of(u.finding).title;
  return causes;
}

using Doubles = std::map<std::string, std::string>;
const std::string twice = "listed twice", otherwise = "listed twice, with another text";

}  // namespace

TEST_CASE("a line that two files describe is used once", "[lists][doubles]") {
  const Pages d;
  save_page_image(d.path("p.png"), 6);
  d.page("a.xml", line("l1", "eins", row(0)) + line("l2", "zwei", row(1)) + line("l3", "", row(2)) +
                      line("l4", "vier", row(3)));
  // With other ids, a pixel or two beside, the other way round, and in another order.
  d.page("b.xml", line("x", "zwei", "199,81 199,42 1,41 0,79") + line("y", "eins!", row(0)) +
                      line("z", "drei", row(2)) + line("half", "vi", row(3, 0, 100)) +
                      line("next", "fünf", row(4)));
  const auto list = d.list();
  CHECK(doubles(list) == Doubles{{"b.xml:x", twice}, {"b.xml:y", otherwise}, {"a.xml:l3", twice}});
  for (const ListedUtterance& u : list) {
    if (u.id == "b.xml:y")
      CHECK(u.problem == "b.xml:y: is the line a.xml:l1 once more: \"eins!\", there \"eins\"");
  }
  const DataSummary s = d.prepare();
  CHECK(s.findings.of(corpus::Finding::doubled).count == 2);
  CHECK(s.findings.of(corpus::Finding::doubled_otherwise).count == 1);
  CHECK(s.parts.at(0).utterances == 6);
}

TEST_CASE("a text beside the image of a page is a double of its lines", "[lists][doubles]") {
  const Pages d;
  save_page_image(d.path("one.png"), 1);
  save_page_image(d.path("two.png"), 2);
  save_page_image(d.path("alone.png"), 1);
  d.page("one.xml", line("l", "eins", row(0)), "one.png");
  d.page("two.xml", line("a", "zwei", row(0)) + line("b", "drei", row(1)), "two.png");
  data::write_whole_file(d.path("one.gt.txt"), "eins!");
  data::write_whole_file(d.path("two.gt.txt"), "zwei\ndrei\n");
  data::write_whole_file(d.path("alone.gt.txt"), "vier");
  const DataSummary s = d.prepare();
  CHECK(s.parts.at(0).utterances == 4);
  CHECK(s.findings.of(corpus::Finding::doubled).count == 1);
  const auto& found = s.findings.of(corpus::Finding::doubled_otherwise);
  REQUIRE(found.count == 1);
  CHECK(found.examples.at(0).what ==
        d.path("one.gt.txt") +
            ": is the text of one.xml once more, which has its lines: \"eins!\", there \"eins\"");
}

TEST_CASE("lines and pages have endings in capitals", "[lists]") {
  const Pages d;
  save_page_image(d.path("PAGE.PNG"), 2);
  d.page("PAGE.XML", line("l", "eins", row(0)), "elsewhere.png");  // found by the page's name
  save_page_image(d.path("A.PNG"), 1);
  data::write_whole_file(d.path("A.GT.TXT"), "zwei");
  save_page_image(d.path("B.BIN.PNG"), 1);
  data::write_whole_file(d.path("B.gt.txt"), "drei");
  std::map<std::string, std::string> texts;
  for (const ListedUtterance& u : d.list())
    texts[fs::path(u.file.path).filename().string()] = u.problem + u.text;
  CHECK(texts == std::map<std::string, std::string>{
                     {"PAGE.PNG", "eins"}, {"A.PNG", "zwei"}, {"B.BIN.PNG", "drei"}});
}

TEST_CASE("what is only like a line is none of its doubles", "[lists][doubles]") {
  const Pages d;
  save_page_image(d.path("p.png"), 6);
  save_page_image(d.path("q.png"), 6);
  // Slanting lines, whose boxes are nearly the same; and a place on another page.
  d.page("a.xml", line("l1", "a", "0,0 200,100 200,120 0,20") +
                      line("l2", "b", "0,20 200,120 200,140 0,40"));
  d.page("b.xml", line("l1", "a", "0,0 200,100 200,120 0,20"), "q.png");
  CHECK(doubles(d.list()).empty());
  // Three of one line, in one file, one of them without a text.
  d.page("c.xml", line("1", "", row(5)) + line("2", "a", row(5)) + line("3", "a", row(5)));
  CHECK(doubles(d.list()) == Doubles{{"c.xml:1", twice}, {"c.xml:3", twice}});
  // The same baseline under two outlines, and a link to the image.
  fs::create_symlink("p.png", d.path("r.png"));
  const auto with_baseline = [](const std::string& points) {
    return "<TextLine id=\"l\"><Coords points=\"" + points +
           "\"/><Baseline points=\"0,190 200,190\"/><TextEquiv><Unicode>a</Unicode></TextEquiv>"
           "</TextLine>";
  };
  d.page("c.xml", with_baseline("0,160 200,160 200,200 0,200"));
  d.page("d.xml", with_baseline("0,172 200,172 200,195 0,195"), "r.png");
  CHECK(doubles(d.list()) == Doubles{{"d.xml:l", twice}});
}

TEST_CASE("a copy of an image in another folder is that image", "[lists][doubles]") {
  const Pages d;
  save_page_image(d.path("train/p.png"), 3);
  save_page_image(d.path("test/p.png"), 3);
  d.page("train/p.xml", line("l1", "a", row(0)) + line("l2", "b", row(1)));
  d.page("test/p.xml", line("l1", "a", row(0)) + line("l3", "c", row(2)));
  CHECK(doubles(d.list()) == Doubles{{"train/p.xml:l1", twice}});
  CHECK(d.prepare().division ==
        "as the data are divided; 1 image of a page has lines in two parts, so that error rates "
        "flatter");
  // Of the same name and size, and another picture.
  const std::string file = data::read_regular_file(d.path("test/p.png"));
  GreyImage other = decode_image(std::as_bytes(std::span(file)), "p.png");
  const auto size = fs::file_size(d.path("test/p.png"));
  for (uint8_t& v : other.pixels) v = static_cast<uint8_t>(255 - v);
  std::string bytes = make_png(other);
  bytes.resize(std::max<size_t>(bytes.size(), size));
  data::write_whole_file(d.path("test/p.png"), bytes);
  CHECK(doubles(d.list()).empty());
}

TEST_CASE("lines on one image are in one part", "[lists][division]") {
  const Pages d;
  // Each image is described by two files, in two folders, half of the lines in each.
  for (int p = 0; p < 8; ++p) {
    const std::string image = str("p", p, ".png");
    save_page_image(d.path(image), 4);
    d.page(str("left/", p, ".xml"), line("a", "a", row(0)) + line("b", "b", row(1)), image);
    d.page(str("right/", 7 - p, "r.xml"), line("c", "c", row(2)) + line("d", "d", row(3)), image);
  }
  CHECK(d.prepare(0.2, 0.2).division == "by page: none is in two parts");
  CHECK(d.parts().size() == 8);
  std::set<std::string> used;
  for (const auto& [image, parts] : d.parts()) {
    INFO(image);
    CHECK(parts.size() == 1);
    used.insert(parts.begin(), parts.end());
  }
  CHECK(used.size() == 3);
}

TEST_CASE("folders that share an image are one", "[lists][division]") {
  const Pages d;
  for (int p = 0; p < 6; ++p) {
    const std::string image = str("p", p, ".png");
    save_page_image(d.path(str("book", p, "/", image)), 3);
    d.page(str("book", p, "/0.xml"), line("a", "a", row(0)), image);
  }
  // In the folder of the last one, a line of the first one's page.
  fs::create_symlink("../book0/p0.png", d.path("book5/p0.png"));
  d.page("book5/1.xml", line("c", "c", row(1)), "p0.png");
  for (const double share : {0.15, 0.3}) {
    CHECK(d.prepare(share, share).division == "by folder: none is in two parts");
    const auto parts = d.parts();
    CHECK(parts.at("p0.png") == parts.at("p5.png"));
    CHECK(parts.at("p0.png").size() == 1);
  }
}

TEST_CASE("few pages are whole in their parts", "[lists][division]") {
  const Pages d;
  const auto lines = [](int count) {
    std::string all;
    for (int n = 0; n < count; ++n) all += line(str("l", n), "text", row(n));
    return all;
  };
  save_page_image(d.path("p.png"), 9);
  d.page("p.xml", lines(9));
  CHECK(d.prepare(0.05, 0.05).division ==
        "not at all: no page is ever in two parts, and 1 page is all there is");
  CHECK(d.parts().at("p.png") == std::set<std::string>{"train"});
  save_page_image(d.path("q.png"), 7);
  d.page("q.xml", lines(7), "q.png");
  CHECK(d.prepare(0.05, 0.05).division ==
        "by page: none is in two parts (2 pages cannot make parts of exactly these shares)");
  CHECK(d.parts().at("p.png") == std::set<std::string>{"train"});
  CHECK(d.parts().at("q.png") == std::set<std::string>{"dev"});
  save_page_image(d.path("r.png"), 8);
  d.page("r.xml", lines(8), "r.png");
  d.prepare(0.05, 0.05);
  CHECK(d.parts().at("p.png") == std::set<std::string>{"train"});
  CHECK(d.parts().at("q.png") == std::set<std::string>{"dev"});
  CHECK(d.parts().at("r.png") == std::set<std::string>{"test"});
  // Beside lines that are on no page.
  for (int n = 0; n < 12; ++n) {
    save_page_image(d.path(str("s", n, ".png")), 1);
    data::write_whole_file(d.path(str("s", n, ".gt.txt")), "text");
  }
  CHECK_THAT(d.prepare(0.1, 0.1).division, Contains("by line, drawn with the seed; no page is in "
                                                    "two parts"));
  for (const auto& [image, parts] : d.parts()) CHECK(parts.size() == 1);
}

TEST_CASE("files are chosen by patterns", "[lists][choice]") {
  const auto takes = [](const std::string& only, const std::string& exclude,
                        const std::string& path) {
    FileChoice choice;
    if (!only.empty()) choice.only = {only};
    if (!exclude.empty()) choice.exclude = {exclude};
    return choice.takes(path);
  };
  CHECK(takes("", "", "a/b.xml"));
  CHECK(takes("*.xml", "", "a/b.xml"));
  CHECK_FALSE(takes("*.xml", "", "a/b.png"));
  CHECK_FALSE(takes("", "*.chocomufin.xml", "a/b.chocomufin.xml"));
  CHECK(takes("", "*.chocomufin.xml", "a/b.xml"));
  // Folders, by name and by path.
  for (const char* folder : {"a", "a/", "./a", "a/b", "a/*", "?", "[ab]", "**/b", "a/**"})
    CHECK(takes(folder, "", "a/b/c.xml"));
  CHECK(takes("b", "", "a/b/c.xml"));
  CHECK(takes("**/c.xml", "", "c.xml"));
  CHECK(takes("a/**/c.xml", "", "a/x/y/c.xml"));
  for (const char* other : {"b/c", "c", "*.x", "/b", "a/c.xml", "*/c.xml"})
    CHECK_FALSE(takes(other, "", "a/b/c.xml"));
  CHECK_FALSE(takes("*.xml", "a", "a/b.xml"));
  FileChoice several;
  several.only = {"a", "none*"};
  several.exclude = {"*.png", "*.tif"};
  CHECK(several.takes("a/1.xml"));
  CHECK_FALSE(several.takes("a/1.png"));
  CHECK_FALSE(several.takes("b/1.xml"));
  CHECK(several.passed_over == 2);
  CHECK(several.unused() == std::vector<std::string>{"none*", "*.tif"});
}

TEST_CASE("lines are listed of what is chosen", "[lists][choice]") {
  const Pages d;
  save_page_image(d.path("p.png"), 3);
  d.page("p.xml", line("l", "a", row(0)));
  d.page("p.chocomufin.xml", line("l", "b", row(0)));
  save_page_image(d.path("line.png"), 1);
  data::write_whole_file(d.path("line.gt.txt"), "c");
  data::write_whole_file(d.path("line.txt"), "read by a program");
  const auto texts = [&](const std::vector<std::string>& only,
                         const std::vector<std::string>& exclude) {
    FileChoice choice{only, exclude};
    std::set<std::string> all;
    for (const ListedUtterance& u : d.list(&choice)) {
      CHECK(u.problem.empty());
      all.insert(u.text);
    }
    return all;
  };
  using Texts = std::set<std::string>;
  CHECK(texts({}, {"*.chocomufin.xml"}) == Texts{"a", "c"});
  CHECK(texts({"*.xml"}, {"p.xml"}) == Texts{"b"});
  // The image of a page that is not wanted is no line.
  CHECK(texts({"*.png"}, {}) == Texts{"c"});
  CHECK(texts({}, {"line.png", "p.c*"}) == Texts{"a"});
  FileChoice none{{"*.jpg"}, {}};
  CHECK_THROWS_WITH(d.list(&none), Contains("that --only and --exclude leave"));
}
