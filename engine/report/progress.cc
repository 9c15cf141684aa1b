#include "engine/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
constexpr double redraw_seconds = 0.1;
constexpr int longest_bar = 30;

std::string fixed(double x, int digits) {
  return std::abs(x) < 1e6 ? fixed_text(x, digits) : short_text(x, digits);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = variable(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

// `cells` columns; in Unicode the last block is filled by eighths.
std::string bar(double done, int cells, bool unicode) {
  const int eighths = static_cast<int>(std::clamp(done, 0.0, 1.0) * cells * 8);
  std::string s;
  if (!unicode) {
    const auto full = static_cast<size_t>(eighths / 8);
    s.assign(1, '[');
    s.append(full, '#').append(static_cast<size_t>(cells) - full, '.').append(1, ']');
    return s;
  }
  static const char* const parts[] = {"·", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (int i = 0; i < cells; ++i) {
    const int filled = eighths - 8 * i;
    s += filled >= 8 ? "█" : parts[std::max(filled, 0)];
  }
  return s;
}

struct Part {
  std::string text;
  int importance;  // the highest stays longest
};

std::string position(const Progress& p) {
  std::string s;
  if (p.epoch > 0) {
    s = str("epoch ", p.epoch);
    if (p.epochs > 0) s += str("/", p.epochs);
  }
  return s;
}

std::string percent(double done) {
  return std::isfinite(done) ? fixed(std::floor(std::clamp(done, 0.0, 1.0) * 100), 0) + "%" : "";
}

std::vector<Part> parts_of(const Progress& p) {
  std::vector<Part> parts = {{position(p), 6}, {percent(p.done), 7}};
  // A loss that is not finite is news, not an unknown: only NaN stands for "not measured yet".
  if (!std::isnan(p.loss)) parts.push_back({str("loss ", fixed(p.loss, 3)), 4});
  parts.push_back({p.metric, 3});
  if (!std::isnan(p.frames_per_second))
    parts.push_back({format_rate(p.frames_per_second) + " frames/s", 2});
  if (!std::isnan(p.eta_seconds)) parts.push_back({str("ETA ", format_duration(p.eta_seconds)), 5});
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  return parts;
}

std::string join(const std::vector<Part>& parts) {
  std::string s;
  for (const Part& part : parts) s += str(s.empty() ? "" : "  ", part.text);
  return s;
}

}  // namespace

Progress::Progress() : loss(unknown), frames_per_second(unknown), eta_seconds(unknown) {}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  const auto s = static_cast<long>(seconds + 0.5);
  char buffer[64];
  if (s < 3600) {
    std::snprintf(buffer, sizeof buffer, "%ld:%02ld", s / 60, s % 60);
  } else if (s < 86400) {
    std::snprintf(buffer, sizeof buffer, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  } else {
    std::snprintf(buffer, sizeof buffer, "%ldd %02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60);
  }
  return buffer;
}

std::string counted(int64_t n, std::string_view noun) {
  return str(n, " ", noun, n == 1 ? "" : "s");
}

std::string format_rate(double x) {
  if (!(x >= 0) || std::isinf(x)) return "?";
  if (x < 999.5) return fixed(x, 0);
  if (x < 9950) return fixed(x / 1e3, 1) + "k";
  if (x < 999500) return fixed(x / 1e3, 0) + "k";
  return fixed(x / 1e6, 1) + "M";
}

ProgressStyle ProgressStyle::detect(std::FILE* stream) {
  ProgressStyle style;
  const int fd = ::fileno(stream);
  const std::string term = variable("TERM");
  style.terminal = fd >= 0 && ::isatty(fd) && term != "dumb";
  style.unicode = locale_is_utf8();
  style.colour = style.terminal && variable("NO_COLOR").empty();
  winsize size{};
  if (style.terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = size.ws_col;
  } else if (const int columns = std::atoi(variable("COLUMNS").c_str()); columns > 0) {
    style.width = columns;
  }
  return style;
}

std::string render_progress(const Progress& progress, const ProgressStyle& style) {
  const auto room = static_cast<size_t>(std::max(style.width - 1, 0));
  std::vector<Part> parts = parts_of(progress);
  while (!parts.empty() && join(parts).size() > room) {
    parts.erase(std::min_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.importance < b.importance;
    }));
  }
  std::string line = join(parts);
  const int frame = style.unicode ? 1 : 3;  // a space, and brackets around an ASCII bar
  const int cells = std::min(static_cast<int>(room - line.size()) - frame, longest_bar);
  const auto at =
      std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.importance == 7; });
  if (cells < 5 || at == parts.end()) return line;
  std::string drawn = bar(progress.done, cells, style.unicode);
  if (style.colour) drawn = str("\x1b[36m", drawn, "\x1b[0m");
  at->text = drawn + " " + at->text;
  return join(parts);
}

std::string plain_progress(const Progress& progress) { return join(parts_of(progress)); }

ProgressBar::ProgressBar(std::FILE* stream, ProgressStyle style, double plain_seconds)
    : stream_(stream),
      style_(style),
      plain_seconds_(plain_seconds),
      drawn_at_(-std::numeric_limits<double>::infinity()) {}

ProgressBar::~ProgressBar() {
  if (open_) std::fputs("\n", stream_);
  std::fflush(stream_);
}

void ProgressBar::draw(const std::string& line) {
  if (style_.terminal) {
    // Back to the first column, the line, and erase what a longer one left.
    std::fputs(str("\r", line, "\x1b[K").c_str(), stream_);
    open_ = true;
  } else {
    std::fputs((line + "\n").c_str(), stream_);
  }
  std::fflush(stream_);
  pending_ = false;
}

void ProgressBar::update(const Progress& progress, double now) {
  last_ = progress;
  pending_ = true;
  if (now - drawn_at_ < (style_.terminal ? redraw_seconds : plain_seconds_)) return;
  drawn_at_ = now;
  draw(style_.terminal ? render_progress(progress, style_) : plain_progress(progress));
}

void ProgressBar::message(std::string_view text) {
  if (open_) std::fputs("\r\x1b[K", stream_);
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fputs("\n", stream_);
  if (open_) draw(render_progress(last_, style_));
  std::fflush(stream_);
}

void ProgressBar::finish() {
  if (pending_) draw(style_.terminal ? render_progress(last_, style_) : plain_progress(last_));
  if (open_) std::fputs("\n", stream_);
  open_ = false;
  std::fflush(stream_);
}

}  // namespace rondo
