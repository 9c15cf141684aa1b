// The image of a line made level, and its letters brought to one place and size, by its ink alone:
// for images of lines that nobody has described by a baseline. All keep the width, so a column of
// the result is that of the image.
//
// Thread safety: pure functions.
#pragma once

#include "engine/data/image/grey_image.h"
#include "engine/data/image/line_features.h"

namespace rondo {

// What the configuration asks for, in this order; the image itself where it asks for neither.
GreyImage shaped(const LineConfig& config, GreyImage image);

// How many rows a line that is written from left to right falls in a column; 0 for an image that is
// blank or less than three times as wide as high. The slope, of at most 0.2 and at most from corner
// to corner, at which the ink lies in the fewest rows: the sum of the squares of what the rows hold
// is greatest (W. Postl, "Detection of linear oblique structures and skew scan in digitized
// documents", ICPR 1986).
double slope_of(const GreyImage& line, Ink ink);

// Columns shifted up or down by whole pixels, so that the slope becomes 0; then rows at the upper
// and lower edge that the slope alone had filled are taken away, as far as they have no ink.
GreyImage deskewed(const GreyImage& line, Ink ink);

// Rows about the middle of the ink: each column is shifted so that its middle, smoothed over
// half the height of the line to either side, lies in the middle; what is four times the ink's mean
// distance from there becomes the upper and the lower edge. Long ascenders or wide margins do not
// make the letters small. The idea is that of OCRopus's normalisation; the middle here is the mean
// of the ink. A blank image stays.
GreyImage centred(const GreyImage& line, Ink ink);

}  // namespace rondo
