// Sound that libsndfile does not read, through the program ffmpeg. For this folder alone.
//
// Errors: SoundError of the fault `foreign` that names the file: ffmpeg is not on PATH (it says how
// to convert the file), cannot decode it (it says why), or is not done in time. Thread safety:
// every function may be called from several threads at once.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/features/file_part.h"

namespace rondo::data {

// A WAV of 32-bit floats, with the channels and the rate of the file. `format`: what it seems to
// be.
std::string decode_foreign_sound(const FilePart& file, std::string_view format);
std::string decode_foreign_sound(std::span<const std::byte> bytes, const std::string& name,
                                 std::string_view format);

}  // namespace rondo::data
