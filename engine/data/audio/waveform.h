// A mono recording in memory, and what can read one: engine/data/audio/audio.h does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/features/file_part.h"

namespace rondo {

struct Waveform {
  int32_t sample_rate = 0;     // Hz
  std::vector<float> samples;  // full scale is [-1, 1]

  double seconds() const {
    return sample_rate > 0 ? static_cast<double>(samples.size()) / sample_rate : 0;
  }
  bool is_digital_silence() const;  // all samples are the same
};

// The first sample that is not finite or is above 1e10, whose power is no float any more; or -1.
int64_t find_no_sample(std::span<const float> samples);
// Throws InputError that names the first such sample.
void require_samples(std::span<const float> samples, int32_t sample_rate);

struct AudioInfo {
  int32_t sample_rate = 0;
  int32_t channels = 0;
  int64_t frames = 0;  // samples per channel

  double seconds() const { return sample_rate > 0 ? static_cast<double>(frames) / sample_rate : 0; }
};

// A part of a file.
struct AudioSegment {
  double offset = 0;     // seconds
  double duration = -1;  // seconds; negative: to the end
  int32_t channel = -1;  // from 0; negative: the mean of all
};

// Throws InputError where a recording called `name` does not have the channel.
void require_channel(const AudioInfo& info, const AudioSegment& segment, const std::string& name);

// Where a segment lies in a file, in samples of the file; count is 0 when nothing is left of it.
struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;
};
SampleRange sample_range(const AudioInfo& info, AudioSegment segment);

// The seam between the data code, which knows no audio library, and one that does.
// Thread safety: const members may be called from several threads at once.
class AudioReader {
 public:
  virtual ~AudioReader() = default;
  // Reads the header alone. Throws InputError, naming the file.
  virtual AudioInfo info(const FilePart& file) const = 0;
  // Decoded, mixed down to one channel, resampled to `sample_rate` (0: the file's own). Throws
  // InputError, naming the file.
  virtual Waveform read(const FilePart& file, int32_t sample_rate,
                        AudioSegment segment = {}) const = 0;
};

}  // namespace rondo
