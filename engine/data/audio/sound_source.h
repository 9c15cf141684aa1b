// A recording as libsndfile opens it, wherever its bytes are. For this folder alone.
//
// Errors: SoundError that names the file. Thread safety: one thread at a time.
#pragma once

#include <sndfile.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"

namespace rondo::data {

struct CloseSndfile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using Sndfile = std::unique_ptr<SNDFILE, CloseSndfile>;

// From a file or from memory, with the callbacks that libsndfile wants. What libsndfile does not
// read goes through ffmpeg into memory.
class SoundSource {
 public:
  SoundSource(const FilePart& part, SoundReading reading = {});
  // The bytes must outlive it; `name` stands for the file in messages.
  SoundSource(std::span<const std::byte> bytes, std::string_view name, SoundReading reading = {});

  const std::string& name() const { return name_; }
  bool salvages() const { return reading_.salvage; }
  // Once it is open: whether ffmpeg decoded it, and why the file is cut off (salvaged).
  bool is_foreign() const { return !decoded_.empty(); }
  const std::string& truncation() const { return truncation_; }

  // Borrows this.
  Sndfile open(SF_INFO& info);

 private:
  size_t read_at(uint64_t offset, std::span<std::byte> to) const;
  void look_for_the_end();
  Sndfile open_here(SF_INFO& info);
  void decode_elsewhere(const std::string& why);
  void check(const SF_INFO& info) const;

  static sf_count_t length(void* self);
  static sf_count_t seek(sf_count_t offset, int whence, void* self);
  static sf_count_t read(void* to, sf_count_t count, void* self);
  static sf_count_t tell(void* self);

  std::string name_;
  SoundReading reading_;
  FilePart part_;
  std::optional<RegularFile> file_;  // none: from memory
  uint64_t first_ = 0;               // byte of the file
  std::span<const std::byte> bytes_;
  std::string decoded_, truncation_;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
};

}  // namespace rondo::data
