// Augmentation. Every function is pure in (seed, epoch, utterance key): what an utterance looks
// like in an epoch depends neither on the batch, the thread or the rank, nor on a resume.
//
// Sources: Ko et al. 2015, "Audio augmentation for speech recognition" (speed); Park et al. 2019,
// "SpecAugment". Numbers take part as f32. Thread safety: pure functions on the caller's data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/augment_config.h"
#include "engine/data/features/matrix.h"

namespace rondo {

// Who is augmented, when.
struct AugmentKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t utterance = 0;  // ManifestEntry::key
};

// In hundredths: 110 is 1.1 times as fast.
int32_t percent_of(double speed);
// The speed that is drawn; 100 without any.
int32_t speed_percent(const AugmentConfig& config, const AugmentKey& key);
// How many samples `samples` become.
int64_t samples_at_speed(int64_t samples, int32_t percent);
void change_speed(std::vector<float>& samples, int32_t percent);

// Adds a random part of one of the recordings, at the sample rate of `samples`, repeated if it is
// shorter; without any, white noise. Digital silence stays silence: there is no signal to relate
// the noise to.
void add_noise(const AugmentConfig& config, std::span<const Waveform> recordings,
               const AugmentKey& key, std::vector<float>& samples);

void mask_spectrum(const AugmentConfig& config, const AugmentKey& key, Matrix& features);

}  // namespace rondo
