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
  return std::nullopt;
}

const LogField* find_field(std::span<const LogField> fields, std::string_view name) {
  for (const LogField& f : fields) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

}  // namespace

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
