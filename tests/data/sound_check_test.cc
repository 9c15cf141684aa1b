// What is heard of a recording before anything is learnt from it.
#include "engine/data/audio/sound_check.h"

#include <sndfile.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/audio/sound_format.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

namespace {

// A WAV of floats.
std::string write(const std::string& path, int channels, const std::vector<float>& interleaved) {
  SF_INFO info{};
  info.samplerate = 8000;
  info.channels = channels;
  info.format = SF_FORMAT_WAV | SF_FORMAT_FLOAT;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  const auto frames = static_cast<sf_count_t>(interleaved.size()) / channels;
  REQUIRE(sf_writef_float(file, interleaved.data(), frames) == frames);
  sf_close(file);
  return path;
}

}  // namespace

TEST_CASE("each channel is heard, and what is used of them", "[sound]") {
  const TemporaryFolder folder;
  // The loudest in the middle, beside one that is its opposite by half, and a constant.
  std::vector<float> x;
  for (int i = 0; i < 20000; ++i) {
    const float sign = i % 2 == 0 ? 1.0f : -1.0f;
    x.insert(x.end(), {-0.2f * sign, 0.4f * sign, 0.3f});
  }
  const std::string path = write(folder.path("a.wav"), 3, x);
  const auto check = [&](AudioSegment segment, int64_t samples, double mean, double swing) {
    const SoundReport r = check_sound(path, segment, {});
    CAPTURE(segment.channel, segment.offset);
    CHECK(r.info.channels == 3);
    CHECK(r.samples == samples);
    CHECK(r.mean == Approx(mean).margin(1e-6));
    CHECK(r.power == Approx(swing * swing).margin(1e-6));  // about the mean
    CHECK(r.peak == Approx(mean + swing).margin(1e-6));
    CHECK(r.channel_power == Approx(0.16));  // whichever is used
  };
  check({}, 20000, 0.1, 0.2 / 3);
  check({0, -1, 0}, 20000, 0, 0.2);
  check({0, -1, 1}, 20000, 0, 0.4);
  check({0.5, -1, 2}, 16000, 0.3, 0);
  check({2.25, 0.125, 1}, 1000, 0, 0.4);
  CHECK_THROWS_WITH(check_sound(path, {0, -1, 3}, {}), Catch::Contains("has no channel 3"));
  // What is no number is found in the part that is used, in any channel.
  x[3 * 18000 + 2] = 1e11f;
  write(path, 3, x);
  CHECK_THROWS_WITH(check_sound(path, {}, {}), Catch::Contains("holds a sample that is 1e+11"));
  CHECK(check_sound(path, {0, 2.25}, {}).samples == 18000);
}

TEST_CASE("clipping is runs of three at the highest or the lowest value", "[sound]") {
  const TemporaryFolder folder;
  const auto clipped = [&](const std::vector<float>& x) {
    return check_sound(write(folder.path("c.wav"), 1, x), {}, {}).clipped;
  };
  CHECK(clipped({0, 0.5f, 0.5f, 0, 0.5f, 0.5f, 0}) == 0);
  CHECK(clipped({0, 0.5f, 0.5f, 0.5f, 0}) == 3);
  // Of each side its own extreme; runs add up, and what lies between does not.
  CHECK(clipped({0.5f, 0.5f, 0.5f, 0.5f, 0.5f, -0.7f, -0.7f, -0.7f, -0.7f, -0.5f, -0.5f, -0.5f,
                 0.5f, 0.5f, 0.5f}) == 5 + 4 + 3);
  // A further value makes the runs before it no extremes; one that is as good as the same does not.
  CHECK(clipped({0.5f, 0.5f, 0.5f, 0.6f, 0, 0.6f, 0.6f, 0.6f}) == 3);
  CHECK(clipped({0.5f, 0.5f, 0.5f, 0.5004f, 0}) == 4);
  CHECK(clipped({0.5f, 0.5f, 0.5f, 0.51f, 0}) == 0);
  CHECK(clipped({-0.5f, -0.5f, -0.5f, 0.9f, 0.9f}) == 3);
  CHECK(clipped({0, 0, 0, 0}) == 0);
}

TEST_CASE("a part without samples", "[sound]") {
  const TemporaryFolder folder;
  const std::string path = write(folder.path("e.wav"), 1, std::vector<float>(8000, 0.25f));
  const SoundReport none = check_sound(path, {5, -1}, {});
  CHECK((none.samples == 0 && none.mean == 0 && none.power == 0 && none.peak == 0));
}

TEST_CASE("what kind of sound a file is, its first bytes say", "[audio]") {
  const auto is = [](const std::string& start, std::string_view name, bool foreign) {
    const SoundFormat format = sound_format(start);
    INFO(start);
    CHECK(format.name.substr(0, name.size()) == name);
    CHECK(format.name.empty() == name.empty());
    CHECK(format.is_foreign == foreign);
  };
  const std::string zero(1, '\0');
  is("RIFF....WAVEfmt ", "WAV", false);
  is("NIST_1A\n   1024\n", "NIST", false);
  is("\xff\xfb\x90\x64", "MP3", false);
  is("ID3\x04", "MP3", false);
  is("\xff\xf1\x50\x80", "AAC", true);
  is("FORM....AIFFCOMM", "AIFF", false);
  is("FORM....AIFCFVER", "AIFF-C", false);
  is("RIFF....AVI LIST", "AVI", true);
  is("fLaC", "FLAC", false);
  is("....moov", "QuickTime", true);
  is("OggS", "Ogg", false);
  is(zero + zero + zero + " ftypM4A ", "MPEG-4", true);
  is("\x1a\x45\xdf\xa3", "Matroska", true);
  // UTF-16, JPEG, and frames whose fields have values that do not exist.
  for (const std::string& other :
       std::vector<std::string>{"\xff\xfe"
                                "a",
                                "\xff\xd8\xff\xe0", "\xff\xfb\xf0\x64", "\xff\xfb\x9c\x64",
                                "\xff\xf1\x74\x80", "zero\n", ""})
    is(other + zero + zero, "", false);
}
