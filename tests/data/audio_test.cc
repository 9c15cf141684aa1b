// engine/data/audio/audio.h and resample.h: decoding, mixing down, resampling, and every kind of
// bad file.
#include "engine/data/audio/audio.h"

#include <sndfile.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>
#include <tuple>

#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/resample.h"
#include "engine/data/audio/sound_check.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/written_audio.h"

using namespace rondo;
using Catch::Matchers::Contains;
using rondo::test::write_audio;

namespace {

std::vector<float> tone(double hz, int rate, size_t n, double amplitude = 0.5) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(amplitude *
                                std::sin(2 * M_PI * hz * static_cast<double>(i) / rate + 0.3));
  return out;
}

std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

double rms(std::span<const float> x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// RMS of the difference from a tone at the new rate, away from the ends.
double tone_error(double hz, int from, int to) {
  const std::vector<float> got = resample(tone(hz, from, static_cast<size_t>(from) / 2), from, to);
  std::vector<float> diff = tone(hz, to, got.size());
  for (size_t i = 0; i < diff.size(); ++i) diff[i] -= got[i];
  const size_t edge = got.size() / 8;
  return rms({diff.data() + edge, diff.size() - 2 * edge});
}

std::string put32(std::string wav, size_t at, uint32_t value) {
  std::memcpy(wav.data() + at, &value, 4);
  return wav;
}

}  // namespace

TEST_CASE("WAV, FLAC and Ogg decode to what was written", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> x = tone(440, 16000, 8000);
  const SndfileReader reader;
  struct Case {
    const char* name;
    int format;
    double tolerance;  // RMS
  };
  for (const Case& c : {Case{"a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2e-5},
                        Case{"b.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 0},
                        Case{"c.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 2e-5},
                        Case{"d.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0.03}}) {
    INFO(c.name);
    const std::string path = write_audio(folder.path(c.name), c.format, 16000, 1, x);
    const AudioInfo info = reader.info(path);
    CHECK(info.sample_rate == 16000);
    CHECK(info.channels == 1);
    CHECK(info.frames == 8000);
    const Waveform w = reader.read(path, 0);
    REQUIRE(w.samples.size() == x.size());
    CHECK(w.sample_rate == 16000);
    std::vector<float> diff(x);
    for (size_t i = 0; i < x.size(); ++i) diff[i] -= w.samples[i];
    CHECK(rms(diff) <= c.tolerance);
    // From memory the same.
    CHECK(decode_audio(bytes_of(data::read_whole_file(path)), "-", 0).samples == w.samples);
  }
}

TEST_CASE("channels are averaged and any rate becomes the model's", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> left = tone(300, 44100, 22050), right = tone(900, 44100, 22050);
  std::vector<float> stereo;
  for (size_t i = 0; i < left.size(); ++i) stereo.insert(stereo.end(), {left[i], right[i]});
  const std::string path =
      write_audio(folder.path("s.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT, 44100, 2, stereo);
  const Waveform w = SndfileReader().read(path, 16000);
  CHECK(w.sample_rate == 16000);
  REQUIRE(w.samples.size() == 8000);
  const std::vector<float> l = tone(300, 16000, 8000), r = tone(900, 16000, 8000);
  for (size_t i = 1000; i < 7000; ++i)
    REQUIRE(std::abs(w.samples[i] - 0.5f * (l[i] + r[i])) <= 1e-4f);
}

TEST_CASE("one channel can be chosen", "[audio]") {
  const TemporaryFolder folder;
  std::vector<float> interleaved;
  for (int i = 0; i < 40000; ++i) {
    for (int c = 0; c < 3; ++c) interleaved.push_back(0.25f * static_cast<float>(c * c));
  }
  const std::string path =
      write_audio(folder.path("s.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 3, interleaved);
  const SndfileReader reader;
  for (int c = 0; c < 3; ++c) {
    const Waveform w = reader.read(path, 0, {1, 3, c});
    REQUIRE(w.samples.size() == 24000);
    for (float v : w.samples) REQUIRE(v == 0.25f * static_cast<float>(c * c));
  }
  const Waveform mean = reader.read(path, 0);
  for (const size_t i : {0, 7, 16384, 39999}) CHECK(mean.samples.at(i) == Approx(1.25 / 3));
  CHECK_THROWS_WITH(reader.read(path, 0, {0, -1, 3}),
                    Contains("s.wav: has no channel 3, it has 3 (numbers 0 to 2)"));
}

TEST_CASE("a segment is the part of the whole", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> x = tone(440, 8000, 8000);
  const SndfileReader reader;
  for (const auto& [name, format] : {std::pair{"a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16},
                                     std::pair{"a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                                     std::pair{"a.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS}}) {
    const std::string path = write_audio(folder.path(name), format, 8000, 1, x);
    const std::vector<float> whole = reader.read(path, 0).samples;
    const std::vector<float> part = reader.read(path, 0, {0.25, 0.5}).samples;
    REQUIRE(part.size() == 4000);
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + 2000));
    CHECK(reader.read(path, 0, {0.5, -1}).samples.size() == 4000);
    CHECK(reader.read(path, 0, {0.5, 9}).samples.size() == 4000);
    CHECK_THROWS_WITH(reader.read(path, 0, {1.0, 1}),
                      Contains("the part from 1 s of 1 s holds no samples"));
    CHECK_THROWS_WITH(reader.read(path, 0, {0, 0}), Contains("holds no samples"));
  }
}

TEST_CASE("a segment begins and ends at the nearest sample", "[audio]") {
  const AudioInfo info{8000, 1, 100};
  const auto part = [&](double first, double count) {
    const SampleRange r = sample_range(info, {first / 8000, count / 8000});
    return std::pair(r.first, r.count);
  };
  using Part = std::pair<int64_t, int64_t>;
  CHECK(part(0, 100) == Part{0, 100});
  CHECK(part(2.4, 3.4) == Part{2, 3});
  CHECK(part(2.6, 3.6) == Part{3, 4});
  CHECK(part(2.6, 97) == Part{3, 97});
  CHECK(part(10, 1e6) == Part{10, 90});
  CHECK(part(99.4, 8) == Part{99, 1});
  CHECK(part(99.6, 8) == Part{0, 0});
  CHECK(part(10, 0).second == 0);
  CHECK(part(10, -8000) == Part{10, 90});
  CHECK(part(-1, 5) == Part{0, 0});
  CHECK(part(NAN, 5) == Part{0, 0});
}

TEST_CASE("missing, empty, truncated and non-audio files get one sentence", "[audio]") {
  const TemporaryFolder folder;
  const SndfileReader reader;
  const auto refuses = [&](const std::string& path, const std::string& why) {
    INFO(path);
    CHECK_THROWS_WITH(reader.read(path, 16000), Contains(path + ": ") && Contains(why));
    CHECK_THROWS_AS(reader.read(path, 16000), InputError);
    CHECK_THROWS_WITH(reader.info(path), Contains(path + ": "));
  };
  refuses(folder.path("none.wav"), "No such file");
  refuses(folder.path(""), "is a directory");
  refuses(folder.write("empty.wav", ""), "is empty");
  refuses(folder.write("text.wav", "this is not a recording at all, but a text"), "is not audio");
  refuses(folder.write("one.wav", "R"), "is not audio");
  const std::vector<float> x = tone(440, 16000, 30000);
  const std::string wav = data::read_whole_file(
      write_audio(folder.path("w.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1, x));
  refuses(folder.write("cut.wav", wav.substr(0, 5000)), "is truncated");
  refuses(folder.write("cut2.wav", wav.substr(0, wav.size() - 1)), "is truncated");
  refuses(folder.write("head.wav", wav.substr(0, 30)), "is truncated");
  const std::string none =
      write_audio(folder.path("none0.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1, {});
  CHECK(reader.read(none, 8000).samples.empty());  // a recording all the same
  CHECK(reader.info(none).frames == 0);
  CHECK_THROWS_WITH(reader.read(none, 8000, {0, 1}), Contains("holds no samples"));
  const std::string pipe = folder.path("pipe.wav");  // that nobody writes
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  refuses(pipe, "is not a regular file");
  refuses("/dev/zero", "is not a regular file");
  const std::string ogg = data::read_whole_file(
      write_audio(folder.path("o.ogg"), SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 1, x));
  for (size_t keep : {ogg.size() - 1, ogg.size() / 2}) {
    const std::string path = folder.write("cut.ogg", ogg.substr(0, keep));
    CHECK_THROWS_WITH(reader.read(path, 0), Contains(path) && Contains("truncated"));
  }
  const std::string flac = data::read_whole_file(
      write_audio(folder.path("f.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 1, x));
  const std::string cut = folder.write("cut.flac", flac.substr(0, flac.size() / 2));
  CHECK_THROWS_WITH(reader.read(cut, 0), Contains(cut) && Contains("truncated"));
}

TEST_CASE("unusual but whole WAV headers are read", "[audio]") {
  const TemporaryFolder folder;
  const std::vector<float> x = tone(440, 16000, 3000);
  const std::string wav = data::read_whole_file(
      write_audio(folder.path("w.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1, x));
  const std::vector<float> whole = decode_audio(bytes_of(wav), "-", 0).samples;
  // What programs write that cannot go back to the header: sizes unknown.
  const size_t data = wav.find("data") + 4;
  for (uint32_t size : {0xffffffffu, 0x7ffff000u}) {
    const std::string piped = put32(put32(wav, 4, size), data, size);
    const std::vector<float> got = decode_audio(bytes_of(piped), "-", 0).samples;
    CHECK(got == whole);
  }
  // A chunk before the samples, of an odd size and the byte that fills it up.
  const std::string odd("LIST\3\0\0\0abc\0", 12);
  const std::string before = put32(wav, 4, static_cast<uint32_t>(wav.size() + 4)).insert(36, odd);
  CHECK(decode_audio(bytes_of(before), "-", 0).samples == whole);
  CHECK_THROWS_WITH(decode_audio(bytes_of(before.substr(0, before.size() - 2)), "-", 0),
                    Contains("is truncated"));
  // Trailing bytes after the samples.
  CHECK(decode_audio(bytes_of(wav + "LIST\4\0\0\0abcd"), "-", 0).samples == whole);
}

TEST_CASE("unusable sample rates and samples are refused", "[audio]") {
  const TemporaryFolder folder;
  const auto file = [&](int rate, std::vector<float> x) {
    return write_audio(folder.path("r.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT, rate, 1, x);
  };
  const SndfileReader reader;
  CHECK_THROWS_WITH(reader.read(file(50, {1, 2}), 16000), Contains("sample rate of 50 Hz"));
  CHECK_THROWS_WITH(reader.read(file(2000000, {1, 2}), 16000), Contains("sample rate of 2000000"));
  CHECK_THROWS_WITH(reader.read(file(16000, {0, NAN}), 16000),
                    Contains("sample 1 (6.25e-05 s) is not a finite"));
  CHECK_THROWS_WITH(reader.read(file(16000, {INFINITY}), 16000), Contains("sample 0"));
  CHECK_THROWS_WITH(reader.read(file(16000, {0, 0, -1e11f}), 16000),
                    Contains("sample 2 (0.000125 s) is -1e+11, expected one of about -1 to 1"));
  CHECK(reader.read(file(16000, {0, -2147483648.0f}), 16000).samples.at(1) == -2147483648.0f);
  // Places are those in the recording, of a part and of several channels too.
  std::vector<float> stereo(2 * 40000, 0.5f);
  stereo[2 * 30000 + 1] = NAN;
  const std::string path =
      write_audio(folder.path("s.wav"), SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 2, stereo);
  for (const AudioSegment& segment : {AudioSegment{}, {1, -1}, {3, 2, 1}})
    CHECK_THROWS_WITH(reader.read(path, 0, segment), Contains("sample 30000 (3.75 s) is not a"));
  for (const AudioSegment& segment : {AudioSegment{0, -1, 0}, {0, 3.75}, {3.8, -1}})
    CHECK_NOTHROW(reader.read(path, 0, segment));
}

TEST_CASE("written WAVs read back, clipped at full scale", "[audio]") {
  const TemporaryFolder folder;
  const Waveform w{8000, {0, 0.5f, -0.5f, 1.5f, -1.5f}};
  write_wav(folder.path("a.wav"), w);
  const std::vector<float> got = SndfileReader().read(folder.path("a.wav"), 0).samples;
  REQUIRE(got.size() == 5);
  for (size_t i = 0; i < 5; ++i)
    CHECK(std::abs(got[i] - std::clamp(w.samples[i], -1.0f, 1.0f)) <= 1.0f / 32768);
  CHECK_THROWS_WITH(write_wav(folder.path("no/a.wav"), w), Contains("cannot be written"));
}

TEST_CASE("a full disk while writing is an error", "[audio]") {
  const Waveform w{8000, std::vector<float>(100000, 0.1f)};
  if (!std::filesystem::exists("/dev/full")) return;
  CHECK_THROWS_AS(write_wav("/dev/full", w), InputError);
  CHECK(std::filesystem::exists("/dev/full"));
}

TEST_CASE("a WAV that could not be written to its end does not stay", "[audio]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.wav");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit tight{20000, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  CHECK_THROWS_WITH(write_wav(path, {8000, std::vector<float>(100000, 0.1f)}),
                    Contains("a.wav: cannot be written: File too large"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK_FALSE(std::filesystem::exists(path));
}

// The filter as engine/data/audio/resample.cc describes it: a sinc cut off at 0.93 of the lower
// Nyquist frequency under a Kaiser window (beta 9) of 40 zero crossings to each side, each output's
// weights divided by their sum.
TEST_CASE("an impulse comes out as the filter's weights", "[slow][resample]") {
  const auto weight = [](double t, double lower) {
    const double edge = t * lower / 40;
    if (std::abs(edge) >= 1) return 0.0;
    const double x = M_PI * 0.93 * lower * t;
    return (x == 0 ? 1.0 : std::sin(x) / x) *
           std::cyl_bessel_i(0.0, 9 * std::sqrt(1 - edge * edge)) / std::cyl_bessel_i(0.0, 9.0);
  };
  // Phase by phase, output by output, and between a table's rows.
  for (const auto& [from, to, size] : {std::tuple{48000, 16000, 1000},
                                       {16000, 22050, 6000},
                                       {22050, 16000, 300},
                                       {16001, 16000, 300}}) {
    INFO(from << " -> " << to << ", " << size << " samples");
    const double step = static_cast<double>(from) / to, lower = std::min(1.0, 1 / step);
    const int at = size / 2;
    std::vector<float> impulse(static_cast<size_t>(size));
    impulse[static_cast<size_t>(at)] = 1;
    const std::vector<float> got = resample(impulse, from, to);
    double worst = 0;
    for (size_t k = 0; k < got.size(); ++k) {
      const double middle = static_cast<double>(k) * step;
      double sum = 0;
      for (int i = static_cast<int>(middle) - 200; i <= static_cast<int>(middle) + 200; ++i)
        sum += weight(i - middle, lower);
      const double difference = std::abs(got[k] - weight(at - middle, lower) / sum);
      if (!(difference <= worst)) worst = difference;
    }
    CHECK(worst <= (from == 16001 ? 2e-6 : 1e-7));
  }
}

TEST_CASE("resampling keeps tones and has the promised length", "[resample]") {
  struct Case {
    int from, to;
    double hz;
  };
  for (const Case& c :
       {Case{8000, 16000, 1000}, Case{16000, 8000, 1000}, Case{44100, 16000, 3000},
        Case{48000, 16000, 6500}, Case{16000, 44100, 6500}, Case{22050, 16000, 5000},
        Case{16000, 17600, 3000}, Case{16001, 16000, 3000}, Case{44101, 16000, 3000},
        Case{191999, 16000, 3000}}) {
    INFO(c.from << " -> " << c.to);
    CHECK(tone_error(c.hz, c.from, c.to) <= 2e-5);
    const std::vector<float> x(1001);
    CHECK(resample(x, c.from, c.to).size() ==
          static_cast<size_t>((1001LL * c.to + c.from - 1) / c.from));
  }
}

TEST_CASE("what lies above the new Nyquist frequency is removed", "[resample]") {
  for (double hz : {8100.0, 9000.0, 15000.0}) {
    const std::vector<float> y = resample(tone(hz, 48000, 24000), 48000, 16000);
    const size_t edge = y.size() / 8;
    INFO(hz);
    // Half of the tone's energy would be 0.35; -80 dB of it is allowed.
    CHECK(rms({y.data() + edge, y.size() - 2 * edge}) <= 3.5e-5);
  }
}

// Long signals are filtered phase by phase, short ones output by output.
TEST_CASE("a part of a signal is resampled as within the whole", "[resample]") {
  for (const auto& [from, to] :
       {std::pair{90, 100}, {110, 100}, {22050, 16000}, {16000, 22050}, {44100, 48000}}) {
    INFO(from << " -> " << to);
    const int common = std::gcd(from, to);
    const size_t down = static_cast<size_t>(from / common), up = static_cast<size_t>(to / common);
    std::vector<float> x(40000 / down * down + 5);
    uint32_t state = 1;
    for (float& v : x)
      v = static_cast<float>((state = state * 1664525 + 1013904223) >> 8) * 0x1p-24f;
    const std::vector<float> whole = resample(x, from, to);
    // Forty zero crossings of the lower rate to each side.
    const size_t edge = 2 * (40 * std::max(up, down) / up + 1);
    const size_t periods = 30;  // short enough
    for (size_t first : {size_t{0}, x.size() / 2 / down, x.size() / down - periods}) {
      const size_t begin = first * down;
      const size_t end =
          first > 0 && begin + (periods + 1) * down > x.size() ? x.size() : begin + periods * down;
      const std::vector<float> part = resample({x.data() + begin, end - begin}, from, to);
      // What the other samples have no part in.
      const size_t low = begin == 0 ? 0 : edge * up / down + up;
      const size_t high = end == x.size() ? part.size() : part.size() - edge * up / down - up;
      REQUIRE(part.size() > 3 * edge * up / down);
      REQUIRE(low < high);
      double worst = 0;
      for (size_t i = low; i < high; ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(part[i]) - whole[first * up + i]));
      }
      CHECK(worst <= 1e-6);
    }
    CHECK(whole.size() == (x.size() * up + down - 1) / down);
  }
}

TEST_CASE("resampling is exact where nothing has to be done, and linear", "[resample]") {
  const std::vector<float> x = tone(100, 8000, 500);
  CHECK(resample(x, 8000, 8000) == x);
  CHECK(resample({}, 8000, 16000).empty());
  const std::vector<float> ones(2000, 1.0f);
  const std::vector<float> y = resample(ones, 44100, 16000);
  for (size_t i = 100; i + 100 < y.size(); ++i) REQUIRE(y[i] == Approx(1.0f).margin(1e-5));
  CHECK_THROWS_AS(Resampler(0, 16000), Error);
}

TEST_CASE("how far up a recording reaches, and what it was made from", "[audio]") {
  const auto reaches = [](double hz, int rate) {
    std::vector<float> sum(static_cast<size_t>(rate));
    for (double f = 150; f <= hz; f += 150) {
      const std::vector<float> one = tone(f, rate, sum.size(), 0.02);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    return bandwidth_of(sum, rate);
  };
  CHECK(reaches(3750, 16000) == Approx(3750).margin(130));
  CHECK(reaches(7800, 16000) == Approx(7800).margin(130));
  CHECK(reaches(3750, 44100) == Approx(3750).margin(360));
  CHECK(bandwidth_of(std::vector<float>(8000, 0.0f), 8000) == 0);
  CHECK(bandwidth_of({}, 8000) == 0);
  // Announced to be long, so that few of its windows are looked at, and cut off early.
  Bandwidth early(1 << 20);
  const std::vector<float> beginning = tone(3000, 8000, 600);
  early.add(beginning.data(), beginning.size());
  CHECK(early.hertz(8000) == Approx(3000).margin(130));
  CHECK(true_rate(16000, 3900) == 8000);
  CHECK(true_rate(44100, 7900) == 16000);
  CHECK(true_rate(22050, 5400) == 11025);
  CHECK(true_rate(16000, 7800) == 16000);
  CHECK(true_rate(8000, 3400) == 8000);
  CHECK(true_rate(16000, 2000) == 8000);
  CHECK(true_rate(16000, 1999) == 16000);
  CHECK(true_rate(16000, 5700) == 11025);
  CHECK(true_rate(16000, 5800) == 16000);
  CHECK(true_rate(8000, 2500) == 8000);   // none is lower
  CHECK(true_rate(16000, 400) == 16000);  // a tone
  CHECK(true_rate(16000, 0) == 16000);    // not known
}

TEST_CASE("what is cut off is read as far as it goes, where that is asked for", "[audio]") {
  const TemporaryFolder folder;
  std::vector<float> noise(16000);
  uint32_t state = 1;
  for (float& x : noise) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) / 33554432.0f - 0.25f;
  }
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_FLAC}) {
    const std::string path =
        write_audio(folder.path("a"), format | SF_FORMAT_PCM_16, 8000, 1, noise);
    const std::string whole = data::read_regular_file(path);
    data::write_whole_file(path, whole.substr(0, whole.size() / 2));
    try {
      SndfileReader().read(path, 0);
      FAIL("it was read");
    } catch (const SoundError& e) {
      CHECK(e.fault == SoundFault::truncated);
    }
    const Waveform part = SndfileReader({.salvage = true}).read(path, 0);
    CHECK(part.samples.size() > 3000);
    CHECK(part.samples.size() < 9000);
    CHECK(part.samples[2000] == Approx(noise[2000]).margin(1e-3));
    const SoundReport report = check_sound(path, {}, {.salvage = true});
    CHECK(report.samples == static_cast<int64_t>(part.samples.size()));
    CHECK_FALSE(report.truncation.empty());
  }
}
