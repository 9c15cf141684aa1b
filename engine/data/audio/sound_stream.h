// A recording in pieces, so that an hour of it takes the memory of a second.
//
//   SoundStream sound("a.wav", 16000);
//   for (auto piece = sound.next(8000); !piece.empty(); piece = sound.next(8000)) hear(piece);
//
// All pieces together are what SndfileReader::read() gives, bit for bit, and so are the errors,
// which come when a piece meets what is wrong. What ffmpeg decodes is in memory as a whole, at the
// file's own rate.
//
// Errors: InputError, as of SndfileReader. Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/audio/audio.h"

namespace rondo {

class SoundStream {
 public:
  // Reads the header. `sample_rate`: that is wanted; 0: the file's own.
  SoundStream(const FilePart& file, int32_t sample_rate, AudioSegment segment = {},
              SoundReading reading = {});
  // The bytes must outlive it; `name` stands for the file in messages.
  SoundStream(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
              AudioSegment segment = {}, SoundReading reading = {});
  ~SoundStream();
  SoundStream(const SoundStream&) = delete;
  SoundStream& operator=(const SoundStream&) = delete;

  int32_t sample_rate() const;
  // How many there are in all, as the header has it.
  int64_t samples() const;

  // The next `most`; fewer at the end, and none behind it. Valid until the next call.
  std::span<const float> next(size_t most);
  // Appends some of the next, as many as are at hand. False: there are no more.
  bool append(std::vector<float>& to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
