// What kind of sound a file holds, by its first bytes: its name may say anything.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace rondo {

struct SoundFormat {
  std::string_view name;    // "WAV", "MPEG-4 (m4a, mp4)"; empty: no sound that is known
  bool is_foreign = false;  // libsndfile does not read it
};

// As many bytes as sound_format() looks at.
inline constexpr size_t sound_format_bytes = 64;

SoundFormat sound_format(std::string_view start);

}  // namespace rondo
