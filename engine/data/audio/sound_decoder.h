// What makes samples of the bytes of a recording. For this folder alone.
//
// A build with libsndfile decodes with it: WAV, FLAC, Ogg, MP3 and more. One without
// (-Daudio=disabled) decodes WAV by itself. What neither of them knows goes through ffmpeg
// (foreign_sound.h). Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/data/audio/container_check.h"
#include "engine/data/audio/waveform.h"

namespace rondo::data {

struct SoundBytes {
  uint64_t size = 0;
  ReadAt read_at;
};

class SoundDecoder {
 public:
  virtual ~SoundDecoder() = default;
  // False: it cannot be read from there.
  virtual bool seek(int64_t frame) = 0;
  // Interleaved, full scale is 1; how many frames there were.
  virtual int64_t read(float* to, int64_t frames) = 0;
};

struct OpenedSound {
  std::unique_ptr<SoundDecoder> decoder;  // none: see the problem
  AudioInfo info;
  std::string problem;
};

OpenedSound open_with_sndfile(SoundBytes bytes);

// RIFF and RF64 ("Multimedia Programming Interface and Data Specifications 1.0", EBU Tech 3306):
// PCM of 8, 16, 24 and 32 bits, floats of 32 and 64, A-law and mu-law (ITU-T G.711). Where the size
// of the samples is not told, or is more than there is, they reach to the end of the bytes. Samples
// are those of libsndfile, bit for bit.
OpenedSound open_wav(SoundBytes bytes);

}  // namespace rondo::data
