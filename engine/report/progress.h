// Progress on a terminal: one line that redraws itself, or plain lines elsewhere.
//
//   epoch 3/50 ████████▌······· 53%  loss 0.412  WER 8.1%  41k frames/s  ETA 2:31
//
// On a terminal the line is redrawn at most ten times a second and never wraps; elsewhere (a pipe,
// a file) a complete line appears every `plain_seconds`. Block characters need a UTF-8 locale;
// colours are left out when NO_COLOR is set (no-color.org), TERM is "dumb", or there is no
// terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace rondo {

// NaN: unknown, left out.
struct Progress {
  int64_t epoch = 0, epochs = 0;  // from 1; epochs 0: unknown
  double done = 0;                // share of the epoch, or of the whole where there are no epochs
  double loss;
  std::string metric;  // of the last validation, "WER 8.1%"; empty: unknown
  double frames_per_second;
  double eta_seconds;

  Progress();
};

struct ProgressStyle {
  bool terminal = false;
  bool unicode = false;
  bool colour = false;
  int width = 80;

  // What the stream, the environment (LC_ALL, LC_CTYPE, LANG, NO_COLOR, TERM, COLUMNS) and the
  // window's size say.
  static ProgressStyle detect(std::FILE* stream);
};

// The line for a terminal: at most `width - 1` columns, without escape codes other than colours.
// What does not fit is dropped from the least important: rate, then metric, loss, the bar, ETA.
std::string render_progress(const Progress& progress, const ProgressStyle& style);
// The line for a log.
std::string plain_progress(const Progress& progress);

// "0:07", "12:31", "3:05:09", "2d 04:10"; "?" for what is unknown or negative.
std::string format_duration(double seconds);
// "1 step", "2 steps"
std::string counted(int64_t n, std::string_view noun);
// "950", "41k", "1.2M"
std::string format_rate(double per_second);

// Draws on `stream` (borrowed). One thread at a time. Write errors are ignored: a closed terminal
// must not end a training run.
class ProgressBar {
 public:
  ProgressBar(std::FILE* stream, ProgressStyle style, double plain_seconds = 5);
  // Ends the line that is being drawn.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `now` is any steady clock in seconds. Cheap when it is too early to draw.
  void update(const Progress& progress, double now);
  // A complete line of text above the bar.
  void message(std::string_view text);
  // Shows the last state in full and ends the line.
  void finish();

 private:
  void draw(const std::string& line);

  std::FILE* stream_;
  ProgressStyle style_;
  double plain_seconds_;
  double drawn_at_;
  Progress last_;
  bool pending_ = false;  // last_ has not been shown
  bool open_ = false;     // a line is on the terminal without its end
};

}  // namespace rondo
