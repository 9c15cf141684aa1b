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

TEST_CASE("nothing is copied from nowhere, and something as it is") {
  char to[3] = {'a', 'b', 'c'};
  copy_bytes(nullptr, nullptr, 0);
  copy_bytes(to, nullptr, 0);
  copy_bytes(nullptr, to, 0);
  copy_bytes(to, "xy", 2);
  CHECK(std::string(to, 3) == "xyc");
}
