// Augmentation. Every function is pure in (seed, epoch, utterance key): what an utterance looks
// like in an epoch depends neither on the batch, the thread or the rank, nor on a resume.
//
// Sources: Ko et al. 2015, "Audio augmentation for speech recognition" (speed); Park et al. 2019,
// "SpecAugment". Thread safety: pure functions on the caller's data.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/features/matrix.h"

namespace rondo {

struct AugmentConfig {
  // One is drawn per utterance and epoch; empty: none. 1.1 is faster and higher by 10 %. Rounded to
  // hundredths.
  std::vector<float> speeds;

  // Additive noise, by chance, at a signal-to-noise ratio drawn uniformly.
  float noise_probability = 0;
  float snr_low_db = 10;
  float snr_high_db = 30;
  // Recordings to add, at the model's sample rate; a random part of one of them, repeated if it is
  // shorter. Empty: white Gaussian noise.
  std::vector<Waveform> noises;

  // SpecAugment: masks of width 0 to the maximum each, filled with the mean of the features.
  int32_t time_masks = 0;
  int32_t time_mask_frames = 50;
  float time_mask_share = 0.2f;  // and at most this share of the utterance, each
  int32_t frequency_masks = 0;
  int32_t frequency_mask_bins = 15;

  // Throws InputError: which value is out of range, and the range.
  void validate() const;
};

// Who is augmented, when.
struct AugmentKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t utterance = 0;  // ManifestEntry::key
};

// The speed in hundredths: 110 is 1.1 times as fast; 100 without speeds.
int32_t speed_percent(const AugmentConfig& config, const AugmentKey& key);
// How many samples `samples` become.
int64_t samples_at_speed(int64_t samples, int32_t percent);
void change_speed(std::vector<float>& samples, int32_t percent);

// Digital silence stays silence: there is no signal to relate the noise to.
void add_noise(const AugmentConfig& config, const AugmentKey& key, std::vector<float>& samples);

void mask_spectrum(const AugmentConfig& config, const AugmentKey& key, Matrix& features);

}  // namespace rondo
