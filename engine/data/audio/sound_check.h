// What a recording is like inside: whether anything is heard, how loud, how far up it reaches.
//
// Errors: InputError, as of SndfileReader. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "engine/data/audio/audio.h"

namespace rondo {

struct SoundReport {
  AudioInfo info;           // as the header says
  bool is_foreign = false;  // ffmpeg decoded it
  std::string truncation;   // why it is cut off, with SoundReading::salvage; empty: it is whole
  int64_t samples = 0;      // per channel, of the part that was looked at

  // Of the channel that is used, or the mean of all; full scale is 1.
  double peak = 0, mean = 0;
  double power = 0;          // without the mean: 0 is silence
  double channel_power = 0;  // of the loudest channel by itself, without its mean
  int64_t clipped = 0;       // samples in runs of three and more at the peak
  double bandwidth = 0;      // Hz; see bandwidth.h
};

// Of a segment, which is decoded.
SoundReport check_sound(const FilePart& file, const AudioSegment& segment,
                        const SoundReading& reading = {});

}  // namespace rondo
