#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/report/jsonl.h"
#include "engine/report/progress.h"
#include "engine/report/tensorboard.h"
#include "tests/support/support.h"

using namespace rondo;
using Catch::Contains;
using rondo::test::input_error;
using rondo::test::slurp;
using rondo::test::spit;
using rondo::test::TemporaryDirectory;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double not_a_number = std::nan("");

Progress example() {
  Progress p;
  p.epoch = 3;
  p.epochs = 50;
  p.done = 0.53;
  p.loss = 0.4123;
  p.metric = "WER 8.1%";
  p.frames_per_second = 41234;
  p.eta_seconds = 151;
  return p;
}

// Columns on a terminal: code points, without escape sequences.
int columns(const std::string& s) {
  int n = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\x1b') {
      while (s[i] != 'm' && s[i] != 'K') ++i;
    } else if ((static_cast<unsigned char>(s[i]) & 0xc0) != 0x80) {
      ++n;
    }
  }
  return n;
}

// What a ProgressBar wrote.
template <class F>
std::string drawn(const ProgressStyle& style, F&& f) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  {
    ProgressBar bar(stream, style);
    f(bar);
  }
  std::fclose(stream);
  const std::string result(text, size);
  std::free(text);
  return result;
}

std::string hex(const std::string& bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string s;
  for (char c : bytes) {
    s += digits[static_cast<unsigned char>(c) >> 4];
    s += digits[static_cast<unsigned char>(c) & 15];
  }
  return s;
}

}  // namespace

TEST_CASE("log lines are JSON objects, flushed one by one", "[jsonl]") {
  TemporaryDirectory dir;
  JsonlWriter log(dir / "log.jsonl");
  const std::vector<LogField> one = {{"event", std::string("step")},
                                     {"step", int64_t{9007199254740993}},
                                     {"loss", 0.1},
                                     {"skipped", false}};
  log.write(one);
  CHECK(slurp(dir / "log.jsonl") ==
        "{\"event\":\"step\",\"step\":9007199254740993,\"loss\":0.1,\"skipped\":false}\n");
  const std::vector<LogField> two = {
      {"a", not_a_number}, {"b", inf}, {"c", -inf}, {"text", std::string("\"ä\"\n\xff")}};
  log.write(two);
  const std::string text = slurp(dir / "log.jsonl");
  const auto j = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  CHECK(j["a"] == "nan");
  CHECK(j["b"] == "inf");
  CHECK(j["c"] == "-inf");
  CHECK(j["text"] == "\"ä\"\n\xef\xbf\xbd");
  const std::vector<LogField> twice = {{"a", 1.0}, {"a", 2.0}};
  CHECK_THROWS_AS(log.write(twice), Error);
  CHECK_THAT(input_error([&] { JsonlWriter w(dir / "none/log.jsonl"); }),
             Contains("none/log.jsonl"));
  CHECK_THAT(input_error([&] { JsonlWriter("/dev/full").write(one); }), Contains("No space left"));
}

TEST_CASE("a log is read as series; partial lines are counted; a resumed run replaces", "[jsonl]") {
  TemporaryDirectory dir;
  const auto path = dir / "log.jsonl";
  spit(path, R"({"event":"step","step":1,"loss":3.0}
{"event":"step","step":2,"loss":"nan"}
{"event":"validation","step":2,"loss":2.5,"wer":0.5,"note":"x"}
{"event":"step","step":3,"loss":2.0}
{"event":"step","st)");
  {
    JsonlWriter log(path);
    for (int64_t step : {2, 3, 4}) {
      const std::vector<LogField> fields = {
          {"event", std::string("step")}, {"step", step}, {"loss", 1.0}};
      log.write(fields);
    }
  }
  spit(path, slurp(path) + "[1]\n3\n\n{\"event\":3,\"step\":1}\n");
  const TrainingLog log = read_training_log(path);
  CHECK(log.skipped_lines == 4);
  CHECK(log.series.at("step.loss").x == std::vector<double>{1, 2, 3, 4});
  CHECK(log.series.at("step.loss").y == std::vector<double>{3, 1, 1, 1});
  CHECK(log.series.at("validation.wer").y == std::vector<double>{0.5});
  CHECK_FALSE(log.series.contains("validation.note"));
}

// The bytes were read back by TensorBoard's own loader (tests/golden/check_tensorboard.py): tags,
// steps, values, wall times and the text came out as written here.
TEST_CASE("event files are what TensorBoard reads", "[tensorboard]") {
  TemporaryDirectory dir;
  double time = 1700000000.25;
  std::filesystem::path path;
  {
    TensorBoardWriter board(dir / "tb", [&] { return time++; });
    board.scalar("loss/train", 1, 0.75f);
    board.scalar("loss/train", 300, std::numeric_limits<float>::infinity());
    board.text("samples", 300, "**one** ä");
    path = board.path();
  }
  CHECK_THAT(path.filename().string(), Catch::StartsWith("events.out.tfevents.1700000000."));
  if (const char* copy = std::getenv("RONDO_EVENTS_COPY")) spit(copy, slurp(path));
  CHECK(hex(slurp(path)) ==
        "1800000000000000a37f4b220900005040fc54d9411a0d627261696e2e4576656e743a32e4258d2820000000"
        "0000000029eda9500900009040fc54d94110012a130a110a0a6c6f73732f747261696e150000403f99642770"
        "2100000000000000017becf6090000d040fc54d94110ac022a130a110a0a6c6f73732f747261696e15000080"
        "7fc804b3be39000000000000008b0737f10900001041fc54d94110ac022a2b0a290a0773616d706c65734214"
        "0807120412020801420a2a2a6f6e652a2a20c3a44a080a060a04746578747c78e7e8");
  TensorBoardWriter second(dir / "tb", [] { return 1700000000.25; });
  CHECK(second.path() > path);  // TensorBoard reads them by their names
  CHECK(second.continues());
  TensorBoardWriter earlier(dir / "tb", [] { return 1600000000.0; });  // the clock was set back
  CHECK(earlier.path() > second.path());
  spit(dir / "file", "");
  CHECK_THAT(input_error([&] { TensorBoardWriter w(dir / "file"); }), Contains("file"));
}

TEST_CASE("a run that begins, or goes on, says from which step on: SessionLog START",
          "[tensorboard]") {
  TemporaryDirectory dir;
  TensorBoardWriter board(dir / "tb", [] { return 0.0; });
  CHECK_FALSE(board.continues());
  const size_t before = slurp(board.path()).size();
  board.session_start(301);
  const std::string record = slurp(board.path()).substr(before);
  // Wall time, step 301, session_log {status: START}, between a length and checksums.
  CHECK(hex(record).substr(24, 2 * 16) ==
        "090000000000000000"
        "10ad02"
        "3a020801");
}

TEST_CASE("a log is cut where a run goes on", "[jsonl]") {
  TemporaryDirectory dir;
  const auto path = dir / "log.jsonl";
  const auto cut = [&](const std::string& log, const LogCut& how) {
    spit(path, log + "{\"event\":\"message\"}\n");
    const bool replaced = cut_log(path, log.size(), how);
    const std::string text = slurp(path);
    CHECK(replaced == (text != log + "{\"event\":\"message\"}\n"));
    std::string left;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      const auto j = nlohmann::json::parse(text.substr(at, text.find('\n', at) - at));
      left += j.at("event").get<std::string>().substr(0, 3);
      if (j.contains("step")) left += std::to_string(j.at("step").get<int>());
      left += ' ';
    }
    return left;
  };
  const auto line = [](const std::string& event, int step) {
    return "{\"event\":\"" + event + "\",\"step\":" + std::to_string(step) +
           ",\"checkpoint_dir\":\"/run\"}\n";
  };
  const std::string begin =
      line("start", 0) + line("memory", 0) + line("step", 1) + line("step", 2);
  const std::string more = line("validation", 2) + line("step", 3) + line("end", 3);
  CHECK(cut(begin + more, {.step = 3}) == "sta0 mem0 ste1 ste2 val2 ste3 mes ");
  CHECK(cut(begin + more, {.step = 2}) == "sta0 mem0 ste1 ste2 val2 mes ");
  CHECK(cut(begin + more, {.step = 2, .validation_again = true}) == "sta0 mem0 ste1 ste2 mes ");
  CHECK(cut(begin + more, {.step = 0}) == "mes ");
  CHECK(cut(begin, {.step = 5}) == "sta0 mem0 ste1 ste2 mes ");  // nothing to do
  // A start that left nothing leaves no line either, but for what is about no step.
  const std::string idle = "{\"event\":\"left_out\"}\n" + line("resume", 2) + line("memory", 2);
  CHECK(cut(begin + idle + line("step", 3), {.step = 2}) == "sta0 mem0 ste1 ste2 lef mes ");
  CHECK(cut(begin + idle + line("step", 3), {.step = 3}) ==
        "sta0 mem0 ste1 ste2 lef res2 mem2 ste3 mes ");
  CHECK(cut(line("start", 0) + line("regroup", 0) + line("step", 1), {.from_memory = true}) ==
        "sta0 reg0 mes ");
  // Logs of before they were cut, and lines that a kill or a power cut left.
  CHECK(cut(begin + more + line("resume", 1) + line("step", 2) + line("step", 3), {.step = 3}) ==
        "sta0 mem0 ste1 res1 ste2 ste3 mes ");
  CHECK(cut(begin + "{\"event\":\"st\n" + std::string(9, '\0') + "\n", {.step = 2}) ==
        "sta0 mem0 ste1 ste2 mes ");
  // Other runs' lines in the same log.
  CHECK(cut(begin + more + begin + more, {.step = 2}) ==
        "sta0 mem0 ste1 ste2 val2 ste3 end3 sta0 mem0 ste1 ste2 val2 mes ");
  CHECK(cut(begin + more, {.step = 1, .checkpoint_dir = "/run"}) == "sta0 mem0 ste1 mes ");
  CHECK(cut(begin + more, {.step = 1, .checkpoint_dir = "/other"}) ==
        "sta0 mem0 ste1 ste2 val2 ste3 end3 mes ");
}

TEST_CASE("durations and rates", "[progress]") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(7.4) == "0:07");
  CHECK(format_duration(751) == "12:31");
  CHECK(format_duration(3599.6) == "1:00:00");
  CHECK(format_duration(11109) == "3:05:09");
  CHECK(format_duration(2 * 86400 + 4 * 3600 + 600) == "2d 04:10");
  CHECK(format_duration(not_a_number) == "?");
  CHECK(format_duration(inf) == "?");
  CHECK(format_duration(-1) == "?");
  CHECK(format_rate(0) == "0");
  CHECK(format_rate(950) == "950");
  CHECK(format_rate(999.7) == "1.0k");
  CHECK(format_rate(41234) == "41k");
  CHECK(format_rate(1.24e6) == "1.2M");
  CHECK(format_rate(999700) == "1.0M");
  CHECK(format_rate(not_a_number) == "?");
}

TEST_CASE("the bar fits its terminal and drops the least important first", "[progress]") {
  ProgressStyle style{.terminal = true, .unicode = true, .colour = false, .width = 100};
  CHECK(render_progress(example(), style) ==
        "epoch 3/50  ███████████████▉·············· 53%  loss 0.412  WER 8.1%  41k frames/s  ETA "
        "2:31");
  style.unicode = false;
  CHECK(render_progress(example(), style) ==
        "epoch 3/50  [###############...............] 53%  loss 0.412  WER 8.1%  41k frames/s  ETA "
        "2:31");
  style.colour = true;
  CHECK_THAT(render_progress(example(), style),
             Contains("\x1b[36m[###") && Contains("]\x1b[0m 53%"));
  for (bool unicode : {false, true}) {
    style.unicode = unicode;
    for (style.width = 0; style.width < 130; ++style.width) {
      const std::string line = render_progress(example(), style);
      CAPTURE(style.width, line);
      CHECK(columns(line) <= std::max(style.width - 1, 0));
      CHECK(line.find('\n') == std::string::npos);
    }
  }
  style = {.terminal = true, .unicode = false, .colour = false, .width = 30};
  CHECK(render_progress(example(), style) == "epoch 3/50  53%  ETA 2:31");
}

TEST_CASE("unknown values are left out, infinite ones are shown", "[progress]") {
  Progress p;
  p.epoch = 1;
  CHECK(plain_progress(p) == "epoch 1  0%");
  p.loss = inf;
  p.done = 2;
  CHECK(plain_progress(p) == "epoch 1  100%  loss inf");
  p.done = not_a_number;
  CHECK(plain_progress(p) == "epoch 1  loss inf");
  p.done = 0.999;
  CHECK_THAT(plain_progress(p), Contains("99%"));
}

TEST_CASE("a terminal's line redraws itself; messages stand above it", "[progress]") {
  const ProgressStyle style{.terminal = true, .unicode = false, .colour = false, .width = 30};
  const std::string out = drawn(style, [](ProgressBar& bar) {
    Progress p = example();
    bar.update(p, 100);
    p.epoch = 4;
    bar.update(p, 100.05);  // too early to draw
    bar.message("saved");
    p.epoch = 5;
    bar.update(p, 101);
    p.epoch = 6;
    bar.update(p, 101.01);
    bar.finish();
  });
  const std::string e4 = "\repoch 4/50  53%  ETA 2:31\x1b[K";
  CHECK(out == "\repoch 3/50  53%  ETA 2:31\x1b[K\r\x1b[Ksaved\n" + e4 +
                   "\repoch 5/50  53%  ETA 2:31\x1b[K" + "\repoch 6/50  53%  ETA 2:31\x1b[K\n");
}

TEST_CASE("elsewhere plain lines appear every few seconds, without escape codes", "[progress]") {
  const std::string out = drawn({}, [](ProgressBar& bar) {
    Progress p = example();
    for (int i = 0; i <= 120; ++i) bar.update(p, 50 + 0.1 * i);  // 12 seconds
    bar.message("saved");
    p.epoch = 4;
    bar.update(p, 62.5);
    bar.finish();
  });
  const std::string line = plain_progress(example()) + "\n";
  CHECK(line == "epoch 3/50  53%  loss 0.412  WER 8.1%  41k frames/s  ETA 2:31\n");
  Progress four = example();
  four.epoch = 4;
  CHECK(out == line + line + line + "saved\n" + plain_progress(four) + "\n");
}

TEST_CASE("the style follows the environment", "[progress]") {
  std::FILE* file = std::tmpfile();
  REQUIRE(file);
  const auto with = [&](const char* name, const char* value) {
    for (const char* n : {"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "COLUMNS"}) ::unsetenv(n);
    ::setenv(name, value, 1);
    return ProgressStyle::detect(file);
  };
  CHECK(with("LANG", "de_DE.UTF-8").unicode);
  CHECK(with("LC_ALL", "C.utf8").unicode);
  CHECK_FALSE(with("LANG", "C").unicode);
  CHECK_FALSE(with("LANG", "en_US.ISO-8859-1").unicode);
  CHECK(with("COLUMNS", "133").width == 133);
  CHECK(with("COLUMNS", "x").width == 80);
  CHECK_FALSE(with("LANG", "C").terminal);
  CHECK_FALSE(with("LANG", "C").colour);
  ::unsetenv("COLUMNS");
  std::fclose(file);
}
