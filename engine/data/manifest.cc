#include "engine/data/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <limits>

#include "engine/data/features/files.h"
#include "engine/data/features/random.h"
#include "engine/data/manifest_field.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

// The network gets an output per class: what is beyond this is a mistake (an identifier, a date),
// and would be one that asks for all memory.
constexpr int32_t largest_label = (1 << 24) - 1;

// A value that is not what its field takes. The sentence has no place before it.
struct WrongValue {
  std::string what;
};

// One line while it is taken apart; knows where it stands for the messages.
class Line {
 public:
  Line(const std::string& path, int64_t number) : path_(path), number_(number) {}

  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    fail_input(path_, ":", number_, ": ", args...);
  }

  [[noreturn]] void wrong(const char* field, const Json& value, const char* expected) const {
    const std::string shown = printable_start(value.dump_replacing(), 60);
    throw WrongValue{str("\"", field, "\" is ", shown, ", expected ", expected)};
  }

  std::string string(const char* field, const Json& value) const {
    if (!value.is_string()) wrong(field, value, "a string");
    return value.get<std::string>();
  }
  std::string path(const char* field, const Json& value) const {
    std::string out = string(field, value);
    // A NUL would cut the name short on its way to the system.
    if (out.empty() || out.find('\0') != std::string::npos) wrong(field, value, "a file name");
    return out;
  }
  // Of a class: it is shown on terminals and stands in tables.
  std::string name(const char* field, const Json& value) const {
    const char* expected = "a class: an integer from 0 to 16777215, or a name";
    if (!value.is_string()) wrong(field, value, expected);
    std::string out = value.get<std::string>();
    const bool is_plain = std::all_of(out.begin(), out.end(), [](char c) {
      return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
    });
    if (out.find_first_not_of(' ') == std::string::npos || !is_plain) wrong(field, value, expected);
    return out;
  }
  double seconds(const char* field, const Json& value) const {
    if (!value.is_number()) wrong(field, value, "a number of seconds");
    const double out = value.get<double>();
    if (!(out >= 0 && out < 1e9)) wrong(field, value, "a number of seconds, 0 or more");
    return out;
  }
  int32_t integer(const char* field, const Json& value, int32_t least, const char* expected) const {
    // The smallest that is allowed is 0 or 1.
    if (!value.is_unsigned()) wrong(field, value, expected);
    const auto out = value.get<uint64_t>();
    if (out < static_cast<uint64_t>(least) || out > largest_label) wrong(field, value, expected);
    return static_cast<int32_t>(out);
  }
  std::vector<int32_t> integers(const char* field, const Json& value, int32_t least,
                                const char* expected) const {
    if (!value.is_array()) wrong(field, value, expected);
    std::vector<int32_t> out;
    for (const Json& v : value.elements()) out.push_back(integer(field, v, least, expected));
    return out;
  }
  // [first, count] into the entry.
  void bytes(const char* field, const Json& value, ManifestEntry& entry) const {
    const char* expected = "a list of two, the first byte and how many";
    const bool is_pair = value.is_array() && value.size() == 2;
    if (!is_pair || !value.at(size_t{0}).is_unsigned() || !value.at(1).is_unsigned())
      wrong(field, value, expected);
    entry.first_byte = value.at(size_t{0}).get<uint64_t>();
    entry.byte_count = value.at(1).get<uint64_t>();
    constexpr uint64_t most = uint64_t{1} << 62;
    if (entry.first_byte > most || entry.byte_count > most || entry.byte_count == 0)
      wrong(field, value, expected);
  }
  // Throws WrongValue that is none of these.
  template <class Wrong>
  static std::vector<ImagePoint> points(const Json& value, size_t least, size_t most,
                                        const Wrong& wrong_points) {
    std::vector<ImagePoint> points;
    if (!value.is_array() || value.size() < least || value.size() > most) wrong_points();
    for (const Json& point : value.elements()) {
      if (!point.is_array() || point.size() != 2) wrong_points();
      const auto coordinate = [&](size_t axis) {
        const Json& v = point.at(axis);
        if (!v.is_integer() || !(std::abs(v.get<double>()) <= greatest_corner)) wrong_points();
        return static_cast<int32_t>(v.get<double>());
      };
      points.push_back({coordinate(0), coordinate(1)});
    }
    return points;
  }
  std::vector<ImagePoint> baseline(const char* field, const Json& value) const {
    const auto wrong_baseline = [&] {
      wrong(field, value, "a polyline of two different points or more, [[x, y], [x, y], ...]");
    };
    std::vector<ImagePoint> line = points(value, 2, most_baseline_points, wrong_baseline);
    if (!has_length(line)) wrong_baseline();
    return line;
  }
  // [left, top, width, height] or [[x, y], [x, y], [x, y], ...].
  std::vector<ImagePoint> region(const char* field, const Json& value) const {
    const auto wrong_region = [&] {
      wrong(field, value,
            "a box, [left, top, width, height], or a polygon, [[x, y], [x, y], [x, y], ...]");
    };
    if (!value.is_array() || value.size() < 3) wrong_region();
    if (value.at(size_t{0}).is_array()) return points(value, 3, most_region_corners, wrong_region);
    const auto coordinate = [&](const Json& v) {
      if (!v.is_integer()) wrong_region();
      const double at = v.get<double>();
      if (!(std::abs(at) <= 2 * greatest_corner)) wrong_region();
      return static_cast<int32_t>(at);
    };
    if (value.size() != 4) wrong_region();
    const ImageBox box{coordinate(value.at(size_t{0})), coordinate(value.at(1)),
                       coordinate(value.at(2)), coordinate(value.at(3))};
    if (box.width < 1 || box.height < 1) wrong_region();
    const ImageRegion region = ImageRegion::of_box(box);
    for (const ImagePoint& corner : region.corners) {
      if (std::max(std::abs(corner.x), std::abs(corner.y)) > greatest_corner) wrong_region();
    }
    return region.corners;
  }
  std::vector<float> numbers(const char* field, const Json& value) const {
    std::vector<float> out;
    const auto add = [&](const Json& v) {
      const char* expected = "a finite number or a list of them";
      if (!v.is_number()) wrong(field, value, expected);
      out.push_back(v.get<float>());
      if (!std::isfinite(out.back())) wrong(field, value, expected);
    };
    if (value.is_array()) {
      for (const Json& v : value.elements()) add(v);
    } else {
      add(value);
    }
    return out;
  }

 private:
  const std::string& path_;
  int64_t number_;
};

// In the order of InputKind.
constexpr std::array input_names = {"audio_filepath", "features_filepath", "image_filepath"};
constexpr std::array input_fields = std::to_array<std::string_view>(
    {"audio_filepath", "features_filepath", "image_filepath", "features_key", "bytes", "region",
     "baseline", "offset", "duration", "channel", "speaker"});
constexpr std::array target_fields =
    std::to_array<std::string_view>({"text", "label", "target", "labels", "frame_labels"});

template <class Names>
bool is_among(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Throws WrongValue.
void set_field(ManifestEntry& entry, const Line& line, const std::string& name, const Json& value,
               Json& extra) {
  const char* field = name.c_str();
  if (const auto kind = std::find(input_names.begin(), input_names.end(), name);
      kind != input_names.end()) {
    if (!entry.path_as_written.empty())
      line.fail("both \"", field_of(entry.kind), "\" and \"", name, "\" are given, expected one");
    entry.path_as_written = line.path(field, value);
    entry.kind = static_cast<InputKind>(kind - input_names.begin());
  } else if (name == "features_key") {
    entry.features_key = line.string(field, value);
  } else if (name == "bytes") {
    line.bytes(field, value, entry);
  } else if (name == "region") {
    entry.region.corners = line.region(field, value);
  } else if (name == "baseline") {
    entry.region.baseline = line.baseline(field, value);
  } else if (name == "offset") {
    entry.offset = line.seconds(field, value);
  } else if (name == "duration") {
    entry.duration = line.seconds(field, value);
  } else if (name == "channel") {
    entry.channel = line.integer(field, value, 0, "a channel, an integer from 0");
  } else if (name == "text") {
    entry.text = line.string(field, value);
  } else if (name == "label") {
    if (value.is_unsigned()) {
      entry.label = line.integer(field, value, 0, "a class, an integer from 0 to 16777215");
    } else {
      entry.class_name = line.name(field, value);
    }
  } else if (name == "target") {
    entry.target = line.numbers(field, value);
  } else if (name == "labels") {
    entry.labels = line.integers(field, value, 1, "a list of labels, integers from 1 to 16777215");
  } else if (name == "frame_labels") {
    entry.frame_labels =
        line.integers(field, value, 0, "a list of classes, integers from 0 to 16777215");
  } else if (name == "speaker") {
    entry.speaker = value.is_integer() ? value.dump() : line.string(field, value);
  } else {
    extra[name] = value;
  }
}

ManifestEntry parse_line(std::string_view text, const std::string& path, int64_t number) {
  const Line line(path, number);
  Json object;
  try {
    object = Json::parse(text);
  } catch (const JsonError& e) {
    if (e.kind != JsonError::Kind::syntax) line.fail(e.what());
    line.fail("is not valid JSON near column ", e.byte, ", expected one object per line");
  }
  if (!object.is_object()) line.fail("holds JSON that is not an object");
  ManifestEntry entry;
  entry.line = number;
  Json extra = Json::object();
  for (const auto& [name, value] : object.members()) {
    const bool is_target = is_among(target_fields, name);
    // null is absent, as tools write it.
    if (value.is_null() && (is_target || is_among(input_fields, name))) continue;
    try {
      set_field(entry, line, name, value, extra);
    } catch (const WrongValue& wrong) {
      // Only a task that wants this target needs to care.
      if (!is_target) line.fail(wrong.what);
      extra[name] = value;
      entry.wrong_targets.emplace_back(name, wrong.what);
    }
  }
  if (entry.path_as_written.empty())
    line.fail("has no \"audio_filepath\" (nor \"features_filepath\", \"image_filepath\")");
  if (!entry.region.is_whole() && entry.kind != InputKind::image)
    line.fail("\"region\" is given with \"", field_of(entry.kind), "\", it is a part of an image");
  if (entry.region.is_whole() && !entry.region.baseline.empty())
    line.fail(
        "\"baseline\" is given without \"region\", expected both: the line and what is around it");
  const std::filesystem::path written(entry.path_as_written);
  entry.path = written.is_absolute()
                   ? entry.path_as_written
                   : (std::filesystem::path(path).parent_path() / written).string();
  if (!extra.empty()) entry.extra = extra.dump();
  return entry;
}

}  // namespace

const char* name_of(InputKind kind) {
  constexpr std::array names = {"the recording", "the features", "the image"};
  return names.at(static_cast<size_t>(kind));
}

const char* field_of(InputKind kind) { return input_names.at(static_cast<size_t>(kind)); }
const char* noun_of(InputKind kind) { return kind == InputKind::image ? "line" : "utterance"; }

AudioSegment ManifestEntry::segment() const {
  return {offset, duration.value_or(-1), channel.value_or(-1)};
}

uint64_t ManifestEntry::key() const {
  uint64_t bits;
  std::memcpy(&bits, &offset, sizeof bits);
  const uint64_t key = data::combine64(data::combine64(data::hash_name(path_as_written), bits),
                                       data::hash_name(features_key));
  uint64_t placed = first_byte == 0 ? key : data::combine64(key, first_byte);
  for (const ImagePoint& corner : region.corners) {
    const uint64_t x = static_cast<uint32_t>(corner.x), y = static_cast<uint32_t>(corner.y);
    placed = data::combine64(placed, x << 32 | y);
  }
  return channel ? data::combine64(placed, static_cast<uint64_t>(*channel)) : placed;
}

std::string ManifestEntry::name() const {
  if (!extra.empty()) {
    const Json fields = Json::parse(extra);
    const Json* id = fields.find("id");
    if (id && id->is_string()) return id->get<std::string>();
  }
  const std::string seconds = offset > 0 ? str(":", short_text(offset, 6)) : "";
  std::string place = file().is_whole() ? "" : str(":", first_byte);
  if (!region.is_whole()) place += str(":", region.bounds().left, ",", region.bounds().top);
  if (channel) place += str(":channel", *channel);
  return str(path_as_written, place, features_key.empty() ? "" : ":", features_key, seconds);
}

std::string Manifest::where(const ManifestEntry& entry) const { return str(path, ":", entry.line); }

std::vector<std::string> Manifest::transcripts() const {
  std::vector<std::string> out;
  for (const ManifestEntry& e : entries)
    if (e.text) out.push_back(*e.text);
  return out;
}

Manifest read_manifest(const std::string& path) {
  return parse_manifest(as_utf8(data::read_whole_file(path)), path);
}

namespace {

// Whole lines of a manifest.
struct Piece {
  std::string_view content;
  int64_t first_line = 1;
  std::vector<ManifestEntry> entries = {};
  std::exception_ptr failure = {};
};

// A million lines are read faster by several threads.
std::vector<Piece> cut(std::string_view content) {
  constexpr size_t least = size_t{1} << 20;
  const size_t wanted = std::min(content.size() / least + 1, static_cast<size_t>(usable_cpus()));
  const size_t size = content.size() / wanted + 1;
  std::vector<Piece> pieces;
  int64_t line = 1;
  while (!content.empty()) {
    const size_t end = content.find('\n', std::min(size, content.size()) - 1);
    const std::string_view piece = content.substr(0, end == content.npos ? end : end + 1);
    pieces.push_back({piece, line});
    line += std::count(piece.begin(), piece.end(), '\n');
    content.remove_prefix(piece.size());
  }
  return pieces;
}

void parse(Piece& piece, const std::string& path) {
  std::string_view content = piece.content;
  try {
    for (int64_t number = piece.first_line; !content.empty(); ++number) {
      const size_t end = std::min(content.find('\n'), content.size());
      const std::string_view line = content.substr(0, end);
      content.remove_prefix(std::min(end + 1, content.size()));
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      piece.entries.push_back(parse_line(line, path, number));
    }
  } catch (...) {
    piece.failure = std::current_exception();
  }
}

}  // namespace

Manifest parse_manifest(std::string_view content, const std::string& path) {
  const bool empty = content.empty();
  content = without_byte_order_mark(content);
  std::vector<Piece> pieces = cut(content);
  ThreadPool pool(std::max(1, static_cast<int>(pieces.size())));
  pool.for_each(static_cast<int64_t>(pieces.size()),
                [&](int64_t i) { parse(pieces[static_cast<size_t>(i)], path); });
  Manifest out;
  out.path = path;
  for (Piece& piece : pieces) {
    if (piece.failure) std::rethrow_exception(piece.failure);  // the first in the file
    if (out.entries.empty()) {
      out.entries = std::move(piece.entries);
    } else {
      std::move(piece.entries.begin(), piece.entries.end(), std::back_inserter(out.entries));
    }
    piece.entries = {};
  }
  if (out.entries.empty()) {
    fail_input(path, empty ? ": is empty" : ": holds blank lines only",
               ", expected one utterance per line, as JSON");
  }
  return out;
}

namespace {

Json points_json(const std::vector<ImagePoint>& points) {
  Json out = Json::array();
  for (const ImagePoint& p : points) out.push_back(Json::array({p.x, p.y}));
  return out;
}

Json region_json(const ImageRegion& region) {
  if (!region.is_box()) return points_json(region.corners);
  const ImageBox box = region.bounds();
  Json out = Json::array();
  for (int32_t v : {box.left, box.top, box.width, box.height}) out.push_back(v);
  return out;
}

}  // namespace

namespace {

// Gives `take(name, make)` each field that is set, in the order in which lines have them; make() is
// its value.
template <class Take>
void for_each_field(const ManifestEntry& e, const Take& take) {
  const auto field = [&](bool is_set, std::string_view name, const auto& make) {
    if (is_set) take(name, make);
  };
  field(true, field_of(e.kind), [&] { return Json(e.path_as_written); });
  field(!e.features_key.empty(), "features_key", [&] { return Json(e.features_key); });
  field(e.byte_count != FilePart::to_the_end, "bytes", [&] {
    return Json::array({e.first_byte, e.byte_count});
  });
  field(!e.region.is_whole(), "region", [&] { return region_json(e.region); });
  field(!e.region.baseline.empty(), "baseline", [&] { return points_json(e.region.baseline); });
  field(e.offset != 0, "offset", [&] { return Json(e.offset); });
  field(e.duration.has_value(), "duration", [&] { return Json(*e.duration); });
  field(e.channel.has_value(), "channel", [&] { return Json(*e.channel); });
  field(e.text.has_value(), "text", [&] { return Json(*e.text); });
  field(!e.class_name.empty(), "label", [&] { return Json(e.class_name); });
  field(e.class_name.empty() && e.label, "label", [&] { return Json(*e.label); });
  field(!e.target.empty(), "target", [&] { return Json(e.target); });
  field(e.labels.has_value(), "labels", [&] { return Json(*e.labels); });
  field(!e.frame_labels.empty(), "frame_labels", [&] { return Json(e.frame_labels); });
  field(!e.speaker.empty(), "speaker", [&] { return Json(e.speaker); });
}

// A speaker that may have been written as a number.
std::optional<int64_t> number_of(const std::string& speaker) {
  int64_t number = 0;
  const char* const end = speaker.data() + speaker.size();
  const auto [stop, error] = std::from_chars(speaker.data(), end, number);
  if (error != std::errc() || stop != end || std::to_string(number) != speaker) return {};
  return number;
}

}  // namespace

Json field_value(const ManifestEntry& e, std::string_view name) {
  if (name == "offset" && e.kind == InputKind::recording) return e.offset;
  if (name == "target" && e.target.size() == 1) return e.target.front();
  if (name == "speaker")
    if (const auto number = number_of(e.speaker)) return *number;
  Json value;
  for_each_field(e, [&](std::string_view field, const auto& make) {
    if (field == name) value = make();
  });
  if (!value.is_null() || e.extra.empty()) return value;
  const Json extra = Json::parse(e.extra);
  const Json* found = extra.find(name);
  return found ? *found : Json();
}

std::string to_json_line(const ManifestEntry& e) {
  Json out;
  for_each_field(e, [&](std::string_view field, const auto& make) { out[field] = make(); });
  if (!e.extra.empty()) {
    const Json extra = Json::parse(e.extra);
    for (const auto& [name, value] : extra.members()) out[name] = value;
  }
  try {
    return out.dump();
  } catch (const JsonError&) {
    fail_input(e.path_as_written, ": a manifest field is not valid UTF-8");
  }
}

void write_manifest(const std::string& path, const std::vector<ManifestEntry>& entries) {
  std::string content;
  for (const ManifestEntry& e : entries) content += to_json_line(e) + "\n";
  data::write_whole_file(path, content);
}

}  // namespace rondo
