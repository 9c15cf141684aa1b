// engine/data/audio/sound_decoder.h: what a build without libsndfile decodes, beside libsndfile.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/data/audio/sound_decoder.h"
#include "engine/data/features/files.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/written_audio.h"

using namespace rondo;
using Catch::Matchers::Contains;
using data::OpenedSound;
using data::SoundBytes;

namespace {

SoundBytes bytes_of(const std::string& file) {
  return {file.size(), [&file](uint64_t offset, std::span<std::byte> to) {
            if (offset >= file.size()) return size_t{0};
            const size_t n = std::min(to.size(), file.size() - static_cast<size_t>(offset));
            std::memcpy(to.data(), file.data() + offset, n);
            return n;
          }};
}

// In pieces, from a frame to the end.
std::vector<float> read_from(OpenedSound& sound, int64_t frame) {
  REQUIRE(sound.decoder->seek(frame));
  std::vector<float> all, piece(static_cast<size_t>(7 * sound.info.channels));
  while (const int64_t got = sound.decoder->read(piece.data(), 7))
    all.insert(all.end(), piece.begin(), piece.begin() + got * sound.info.channels);
  return all;
}

void require_same(const std::string& file) {
  OpenedSound ours = data::open_wav(bytes_of(file));
  OpenedSound theirs = data::open_with_sndfile(bytes_of(file));
  REQUIRE(ours.problem.empty());
  REQUIRE(theirs.problem.empty());
  CHECK(ours.info.sample_rate == theirs.info.sample_rate);
  REQUIRE(ours.info.channels == theirs.info.channels);
  REQUIRE(ours.info.frames == theirs.info.frames);
  for (const int64_t first : {int64_t{0}, ours.info.frames / 3, ours.info.frames})
    CHECK(read_from(ours, first) == read_from(theirs, first));
}

std::string problem_of(const std::string& file) { return data::open_wav(bytes_of(file)).problem; }

std::string put(std::string file, size_t at, std::initializer_list<uint8_t> bytes) {
  for (const uint8_t b : bytes) file.at(at++) = static_cast<char>(b);
  return file;
}

}  // namespace

TEST_CASE("WAV is decoded to the samples of libsndfile", "[audio][wav]") {
  const TemporaryFolder folder;
  std::vector<float> samples;
  for (int i = 0; i < 3 * 4096; ++i)
    samples.push_back(std::sin(static_cast<float>(i * i)) * std::exp2(-static_cast<float>(i % 24)));
  for (const int container : {SF_FORMAT_WAV, SF_FORMAT_WAVEX, SF_FORMAT_RF64}) {
    for (const int encoding :
         {SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24, SF_FORMAT_PCM_32, SF_FORMAT_FLOAT,
          SF_FORMAT_DOUBLE, SF_FORMAT_ALAW, SF_FORMAT_ULAW}) {
      for (const int channels : {1, 3}) {
        CAPTURE(container, encoding, channels);
        const std::string path =
            test::write_audio(folder.path("a.wav"), container | encoding, 11025, channels, samples);
        require_same(data::read_regular_file(path));
      }
    }
  }
}

TEST_CASE("every code of A-law and mu-law is decoded", "[audio][wav]") {
  const TemporaryFolder folder;
  for (const int encoding : {SF_FORMAT_ALAW, SF_FORMAT_ULAW}) {
    const std::string path = test::write_audio(folder.path("a.wav"), SF_FORMAT_WAV | encoding, 8000,
                                               1, std::vector<float>(256));
    std::string file = data::read_regular_file(path);
    for (size_t i = 0; i < 256; ++i) file.at(file.size() - 256 + i) = static_cast<char>(i);
    require_same(file);
  }
}

TEST_CASE("samples whose number is not told reach to the end of the WAV", "[audio][wav]") {
  const TemporaryFolder folder;
  const std::string whole = data::read_regular_file(
      test::write_audio(folder.path("a.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 2,
                        std::vector<float>(202, 0.5f)));
  REQUIRE(whole.size() == 44 + 404);
  for (const std::string& file :
       {put(whole, 40, {255, 255, 255, 255}), put(whole, 40, {0, 0, 0, 0}),
        put(whole, 40, {0, 1, 1, 0}), whole.substr(0, 403)}) {
    OpenedSound sound = data::open_wav(bytes_of(file));
    REQUIRE(sound.problem.empty());
    CHECK(sound.info.frames == static_cast<int64_t>((file.size() - 44) / 4));
    CHECK(read_from(sound, 0).size() == (file.size() - 44) / 4 * 2);
  }
  // A part of another kind before them, of an odd number of bytes and one more to make it even.
  require_same(whole.substr(0, 12) + std::string("LIST\5\0\0\0abcde\0", 14) + whole.substr(12));
}

TEST_CASE("what is no WAV, or none that is decoded, is told", "[audio][wav]") {
  const TemporaryFolder folder;
  const std::string whole = data::read_regular_file(test::write_audio(
      folder.path("a.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, std::vector<float>(100)));
  CHECK_THAT(problem_of(""), Contains("it is no WAV"));
  CHECK_THAT(problem_of(std::string(4000, 'x')), Contains("it is no WAV"));
  CHECK_THAT(problem_of(whole.substr(0, 12)), Contains("no samples"));
  CHECK_THAT(problem_of(whole.substr(0, 30)), Contains("format is cut off"));
  CHECK_THAT(problem_of(whole.substr(0, 12) + whole.substr(36)), Contains("before their format"));
  CHECK_THAT(problem_of(put(whole, 20, {0x11, 0})),
             Contains("format 17 and 16 bits, expected PCM"));
  CHECK_THAT(problem_of(put(whole, 34, {12, 0})), Contains("format 1 and 12 bits"));
  CHECK_THAT(problem_of(put(whole, 22, {0, 0})), Contains("frames of 2 bytes, expected 0 samples"));
  CHECK_THAT(problem_of(put(whole, 32, {3, 0})), Contains("frames of 3 bytes, expected 1 samples"));
  OpenedSound sound = data::open_wav(bytes_of(whole));
  CHECK_FALSE(sound.decoder->seek(101));
  CHECK_FALSE(sound.decoder->seek(-1));
}
