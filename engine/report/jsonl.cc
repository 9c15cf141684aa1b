#include "engine/report/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

Json to_json_value(const LogField& field) {
  if (const auto* x = std::get_if<double>(&field.value)) {
    if (std::isnan(*x)) return "nan";
    if (std::isinf(*x)) return *x > 0 ? "inf" : "-inf";
    return *x;
  }
  return std::visit([](const auto& v) -> Json { return v; }, field.value);
}

std::optional<double> number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return value.get<double>();
  if (value.is("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (value.is("inf")) return std::numeric_limits<double>::infinity();
  if (value.is("-inf")) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Forgets what an earlier run logged at or after `step`: that run was resumed from before it.
void forget_from(Series& series, double step) {
  while (!series.x.empty() && series.x.back() >= step) {
    series.x.pop_back();
    series.y.pop_back();
  }
}

void take_number(TrainingLog& log, const std::string& event, const std::string& key, double step,
                 double number) {
  const std::string name = event + "." + key;
  Series& series = log.series[name];
  series.name = name;
  forget_from(series, step);
  series.x.push_back(step);
  series.y.push_back(number);
}

void take_line(const Json& object, TrainingLog& log) {
  const auto event = object.at("event").get<std::string>();
  const auto step = object.at("step").get<double>();
  for (const auto& [key, value] : object.members()) {
    if (key == "event" || key == "step") continue;
    const std::optional<double> number = number_of(value);
    if (number) take_number(log, event, key, step, *number);
  }
}

std::optional<double> number_of(const LogField& field) {
  if (const auto* x = std::get_if<double>(&field.value)) return *x;
  if (const auto* n = std::get_if<int64_t>(&field.value)) return static_cast<double>(*n);
  if (const auto* b = std::get_if<bool>(&field.value)) return *b ? 1 : 0;
  return std::nullopt;
}

const LogField* find_field(std::span<const LogField> fields, std::string_view name) {
  for (const LogField& f : fields) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

struct LogLine {
  std::string_view text;
  std::string event;
  std::optional<int64_t> step;
};

// Nothing for what is no line of a log.
std::optional<LogLine> parsed(std::string_view line) {
  try {
    const Json object = Json::parse(line);
    LogLine found{line, object.at("event").get<std::string>(), std::nullopt};
    if (const Json* step = object.find("step")) found.step = step->get<int64_t>();
    return found;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

bool is_written_again(const LogLine& line, const LogCut& cut) {
  if (!line.step || *line.step < cut.step) return false;
  if (*line.step > cut.step) return true;
  if (line.event == "validation") return cut.validation_again;
  if (cut.from_memory) return false;
  // Of a start that left nothing but itself, and of an end that was none.
  for (const char* event : {"resume", "memory", "test", "end"}) {
    if (line.event == event) return true;
  }
  return line.event == "start" && cut.step == 0;
}

// Where the last run of a log begins; npos where none does, or another than the cut is for.
size_t begin_of_run(std::string_view log, const LogCut& cut) {
  constexpr std::string_view start = "{\"event\":\"start\"";
  size_t at = log.rfind(start);
  while (at != std::string_view::npos && at > 0 && log[at - 1] != '\n') {
    at = log.rfind(start, at - 1);
  }
  if (cut.checkpoint_dir.empty()) return at == std::string_view::npos ? 0 : at;
  if (at == std::string_view::npos) return at;
  try {
    const Json line = Json::parse(log.substr(at, log.find('\n', at) - at));
    const Json* const directory = line.find("checkpoint_dir");
    if (directory != nullptr && directory->is(cut.checkpoint_dir)) return at;
  } catch (const JsonError&) {  // it was not written to its end
  }
  return std::string_view::npos;
}

}  // namespace

bool cut_log(const fs::path& path, uint64_t bytes, const LogCut& cut) {
  remove_temporaries(path);  // of one that was killed in here
  const std::string text = read_text_file(path);
  const std::string_view log = std::string_view(text).substr(0, bytes);
  const size_t begin = begin_of_run(log, cut);
  if (begin == std::string_view::npos) return false;
  std::vector<LogLine> kept;
  size_t lines = 0;
  for (size_t at = begin; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const auto line = parsed(log.substr(at, end - at));
    at = end + 1;
    ++lines;
    if (!line) continue;
    if (line->step && (line->event == "resume" || line->event == "regroup")) {
      std::erase_if(kept, [&](const LogLine& l) { return l.step && *l.step > *line->step; });
    }
    kept.push_back(*line);
  }
  std::erase_if(kept, [&](const LogLine& l) { return is_written_again(l, cut); });
  if (kept.size() == lines) return false;
  replace_file(path, [&](FileWriter& file) {
    file.write(log.substr(0, begin));
    for (const LogLine& line : kept) {
      file.write(line.text);
      file.write("\n");
    }
    file.write(std::string_view(text).substr(log.size()));
  });
  return true;
}

JsonlWriter::JsonlWriter(const fs::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    fail_input(path.string(),
               ": the log cannot be opened: ", std::generic_category().message(errno));
  }
  struct stat st;
  char last = '\n';
  if (::fstat(fd_, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
      ::pread(fd_, &last, 1, st.st_size - 1) == 1 && last != '\n') {
    const std::byte newline{'\n'};
    write_all(fd_, {&newline, 1}, path_);
  }
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

JsonlWriter::~JsonlWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void JsonlWriter::write(std::span<const LogField> fields) {
  Json object = Json::object();
  for (const LogField& field : fields) {
    RONDO_CHECK(!object.contains(field.name), "the field '", field.name, "' is given twice");
    object[field.name] = to_json_value(field);
  }
  const std::string line = object.dump_replacing() + "\n";
  write_all(fd_, std::as_bytes(std::span(line.data(), line.size())), path_);
}

void TrainingLog::add(std::span<const LogField> fields) {
  const LogField* const event = find_field(fields, "event");
  const LogField* const step = find_field(fields, "step");
  if (event == nullptr || step == nullptr || !number_of(*step)) return;
  for (const LogField& f : fields) {
    const std::optional<double> number = &f == event || &f == step ? std::nullopt : number_of(f);
    if (!number) continue;
    take_number(*this, std::get<std::string>(event->value), f.name, *number_of(*step), *number);
  }
}

TrainingLog read_training_log(const fs::path& path) {
  const std::string text = read_text_file(path);
  TrainingLog log;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    try {
      take_line(Json::parse(line), log);
    } catch (const JsonError&) {
      ++log.skipped_lines;
    }
  }
  return log;
}

}  // namespace rondo
