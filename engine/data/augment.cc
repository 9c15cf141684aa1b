#include "engine/data/augment.h"

#include <algorithm>
#include <cmath>

#include "engine/data/audio/resample.h"
#include "engine/data/features/random.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using data::Purpose;

data::Random random_for(const AugmentKey& key, Purpose purpose) {
  return {key.seed, key.epoch, key.utterance, purpose};
}

double power(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return x.empty() ? 0 : sum / static_cast<double>(x.size());
}

std::vector<float> draw_noise(std::span<const Waveform> recordings, const AugmentKey& key,
                              size_t n) {
  data::Random random = random_for(key, Purpose::noise_samples);
  std::vector<float> out(n);
  if (recordings.empty()) {
    for (size_t i = 0; i < n; i += 2) {
      const auto [a, b] = random.normals();
      out[i] = a;
      if (i + 1 < n) out[i + 1] = b;
    }
    return out;
  }
  const auto which = random.below(static_cast<int64_t>(recordings.size()));
  const std::vector<float>& noise = recordings[static_cast<size_t>(which)].samples;
  auto at = static_cast<size_t>(random.below(static_cast<int64_t>(noise.size())));
  for (float& v : out) {
    v = noise[at];
    if (++at == noise.size()) at = 0;
  }
  return out;
}

}  // namespace

void AugmentConfig::validate() const {
  const auto require = [](bool ok, const char* what, auto value, const char* expected) {
    if (!ok) fail_input("augment: ", what, " is ", value, ", expected ", expected);
  };
  for (double s : speed) require(s >= 0.25 && s <= 4, "speed", s, "0.25 to 4");
  require(noise >= 0 && noise <= 1, "noise", noise, "0 to 1");
  require(noise_snr_low >= -100 && noise_snr_low <= noise_snr_high && noise_snr_high <= 200,
          "noise_snr_low", noise_snr_low,
          "at least -100, at most noise_snr_high, and that at most 200");
  require(time_masks >= 0 && time_masks <= 1000, "time_masks", time_masks, "0 to 1000");
  require(time_width >= 0, "time_width", time_width, "0 or more");
  require(time_share >= 0 && time_share <= 1, "time_share", time_share, "0 to 1");
  require(frequency_masks >= 0 && frequency_masks <= 1000, "frequency_masks", frequency_masks,
          "0 to 1000");
  require(frequency_width >= 0, "frequency_width", frequency_width, "0 or more");
}

int32_t percent_of(double speed) {
  return static_cast<int32_t>(std::lround(static_cast<float>(speed) * 100));
}

int32_t speed_percent(const AugmentConfig& config, const AugmentKey& key) {
  if (config.speed.empty()) return 100;
  const auto which =
      random_for(key, Purpose::speed).below(static_cast<int64_t>(config.speed.size()));
  return percent_of(config.speed[static_cast<size_t>(which)]);
}

int64_t samples_at_speed(int64_t samples, int32_t percent) {
  return (samples * 100 + percent - 1) / percent;
}

void change_speed(std::vector<float>& samples, int32_t percent) {
  if (percent != 100) samples = resample(samples, percent, 100);
}

void add_noise(const AugmentConfig& config, std::span<const Waveform> recordings,
               const AugmentKey& key, std::vector<float>& samples) {
  data::Random random = random_for(key, Purpose::noise);
  if (!(random.uniform() < static_cast<float>(config.noise))) return;
  const double snr = random.uniform(static_cast<float>(config.noise_snr_low),
                                    static_cast<float>(config.noise_snr_high));
  const std::vector<float> noise = draw_noise(recordings, key, samples.size());
  const double signal_power = power(samples), noise_power = power(noise);
  if (!(signal_power > 0 && noise_power > 0)) return;
  const auto gain =
      static_cast<float>(std::sqrt(signal_power / noise_power * std::pow(10.0, -snr / 10)));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] += gain * noise[i];
}

void mask_spectrum(const AugmentConfig& config, const AugmentKey& key, Matrix& m) {
  if (m.data.empty() || !config.spec_augment) return;
  data::Random random = random_for(key, Purpose::spec_augment);
  double sum = 0;
  for (float v : m.data) sum += v;
  const auto fill = static_cast<float>(sum / static_cast<double>(m.data.size()));
  const auto share =
      static_cast<int64_t>(static_cast<double>(m.frames) * static_cast<float>(config.time_share));
  const int64_t most_frames = std::min<int64_t>(config.time_width, share);
  for (int32_t i = 0; i < config.time_masks; ++i) {
    const int64_t width = random.below(most_frames + 1);
    const int64_t first = random.below(m.frames - width + 1);
    std::fill(m.row(first), m.row(first + width), fill);
  }
  const int64_t most_bins = std::min(config.frequency_width, m.dim);
  for (int32_t i = 0; i < config.frequency_masks; ++i) {
    const int64_t width = random.below(most_bins + 1);
    const int64_t first = random.below(m.dim - width + 1);
    for (int64_t t = 0; t < m.frames; ++t)
      std::fill(m.row(t) + first, m.row(t) + first + width, fill);
  }
}

}  // namespace rondo
