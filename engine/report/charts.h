// Pictures as SVG: learning curves, sheets of text lines, and how a CTC model's outputs align with
// its text.
//
// The pictures need no script or font of their own, are readable on light and dark backgrounds
// (they follow prefers-color-scheme where the viewer knows it), and the same input gives the same
// bytes. Text from outside is escaped. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/report/jsonl.h"

namespace rondo {

struct LearningCurve {
  std::string title;
  std::string x_label = "updates";
  std::vector<Series> loss;  // drawn on a logarithmic axis if positive over more than a decade
  // WER, CER as shares: 0.12 is drawn as 12%. Over more than a factor of five the axis is
  // logarithmic; zeros then lie on a line of their own at its foot.
  std::vector<Series> error_rates;
  std::optional<double> kept = {};  // where on the x axis the model was that is kept
};

// Two panels over a common axis; a panel without points is left out, and values that are not finite
// are marked at the top edge of theirs. Long series are thinned to what can be seen, keeping
// extremes. The last value of each stands at its end; of a long one, that of its running mean.
std::string learning_curve_svg(const LearningCurve& curve);

// "step.loss", "validation.loss", and "validation.wer", "validation.cer", "validation.error" of a
// training log; kept is the last validation that was "best".
LearningCurve learning_curve_of(const TrainingLog& log, std::string title);

// How many values lie in each of some thirty equal steps from 0. A few very large ones share the
// last step, which says so.
struct Histogram {
  std::string title, x_label, y_label;
  std::vector<double> values;  // at least 0
};
std::string histogram_svg(const Histogram& chart);

// Images of lines below each other, as many pixels wide as they are.
struct LineSheet {
  struct Row {
    std::string caption;              // above it; may be empty
    int columns = 0, rows = 0;        // pixels
    std::vector<unsigned char> grey;  // [rows, columns], 0 black to 255 white
  };
  std::string title;
  std::vector<Row> rows;
};
std::string line_sheet_svg(const LineSheet& sheet);

// A stretch of frames [begin, end) that spells one label.
struct AlignedLabel {
  std::string text;
  int32_t label = 0;  // class index
  int32_t begin = 0, end = 0;
};

struct AlignedWord {
  std::string text;
  int32_t begin = 0, end = 0;  // frames
};

struct AlignmentPicture {
  std::string title;
  std::span<const float> posteriors;  // [frames, classes], row-major, each in [0, 1]
  int32_t frames = 0;
  int32_t classes = 0;
  int32_t blank = 0;
  std::string unit = "seconds";  // of the axis; "pixels" of a line of text
  double frame_length = 0.01;    // one row of the posteriors
  double begin = 0;              // what the axis has at the first of them
  std::vector<AlignedLabel> labels;
  std::vector<AlignedWord> words = {};  // optional
  // The image of a line of text, optional, [line_rows, line_columns], 0 black to 255 white: each
  // column is a unit of the axis, the first one at 0.
  std::span<const unsigned char> line;
  int32_t line_columns = 0, line_rows = 0;
  std::span<const float> waveform;  // optional, in [-1, 1], over the same time
  std::span<const float>
      spectrogram;  // optional, [spectrogram_frames, bins], any scale; low bins first
  int32_t spectrogram_frames = 0;
  int32_t bins = 0;
};

// In rows, each from top to bottom: the words, the labels over their frames, line, waveform and
// spectrogram (where given), posteriors of the labels that occur and of blank, and the axis. The
// denser the text, the wider a frame, so that texts do not overlap; where they are dense for a
// moment only, they stand a little beside their frames, to which lines lead. What is longer than a
// row goes on in the next one, between words where that can be. The stretches of labels are tinted.
// RONDO_CHECK that sizes agree.
std::string alignment_svg(const AlignmentPicture& picture);

}  // namespace rondo
