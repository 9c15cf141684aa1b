#include "engine/data/audio/waveform.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace rondo {

bool Waveform::is_digital_silence() const {
  return std::all_of(samples.begin(), samples.end(), [&](float v) { return v == samples.front(); });
}

namespace {

// Files with the numbers of 32-bit integers are read.
bool is_sample(float x) { return std::abs(x) <= 1e10f; }

}  // namespace

int64_t find_no_sample(std::span<const float> samples) {
  unsigned bad = 0;
  for (const float x : samples) bad |= static_cast<unsigned>(!is_sample(x));
  if (bad == 0) return -1;
  return std::find_if_not(samples.begin(), samples.end(), is_sample) - samples.begin();
}

void require_samples(std::span<const float> samples, int32_t sample_rate) {
  const int64_t at = find_no_sample(samples);
  if (at < 0) return;
  fail_input("sample ", at, " (", static_cast<double>(at) / sample_rate, " s) is ",
             samples[static_cast<size_t>(at)], ", expected one of about -1 to 1");
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
