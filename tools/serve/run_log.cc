#include "tools/serve/run_log.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "engine/io/json.h"
#include "kernels/base/cpu/printable.h"

namespace rondo::serve {
namespace {

constexpr uint64_t most_bytes = 1 << 20;

uint64_t number_of(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw HttpError(400, str("from is ", quoted_start(text), ", expected a number of bytes"),
                    "from");
  return number;
}

}  // namespace

HttpReply run_log_reply(const std::string& folder, std::string_view wanted) {
  uint64_t from = wanted.empty() ? 0 : number_of(wanted);
  const std::filesystem::path path = std::filesystem::path(folder) / "log.jsonl";
  std::error_code failed;
  const uint64_t size = std::filesystem::file_size(path, failed);
  std::string bytes;
  if (!failed) {
    if (from > size) from = 0;
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(from));
    bytes.resize(std::min(size - from, most_bytes));
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(file.gcount()));
  }
  Json entries = Json::array();
  size_t at = 0;
  for (size_t end = 0; (end = bytes.find('\n', at)) != std::string::npos; at = end + 1) {
    try {
      entries.push_back(Json::parse(std::string_view(bytes).substr(at, end - at)));
    } catch (const JsonError&) {
      continue;
    }
  }
  // A line as long as all that is read will never end here.
  if (at == 0 && bytes.size() == most_bytes) at = bytes.size();
  return json_reply(
      Json::object({{"from", from}, {"next", from + at}, {"entries", std::move(entries)}})
          .dump_replacing());
}

}  // namespace rondo::serve
