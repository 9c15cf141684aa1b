#include "engine/data/audio/bandwidth.h"

#include <algorithm>
#include <cmath>

namespace rondo {

Bandwidth::Bandwidth(int64_t samples) {
  constexpr int64_t most_windows = 256;
  every_ = std::max<int64_t>(1, samples / static_cast<int64_t>(window) / most_windows);
  for (size_t i = 0; i < window; ++i) {
    const double angle = 2 * M_PI * static_cast<double>(i) / static_cast<double>(window);
    turns_[i] = {static_cast<float>(std::cos(angle)), static_cast<float>(-std::sin(angle))};
    // Blackman and Harris: what is beside a tone is 92 dB below it.
    weights_[i] = static_cast<float>(0.35875 - 0.48829 * std::cos(angle) +
                                     0.14128 * std::cos(2 * angle) - 0.01168 * std::cos(3 * angle));
  }
}

void Bandwidth::add(const float* samples, size_t count) {
  const float* const end = samples + count;
  if (begun_samples_ > 0) {
    const size_t n = std::min(count, window - begun_samples_);
    std::copy_n(samples, n, begun_.begin() + static_cast<ptrdiff_t>(begun_samples_));
    samples += n;
    begun_samples_ += n;
    if (begun_samples_ < window) return;
    add_window(begun_.data());
  }
  for (; end - samples >= static_cast<ptrdiff_t>(window); samples += window) add_window(samples);
  begun_samples_ = static_cast<size_t>(end - samples);
  std::copy(samples, end, begun_.begin());
}

void Bandwidth::add_window(const float* samples) {
  if (windows_++ % every_ != 0) return;
  const auto power = power_of(samples);
  for (size_t i = 0; i < power.size(); ++i) {
    loudest_[i] = std::max(loudest_[i], power[i]);
    total_ += power[i];
  }
  ++taken_;
}

// A transform of radix 2: the samples in the order of their reversed numbers, then sums and
// differences of ever longer halves.
std::array<float, Bandwidth::frequencies> Bandwidth::power_of(const float* samples) {
  for (size_t i = 0, reversed = 0; i < window; ++i) {
    x_[reversed] = samples[i] * weights_[i];
    size_t bit = window / 2;
    for (; bit > 0 && (reversed & bit) != 0; bit /= 2) reversed ^= bit;
    reversed |= bit;
  }
  for (size_t half = 1; half < window; half *= 2) {
    const size_t step = window / (2 * half);
    for (size_t begin = 0; begin < window; begin += 2 * half) {
      for (size_t k = 0; k < half; ++k) {
        const std::complex<float> odd = x_[begin + half + k] * turns_[k * step];
        x_[begin + half + k] = x_[begin + k] - odd;
        x_[begin + k] += odd;
      }
    }
  }
  std::array<float, frequencies> power;
  for (size_t i = 0; i < power.size(); ++i) power[i] = std::norm(x_[i]);
  return power;
}

double Bandwidth::hertz(int32_t sample_rate) const {
  if (taken_ == 0) return 0;
  const double mean = total_ / static_cast<double>(taken_) / static_cast<double>(frequencies);
  // What rounding to 16 bits has in the loudest of so many windows. Of digital silence, and of what
  // is hardly above rounding, nobody knows.
  constexpr double rounding = 1e-7;
  if (!(mean > 1e4 * rounding)) return 0;
  constexpr double far_below = 1e-6;  // 60 dB
  const double least = std::max(far_below * mean, 3 * rounding);
  size_t highest = loudest_.size() - 1;
  while (highest > 0 && !(loudest_[highest] > least)) --highest;
  return static_cast<double>(highest) * sample_rate / static_cast<double>(window);
}

double bandwidth_of(const std::vector<float>& samples, int32_t sample_rate) {
  Bandwidth band(static_cast<int64_t>(samples.size()));
  band.add(samples.data(), samples.size());
  return band.hertz(sample_rate);
}

int32_t true_rate(int32_t sample_rate, double bandwidth) {
  constexpr std::array usual = {8000, 11025, 16000};
  // A tone reaches less far than any voice, and is no sign of another rate.
  constexpr double least_hertz = 2000, most_share = 0.72;
  if (bandwidth < least_hertz || bandwidth > most_share * 0.5 * sample_rate) return sample_rate;
  // Codecs let a little through above the half of a rate.
  constexpr double most_of_rate = 0.63;
  for (const int32_t rate : usual)
    if (bandwidth <= most_of_rate * rate && rate < sample_rate) return rate;
  return sample_rate;
}

}  // namespace rondo
