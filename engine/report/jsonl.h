// The training log: one JSON object per line, appended and flushed as it happens.
//
//   {"event":"step","step":120,"epoch":1.5,"loss":0.84,"lr":0.001}
//   {"event":"validation","step":200,"loss":0.61,"wer":0.12}
//
// A number that is not finite is written as the string "nan", "inf" or "-inf" (JSON has none).
// A line is written by one system call, so a killed program leaves at most one partial line at the
// end; the next writer puts it on a line of its own, and the reader skips and counts it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rondo {

struct LogField {
  std::string name;
  std::variant<double, int64_t, bool, std::string> value;
};

// Move-only; one thread at a time. InputError if the disk refuses.
class JsonlWriter {
 public:
  // Creates the file, or appends to it.
  explicit JsonlWriter(const std::filesystem::path& path);
  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter& operator=(JsonlWriter&&) = delete;
  ~JsonlWriter();

  // Field names must be unique (RONDO_CHECK). Text that is not UTF-8 has the bad bytes replaced.
  void write(std::span<const LogField> fields);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// A run that begins, or goes on, after a step, and writes once more what comes then.
struct LogCut {
  int64_t step = 0;
  // From the memory of ranks that are there still: what the log says of this step stays.
  bool from_memory = false;
  bool validation_again = false;  // that of this very step is still to be done
  // What the run's first line, its "start", has as "checkpoint_dir". A log that several runs share
  // is cut only where this one began last. Empty: the log is this run's alone.
  std::string checkpoint_dir = {};
};

// Takes what such a run writes again out of its log, of which it has not written but what follows
// the first `bytes`; lines that a killed writer left half-written go as well. The file is replaced
// at once, or, where nothing is to be taken out, left alone. Whether it was replaced: who has it
// open must open it again. Nobody else may write the log now. InputError if the disk refuses.
bool cut_log(const std::filesystem::path& path, uint64_t bytes, const LogCut& cut);

// A value over steps; of what is true or false, 1 or 0.
struct Series {
  std::string name;
  std::vector<double> x;  // steps, or seconds
  std::vector<double> y;  // may hold values that are not finite
};

struct TrainingLog {
  // By "event.field", e.g. "step.loss", "validation.wer"; x is the step. A run that was resumed
  // from an earlier step replaces what the log held from there on.
  std::map<std::string, Series> series;
  int skipped_lines = 0;  // not JSON objects

  // What a line of these fields, which has "event" and "step", adds to it; others add nothing.
  void add(std::span<const LogField> fields);
};

// InputError if the file cannot be read.
TrainingLog read_training_log(const std::filesystem::path& path);

}  // namespace rondo
