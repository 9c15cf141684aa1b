// engine/io/file.h: what a file's bytes do when they are moved, and when the file is shorter than
// it says.
#include "engine/io/file.h"

#include <unistd.h>

#include <set>
#include <utility>

#include "tests/catch.h"
#include "tests/support/support.h"
#include "tests/support/syscall_faults.h"

using namespace rondo;
using namespace rondo::test;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;

TEST_CASE("bytes that were moved away are none", "[files]") {
  TemporaryDirectory dir;
  spit(dir / "a", "abc");
  spit(dir / "b", "defgh");
  for (const auto mode : {FileBytes::Mode::map, FileBytes::Mode::copy}) {
    FileBytes a(dir / "a", mode), b(dir / "b", mode);
    FileBytes c(std::move(a));
    CHECK(a.bytes().empty());
    CHECK(c.bytes().size() == 3);
    c = std::move(b);
    CHECK(b.bytes().empty());
    REQUIRE(c.bytes().size() == 5);
    CHECK(c.bytes()[4] == std::byte{'h'});
  }
}

TEST_CASE("a file is replaced when the new one is on the disk, and its name after that",
          "[files]") {
  TemporaryDirectory dir;
  fs::create_directory(dir / "run");
  spit(dir / "run/model", "old");
  fs::create_symlink("run/model", dir / "link");
  for (const char* name : {"run/model", "link"}) {
    faults = {};
    faults.recording = true;
    replace_text_file(dir / name, "new");
    const std::vector<std::string> calls = faults.log;
    faults = {};
    const std::string temporary = "model.tmp-" + std::to_string(::getpid());
    const std::vector<std::string> expected = {
        "open " + temporary,  "write " + temporary,
        "fsync " + temporary, "rename " + temporary + " model",
        "open run",           "fsync run"};
    std::vector<std::string> seen;  // but closing
    for (const std::string& c : calls) {
      if (!c.starts_with("close")) seen.push_back(c);
    }
    CHECK(seen == expected);
  }
}

TEST_CASE("what killed processes left of a file is removed, and nothing else", "[files]") {
  TemporaryDirectory dir;
  const std::vector<std::string> stay = {"model", "model.tmp-", "model.tmp-1x", "model.tmp-1.bak",
                                         "other.tmp-1"};
  for (const std::string& name : stay) spit(dir / name, "x");
  for (const char* name : {"model.tmp-1", "model.tmp-4711"}) spit(dir / name, "x");
  fs::create_symlink("model", dir / "link");
  SECTION("by its name") { remove_temporaries(dir / "model"); }
  SECTION("by a link to it") { remove_temporaries(dir / "link"); }
  std::set<std::string> left;
  for (const auto& e : fs::directory_iterator(dir.path())) left.insert(e.path().filename());
  std::set<std::string> expected(stay.begin(), stay.end());
  expected.insert("link");
  CHECK(left == expected);
  CHECK_NOTHROW(remove_temporaries(dir / "none/at/all"));
}

// The kernel's own files say that they have a page, and end before.
TEST_CASE("a file that ends before its size is named, with both sizes", "[files]") {
  const char* const path = "/sys/devices/system/cpu/online";
  if (::access(path, R_OK) != 0) return;
  CHECK_THAT(input_error([&] { FileBytes(path, FileBytes::Mode::copy); }),
             Contains("online: cannot be read: it ended after ") && Contains(" of 4096 bytes"));
}
