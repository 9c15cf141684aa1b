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

// How wide the line becomes, in thousandths: 1100 is wider by 10 %; 1000 without stretch.
int32_t line_stretch(const DistortConfig& config, const AugmentKey& key);
// The narrowest and the widest that line_stretch() can say.
int32_t least_line_stretch(const DistortConfig& config);
int32_t greatest_line_stretch(const DistortConfig& config);

// All but the stretch, of ink [columns, height] as line_features() gives it. The size stays, values
// stay in [0, 1].
void distort_line(const DistortConfig& config, const AugmentKey& key, Matrix& line);

}  // namespace rondo
