// Decoding audio files, by libsndfile: WAV, FLAC, Ogg (Vorbis, Opus) and what else it was built
// with. A build without it (-Daudio=disabled) decodes WAV by itself.
//
// Errors: InputError, one sentence that names the file, for one that is missing, unreadable, empty,
// truncated or no audio; for a sample rate outside [100, 768000] Hz, and for samples that are not
// finite. A whole recording of no samples is an empty Waveform; a part that holds none is an error.
// What is no regular file (a pipe, a device) is refused without waiting for it. A WAV whose header
// announces more than the file holds is truncated, unless it announces the largest size there is,
// as programs do that write to a pipe. Thread safety: every function may be called from several
// threads at once. What is not decoded so (.m4a, .aac, .webm, ...) is decoded by the program
// ffmpeg, where it is on PATH; its first bytes say what a file is, not its name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/audio/waveform.h"

namespace rondo {

// Why a recording cannot be used, where somebody may do something about it.
enum class SoundFault { truncated, foreign, no_number };

class SoundError : public InputError {
 public:
  SoundError(SoundFault what_fault, const std::string& message)
      : InputError(message), fault(what_fault) {}
  const SoundFault fault;
};

struct SoundReading {
  bool salvage = false;  // of what is cut off, what there is
};

class SndfileReader final : public AudioReader {
 public:
  explicit SndfileReader(SoundReading reading = {}) : reading_(reading) {}

  AudioInfo info(const FilePart& file) const override;
  Waveform read(const FilePart& file, int32_t sample_rate,
                AudioSegment segment = {}) const override;

 private:
  SoundReading reading_;
};

// The same from memory (standard input, a test); `name` stands for the file in messages.
Waveform decode_audio(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
                      AudioSegment segment = {});

// A mono WAV of 16-bit samples, as the bytes of a file. Samples beyond full scale are clipped.
std::string make_wav(const Waveform& audio);

// Writes it to a file. Throws InputError where that fails; what was written so far is removed then.
void write_wav(const std::string& path, const Waveform& audio);

}  // namespace rondo
