// Band-limited resampling by a windowed-sinc polyphase filter. Output sample k stands at time
// k / out_rate; the filter is symmetric, so there is no delay, and the signal is taken as zero
// outside its ends. In pieces: engine/data/audio/resampler_stream.h.
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

  int32_t taps() const;

 private:
  friend class ResamplerStream;
  struct Filter;
  std::shared_ptr<const Filter> filter_;
};

// A resampler for the pair of rates, made once and kept (thread-safe).
std::shared_ptr<const Resampler> shared_resampler(int32_t in_rate, int32_t out_rate);

std::vector<float> resample(std::span<const float> in, int32_t in_rate, int32_t out_rate);

}  // namespace rondo
