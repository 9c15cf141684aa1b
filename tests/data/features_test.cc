// engine/data/features/acoustic_features.h against stored values of kaldi-native-fbank, and its own
// promises.
#include "engine/data/features/acoustic_features.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/features_golden.h"

using namespace rondo;

namespace {

// The signal of tests/golden/features_golden.py, in [-1, 1].
std::vector<float> golden_signal(int n) {
  std::vector<float> out;
  int64_t phase = 0, state = 12345;
  for (int i = 0; i < n; ++i) {
    phase = (phase + 900 + i / 2) % 65536;
    state = (state * 1103515245 + 12345) % 2147483648;
    const int64_t noise = (state >> 16) % 2001 - 1000;
    // Python's // rounds down, as does an arithmetic shift.
    out.push_back(static_cast<float>(((phase - 32768) >> 2) + noise + 300) / 32768.0f);
  }
  return out;
}

struct GoldenCase {
  SoundConfig config;
  int samples;
};

GoldenCase golden_case(const std::string& name) {
  SoundConfig c;
  if (name == "fbank80_16k") {
    c.bins = 80;
    return {c, 4000};
  }
  if (name == "fbank40_8k_centered") {
    c.rate = 8000, c.bins = 40, c.edges = FrameEdges::centered;
    return {c, 1500};
  }
  if (name == "fbank23_energy") {
    c.bins = 23, c.energy = true, c.high_hz = -400;
    return {c, 3000};
  }
  if (name == "fbank23_windowed_energy") {
    c.bins = 23, c.energy = true, c.raw_energy = false, c.low_hz = 64;
    return {c, 3000};
  }
  if (name == "fbank30_hamming_magnitude") {
    c.rate = 22050, c.bins = 30, c.window = WindowKind::hamming, c.power = false;
    return {c, 4000};
  }
  if (name == "fbank30_blackman_plain") {
    c.bins = 30, c.window = WindowKind::blackman, c.remove_dc_offset = false;
    c.preemphasis = 0;
    return {c, 3000};
  }
  if (name == "fbank30_hanning") {
    c.rate = 11025, c.bins = 30, c.window = WindowKind::hanning;
    return {c, 2000};
  }
  if (name == "fbank30_rectangular") {
    c.bins = 30, c.window = WindowKind::rectangular;
    return {c, 2000};
  }
  c.type = FeatureType::mfcc;
  if (name == "mfcc13_16k") {
    c.bins = 23;
    return {c, 4000};
  }
  REQUIRE(name == "mfcc20_8k_energy");
  c.rate = 8000, c.bins = 40, c.coefficients = 20, c.energy = true;
  return {c, 2000};
}

SoundConfig small_config(FrameEdges edges) {
  SoundConfig c;
  c.rate = 8000;
  c.bins = 20;
  c.edges = edges;
  return c;
}

}  // namespace

TEST_CASE("features agree with kaldi-native-fbank", "[features]") {
  for (const GoldenFeatures& golden : golden_features) {
    const GoldenCase c = golden_case(golden.name);
    const Matrix got = FeatureExtractor(c.config).compute(golden_signal(c.samples));
    INFO(golden.name);
    REQUIRE(got.frames == golden.frames);
    for (const GoldenFrame& row : golden.rows) {
      REQUIRE(got.dim == static_cast<int>(row.values.size()));
      for (int i = 0; i < got.dim; ++i) {
        const float want = row.values[static_cast<size_t>(i)];
        const float have = got.row(row.frame)[i];
        INFO("frame " << row.frame << " column " << i << " want " << want << " have " << have);
        // Both sum some 500 products in fp32 and take a log; cepstra are sums of 23 logs.
        CHECK(std::abs(have - want) <= 5e-4f);
      }
    }
  }
}

TEST_CASE("a pure tone lands in the filter around its frequency", "[features]") {
  SoundConfig c;
  c.bins = 40;
  const FeatureExtractor extractor(c);
  const auto mel = [](double hz) { return 1127 * std::log(1 + hz / 700); };
  for (double hz : {200.0, 1000.0, 3000.0, 7000.0}) {
    std::vector<float> tone(8000);
    for (size_t i = 0; i < tone.size(); ++i)
      tone[i] = 0.5f * static_cast<float>(std::sin(2 * M_PI * hz * static_cast<double>(i) / 16000));
    const Matrix m = extractor.compute(tone);
    int best = 0;
    for (int i = 0; i < m.dim; ++i)
      if (m.row(5)[i] > m.row(5)[best]) best = i;
    const double width = (mel(8000) - mel(20)) / 41;
    CHECK(std::abs((mel(hz) - mel(20)) / width - (best + 1)) <= 0.75);
  }
}

TEST_CASE("silence gives the floor, not infinity", "[features]") {
  const Matrix m = FeatureExtractor(SoundConfig{}).compute(std::vector<float>(1600, 0.0f));
  REQUIRE(m.frames == 8);
  for (float v : m.data) CHECK(v == Approx(std::log(1.1920929e-07f)).margin(1e-4));
}

TEST_CASE("a recording shorter than a frame has no frames", "[features]") {
  const FeatureExtractor extractor{SoundConfig{}};
  CHECK(extractor.compute(std::vector<float>(399)).frames == 0);
  CHECK(extractor.compute(std::vector<float>(400)).frames == 1);
  CHECK(extractor.compute({}).frames == 0);
  // Windows of 200 samples, every 80.
  SoundConfig c = small_config(FrameEdges::complete);
  CHECK((c.frames(199) == 0 && c.frames(200) == 1 && c.frames(279) == 1 && c.frames(280) == 2));
  c.edges = FrameEdges::centered;
  CHECK((c.frames(39) == 0 && c.frames(40) == 1 && c.frames(119) == 1 && c.frames(120) == 2));
}

TEST_CASE("streaming in any pieces gives the same bits", "[features]") {
  for (FrameEdges edges : {FrameEdges::complete, FrameEdges::centered}) {
    for (int total : {0, 1, 50, 130, 199, 200, 201, 3011}) {
      const FeatureExtractor extractor(small_config(edges));
      const std::vector<float> samples = golden_signal(total);
      const Matrix whole = extractor.compute(samples);
      for (size_t piece : {1u, 7u, 80u, 500u, 4000u}) {
        if (piece == 1 && total > 300) continue;
        FeatureStream stream(extractor);
        for (int repeat = 0; repeat < 2; ++repeat) {  // finish() makes it new again
          std::vector<float> got;
          for (size_t at = 0; at < samples.size(); at += piece) {
            const size_t n = std::min(piece, samples.size() - at);
            const Matrix m = stream.accept({samples.data() + at, n});
            got.insert(got.end(), m.data.begin(), m.data.end());
          }
          const Matrix m = stream.finish();
          got.insert(got.end(), m.data.begin(), m.data.end());
          INFO("total " << total << " piece " << piece << " repeat " << repeat);
          CHECK(got == whole.data);
        }
      }
    }
  }
}

TEST_CASE("a frame's features do not depend on its place in a block", "[features]") {
  const FeatureExtractor extractor(small_config(FrameEdges::complete));
  const std::vector<float> samples = golden_signal(6000);
  const Matrix whole = extractor.compute(samples);
  for (int64_t t : {0, 1, 15, 16, 33}) {
    const Matrix one = extractor.compute({samples.data() + t * 80, 200});
    REQUIRE(one.frames == 1);
    CHECK(std::equal(one.row(0), one.row(0) + one.dim, whole.row(t)));
  }
}

TEST_CASE("dither is reproducible and differs between recordings", "[features]") {
  SoundConfig c = small_config(FrameEdges::complete);
  c.dither = 1;
  const FeatureExtractor extractor(c);
  const std::vector<float> silence(1000, 0.0f);
  CHECK(extractor.compute(silence, 1) == extractor.compute(silence, 1));
  CHECK_FALSE(extractor.compute(silence, 1) == extractor.compute(silence, 2));
  // No two frames have the same, wherever they are in a block.
  const Matrix m = extractor.compute(std::vector<float>(8000, 0.0f), 1);
  REQUIRE(m.frames > 64);
  std::set<std::vector<float>> frames;
  for (int64_t t = 0; t < m.frames; ++t) frames.insert({m.row(t), m.row(t) + m.dim});
  CHECK(static_cast<int64_t>(frames.size()) == m.frames);
}

TEST_CASE("unsound feature settings are named", "[features]") {
  using Catch::Matchers::Contains;
  SoundConfig c;
  c.bins = 0;
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("bins is 0"));
  c = {};
  c.high_hz = 9000;
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("high_hz is 9000"));
  c = {};
  c.low_hz = 8000;  // half the sample rate leaves no room above it
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("low_hz is 8000"));
  c = {};
  c.bins = 400;
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("bins is 400"));
  c = {};
  c.hop_ms = 0.01;
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("hop_ms"));
  c = {};
  c.dither = 1e300;  // infinite in f32
  CHECK_THROWS_WITH(FeatureExtractor(c), Contains("dither is 1e+300"));
  c = {};
  c.preemphasis = NAN;
  CHECK_THROWS_AS(FeatureExtractor(c), InputError);
}
