// Sound files of any format, for tests.
#pragma once

#include <sndfile.h>

#include <string>
#include <vector>

#include "tests/catch.h"

namespace rondo::test {

// Writes with libsndfile itself, interleaved.
inline std::string write_audio(const std::string& path, int format, int rate, int channels,
                               const std::vector<float>& interleaved) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file != nullptr);
  const auto frames = static_cast<sf_count_t>(interleaved.size()) / channels;
  REQUIRE(sf_writef_float(file, interleaved.data(), frames) == frames);
  REQUIRE(sf_close(file) == 0);
  return path;
}

}  // namespace rondo::test
