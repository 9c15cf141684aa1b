// From the image of a text line to frames: a frame is a column of the line, scaled to one height.
//
// Values are ink: 0 is paper, 1 is full ink. Scaling keeps the aspect and averages over what a
// pixel covers (a triangle filter, as wide as the scale), so thin strokes become grey and do not
// vanish.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/features/matrix.h"
#include "engine/data/image/grey_image.h"

namespace rondo {

// What is written with. `automatic`: whichever of dark and light the smaller part of the image is.
enum class Ink : uint8_t { dark, light, automatic };

// How a line is written. The image is turned so that its beginning is on the left: mirrored, or by
// a quarter to the left.
enum class LineDirection : uint8_t { rightwards, leftwards, downwards };

// What is wider is no line of text, and would take the memory of thousands.
inline constexpr int64_t most_line_columns = 1 << 16;

// How a line is scaled, and which greys contrast takes for its paper and ink. `average`: by the
// filter above; the grey of three quarters of its pixels and that of the darkest hundredth.
// `tesseract`: as Tesseract does (tesseract_scaling.h); of the lightest and the darkest places
// along the middle row of the scaled line, the upper and the lower quartile.
enum class LineScaling : uint8_t { average, tesseract };

struct LineConfig {
  int32_t height = 48;  // pixels after scaling, the columns of the features
  int32_t padding = 8;  // columns of paper before the line, and as many behind it
  Ink ink = Ink::dark;
  // The line's own paper becomes 0 and its ink 1. Without it, black is 1 and white 0.
  bool contrast = true;
  LineScaling scaling = LineScaling::average;
  bool deskew = false;  // see line_shape.h
  bool centre = false;
  LineDirection direction = LineDirection::rightwards;

  bool operator==(const LineConfig&) const = default;

  // Columns of an image of this size, as shaped() gives it, after turning and scaling, `permille`
  // of 1000 times as wide as it is; the padding is not counted. At least 1.
  int64_t scaled_width(ImageInfo size, int32_t permille = 1000) const;
  // Throws InputError, naming the file, where these are more than `most_line_columns`.
  void require_line(ImageInfo size, const std::string& name) const;
  // The frames that line_features() gives of so many columns.
  int64_t frames(int64_t scaled_columns) const { return scaled_columns + 2 * padding; }
  // Throws InputError: which value is out of range, and the range.
  void validate() const;
};

// [padding + columns + padding, height], a column from top to bottom in each row. `columns`: what
// scaled_width() says. The image is one of shaped() (line_shape.h).
Matrix line_features(const LineConfig& config, const GreyImage& image, int64_t columns);

// The image with the line's beginning on the left.
GreyImage turned(const GreyImage& image, LineDirection direction);
ImageInfo turned(ImageInfo size, LineDirection direction);

// Whether there is nothing on it: its darkest and its lightest hundredth are as good as one grey.
bool is_blank(const GreyImage& image);

// Whether light ink stands on darker paper, as far as the image tells: `automatic` ink is light.
bool is_light_on_dark(const GreyImage& image);

// How many lines of writing stand below each other on what was given as one; 0 where fewer than
// five do. It may see fewer than there are. Bands of ink between rows with far less are counted in
// each of four strips side by side, so that pages may slant a little and have columns and ragged
// edges; two strips have to show as many. What is thin beside the highest band, a rule or an
// accent, is none. Lines that touch each other all along are not told apart.
int32_t count_lines(const GreyImage& image, const LineConfig& config);
// Where count_lines() finds some: a sentence that says so, and how lines are given. Else empty.
std::string page_warning(const GreyImage& image, const LineConfig& config, const std::string& name);

}  // namespace rondo
