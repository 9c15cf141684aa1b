// How training data are varied: recordings and features as augment.h says, text lines as
// line_distortion.h says. Numbers take part as f32. Thread safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo {

struct AugmentConfig {
  // SpecAugment: masks of width 0 to the maximum each, filled with the mean of the features.
  bool spec_augment = false;
  int32_t frequency_masks = 2;
  int32_t frequency_width = 8;  // bins
  int32_t time_masks = 2;
  int32_t time_width = 20;  // frames
  double time_share = 0.2;  // and at most this share of the utterance, each

  // One is drawn per utterance and epoch; empty: none. 1.1 is faster and higher by 10 %. Rounded to
  // hundredths.
  std::vector<double> speed;

  // Additive noise, with this probability, at a signal-to-noise ratio in dB drawn uniformly.
  double noise = 0;
  std::string noise_recordings;  // a manifest of what is added; empty: white Gaussian noise
  double noise_snr_low = 10;
  double noise_snr_high = 30;

  bool operator==(const AugmentConfig&) const = default;
  // Throws InputError: which value is out of range, and the range.
  void validate() const;
};

// Of text lines. Lengths are pixels of the scaled line, ink is 0 to 1; 0 is none.
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

}  // namespace rondo
