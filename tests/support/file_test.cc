// engine/io/file.h: what a file's bytes do when they are moved, and when the file is shorter than
// it says.
#include "engine/io/file.h"

#include <sys/wait.h>
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

namespace {

// A process that ends before its `at`-th call, or none of its calls; whether it did.
bool replaced_until(int at, const std::string& lacks, const fs::path& path,
                    const std::string& text) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    faults = {};
    faults.lacks = lacks;
    faults.action = SyscallFaults::Action::exit;
    faults.at = at;
    replace_text_file(path, text);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status) == 86;
}

}  // namespace

TEST_CASE(
    "a process killed while it replaces a file leaves the old one or the new one, on file "
    "systems that cannot rename too",
    "[files]") {
  const std::string lacks = GENERATE("", "onto", "rename");
  const std::string before = "old, and longer than the new one";
  bool crashed = true;
  int crashes = 0;
  for (int at = 0; crashed; ++at, ++crashes) {
    CAPTURE(at, lacks);
    TemporaryDirectory dir;
    spit(dir / "model", before);
    crashed = replaced_until(at, lacks, dir / "model", "new");
    faults = {};
    faults.lacks = lacks;
    remove_temporaries(dir / "model");
    const std::string now = slurp(dir / "model");
    CHECK((now == "new" || (crashed && now == before)));
    CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
    replace_text_file(dir / "model", "newer");
    CHECK(slurp(dir / "model") == "newer");
    faults = {};
  }
  CHECK(crashes > 4);
}

TEST_CASE("a disk that is full while a file is replaced leaves a whole one, and says where",
          "[files]") {
  const std::string lacks = GENERATE("", "onto", "rename");
  std::string message = "none yet";
  for (int at = 0; !message.empty(); ++at) {
    CAPTURE(at, lacks);
    TemporaryDirectory dir;
    spit(dir / "model", "old");
    faults = {};
    faults.lacks = lacks;
    faults.action = SyscallFaults::Action::fail;
    faults.at = at;
    faults.error = ENOSPC;
    faults.persistent = true;
    message.clear();
    try {
      replace_text_file(dir / "model", "new");
    } catch (const InputError& e) {
      message = e.what();
    }
    const bool reached = faults.count > at;
    faults = {};
    faults.lacks = lacks;
    const std::string now = fs::exists(dir / "model") ? slurp(dir / "model") : "";
    if (!message.empty()) CHECK_THAT(message, Contains("No space left on device"));
    if (now != "old" && now != "new") {
      const std::string kept = "; what was to be written is in ";
      const size_t found = message.find(kept);
      REQUIRE(found != std::string::npos);
      CHECK(slurp(message.substr(found + kept.size())) == "new");
    }
    // The same process tries again when there is room.
    replace_text_file(dir / "model", "newer");
    CHECK(slurp(dir / "model") == "newer");
    CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
    faults = {};
    if (reached && message.empty()) message = "of a call whose failure is no loss";
  }
}

TEST_CASE("a file that another program holds is waited for, then said to be as it was", "[files]") {
  TemporaryDirectory dir;
  spit(dir / "model", "old");
  // As on a Windows share: it can neither be renamed onto nor removed nor written.
  faults = {};
  faults.lacks = "onto";
  faults.held = (dir / "model").string();
  faults.held_calls = 9;
  replace_text_file(dir / "model", "new");
  CHECK(faults.held_calls == 0);
  faults = {};
  CHECK(slurp(dir / "model") == "new");
}

TEST_CASE("a directory that cannot be renamed is moved with all that is in it", "[files]") {
  const std::string lacks = GENERATE("", "directory", "rename");
  TemporaryDirectory dir;
  fs::create_directories(dir / "from/wav/deep");
  fs::create_directory(dir / "from/empty");
  spit(dir / "from/a", "1");
  spit(dir / "from/wav/b", "2");
  spit(dir / "from/wav/deep/c", "");
  faults = {};
  faults.lacks = lacks;
  rename_path(dir / "from", dir / "to");
  faults = {};
  CHECK(!fs::exists(dir / "from"));
  std::set<std::string> found;
  for (const auto& e : fs::recursive_directory_iterator(dir / "to")) {
    found.insert(e.path().lexically_relative(dir / "to").string());
  }
  CHECK(found == std::set<std::string>{"a", "empty", "wav", "wav/b", "wav/deep", "wav/deep/c"});
  CHECK(slurp(dir / "to/a") + slurp(dir / "to/wav/b") == "12");
}

// The kernel's own files say that they have a page, and end before.
TEST_CASE("a file that ends before its size is named, with both sizes", "[files]") {
  const char* const path = "/sys/devices/system/cpu/online";
  if (::access(path, R_OK) != 0) return;
  CHECK_THAT(input_error([&] { FileBytes(path, FileBytes::Mode::copy); }),
             Contains("online: cannot be read: it ended after ") && Contains(" of 4096 bytes"));
}
