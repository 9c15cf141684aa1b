#include "engine/data/audio/waveform.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {

bool Waveform::is_digital_silence() const {
  return std::all_of(samples.begin(), samples.end(), [&](float v) { return v == samples.front(); });
}

void require_channel(const AudioInfo& info, const AudioSegment& segment, const std::string& name) {
  if (segment.channel < info.channels) return;
  fail_input(name, ": has no channel ", segment.channel, ", it has ", info.channels,
             info.channels == 1 ? " (number 0)" : str(" (numbers 0 to ", info.channels - 1, ")"));
}

SampleRange sample_range(const AudioInfo& info, AudioSegment segment) {
  const double rate = info.sample_rate;
  const double length = static_cast<double>(info.frames);
  // Negated, so that a NaN is outside as well.
  if (!(segment.offset >= 0 && std::round(segment.offset * rate) < length)) return {};
  SampleRange out;
  out.first = std::llround(segment.offset * rate);
  out.count = info.frames - out.first;
  if (segment.duration >= 0 && segment.duration * rate < length)
    out.count = std::min<int64_t>(out.count, std::llround(segment.duration * rate));
  return out;
}

}  // namespace rondo
