// What the client of a stream says in JSON.
//
//   {"rate": 16000, "format": "s16", "hot_words": ["…"], "token": "…"}   first, of which all but
//                                                                        the rate may be missing
//   {"end": true}                                                        last
//
// Errors: InputError, a sentence. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::serve {

enum class SampleFormat : uint8_t { s16, f32 };  // little-endian

struct StreamStart {
  int32_t rate = 0;  // Hz, 8000 to 192000
  SampleFormat format = SampleFormat::s16;
  std::vector<std::string> hot_words;
  std::string token;
};

StreamStart parse_stream_start(std::string_view text);
// Throws unless it is {"end": true}.
void require_stream_end(std::string_view text);

// The samples of as many whole ones as there are, full scale [-1, 1]; removes them from `bytes`.
void take_samples(std::string& bytes, SampleFormat format, std::vector<float>& samples);

}  // namespace rondo::serve
