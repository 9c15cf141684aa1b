// Variations of text lines in training: every function is pure in (seed, epoch, line), as those of
// augment.h are.
//
// Each kind is drawn by itself with `probability`, and how strong it is uniformly up to its setting
// times `strength`. Without any strength there are no cutouts.
// First the line is bent (one interpolation: slant, rotation, size, offset and a grid of random
// shifts), then strokes are thickened or thinned by grey morphology, blurred and faded, the paper
// gets a background, and all is made noisy and covered in places.
//
// Sources: Simard et al. 2003, "Best practices for convolutional neural networks applied to visual
// document analysis" (elastic); Wigington et al. 2017, "Data augmentation for recognition of
// handwritten words and lines" (grids of shifts); DeVries and Taylor 2017, "Cutout"; Serra 1982,
// "Image analysis and mathematical morphology"; Perlin 1985, "An image synthesizer" (sums of
// smooth grids). Thread safety: pure functions on the caller's data.
#pragma once

#include <cstdint>

#include "engine/data/augment.h"
#include "engine/data/features/matrix.h"

namespace rondo {

// Lengths are pixels of the scaled line, ink is 0 to 1; 0 is none. The numbers
// take part as f32.
struct DistortConfig {
  double probability = 0.5;  // of each kind, for each line and epoch
  double strength = 1;       // times all that follow; of cutouts times their size
  double stretch = 0;        // wider or narrower by up to this share
  double slant = 0;          // degrees that upright strokes lean, to either side
  double rotation = 0;       // degrees about the line's middle, to either side
  double size = 0;           // higher or lower by up to this share, about the line's middle
  double offset = 0;         // up or down as a whole
  double elastic = 0;        // greatest shift of a grid's points, 0.75 of the height apart
  double thickness = 0;      // strokes wider or narrower by up to so much on each side
  double blur = 0;           // standard deviation
  double fade = 0;           // ink loses, or paper gains, up to this share
  double background = 0;     // the paper is unevenly dark, by up to so much ink at its darkest
  double show_through = 0;   // ink of the page's other side shows with up to this share
  double noise = 0;          // standard deviation of what is added to each pixel
  int32_t cutouts = 0;       // patches of paper or of ink, at most
  double cutout_size = 12;   // their greatest side

  bool operator==(const DistortConfig&) const = default;
  // Throws InputError: which value is out of range, and the range.
  void validate() const;
};

// How wide the line becomes, in thousandths: 1100 is wider by 10 %; 1000 without stretch.
int32_t line_stretch(const DistortConfig& config, const AugmentKey& key);
// The narrowest and the widest that line_stretch() can say.
int32_t least_line_stretch(const DistortConfig& config);
int32_t greatest_line_stretch(const DistortConfig& config);

// All but the stretch, of ink [columns, height] as line_features() gives it. The size stays, values
// stay in [0, 1].
void distort_line(const DistortConfig& config, const AugmentKey& key, Matrix& line);

}  // namespace rondo
