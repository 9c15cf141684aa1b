#include "tools/recognition/alignment_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/data/features/acoustic_features.h"
#include "engine/data/features/endings.h"
#include "engine/data/image/image.h"
#include "engine/io/file.h"
#include "engine/report/charts.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double most_seconds = 60;  // some twenty rows

struct Part {
  int64_t first = 0, end = 0;  // frames
};

Part part_of(const PictureOptions& o, const std::string& name, const Transcript& t,
             double frame_seconds) {
  if (t.frames == 0) fail_input(name, ": is shorter than a frame: nothing to draw");
  if (o.to > 0 && o.to <= o.from) throw WrongUsage("--picture-to is not behind --picture-from");
  const auto frame = [&](double seconds) {
    return std::min<int64_t>(std::llround(seconds / frame_seconds), t.frames);
  };
  const Part part{frame(o.from), frame(o.to > 0 ? o.to : o.from + most_seconds)};
  if (part.first >= part.end)
    fail_input(name, ": has no frame from ", o.from, " s on, it is ",
               static_cast<double>(t.frames) * frame_seconds, " s long");
  return part;
}

// Its labels in frames from the part's begin; a frame is so long, in what the times of `t` are.
std::vector<AlignedLabel> labels_of(const Transcript& t, const Vocabulary& vocabulary,
                                    double frame_length, const Part& part) {
  std::vector<AlignedLabel> labels;
  for (const Transcript::Token& c : t.characters) {
    const int64_t first = std::llround(c.begin / frame_length) - part.first;
    const int64_t last =
        std::min<int64_t>(std::llround(c.end / frame_length), part.end) - part.first;
    const auto label = vocabulary.find(c.text);
    if (!label || last <= 0 || first >= last) continue;
    labels.push_back({c.text, *label, static_cast<int32_t>(std::max<int64_t>(first, 0)),
                      static_cast<int32_t>(last)});
  }
  return labels;
}

std::vector<AlignedWord> words_of(const Transcript& t, double frame_length, const Part& part) {
  std::vector<AlignedWord> words;
  for (const Transcript::Token& w : t.words) {
    const int64_t first = std::max<int64_t>(std::llround(w.begin / frame_length) - part.first, 0);
    const int64_t last =
        std::min<int64_t>(std::llround(w.end / frame_length), part.end) - part.first;
    if (first < last)
      words.push_back({w.text, static_cast<int32_t>(first), static_cast<int32_t>(last)});
  }
  return words;
}

// What is heard, as people know it, whatever the model's features are.
Matrix spectrogram_of(std::span<const float> samples, int32_t rate) {
  SoundConfig config;
  config.rate = rate;
  config.edges = FrameEdges::centered;
  return FeatureExtractor(config).compute(samples);
}

std::vector<float> posteriors_of(const Transcript& t, const Part& part) {
  std::vector<float> posteriors;
  for (int64_t f = part.first; f < part.end; ++f) {
    const float* row = &t.logits[static_cast<size_t>(f * t.classes)];
    const float largest = *std::max_element(row, row + t.classes);
    float sum = 0;
    for (int64_t c = 0; c < t.classes; ++c) sum += std::exp(row[c] - largest);
    for (int64_t c = 0; c < t.classes; ++c) posteriors.push_back(std::exp(row[c] - largest) / sum);
  }
  return posteriors;
}

// All of the text, or the words within the part and where that lies.
std::string title_of(const Transcript& t, double begin, double end, double seconds) {
  if (begin <= 0 && end >= seconds) return t.text;
  char title[96];
  std::snprintf(title, sizeof title, "%.1f to %.1f s of %.1f s:", begin, end, seconds);
  std::string text = title;
  for (const Transcript::Token& w : t.words)
    if (w.end > begin && w.begin < end) text += " " + w.text;
  return text;
}

// A line that was read from its right edge, as it is shown: from the left, in pixels of the image.
void turn_back(AlignmentPicture& p, std::vector<float>& posteriors) {
  std::vector<float> from_left;
  for (int64_t frame = p.frames; frame-- > 0;) {
    const auto row = posteriors.begin() + frame * p.classes;
    from_left.insert(from_left.end(), row, row + p.classes);
  }
  posteriors = std::move(from_left);
  p.posteriors = posteriors;
  p.begin = p.line_columns - (p.begin + p.frame_length * p.frames);
  const auto turn = [&](auto& parts) {
    for (auto& part : parts) {
      part.begin = p.frames - part.begin;
      part.end = p.frames - part.end;
      std::swap(part.begin, part.end);
    }
    std::reverse(parts.begin(), parts.end());
  };
  turn(p.labels);
  turn(p.words);
}

// A name of another kind of picture, which programs would then fail to open.
std::string check_picture_name(const std::string& name) {
  if (!is_image_name(name) && !has_ending(name, ".pdf")) return {};
  return str("'", name, "' is no name of an SVG file, expected one that ends with .svg");
}

}  // namespace

void add_picture_options(Command& command, PictureOptions* o) {
  command
      .add_option("--picture", o->path,
                  "draw the alignment of one recording, or of one line's image, as SVG")
      .check(check_picture_name)
      .type_name("FILE");
  command.add_option("--picture-from", o->from, "second at which the picture begins")
      .range(0.0, 1e7)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--picture-to", o->to,
                  "second at which it ends; else it shows 60 seconds at most")
      .range(0.0, 1e7)
      .type_name("FLOAT");
}

void draw_alignment(const PictureOptions& o, const std::string& name, const Transcript& t,
                    const Vocabulary& vocabulary, double frame_seconds, const Waveform& audio) {
  const Part part = part_of(o, name, t, frame_seconds);
  const double begin = static_cast<double>(part.first) * frame_seconds;
  const double end = static_cast<double>(part.end) * frame_seconds;
  const double seconds = static_cast<double>(t.frames) * frame_seconds;
  const std::span<const float> samples = audio.samples;
  const std::vector<float> posteriors = posteriors_of(t, part);
  AlignmentPicture p;
  p.title = title_of(t, begin, end, seconds);
  p.posteriors = posteriors;
  p.frames = static_cast<int32_t>(part.end - part.first);
  p.classes = static_cast<int32_t>(t.classes);
  p.blank = vocabulary.blank();
  p.frame_length = frame_seconds;
  p.begin = begin;
  const auto place = [&](double at) {
    return static_cast<size_t>(std::llround(at / seconds * static_cast<double>(samples.size())));
  };
  p.waveform = samples.subspan(place(begin), place(end) - place(begin));
  Matrix spectrogram;
  if (!p.waveform.empty()) spectrogram = spectrogram_of(p.waveform, audio.sample_rate);
  p.spectrogram = spectrogram.data;
  p.spectrogram_frames = static_cast<int32_t>(spectrogram.frames);
  p.bins = static_cast<int32_t>(spectrogram.dim);
  p.labels = labels_of(t, vocabulary, frame_seconds, part);
  p.words = words_of(t, frame_seconds, part);
  replace_text_file(o.path, alignment_svg(p));
}

void draw_line_alignment(const PictureOptions& o, const std::string& name, const Transcript& t,
                         const Vocabulary& vocabulary, double frame_columns, const LineConfig& line,
                         const GreyImage& image) {
  if (t.frames == 0) fail_input(name, ": nothing stands on it: there is nothing to draw");
  if (o.from > 0 || o.to > 0)
    throw WrongUsage(
        "--picture-from and --picture-to are seconds of recordings; of a line all is drawn");
  const Part all{0, t.frames};
  std::vector<float> posteriors = posteriors_of(t, all);
  GreyImage read = turned(image, line.direction);
  const double scale = static_cast<double>(read.height) / line.height;  // pixels to a column
  AlignmentPicture p;
  p.title = t.text;
  p.posteriors = posteriors;
  p.frames = static_cast<int32_t>(t.frames);
  p.classes = static_cast<int32_t>(t.classes);
  p.blank = vocabulary.blank();
  p.unit = "pixels";
  p.frame_length = frame_columns * scale;
  p.begin = -line.padding * scale;
  p.line_columns = read.width;
  p.line_rows = read.height;
  p.labels = labels_of(t, vocabulary, frame_columns, all);
  p.words = words_of(t, frame_columns, all);
  if (line.direction == LineDirection::leftwards) {
    turn_back(p, posteriors);
    read = image;
  }
  p.line = read.pixels;
  replace_text_file(o.path, alignment_svg(p));
}

}  // namespace rondo
