// engine/io/file.h: what a file's bytes do when they are moved, and when the file is shorter than
// it says.
#include "engine/io/file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <utility>

#include "tests/support/support.h"

using namespace rondo;
using namespace rondo::test;
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

// The kernel's own files say that they have a page, and end before.
TEST_CASE("a file that ends before its size is named, with both sizes", "[files]") {
  const char* const path = "/sys/devices/system/cpu/online";
  if (::access(path, R_OK) != 0) return;
  CHECK_THAT(input_error([&] { FileBytes(path, FileBytes::Mode::copy); }),
             Contains("online: cannot be read: it ended after ") && Contains(" of 4096 bytes"));
}
