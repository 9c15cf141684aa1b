// Resampling of a signal that comes in pieces.
//
// All that accept() and finish() append is what Resampler::apply() makes of the whole, bit for bit,
// wherever it is cut. A stream holds a piece, and what 64 outputs of each phase of the filter are
// made of: 0.64 s where 44.1 kHz become 16.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/audio/resample.h"

namespace rondo {

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

}  // namespace rondo
