// What is made of any list: what is left out, what is drawn, and how it is divided.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tools/corpus/examination/list_passes.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::Finding;
using corpus::ListedUtterance;
using Data = test::ListedData;

// So many utterances of one second, of speakers with so many each.
std::vector<ListedUtterance> spoken(const Data& data, int speakers, int each) {
  std::vector<ListedUtterance> list;
  for (int s = 0; s < speakers; ++s) {
    for (int i = 0; i < each; ++i) {
      const std::string name = str("s", s, "/", i, ".wav");
      data.recording(name, 0.2);
      ListedUtterance u;
      u.file = data.path(name);
      u.text = std::string("a");
      u.speaker = str("s", s);
      list.push_back(u);
    }
  }
  return list;
}

}  // namespace

TEST_CASE("what cannot be used is left out, and said", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list;
  const auto add = [&](const std::string& name, const std::string& text) -> ListedUtterance& {
    ListedUtterance u;
    u.where = str("list:", list.size() + 1);
    u.file = d.path(name);
    u.text = text;
    return list.emplace_back(u);
  };
  d.recording("good.wav", 2);
  d.recording("short.wav", 0.05);
  d.text("noise.wav", "no sound");
  add("good.wav", "  Gut \xc3\xa4 ");
  add("missing.wav", "x");
  add("noise.wav", "x");
  add("short.wav", "x");
  add("good.wav", " ");
  add("good.wav", "\xff");
  add("good.wav", "").has_text = false;
  ListedUtterance& beyond = add("good.wav", "x");
  beyond.offset = 1;
  beyond.duration = 3;
  add("caf\xe9.wav", "x");
  const DataSummary s = d.prepare(list);
  CHECK(s.listed == 9);
  std::set<std::string> causes;
  for (const auto& [finding, found] : s.findings.all()) {
    for (const auto& e : found.examples) causes.insert(str(e.where, " ", kind_of(finding).title));
  }
  CHECK(causes ==
        std::set<std::string>{"list:2 missing or unreadable", "list:3 missing or unreadable",
                              "list:4 too short", "list:5 with an empty text",
                              "list:6 with a text that is not UTF-8", "list:7 without a text",
                              "list:9 with a name that is not UTF-8",
                              "list:8 beyond the end of its recording"});
  const auto train = d.manifest("train");
  REQUIRE(train.size() == 1);
  CHECK(train[0].text == "Gut \xc3\xa4");
  CHECK(train[0].path_as_written == "../data/good.wav");
  CHECK(train[0].duration == 2.0);
  CHECK(s.characters.at("\xc3\xa4") == 1);
  CHECK(fs::exists(str(d.out(), "/lengths.svg")));
  PrepareListOptions strict;
  strict.strict = true;
  CHECK_THROWS_WITH(d.prepare(list, strict), Contains("of 9 utterances") && Contains("list:7: "));
  list.erase(list.begin());
  CHECK_THROWS_WITH(d.prepare(list), Contains("there is nothing left to train on"));
  CHECK(d.manifest("train").size() == 1);  // what was there stays
}

TEST_CASE("what is listed twice is used once, and parts of one recording are not twice",
          "[lists]") {
  const Data d;
  d.recording("a.wav", 40);
  std::vector<ListedUtterance> list;
  const auto add = [&](double offset, const std::string& text) {
    ListedUtterance& u = list.emplace_back();
    u.where = str("list:", list.size());
    u.file = d.path("a.wav");
    u.text = text;
    u.offset = offset;
    u.duration = 1;
  };
  for (int i = 0; i < 20; ++i) add(30 + (i + 1) * 1e-5, "x");  // as close as no one hears
  add(30 + 3 * 1e-5, "x");
  add(30 + 5 * 1e-5, "y");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(d.manifest("train").size() == 20);
  CHECK(s.findings.of(Finding::doubled).count == 1);
  CHECK(s.findings.of(Finding::doubled_otherwise).count == 1);
  CHECK_THAT(s.findings.of(Finding::doubled_otherwise).examples[0].what,
             Contains("has the text 'y' here and 'x' in list:5"));
}

TEST_CASE("of many recordings 20,000 are drawn, whatever their order", "[lists]") {
  std::vector<ListedUtterance> list(25'000);
  for (size_t i = 0; i < list.size(); ++i) list[i].file = str("/d/", i, ".wav");
  const auto names = [&](const corpus::Drawn& drawn) {
    std::set<std::string> all;
    for (const ListedUtterance& u : list)
      if (drawn.contains(u)) all.insert(u.file.path);
    return all;
  };
  const std::set<std::string> some = names(corpus::Drawn(list, 1, false));
  CHECK(some.size() == 20'000);
  std::reverse(list.begin(), list.end());
  CHECK(names(corpus::Drawn(list, 1, false)) == some);
  CHECK(names(corpus::Drawn(list, 2, false)) != some);
  CHECK(names(corpus::Drawn(list, 1, true)).empty());
  list.resize(20'000);
  CHECK(names(corpus::Drawn(list, 1, false)).size() == 20'000);
}

TEST_CASE("nobody is in two parts, whatever the order of the list", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list = spoken(d, 20, 5);
  PrepareListOptions o;
  o.dev = 0.1;
  o.test = 0.2;
  const DataSummary s = d.prepare(list, o);
  CHECK_THAT(s.division, Contains("by speaker"));
  std::map<std::string, std::set<std::string>> parts;
  std::map<std::string, size_t> sizes;
  for (const char* split : {"train", "dev", "test"}) {
    for (const ManifestEntry& e : d.manifest(split)) parts[e.speaker].insert(split);
    sizes[split] = d.manifest(split).size();
  }
  CHECK(parts.size() == 20);
  for (const auto& [speaker, in] : parts) CHECK(in.size() == 1);
  CHECK(sizes["test"] == 20);
  CHECK(sizes["dev"] == 10);
  std::reverse(list.begin(), list.end());
  const auto before = d.manifest("test");
  d.prepare(list, o);
  std::set<std::string> a, b;
  for (const ManifestEntry& e : before) a.insert(e.path);
  for (const ManifestEntry& e : d.manifest("test")) b.insert(e.path);
  CHECK(a == b);
  o.seed = 2;
  d.prepare(list, o);
  b.clear();
  for (const ManifestEntry& e : d.manifest("test")) b.insert(e.path);
  CHECK(a != b);
}

TEST_CASE("of few speakers, or of nobody known, utterances are drawn", "[lists]") {
  const Data d;
  std::vector<ListedUtterance> list = spoken(d, 3, 20);
  CHECK_THAT(d.prepare(list).division,
             Contains("not by speaker: 3 speakers cannot make parts of these shares"));
  CHECK(d.manifest("dev").size() == 3);
  CHECK(d.manifest("test").size() == 3);
  CHECK(d.manifest("train").size() == 54);
  // Wherever the data lie, the same are drawn.
  const Data elsewhere;
  elsewhere.prepare(spoken(elsewhere, 3, 20));
  const auto here = d.manifest("test"), there = elsewhere.manifest("test");
  for (size_t i = 0; i < here.size(); ++i)
    CHECK(here[i].path_as_written == there[i].path_as_written);
  list[7].speaker.clear();
  CHECK(d.prepare(list).division == "by utterance, drawn with the seed");
  // As the data say, where they do: those that are all to train on are not divided.
  for (ListedUtterance& u : list) u.split = "train";
  CHECK(d.prepare(list).division == "by utterance, drawn with the seed");
  CHECK(d.manifest("dev").size() == 3);
  list[0].split = "test";
  CHECK_THAT(d.prepare(list).division, Contains("as the data are divided"));
  CHECK(d.manifest("test").size() == 1);
  CHECK(d.manifest("train").size() == 59);
}

}  // namespace rondo
