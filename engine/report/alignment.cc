#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "engine/report/charts.h"
#include "engine/report/svg.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using svg::Picture;
using svg::Point;

constexpr double left = 72, right = 24, top = 34, bottom = 14, gap = 8;
constexpr double short_content = 664, content = 1004;  // of a row, in pixels
constexpr double word_height = 22, letter_height = 30, wave_height = 44, spectrogram_height = 96,
                 posterior_gap = 16, posterior_height = 96, axis_height = 44, line_most = 140;
constexpr double most_rows = 60;

// Frames [first, end) of the picture beside each other.
struct Row {
  int32_t first = 0, end = 0;
};

// What a row shows where.
struct Frame {
  Row row;
  double scale = 0;  // pixels of a frame
  double x(double frame) const { return left + scale * (frame - row.first); }
  double end() const { return x(row.end); }
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
  for (const AlignedWord& w : p.words) {
    RONDO_CHECK(w.begin >= 0 && w.begin < w.end && w.end <= p.frames, "word '", w.text,
                "' is frames ", w.begin, " to ", w.end);
  }
  for (const AlignedLabel& l : p.labels) {
    RONDO_CHECK(
        l.label >= 0 && l.label < p.classes && l.begin >= 0 && l.begin < l.end && l.end <= p.frames,
        "label '", l.text, "' is class ", l.label, ", frames ", l.begin, " to ", l.end);
  }
}

// A text with its place, in frames.
struct Label {
  double at = 0, width = 0;
};

double centre(int32_t begin, int32_t end) { return (begin + end) / 2.0; }

// Pixels of a frame at which any so many neighbours have room between the first and the last.
double scale_for(const std::vector<Label>& labels, size_t neighbours) {
  double scale = 0;
  const size_t n = std::min(neighbours, labels.size());
  for (size_t i = 0; n >= 2 && i + n <= labels.size(); ++i) {
    double room = -(labels[i].width + labels[i + n - 1].width) / 2;
    for (size_t k = i; k < i + n; ++k) room += labels[k].width;
    scale = std::max(scale, room / std::max(labels[i + n - 1].at - labels[i].at, 0.5));
  }
  return scale;
}

std::string shown(const std::string& text) { return text == " " ? "␣" : text; }

// Texts of a row or of all rows, from left to right.
template <class Text>
std::vector<Label> labels_of(const std::vector<Text>& texts, double letter) {
  std::vector<Label> labels;
  for (const Text& t : texts)
    labels.push_back({centre(t.begin, t.end), letter * svg::text_width(shown(t.text)) + 5});
  std::sort(labels.begin(), labels.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return labels;
}

// Places, in pixels, at which texts do not overlap, as near as can be to where they belong (least
// squares, by pooling neighbours), within the row if they fit there.
std::vector<double> apart(const std::vector<double>& wanted, const std::vector<double>& widths,
                          double begin, double end) {
  struct Pool {
    double sum = 0;
    size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<double> offsets;
  std::vector<Pool> pools;
  for (size_t i = 0; i < wanted.size(); ++i) {
    offsets.push_back(i ? offsets[i - 1] + (widths[i - 1] + widths[i]) / 2 : 0);
    pools.push_back({wanted[i] - offsets[i], 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      pools[pools.size() - 2].sum += pools.back().sum;
      pools[pools.size() - 2].count += pools.back().count;
      pools.pop_back();
    }
  }
  if (wanted.empty()) return {};
  const double least = begin + widths.front() / 2,
               most = std::max(least, end - widths.back() / 2 - offsets.back());
  std::vector<double> places;
  for (const Pool& pool : pools) {
    for (size_t k = 0; k < pool.count; ++k)
      places.push_back(std::clamp(pool.mean(), least, most) + offsets[places.size()]);
  }
  return places;
}

// The denser the text, the more pixels a frame has, and the more rows there are.
double scale_of(const AlignmentPicture& p) {
  const double needed =
      std::max(scale_for(labels_of(p.labels, 1.25), 12), scale_for(labels_of(p.words, 1), 3));
  double roomy = short_content / p.frames;
  if (p.line_rows > 0) roomy = std::min(roomy, line_most / p.line_rows * p.frame_length);
  return std::max(std::min(needed, most_rows * content / p.frames), roomy);
}

// Rows end between words where they can, else between letters.
std::vector<Row> rows_of(const AlignmentPicture& p, double scale) {
  const auto capacity = std::max(static_cast<int32_t>(content / scale), 1);
  std::vector<int32_t> between_words, between_labels;
  const auto find = [](const auto& texts, std::vector<int32_t>& between) {
    for (size_t i = 1; i < texts.size(); ++i) {
      if (texts[i - 1].end <= texts[i].begin)
        between.push_back((texts[i - 1].end + texts[i].begin + 1) / 2);
    }
  };
  find(p.words, between_words);
  find(p.labels, between_labels);
  std::vector<Row> rows;
  for (int32_t first = 0; first < p.frames;) {
    int32_t end = first + capacity;
    if (end >= p.frames) {
      rows.push_back({first, p.frames});
      break;
    }
    for (const auto* between : {&between_words, &between_labels}) {
      const auto after = std::upper_bound(between->begin(), between->end(), end);
      if (after == between->begin() || *std::prev(after) < first + capacity * 7 / 10) continue;
      end = *std::prev(after);
      break;
    }
    rows.push_back({first, end});
    first = end;
  }
  return rows;
}

// Those of which most lies in the row, from left to right.
template <class Text>
std::vector<const Text*> texts_in(const std::vector<Text>& all, const Row& row) {
  std::vector<const Text*> texts;
  for (const Text& t : all) {
    const double at = centre(t.begin, t.end);
    if (at >= row.first && at < row.end) texts.push_back(&t);
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const Text* a, const Text* b) { return a->begin < b->begin; });
  return texts;
}

template <class Text>
std::vector<double> places_of(const std::vector<const Text*>& texts, const Frame& frame,
                              double letter) {
  std::vector<double> wanted, widths;
  for (const Text* t : texts) {
    wanted.push_back(frame.x(centre(t->begin, t->end)));
    widths.push_back(letter * svg::text_width(shown(t->text)) + 5);
  }
  return apart(wanted, widths, left - 20, std::max(frame.end() + 20, left + short_content));
}

void draw_words(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  const auto words = texts_in(p.words, frame.row);
  const std::vector<double> places = places_of(words, frame, 1);
  picture.text({left - 24, y + 13}, "words", "note", "end");
  for (size_t i = 0; i < words.size(); ++i) {
    const double from = frame.x(std::max(words[i]->begin, frame.row.first)),
                 to = frame.x(std::min(words[i]->end, frame.row.end));
    picture.text({places[i], y + 13}, words[i]->text, "label word", "middle");
    picture.line({from + 1.5, y + 19}, {std::max(to - 1.5, from + 2), y + 19}, "axis");
  }
}

// The letters, each with a line to the stretch that spells it.
void draw_letters(Picture& picture, const AlignmentPicture& p,
                  const std::map<int32_t, std::string>& colours, const Frame& frame, double y) {
  const auto labels = texts_in(p.labels, frame.row);
  const std::vector<double> places = places_of(labels, frame, 1.25);
  for (size_t i = 0; i < labels.size(); ++i) {
    const AlignedLabel& l = *labels[i];
    const double from = frame.x(std::max(l.begin, frame.row.first)),
                 to = frame.x(std::min(l.end, frame.row.end));
    const std::string& colour = colours.at(l.label);
    picture.text({places[i], y + 13}, shown(l.text), "strong letter", "middle");
    picture.line({places[i], y + 17}, {(from + to) / 2, y + 24}, "s" + colour);
    picture.rect(from, y + 24, std::max(to - from, 2.0), 4, "f" + colour);
  }
}

// Least and greatest sample per pixel.
void draw_waveform(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  const auto columns = static_cast<size_t>(std::max(frame.end() - left, 1.0));
  const auto sample = [&](double x) {
    const double at = (frame.row.first + x / frame.scale) / p.frames;
    return std::min(static_cast<size_t>(at * static_cast<double>(p.waveform.size())),
                    p.waveform.size());
  };
  std::vector<Point> upper, lower;
  const double middle = y + wave_height / 2;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = sample(static_cast<double>(c));
    const size_t end = std::max(begin + 1, sample(static_cast<double>(c + 1)));
    float low = 0, high = 0;
    for (size_t i = begin; i < std::min(end, p.waveform.size()); ++i) {
      low = std::min(low, p.waveform[i]);
      high = std::max(high, p.waveform[i]);
    }
    const double x = left + static_cast<double>(c);
    upper.push_back({x, middle - std::min(high, 1.0f) * wave_height / 2});
    lower.push_back({x, middle - std::max(low, -1.0f) * wave_height / 2});
  }
  upper.insert(upper.end(), lower.rbegin(), lower.rend());
  picture.line({left, middle}, {frame.end(), middle}, "grid");
  picture.polygon(upper, "f0");
  picture.text({left - 8, middle + 4}, "sound", "note", "end");
}

// Columns [begin, end) of an image of so many.
std::vector<unsigned char> columns_of(std::span<const unsigned char> grey, size_t all, size_t begin,
                                      size_t end) {
  std::vector<unsigned char> part;
  for (size_t row = 0; row * all < grey.size(); ++row) {
    const auto columns = grey.subspan(row * all + begin, end - begin);
    part.insert(part.end(), columns.begin(), columns.end());
  }
  return part;
}

// Dark is loud; the 2nd and 98th percentile bound the scale, so that one click does not grey out
// the rest. Low bins are at the bottom. Empty: nothing is finite.
std::vector<unsigned char> grey_spectrogram(const AlignmentPicture& p) {
  std::vector<float> sorted;
  for (float v : p.spectrogram) {
    if (std::isfinite(v)) sorted.push_back(v);
  }
  if (sorted.empty()) return {};
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
  return grey;
}

// An image of which a column is `per_column` frames long, and the first one begins at `begin`.
struct Strip {
  std::span<const unsigned char> grey;
  int32_t columns = 0, rows = 0;
  double begin = 0, per_column = 1;
};

void draw_strip(Picture& picture, const Strip& s, const Frame& frame, double y, double height) {
  const auto column = [&](double at) {
    return std::clamp((at - s.begin) / s.per_column, 0.0, static_cast<double>(s.columns));
  };
  const auto begin = static_cast<size_t>(std::floor(column(frame.row.first))),
             end = static_cast<size_t>(std::ceil(column(frame.row.end)));
  if (begin >= end) return;
  const auto part = columns_of(s.grey, static_cast<size_t>(s.columns), begin, end);
  const auto x = [&](size_t at) {
    return frame.x(s.begin + static_cast<double>(at) * s.per_column);
  };
  picture.image(x(begin), y, x(end) - x(begin), height, part, static_cast<int>(end - begin),
                s.rows);
}

void draw_curve(Picture& picture, const AlignmentPicture& p, int32_t label, const Frame& frame,
                double y, const std::string& css) {
  std::vector<Point> points;
  for (int32_t t = frame.row.first; t < frame.row.end; ++t) {
    const float v = p.posteriors[static_cast<size_t>(t) * static_cast<size_t>(p.classes) +
                                 static_cast<size_t>(label)];
    const double share = std::isfinite(v) ? std::clamp(static_cast<double>(v), 0.0, 1.0) : 0;
    points.push_back({frame.x(t + 0.5), y + posterior_height * (1 - share)});
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

void draw_posteriors(Picture& picture, const AlignmentPicture& p,
                     const std::map<int32_t, std::string>& colours, const Frame& frame, double y) {
  for (double v : {0.0, 0.5, 1.0}) {
    const double at = y + posterior_height * (1 - v);
    picture.line({left, at}, {frame.end(), at}, "grid");
    picture.text({left - 8, at + 4}, svg::number(v), "note", "end");
  }
  picture.text({16, y + posterior_height / 2}, "posterior", "label", "middle", -90);
  draw_curve(picture, p, p.blank, frame, y, "s7 thin");
  const auto labels = texts_in(p.labels, frame.row);
  for (const auto& [label, colour] : colours) {
    const bool occurs = std::any_of(labels.begin(), labels.end(),
                                    [&](const AlignedLabel* l) { return l->label == label; });
    if (label != p.blank && occurs) draw_curve(picture, p, label, frame, y, "s" + colour);
  }
}

void draw_axis(Picture& picture, const AlignmentPicture& p, const Frame& frame, double y) {
  picture.line({left, y}, {frame.end(), y}, "axis");
  const auto at = [&](int32_t row_frame) { return p.begin + row_frame * p.frame_length; };
  const std::vector<double> marks = svg::ticks(at(frame.row.first), at(frame.row.end));
  const double step = marks.size() > 1 ? marks[1] - marks[0] : 1;
  for (double t : marks) {
    const double x = frame.x((t - p.begin) / p.frame_length);
    picture.line({x, y}, {x, y + 5}, "axis");
    picture.text({x, y + 18}, svg::tick_text(t, step), "note", "middle");
  }
  picture.text({left - 22, y + 18}, p.unit, "note", "end");
}

// What all rows share.
struct Sheet {
  double scale = 0, line_height = 0;
  std::vector<unsigned char> spectrum;
  std::map<int32_t, std::string> colours;
};

double row_height(const AlignmentPicture& p, const Sheet& sheet) {
  double height = letter_height + posterior_gap + posterior_height + axis_height;
  if (!p.words.empty()) height += word_height;
  if (!p.line.empty()) height += sheet.line_height + gap;
  if (!p.waveform.empty()) height += wave_height + gap;
  if (!sheet.spectrum.empty()) height += spectrogram_height + gap;
  return height;
}

void draw_row(Picture& picture, const AlignmentPicture& p, const Sheet& sheet, const Row& row,
              double y) {
  const Frame frame{row, sheet.scale};
  if (!p.words.empty()) {
    draw_words(picture, p, frame, y);
    y += word_height;
  }
  draw_letters(picture, p, sheet.colours, frame, y);
  y += letter_height;
  const double bands = y;
  if (!p.line.empty()) {
    draw_strip(picture,
               {p.line, p.line_columns, p.line_rows, -p.begin / p.frame_length, 1 / p.frame_length},
               frame, y, sheet.line_height);
    y += sheet.line_height + gap;
  }
  if (!p.waveform.empty()) {
    draw_waveform(picture, p, frame, y);
    y += wave_height + gap;
  }
  if (!sheet.spectrum.empty()) {
    draw_strip(picture,
               {sheet.spectrum, p.spectrogram_frames, p.bins, 0,
                static_cast<double>(p.frames) / p.spectrogram_frames},
               frame, y, spectrogram_height);
    picture.text({left - 8, y + spectrogram_height / 2 + 4}, "spectrum", "note", "end");
    y += spectrogram_height + gap;
  }
  picture.text({frame.end(), y + posterior_gap - 5}, "grey: blank", "note", "end");
  y += posterior_gap;
  draw_posteriors(picture, p, sheet.colours, frame, y);
  y += posterior_height;
  for (const AlignedLabel* l : texts_in(p.labels, row)) {
    const double from = frame.x(std::max(l->begin, row.first)),
                 to = frame.x(std::min(l->end, row.end));
    picture.rect(from, bands, to - from, y - bands, "f" + sheet.colours.at(l->label) + " band");
  }
  draw_axis(picture, p, frame, y);
}

// What of a title fits into a line; the whole text stands over its rows.
std::string cut(const std::string& title, double width) {
  if (1.25 * svg::text_width(title) <= width) return title;
  size_t end = title.size();
  while (end > 0 && 1.25 * svg::text_width(title.substr(0, end) + " …") > width) {
    end = end > 1 ? title.rfind(' ', end - 1) : 0;
    if (end == std::string::npos) end = 0;
  }
  return title.substr(0, end) + " …";
}

}  // namespace

std::string alignment_svg(const AlignmentPicture& p) {
  check(p);
  const double scale = scale_of(p);
  const Sheet sheet{scale, scale / p.frame_length * p.line_rows,  // pixels stay square
                    grey_spectrogram(p), colours_of(p)};
  const std::vector<Row> rows = rows_of(p, scale);
  double width = left + short_content + right;
  for (const Row& row : rows) width = std::max(width, Frame{row, scale}.end() + right);
  const double height = row_height(p, sheet);
  Picture picture(width, top + height * static_cast<double>(rows.size()) + bottom, p.title);
  picture.text({left, 22}, cut(p.title, width - left - right), "strong");
  double y = top;
  for (const Row& row : rows) {
    draw_row(picture, p, sheet, row, y);
    y += height;
  }
  return picture.finish();
}

}  // namespace rondo
