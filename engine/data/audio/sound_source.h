// An open recording, wherever its bytes are. For this folder alone.
//
// Errors: SoundError that names the file. Thread safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"

namespace rondo::data {

class SoundDecoder;

// From a file or from memory. What is not decoded here (sound_decoder.h) goes through ffmpeg into
// memory.
class SoundSource {
 public:
  SoundSource(const FilePart& part, SoundReading reading = {});
  // The bytes must outlive it; `name` stands for the file in messages.
  SoundSource(std::span<const std::byte> bytes, std::string_view name, SoundReading reading = {});

  ~SoundSource();
  SoundSource(const SoundSource&) = delete;
  SoundSource& operator=(const SoundSource&) = delete;

  const std::string& name() const { return name_; }
  bool salvages() const { return reading_.salvage; }
  // Once it is open: whether ffmpeg decoded it, and why the file is cut off (salvaged).
  bool is_foreign() const { return !decoded_.empty(); }
  const std::string& truncation() const { return truncation_; }

  // Once, before all else.
  AudioInfo open();
  // False: it cannot be read from there.
  bool seek(int64_t frame);
  // Interleaved; how many frames there were.
  int64_t read(float* to, int64_t frames);

 private:
  size_t read_at(uint64_t offset, std::span<std::byte> to);
  void look_for_the_end();
  std::string open_here(AudioInfo& info);  // empty, or why it is not
  void decode_elsewhere(const std::string& why);
  void check(const AudioInfo& info) const;

  std::string name_;
  SoundReading reading_;
  FilePart part_;
  std::optional<RegularFile> file_;  // none: from memory
  uint64_t first_ = 0;               // byte of the file
  std::span<const std::byte> bytes_;
  std::string decoded_, truncation_;
  uint64_t size_ = 0;
  // A part of the file that was read at once: headers are asked for field by field.
  std::array<std::byte, 4096> window_;
  uint64_t window_first_ = 0;
  size_t window_size_ = 0;
  std::unique_ptr<SoundDecoder> decoder_;  // borrows this
};

}  // namespace rondo::data
