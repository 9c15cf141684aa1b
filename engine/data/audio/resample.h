// Band-limited resampling by a windowed-sinc polyphase filter. Output sample k stands at time
// k / out_rate; the filter is symmetric, so there is no delay, and the signal is taken as zero
// outside its ends. A Resampler is immutable: it may serve several threads. A stream is for one.
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

 private:
  friend class ResamplerStream;
  struct Filter;
  std::shared_ptr<const Filter> filter_;
};

// Of a signal that comes in pieces: what accept() and finish() append is what Resampler::apply()
// makes of the whole, bit for bit. A piece and 64 outputs of each phase of the filter are kept.
class ResamplerStream {
 public:
  explicit ResamplerStream(const Resampler& resampler) : filter_(resampler.filter_) {}

  // The next samples; appends the outputs that are known by now.
  void accept(std::span<const float> in, std::vector<float>& out);
  // The signal is over; appends the rest. Afterwards the stream is as new.
  void finish(std::vector<float>& out);

 private:
  void append(int64_t outputs, bool by_phase, std::vector<float>& out);

  std::shared_ptr<const Resampler::Filter> filter_;
  std::vector<float> kept_;  // samples from `first_` on
  int64_t first_ = 0;
  int64_t made_ = 0;  // outputs
};

// A resampler for the pair of rates, made once and kept (thread-safe).
std::shared_ptr<const Resampler> shared_resampler(int32_t in_rate, int32_t out_rate);

std::vector<float> resample(std::span<const float> in, int32_t in_rate, int32_t out_rate);

}  // namespace rondo
