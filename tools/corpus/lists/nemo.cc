// Manifests of NeMo, and of rondo itself.
#include <algorithm>
#include <filesystem>

#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/read_text.h"

namespace rondo::corpus {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_field(const char* name, const Json& value, const char* expected) {
  constexpr size_t most = 100;
  fail_input("\"", name, "\" is ", value.dump_replacing().substr(0, most), ", expected ", expected);
}

const Json* present(const Json& object, const char* name) {
  const Json* value = object.find(name);
  return value && !value->is_null() ? value : nullptr;
}

double seconds_in(const Json& object, const char* name, double otherwise) {
  const Json* value = present(object, name);
  if (!value) return otherwise;
  const double seconds = value->is_number() ? value->get<double>() : -1;
  if (!(seconds >= 0 && seconds < 1e9)) fail_field(name, *value, "a number of seconds");
  return seconds;
}

// The member of this name; else the one with a usual name.
const Json* member_called(const Json& object, const char* name,
                          bool (*is_usual)(std::string_view name)) {
  if (const Json* value = present(object, name)) return value;
  const Json* found = nullptr;
  for (const auto& [key, value] : object.members()) {
    if (value.is_null() || !is_usual(key)) continue;
    if (found) return nullptr;
    found = &value;
  }
  return found;
}

std::string word_of(const Json* value, const char* name) {
  if (!value) return {};
  if (value->is_string()) return value->get<std::string>();
  if (value->is_integer()) return value->dump();
  fail_field(name, *value, "a text");
}

void read_line(std::string_view line, const fs::path& folder, ListedUtterance& u) {
  Json object;
  try {
    object = Json::parse(line);
  } catch (const JsonError& e) {
    fail_input("is not valid JSON near byte ", e.byte);
  }
  if (!object.is_object()) fail_input("is no JSON object, expected {\"audio_filepath\": ...}");
  const std::string audio =
      word_of(member_called(object, "audio_filepath", is_usual_of_recordings), "audio_filepath");
  if (audio.empty()) fail_input("names no recording, expected \"audio_filepath\"");
  u.file.path = recording_called((folder / audio).lexically_normal().string());
  const Json* const text = member_called(object, "text", is_usual_of_texts);
  u.has_text = text != nullptr;
  u.text = trimmed(word_of(text, "text"));
  u.speaker = word_of(present(object, "speaker"), "speaker");
  u.id = word_of(present(object, "id"), "id");
  u.offset = seconds_in(object, "offset", 0);
  u.duration = seconds_in(object, "duration", -1);
  if (const Json* channel = present(object, "channel")) {
    const bool is_number = channel->is_unsigned() && channel->get<uint64_t>() < 256;
    if (!is_number) fail_field("channel", *channel, "a number from 0");
    u.channel = static_cast<int32_t>(channel->get<uint64_t>());
  }
}

}  // namespace

ListedUtterance nemo_entry(std::string_view line, const std::string& folder) {
  ListedUtterance u;
  try {
    read_line(line, folder, u);
  } catch (const JsonError& e) {
    fail_input(e.what());
  }
  return u;
}

namespace {

void list_manifest(const TableLayout::File& file, std::vector<ListedUtterance>& list) {
  const std::string content = read_text(file.path);
  const fs::path folder = fs::absolute(file.path).parent_path();
  const auto lines = std::count(content.begin(), content.end(), '\n');
  list.reserve(list.size() + static_cast<size_t>(lines) + 1);
  int64_t number = 0;
  for (size_t at = 0; at < content.size();) {
    const size_t end = std::min(content.find('\n', at), content.size());
    const std::string line = trimmed(std::string_view(content).substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    ListedUtterance u;
    try {
      u = nemo_entry(line, folder.string());
    } catch (const InputError& e) {
      u.problem = e.what();
      u.finding = Finding::bad_line;
    }
    u.where = str(file.path, ":", number);
    u.split = file.split;
    list.push_back(std::move(u));
  }
}

}  // namespace

std::vector<ListedUtterance> list_nemo(const std::vector<std::string>& manifests) {
  std::vector<ListedUtterance> list;
  for (const TableLayout::File& file : files_with_splits(manifests)) list_manifest(file, list);
  if (list.empty()) fail_input(manifests.empty() ? "" : manifests.front(), ": holds no lines");
  return list;
}

}  // namespace rondo::corpus
