// Images of lines with a text beside each.
#include <filesystem>
#include <map>
#include <string>

#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tools/corpus/lists/layouts.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::Finding;
using corpus::ListedUtterance;
using Data = test::ListedData;

}  // namespace

TEST_CASE("images of lines with their texts, as other programs call them", "[lists]") {
  const Data d;
  for (const char* name :
       {"1.png", "2.bin.png", "2.nrm.png", "3.png", "3.bin.png", "a/4.PNG", "a/p.1.png", "a/5.png"})
    d.line(name);
  for (const char* name : {"1", "2", "3", "a/4", "a/p.1", "a/gone"})
    d.text(str(name, ".gt.txt"), str("text ", name, "\n"));
  d.text("1.txt", "not this one");
  d.text("a/5.txt", "nor this one");
  const auto list = corpus::list_lines(d.path(""));
  std::map<std::string, const ListedUtterance*> by_name;
  for (const ListedUtterance& u : list) {
    CHECK(u.kind == InputKind::image);
    by_name[fs::path(u.file.path).filename().string()] = &u;
  }
  REQUIRE(list.size() == 7);
  CHECK(by_name.at("1.png")->text == "text 1");
  CHECK(by_name.at("2.nrm.png")->text == "text 2");
  CHECK(by_name.at("3.png")->text == "text 3");
  CHECK(by_name.at("4.PNG")->folder == "a");
  CHECK(by_name.at("p.1.png")->text == "text a/p.1");
  // Beside texts called .gt.txt, others are what some program has read.
  CHECK_FALSE(by_name.at("5.png")->has_text);
  CHECK(by_name.at("1.png")->folder.empty());
  CHECK_FALSE(fs::exists(by_name.at("gone.png")->file.path));
  const Data other;
  other.line("6.png");
  other.text("6.txt", "this one");
  CHECK(corpus::list_lines(other.path("")).at(0).text == "this one");
  CHECK_THROWS_WITH(corpus::list_lines(d.path("b")), Contains("cannot be read as a folder"));
  fs::create_directories(d.path("c"));
  CHECK_THROWS_WITH(corpus::list_lines(d.path("c")),
                    Contains("holds neither images (.png") && Contains("nor pages"));
}

TEST_CASE("texts of lines that lie in a list or in another folder", "[lists]") {
  // Names of a file, their texts; "a/1" and "b/1" have one name.
  const auto texts_by = [](const char* file, const std::string& content) {
    const Data d;
    for (const char* name : {"a/1.png", "a/2.png", "b/1.png", "b/a 3.png"}) d.line(name);
    d.text(file, content);
    std::string all;
    for (const ListedUtterance& u : corpus::list_lines(d.path("")))
      if (u.has_text && u.problem.empty())
        all += str(all.empty() ? "" : "; ", fs::path(u.file.path).filename().string(), " ", u.text);
    return all;
  };
  const std::string right = "1.png one two; 2.png 22; 1.png un; a 3.png a, b";
  CHECK(texts_by("gt.txt", "a/1.png\tone two\na\\2.png\t22\nb/1.png\tun\nb/a 3.png\ta, b\n") ==
        right);
  CHECK(texts_by("b/gt.csv",
                 "filename,words\n../a/1.png,one two\n2,22\n1.png,un\na 3.png,\"a, b\"\n") ==
        right);
  CHECK(texts_by("list",
                 "a/1.png, \"one two\"\na/2.png, \"22\"\nb/1.png, \"un\"\nb/a 3.png, \"a, b\"\n") ==
        right);
  const std::string objects =
      "{\"file_name\": \"a/1.png\", \"text\": \"one two\"}\n{\"image\": \"a/2.png\", \"text\": "
      "\"22\"}\n"
      "{\"text\": \"un\", \"file_name\": \"b/1.png\"}\n{\"file_name\": \"b/a 3.png\", \"text\": "
      "\"a, b\"}\n";
  CHECK(texts_by("metadata.jsonl", objects) == right);
  CHECK(texts_by("metadata.jsonl",
                 objects + "{\"file_name\": \"b/1.png\", \"text\": \"a\", \"region\": 1}\n")
            .empty());
  CHECK(texts_by("metadata.jsonl", objects + "{\n").empty());
  // Which of two is meant is not guessed; nor is a table with another column a list.
  CHECK(texts_by("gt.txt", "1.png one\n2.png two words\na/1.png un\n") ==
        "1.png un; 2.png two words");
  CHECK(texts_by("gt.csv", "2.png,200,two\na 3.png,200,three\n").empty());
  const Data iam;
  for (const char* name : {"lines/a01-000u-00.png", "lines/a01-000u-01.png"}) iam.line(name);
  iam.text("ascii/lines.txt",
           "#--- lines\n# of a form\na01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to\n"
           "a01-000u-01 err 156 -1 395 932 1850 105 one\n");
  const auto list = corpus::list_lines(iam.path(""));
  REQUIRE(list.size() == 2);
  CHECK(list[0].text == "A MOVE to");
  CHECK(list[1].text == "one");
  for (const char* ending : {".txt", ".gt.txt"}) {
    const Data d;
    for (const char* name : {"images/1.png", "images/2.png"}) d.line(name);
    d.text(str("labels/1", ending), "one");
    d.text(str("labels/9", ending), "nine");
    const auto apart = corpus::list_lines(d.path(""));
    REQUIRE(apart.size() == 3);
    CHECK(fs::path(apart[0].text_file).filename() == str("1", ending));
    CHECK(apart[1].finding == Finding::no_text);
    CHECK(apart[2].finding == Finding::text_alone);
    CHECK_THAT(apart[2].problem, Contains("no image goes with it"));
  }
}

TEST_CASE("books are kept apart, or divided as their folders say", "[lists]") {
  const Data d;
  for (int book = 0; book < 8; ++book) {
    for (int n = 0; n < 5; ++n) {
      const std::string name = str("book", book, "/", n);
      d.line(name + ".png");
      d.text(name + ".gt.txt", "text");
    }
  }
  PrepareListOptions o;
  o.dev = o.test = 0.125;
  const DataSummary s = d.prepare(corpus::list_lines(d.path("")), o);
  CHECK(s.division == "by folder: none is in two parts");
  REQUIRE(s.parts.size() == 3);
  CHECK(s.parts[1].groups == 1);
  CHECK(s.parts[0].characters == 30 * 4);
  CHECK(s.parts[0].median == 240);  // 200 x 40 at a height of 48
  for (const ManifestEntry& e : d.manifest("dev")) {
    CHECK(e.kind == InputKind::image);
    CHECK(e.extra == d.manifest("dev").front().extra);
  }
  CHECK_THAT(d.manifest("dev").front().extra, Contains("\"folder\":\"book"));
  for (int book = 0; book < 8; ++book) {
    fs::create_directories(d.path(book ? "train" : "val"));
    fs::rename(d.path(str("book", book)), d.path(str(book ? "train/" : "val/", book)));
  }
  CHECK(d.prepare(corpus::list_lines(d.path("")), o).division == "as the data are divided");
  CHECK(d.manifest("train").size() == 35);
  CHECK(d.manifest("dev").size() == 5);
  CHECK_FALSE(fs::exists(d.out() + "/test.jsonl"));
}

TEST_CASE("lines that cannot be learnt are left out by cause", "[lists]") {
  const Data d;
  const std::map<std::string, std::string> texts = {{"good", "text"},
                                                    {"blank", "text"},
                                                    {"two", "text\ntext"},
                                                    {"narrow", std::string(61, 'x')},
                                                    {"just", std::string(60, 'x')},
                                                    {"wide", "te"},
                                                    {"no-image", "text"},
                                                    {"broken", "text"},
                                                    {"tiny", "t"}};
  for (const auto& [name, text] : texts) {
    d.text(name + ".gt.txt", text);
    if (name != "no-image" && name != "broken")
      d.line(name + ".png", name == "wide" ? 1400 : name == "tiny" ? 7 : 200, name != "blank");
  }
  d.line("no-text.png");
  d.text("broken.png", "no image");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(corpus::list_lines(d.path("")), o);
  CHECK(s.parts.at(0).utterances == 2);
  const std::map<Finding, std::string> causes = {
      {Finding::blank, "nothing stands on it"},
      {Finding::several_lines, "more than one line"},
      {Finding::too_narrow, "240 columns at a height of 48, for a text of 61 characters"},
      {Finding::too_wide, "1680 columns at a height of 48, for a text of 2 characters"},
      {Finding::few_pixels, "7 x 40 pixels, expected 8 each way"},
      {Finding::no_text, "no text goes with it, expected no-text.gt.txt beside it"}};
  for (const auto& [cause, what] : causes) {
    INFO(kind_of(cause).title);
    const auto& found = s.findings.of(cause);
    REQUIRE(found.count == 1);
    CHECK_THAT(found.examples.front().what, Contains(what));
  }
  const auto& unreadable = s.findings.of(Finding::unreadable).examples;
  REQUIRE(unreadable.size() == 2);
  CHECK_THAT(unreadable[0].what, Contains("broken.png: is no image"));
  CHECK_THAT(unreadable[1].what, Contains("no-image.png: "));
  o.strict = true;
  CHECK_THROWS_WITH(d.prepare(corpus::list_lines(d.path("")), o), Contains("of 10 lines"));
}

}  // namespace rondo
