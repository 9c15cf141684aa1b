#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/report/charts.h"
#include "engine/report/svg.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using svg::Picture;
using svg::Point;

constexpr double left = 72, right = 20, top = 36, bottom = 46, gap = 12;
constexpr double wave_height = 70, spectrogram_height = 110, posterior_height = 170,
                 label_height = 30;

struct Frame {
  double width = 0;
  double length = 0;  // of all frames, in units of the axis
  double scale() const { return (width - left - right) / length; }
  double x(double from_begin) const { return left + scale() * from_begin; }
};

void check(const AlignmentPicture& p) {
  RONDO_CHECK(
      p.frames > 0 && p.classes > 0 && p.frame_length > 0 &&
          p.posteriors.size() == static_cast<size_t>(p.frames) * static_cast<size_t>(p.classes),
      "posteriors of ", p.frames, " frames and ", p.classes, " classes have ", p.posteriors.size(),
      " values");
  RONDO_CHECK(p.blank >= 0 && p.blank < p.classes, "blank is class ", p.blank, " of ", p.classes);
  RONDO_CHECK(p.spectrogram.empty() ||
                  (p.bins > 0 && p.spectrogram_frames > 0 &&
                   p.spectrogram.size() ==
                       static_cast<size_t>(p.spectrogram_frames) * static_cast<size_t>(p.bins)),
              "a spectrogram of ", p.spectrogram_frames, " x ", p.bins, " has ",
              p.spectrogram.size(), " values");
  RONDO_CHECK(
      p.line.size() == static_cast<size_t>(p.line_columns) * static_cast<size_t>(p.line_rows),
      "a line of ", p.line_columns, " x ", p.line_rows, " has ", p.line.size(), " values");
  for (const AlignedLabel& l : p.labels) {
    RONDO_CHECK(
        l.label >= 0 && l.label < p.classes && l.begin >= 0 && l.begin < l.end && l.end <= p.frames,
        "label '", l.text, "' is class ", l.label, ", frames ", l.begin, " to ", l.end);
  }
}

// Least and greatest sample per pixel.
void draw_waveform(Picture& picture, std::span<const float> samples, const Frame& frame, double y) {
  const auto columns = static_cast<size_t>(frame.width - left - right);
  std::vector<Point> upper, lower;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = samples.size() * c / columns;
    const size_t end = std::max(begin + 1, samples.size() * (c + 1) / columns);
    float low = 0, high = 0;
    for (size_t i = begin; i < std::min(end, samples.size()); ++i) {
      low = std::min(low, samples[i]);
      high = std::max(high, samples[i]);
    }
    const double x = left + static_cast<double>(c), middle = y + wave_height / 2;
    upper.push_back({x, middle - std::min(high, 1.0f) * wave_height / 2});
    lower.push_back({x, middle - std::max(low, -1.0f) * wave_height / 2});
  }
  upper.insert(upper.end(), lower.rbegin(), lower.rend());
  picture.line({left, y + wave_height / 2}, {frame.width - right, y + wave_height / 2}, "grid");
  picture.polygon(upper, "f0");
  picture.text({left - 8, y + wave_height / 2 + 4}, "sound", "note", "end");
}

// Dark is loud; the 2nd and 98th percentile bound the scale, so that one click does not grey out
// the rest.
void draw_spectrogram(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  std::vector<float> sorted;
  for (float v : p.spectrogram) {
    if (std::isfinite(v)) sorted.push_back(v);
  }
  if (sorted.empty()) return;
  std::sort(sorted.begin(), sorted.end());
  const float low = sorted[sorted.size() / 50],
              high = sorted[sorted.size() - 1 - sorted.size() / 50];
  const float scale = high > low ? 255 / (high - low) : 0;
  const auto columns = static_cast<size_t>(p.spectrogram_frames),
             rows = static_cast<size_t>(p.bins);
  std::vector<unsigned char> grey(columns * rows);
  for (size_t t = 0; t < columns; ++t) {
    for (size_t b = 0; b < rows; ++b) {
      const float v = p.spectrogram[t * rows + b];
      const float level = std::isfinite(v) ? std::clamp((v - low) * scale, 0.0f, 255.0f) : 0;
      grey[(rows - 1 - b) * columns + t] = static_cast<unsigned char>(255 - level);
    }
  }
  picture.image(left, y, frame.width - left - right, spectrogram_height, grey, p.spectrogram_frames,
                p.bins);
  picture.text({left - 8, y + spectrogram_height / 2 + 4}, "spectrum", "note", "end");
}

void draw_curve(Picture& picture, const AlignmentPicture& p, int32_t label, const Frame& frame,
                double y, const std::string& css) {
  std::vector<Point> points;
  for (int32_t t = 0; t < p.frames; ++t) {
    const float v = p.posteriors[static_cast<size_t>(t) * static_cast<size_t>(p.classes) +
                                 static_cast<size_t>(label)];
    const double share = std::isfinite(v) ? std::clamp(static_cast<double>(v), 0.0, 1.0) : 0;
    points.push_back({frame.x((t + 0.5) * p.frame_length), y + posterior_height * (1 - share)});
  }
  picture.polyline(points, css);
}

// Colours by order of first appearance; the last of the palette, grey, is blank's.
std::map<int32_t, std::string> colours_of(const AlignmentPicture& p) {
  std::map<int32_t, std::string> colours;
  for (const AlignedLabel& l : p.labels) {
    colours.try_emplace(l.label, std::to_string(colours.size() % (svg::palette_size - 1)));
  }
  return colours;
}

void draw_posteriors(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  for (double v : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    const double at = y + posterior_height * (1 - v);
    picture.line({left, at}, {frame.width - right, at}, "grid");
    picture.text({left - 8, at + 4}, svg::number(v), "note", "end");
  }
  picture.text({16, y + posterior_height / 2}, "posterior", "label", "middle", -90);
  draw_curve(picture, p, p.blank, frame, y, "s7 thin");
  picture.text({frame.width - right, y - 4}, "grey: blank", "note", "end");
  const auto colours = colours_of(p);
  for (const auto& [label, colour] : colours) {
    if (label != p.blank) draw_curve(picture, p, label, frame, y, "s" + colour);
  }
}

void draw_labels(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y,
                 double band_top) {
  const auto colours = colours_of(p);
  for (const AlignedLabel& l : p.labels) {
    const double from = frame.x(l.begin * p.frame_length), to = frame.x(l.end * p.frame_length);
    const std::string fill = "f" + colours.at(l.label);
    picture.rect(from, band_top, to - from, y - band_top, fill + " band");
    picture.rect(from, y + 2, std::max(to - from, 2.0), 5, fill);
    picture.text({(from + to) / 2, y + 23}, l.text == " " ? "␣" : l.text, "strong", "middle");
  }
}

void draw_axis(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  picture.line({left, y}, {frame.width - right, y}, "axis");
  const std::vector<double> marks = svg::ticks(p.begin, p.begin + frame.length);
  const double step = marks.size() > 1 ? marks[1] - marks[0] : 1;
  for (double t : marks) {
    const double x = frame.x(t - p.begin);
    picture.line({x, y}, {x, y + 5}, "axis");
    picture.text({x, y + 19}, svg::tick_text(t, step), "note", "middle");
  }
  picture.text({(left + frame.width - right) / 2, y + 38}, p.unit, "label", "middle");
}

}  // namespace

std::string alignment_svg(const AlignmentPicture& p) {
  check(p);
  // Wide enough to tell neighbouring labels apart, within what a page can show.
  const Frame frame{
      std::clamp(left + right + 22.0 * static_cast<double>(p.labels.size()), 760.0, 2400.0),
      p.frames * p.frame_length};
  const double line_height = frame.scale() * p.line_rows;  // pixels stay square
  double height = top + 16 + posterior_height + label_height + bottom;
  if (!p.line.empty()) height += line_height + gap;
  if (!p.waveform.empty()) height += wave_height + gap;
  if (!p.spectrogram.empty()) height += spectrogram_height + gap;
  Picture picture(frame.width, height, p.title);
  picture.text({left, 22}, p.title, "strong");
  double y = top, band_top = 0;
  if (!p.line.empty()) {
    picture.image(frame.x(-p.begin), y, frame.scale() * p.line_columns, line_height, p.line,
                  p.line_columns, p.line_rows);
    band_top = y;
    y += line_height + gap;
  }
  if (!p.waveform.empty()) {
    draw_waveform(picture, p.waveform, frame, y);
    y += wave_height + gap;
  }
  if (!p.spectrogram.empty()) {
    draw_spectrogram(picture, p, frame, y);
    y += spectrogram_height + gap;
  }
  y += 16;
  draw_posteriors(picture, p, frame, y);
  draw_labels(picture, p, frame, y + posterior_height, p.line.empty() ? y : band_top);
  draw_axis(picture, p, frame, y + posterior_height + label_height);
  return picture.finish();
}

}  // namespace rondo
