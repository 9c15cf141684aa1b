// Band-limited resampling by a windowed-sinc polyphase filter.
//
// Algorithm: Smith, "Digital Audio Resampling" (a Kaiser-windowed sinc, evaluated at the exact
// phase of each output sample). Output sample k stands at time k / out_rate; the filter is
// symmetric, so there is no delay, and the signal is taken as zero outside its ends. Rates are
// reduced to L / M; up to L = 4096 min(1, L / M) every phase has its own exact row of coefficients,
// beyond that so many rows are interpolated linearly (tables stay near 1.3 MB).
// Why not a library: libsamplerate and libsoxr work in blocks with delays of their own, which would
// have to be undone, and this is two hundred lines, of a quality that tests measure.
// Thread safety: immutable after construction; one object may serve several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rondo {

class Resampler {
 public:
  // Throws Error unless both rates are within [1, 10'000'000].
  Resampler(int32_t in_rate, int32_t out_rate);

  // ceil(in * out_rate / in_rate)
  int64_t output_size(int64_t in) const;
  std::vector<float> apply(std::span<const float> in) const;

  int32_t taps() const { return taps_; }

 private:
  float sample(std::span<const float> in, int64_t whole, const float* row) const;
  void apply_by_phase(std::span<const float> in, std::vector<float>& out) const;

  int64_t up_ = 1, down_ = 1;  // L, M
  int32_t taps_ = 1;
  int32_t phases_ = 1;
  std::vector<float> table_;  // [phases + 1][taps]
};

// A resampler for the pair of rates, made once and kept (thread-safe).
std::shared_ptr<const Resampler> shared_resampler(int32_t in_rate, int32_t out_rate);

std::vector<float> resample(std::span<const float> in, int32_t in_rate, int32_t out_rate);

}  // namespace rondo
