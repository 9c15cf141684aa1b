// How far up a recording reaches, which its rate does not say: what was made from a lower rate has
// nothing in its upper part.
//
// Thread safety: const members may be called at once; one thread at a time adds samples.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo {

class Bandwidth {
 public:
  // Of a recording of about so many samples: windows all over it are looked at, as many as cost
  // little.
  explicit Bandwidth(int64_t samples);

  // Pieces of one channel, one after another, cut anywhere.
  void add(const float* samples, size_t count);
  // Nothing but rounding is above it in any window. 0: it is not known, because hardly anything is
  // heard.
  double hertz(int32_t sample_rate) const;

 private:
  static constexpr size_t window = 512;  // samples of a spectrum
  static constexpr size_t frequencies = window / 2 + 1;

  void add_window(const float* samples);
  std::array<float, frequencies> power_of(const float* samples);

  std::array<std::complex<float>, window> turns_, x_;
  std::array<float, window> weights_;
  std::array<float, frequencies> loudest_{};
  double total_ = 0;
  int64_t every_ = 1, windows_ = 0, taken_ = 0;
  std::array<float, window> begun_;  // a window that is not full
  size_t begun_samples_ = 0;
};

// Of samples of one channel.
double bandwidth_of(const std::vector<float>& samples, int32_t sample_rate);

// What a recording of this rate, which reaches so high, was made from: the usual rate for its
// bandwidth (Hz; 0: not known) if that is below what the rate can hold, else the rate.
int32_t true_rate(int32_t sample_rate, double bandwidth);

}  // namespace rondo
