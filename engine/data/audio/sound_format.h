// What kind of sound a file holds, by its first bytes: its name may say anything.
//
// Errors: none; what cannot be read is no sound. Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/data/features/files.h"

namespace rondo {

struct SoundFormat {
  std::string_view name;    // "WAV", "MPEG-4 (m4a, mp4)"; empty: no sound that is known
  bool is_foreign = false;  // ffmpeg alone reads it
};

// As many bytes as sound_format() looks at.
inline constexpr size_t sound_format_bytes = 64;

SoundFormat sound_format(std::string_view start);

// Whether a file is called like a recording (.wav, .flac, .ogg, .mp3, .m4a, ..., in either case):
// for choosing among the files of a folder.
bool is_recording_name(std::string_view path);
// Whether its first bytes are those of sound.
bool holds_sound(const FilePart& file);
// Whether a file among others is a recording: its name says so or, where it says nothing, its first
// bytes do.
bool is_recording_file(const std::string& path);

}  // namespace rondo
