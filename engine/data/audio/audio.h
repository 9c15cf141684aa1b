// Decoding and writing audio files, by libsndfile: WAV, FLAC, Ogg (Vorbis, Opus) and what else it
// was built with.
//
// Errors: InputError, one sentence that names the file, for one that is missing, unreadable, empty,
// truncated or no audio; for a sample rate outside [100, 768000] Hz, and for samples that are not
// finite. A whole recording of no samples is an empty Waveform; a part that holds none is an error.
// What is no regular file (a pipe, a device) is refused without waiting for it. A WAV whose header
// announces more than the file holds is truncated, unless it announces the largest size there is,
// as programs do that write to a pipe. Thread safety: every function may be called from several
// threads at once.
//
// What libsndfile does not read (.m4a, .aac, .webm, ...) is decoded by the program ffmpeg, where it
// is on PATH; its first bytes say what a file is, not its name.
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
  SndfileReader() = default;
  explicit SndfileReader(SoundReading reading) : reading_(reading) {}

  AudioInfo info(const FilePart& file) const override;
  Waveform read(const FilePart& file, int32_t sample_rate,
                AudioSegment segment = {}) const override;

 private:
  SoundReading reading_;
};

// The same from memory (standard input, a test); `name` stands for the file in messages.
Waveform decode_audio(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
                      AudioSegment segment = {});

// Whether a file is called like a recording (.wav, .flac, .ogg, .mp3, .m4a, ..., in either case):
// for choosing among the files of a folder.
bool is_recording_name(std::string_view path);
// Whether its first bytes are those of sound.
bool holds_sound(const FilePart& file);
// Whether a file among others is a recording: its name says so or, where it says nothing, its first
// bytes do.
bool is_recording_file(const std::string& path);

enum class WavFormat { pcm16, float32 };

// A mono WAV of 16-bit samples, as the bytes of a file. Samples beyond full scale are clipped.
std::string make_wav(const Waveform& audio);

// Writes a mono WAV. Samples beyond full scale are clipped with pcm16. Throws InputError when the
// file cannot be written or the disk is full; what was written so far is removed then.
void write_wav(const std::string& path, const Waveform& audio, WavFormat format = WavFormat::pcm16);

}  // namespace rondo
