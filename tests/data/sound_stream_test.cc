// engine/data/audio/sound_stream.h and ResamplerStream: pieces beside the whole.
#include "engine/data/audio/sound_stream.h"

#include <sndfile.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/resample.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/written_audio.h"

using namespace rondo;
using rondo::test::write_audio;

namespace {

std::vector<float> noise(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-0.9f, 0.9f);
  std::vector<float> x(n);
  for (float& v : x) v = uniform(random);
  return x;
}

// All pieces; each has the size that was asked for, but for the last.
std::vector<float> pieced(SoundStream& sound, const std::vector<size_t>& sizes) {
  std::vector<float> all;
  for (size_t i = 0;; ++i) {
    const size_t most = sizes[i % sizes.size()];
    const std::span<const float> piece = sound.next(most);
    REQUIRE(piece.size() <= most);
    all.insert(all.end(), piece.begin(), piece.end());
    if (piece.size() < most) break;
  }
  CHECK(sound.next(100).empty());
  return all;
}

// What a call throws.
template <class Call>
std::string problem_of(const Call& call) {
  try {
    call();
  } catch (const InputError& e) {
    return e.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a signal that is resampled in pieces is that of the whole, bit for bit",
          "[slow][resample]") {
  struct Rates {
    int32_t from, to;
  };
  // Of the last two, rows of the filter are interpolated.
  for (const auto& [from, to] :
       {Rates{8000, 16000}, Rates{11025, 16000}, Rates{16000, 8000}, Rates{16000, 16000},
        Rates{44100, 16000}, Rates{48000, 16000}, Rates{16000, 44100}, Rates{100, 16000},
        Rates{44099, 16000}, Rates{15999, 16000}}) {
    const auto resampler = std::make_shared<const Resampler>(from, to);
    ResamplerStream stream(*resampler);
    std::mt19937 random(5);
    // The rows of all phases are used at once where a signal is long enough for that.
    for (const size_t samples : {0, 1, 2, 79, 81, 640, 14111, 14112, 14113, 28224, 60000}) {
      const std::vector<float> x = noise(samples, 7);
      const std::vector<float> whole = resampler->apply(x);
      for (const size_t most : {size_t{1}, size_t{37}, size_t{16384}, samples + 1}) {
        if (most == 1 && samples > 20000) continue;
        std::vector<float> found;
        for (size_t at = 0; at < samples;) {
          const size_t n = std::min(samples - at, 1 + random() % most);
          stream.accept({x.data() + at, n}, found);
          at += n;
        }
        stream.finish(found);
        INFO(from << " to " << to << " Hz, " << samples << " samples in pieces up to " << most);
        CHECK(found == whole);
      }
    }
  }
}

TEST_CASE("an output is given as soon as its samples are there", "[resample]") {
  ResamplerStream stream(*shared_resampler(44100, 16000));
  const std::vector<float> x = noise(441000, 1);
  std::vector<float> found;
  stream.accept(x, found);
  CHECK(found.size() > 160000 - 64 * 160 - 100);  // 64 of each phase are made at once
}

TEST_CASE("a recording in pieces is the whole, bit for bit", "[audio]") {
  const TemporaryFolder folder;
  for (const int rate : {8000, 11025, 16000, 44100, 48000}) {
    for (const int channels : {1, 2}) {
      const auto frames = static_cast<size_t>(rate * 2 + 17);
      const std::vector<float> written = noise(frames * static_cast<size_t>(channels), 3);
      std::vector<float> mono(frames);
      for (size_t i = 0; i < frames; ++i)
        mono[i] = channels == 1 ? written[i] : (written[2 * i] + written[2 * i + 1]) * 0.5f;
      const std::vector<float> expected = resample(mono, rate, 16000);
      const std::string path = write_audio(folder.path("a.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                                           rate, channels, written);
      INFO(rate << " Hz, " << channels << " channels");
      CHECK(SndfileReader().read(path, 16000).samples == expected);
      for (const std::vector<size_t>& sizes :
           std::vector<std::vector<size_t>>{{16000}, {1, 999, 16001}, {8191, 3}, {1 << 20}}) {
        SoundStream sound(path, 16000);
        CHECK(sound.sample_rate() == 16000);
        CHECK(sound.samples() == static_cast<int64_t>(expected.size()));
        CHECK(pieced(sound, sizes) == expected);
      }
      const AudioSegment part{0.25, 1.2, channels - 1};
      SoundStream sound(path, 16000, part);
      const std::vector<float> of_part = pieced(sound, {1700});
      CHECK(of_part == SndfileReader().read(path, 16000, part).samples);
      CHECK(of_part.size() == 19200);
    }
  }
}

TEST_CASE("a compressed recording and one in memory come in pieces, too", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> x = noise(100001, 4);
  for (const auto& [name, format] : {std::pair{"a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                                     std::pair{"a.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS}}) {
    const std::string path = write_audio(folder.path(name), format, 22050, 1, x);
    const std::vector<float> whole = SndfileReader().read(path, 16000).samples;
    SoundStream sound(path, 16000);
    CHECK(pieced(sound, {5000}) == whole);
    const std::string bytes = data::read_whole_file(path);
    SoundStream in_memory(std::as_bytes(std::span(bytes)), "memory", 16000);
    CHECK(pieced(in_memory, {777}) == whole);
    SoundStream as_it_is(path, 0);
    CHECK(as_it_is.sample_rate() == 22050);
    CHECK(pieced(as_it_is, {4096}).size() == x.size());
  }
  SoundStream none(
      write_audio(folder.path("none.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, {}), 16000);
  CHECK(none.samples() == 0);
  CHECK(none.next(10).empty());
}

TEST_CASE("what is wrong with a recording is the same in pieces", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> x = noise(60000, 6);
  const std::string flac = data::read_whole_file(
      write_audio(folder.path("f.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 8000, 1, x));
  const std::string wav = data::read_whole_file(
      write_audio(folder.path("w.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, x));
  std::vector<float> stereo = noise(2 * 40000, 8);
  stereo[2 * 30000] = NAN;
  const std::string none =
      write_audio(folder.path("nan.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 2, stereo);
  struct Case {
    std::string path, why;
    AudioSegment segment = {};
  };
  for (const Case& c : {Case{folder.write("cut.flac", flac.substr(0, flac.size() / 2)),
                             "its header announces 60000"},
                        Case{folder.write("cut.wav", wav.substr(0, 70000)), "is truncated"},
                        Case{folder.write("text.wav", "no recording"), "is not audio"},
                        Case{none, "sample 30000 (3.75 s) is not a finite number"},
                        Case{none, "sample 30000 (3.75 s) is not a finite number", {1, -1, 0}},
                        Case{none, "has no channel 2", {0, -1, 2}},
                        Case{none, "the part from 9 s holds no samples", {9, -1}}}) {
    INFO(c.path);
    const std::string whole = problem_of([&] { SndfileReader().read(c.path, 16000, c.segment); });
    CHECK_THAT(whole, Catch::Contains(c.why));
    CHECK(problem_of([&] {
            SoundStream sound(c.path, 16000, c.segment);
            while (!sound.next(3000).empty()) {
            }
          }) == whole);
  }
  // What there is of those that are cut off.
  for (const char* cut : {"cut.flac", "cut.wav"}) {
    const std::vector<float> whole =
        SndfileReader({.salvage = true}).read(folder.path(cut), 16000).samples;
    CHECK(whole.size() > 20000);
    SoundStream sound(folder.path(cut), 16000, {}, {.salvage = true});
    CHECK(pieced(sound, {1234}) == whole);
  }
}

TEST_CASE("how far up a recording reaches does not depend on how it is cut", "[audio]") {
  std::vector<float> x = resample(noise(40000, 2), 8000, 16000);
  const double hertz = bandwidth_of(x, 16000);
  CHECK(hertz > 3000);
  CHECK(hertz < 5000);
  for (const size_t most : {1, 100, 511, 513, 4000}) {
    Bandwidth band(static_cast<int64_t>(x.size()));
    for (size_t at = 0; at < x.size(); at += most)
      band.add(x.data() + at, std::min(most, x.size() - at));
    CHECK(band.hertz(16000) == hertz);
  }
}

TEST_CASE("an hour of a recording takes no more memory than a second", "[slow][audio]") {
  const TemporaryFolder folder;
  std::string wav = make_wav({8000, std::vector<float>(1)});
  constexpr uint32_t seconds = 3600, bytes = 2 * 8000 * seconds;
  for (const auto& [at, size] : {std::pair{size_t{4}, bytes + 36}, std::pair{size_t{40}, bytes}})
    for (size_t i = 0; i < 4; ++i) wav[at + i] = static_cast<char>(size >> 8 * i & 0xff);
  const std::string path = folder.write("hour.wav", wav);
  std::filesystem::resize_file(path, bytes + 44);  // silence, which takes no room on the disk
  const auto pages = [] {
    int64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident;
  };
  SoundStream sound(path, 16000);
  REQUIRE(sound.next(16000).size() == 16000);
  const int64_t before = pages();
  REQUIRE(before > 0);
  int64_t most = before, samples = 16000;
  for (auto piece = sound.next(16000); !piece.empty(); piece = sound.next(16000)) {
    samples += static_cast<int64_t>(piece.size());
    most = std::max(most, pages());
  }
  CHECK(samples == int64_t{16000} * seconds);
  // The whole has 230 MB.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int64_t allowed = 64 << 20;  // what was freed is kept for a while
#else
  constexpr int64_t allowed = 4 << 20;
#endif
  CHECK((most - before) * ::sysconf(_SC_PAGESIZE) < allowed);
}
