// engine/lm/line_reader.h: its first lines come after nothing, and of an empty file nothing comes.
// The undefined-behaviour sanitizer sees what is copied from null.
#include "engine/lm/line_reader.h"

#include <string>
#include <vector>

#include "kernels/base/cpu/copy_bytes.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

std::vector<std::string> lines_of(LineReader&& reader) {
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

}  // namespace

TEST_CASE("lines of files and of memory, of which there may be none") {
  const TemporaryFolder folder;
  const std::string longer(3 << 20, 'x');  // than what is read at once
  const std::vector<std::vector<std::string>> texts = {
      {}, {""}, {"a"}, {"a", "", "b"}, {longer}, {"a", longer, "", longer + "b", "c"}};
  for (const std::vector<std::string>& lines : texts) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    CHECK(lines_of(LineReader(folder.write("text", text))) == lines);
    CHECK(lines_of(LineReader(std::string_view(text), "memory")) == lines);
  }
  CHECK(lines_of(LineReader(std::string_view(), "nothing")).empty());
}

TEST_CASE("what stands before a text is no part of it, and what another program reads is told") {
  const TemporaryFolder folder;
  const std::string text =
      "\xef\xbb\xbf"
      "a\nb";
  CHECK(lines_of(LineReader(folder.write("text", text))) == std::vector<std::string>{"a", "b"});
  CHECK(lines_of(LineReader(std::string_view(text), "memory")) ==
        std::vector<std::string>{"a", "b"});
  const auto told = [&](const std::string& start) {
    const std::string content = start + std::string(20, 'x');
    const std::string path = folder.write("text", content);
    try {
      lines_of(LineReader(path));
    } catch (const InputError& e) {
      CHECK_THROWS_AS(LineReader(std::string_view(content), "memory"), InputError);
      return std::string(e.what()).substr(path.size());
    }
    return std::string("nothing");
  };
  using namespace std::string_literals;
  CHECK_THAT(told("BZh91AY"), Catch::StartsWith(": is compressed by bzip2, expected a text"));
  CHECK_THAT(told("\xfd\x37zXZ\0"s), Catch::Contains("'xzcat FILE | gzip > FILE.gz'"));
  CHECK_THAT(told("\x28\xb5\x2f\xfd"), Catch::Contains("zstd"));
  CHECK_THAT(told("PK\x03\x04"), Catch::Contains("zip"));
  CHECK_THAT(told("\xff\xfe"), Catch::StartsWith(": is UTF-16, expected UTF-8"));
  CHECK_THAT(told("a\0b\0"s), Catch::StartsWith(": is UTF-16"));
  CHECK(told("BZ") == "nothing");
}

TEST_CASE("nothing is copied from nowhere, and something as it is") {
  char to[3] = {'a', 'b', 'c'};
  copy_bytes(nullptr, nullptr, 0);
  copy_bytes(to, nullptr, 0);
  copy_bytes(nullptr, to, 0);
  copy_bytes(to, "xy", 2);
  CHECK(std::string(to, 3) == "xyc");
}
