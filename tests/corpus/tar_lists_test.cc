// Recordings in tar archives.
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/data/features/run_program.h"
#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/tar.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::Finding;
using corpus::ListedUtterance;
using Data = test::ListedData;

}  // namespace

TEST_CASE("recordings in tar archives are read where they are", "[lists]") {
  const Data d;
  const std::string deep = std::string(60, 'd') + "/" + std::string(60, 'e') + "/";
  const std::vector<std::string> names = {"a", "sub/b", deep + "c", "silent"};
  for (const std::string& name : names) {
    d.recording(str("in/", name, ".wav"), name == "a" ? 1 : 0.5);
    if (name != "silent") d.text(str("in/", name, ".txt"), str("text of ", name.back(), "\n"));
  }
  d.text("in/sub/b.json", R"({"text": "other", "speaker": "ben"})");
  fs::remove(d.path("in/sub/b.txt"));
  for (const std::string& format : std::vector<std::string>{"gnu", "pax", "ustar"}) {
    INFO(format);
    const std::string archive = d.path(format + ".tar");
    const auto tar = [&](std::vector<std::string> arguments) {
      const auto done = run_program("tar", arguments, std::chrono::seconds(20), "");
      REQUIRE(done.status == 0);
    };
    tar({"--format", format, "--sort=name", "-cf", archive, "-C", d.path("in"), "."});
    const auto list = corpus::list_tar({archive});
    REQUIRE(list.size() == 4);
    std::map<std::string, const ListedUtterance*> by_end;
    for (const ListedUtterance& u : list) by_end[u.id.substr(u.id.rfind('/') + 1)] = &u;
    CHECK(by_end.at("a")->text == "text of a");
    CHECK(by_end.at("c")->text == "text of c");
    CHECK(by_end.at("c")->id == str("./", deep, "c"));
    CHECK(by_end.at("b")->text == "other");
    CHECK(by_end.at("b")->speaker == "ben");
    CHECK_FALSE(by_end.at("silent")->has_text);
    PrepareListOptions o;
    o.dev = o.test = 0;
    const DataSummary s = d.prepare(list, o);
    CHECK(s.parts.at(0).length == Approx(2));
    CHECK(s.findings.of(Finding::no_text).count == 1);
    CHECK(s.findings.left_out() == 1);
    for (const ManifestEntry& e : d.manifest("train")) {
      const Waveform w = SndfileReader().read(e.file(), 8000, e.segment());
      CHECK(w.seconds() == Approx(*e.duration));
      CHECK(w.samples[7] == Approx(0.1).margin(1e-4));
    }
  }
}

TEST_CASE("tar archives that are damaged, compressed or no archives", "[lists]") {
  const Data d;
  d.recording("in/a.wav");
  d.text("in/a.txt", "one");
  const auto done =
      run_program("tar", {"-cf", d.path("good.tar"), "-C", d.path("in"), "a.wav", "a.txt"},
                  std::chrono::seconds(20), "");
  REQUIRE(done.status == 0);
  const std::string good = data::read_regular_file(d.path("good.tar"));
  const auto fails = [&](std::string bytes, const std::string& says) {
    d.text("bad.tar", bytes);
    CHECK_THROWS_WITH(corpus::list_tar({d.path("bad.tar")}), Contains(says));
  };
  fails("\x1f\x8b" + good, "bad.tar: is compressed, expected a plain tar archive");
  fails("hello", "bad.tar: at byte 0 ends within a header");
  fails(std::string(600, 'x'), "at byte 0 ");
  fails(good.substr(0, 5000), "at byte 0 is cut off: its file of 16044 bytes");
  std::string changed = good;
  changed[3] = 'x';  // in a name
  fails(changed, "at byte 0 holds no header of a tar archive");
  fails(std::string(1024, '\0'), "holds no recordings");
  CHECK_THROWS_WITH(corpus::list_tar({d.path("in")}), Contains("holds no tar archives"));
  CHECK(corpus::list_tar({d.path("")}).size() == 1);  // good.tar; bad.tar is empty
}

TEST_CASE("archives are divided by their names and folders", "[lists]") {
  const Data d;
  d.recording("in/a.wav");
  d.text("in/a.txt", "text\n");
  const auto archive = [&](const std::string& name) {
    const std::string path = d.path(name);
    fs::create_directories(fs::path(path).parent_path());
    const auto done =
        run_program("tar", {"-cf", path, "-C", d.path("in"), "."}, std::chrono::seconds(20), "");
    REQUIRE(done.status == 0);
    return path;
  };
  const auto splits = [](const std::vector<std::string>& archives) {
    std::string all;
    for (const ListedUtterance& u : corpus::list_tar(archives)) all += u.split + ",";
    return all;
  };
  const std::string train = archive("s/train/0.tar"), other = archive("s/validation-0.tar");
  archive("s/x.tar");
  CHECK(splits({d.path("s")}) == "train,dev,,");
  CHECK(splits({other, "train=" + train}) == "dev,train,");
  CHECK(splits({other}) == ",");
}

}  // namespace rondo
