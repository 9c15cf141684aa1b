// engine/data/features/cmvn.h and augment.h.
#include "engine/data/augment.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/data/features/cmvn.h"
#include "engine/data/features/random.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

Matrix random_matrix(int64_t frames, int32_t dim, uint64_t seed, double offset = 0) {
  data::Random random(seed, 0, 0, data::Purpose::noise);
  Matrix m(frames, dim);
  for (float& v : m.data) v = static_cast<float>(random.normal() + offset);
  return m;
}

std::pair<double, double> moments(const Matrix& m, int32_t column) {
  double sum = 0, squares = 0;
  for (int64_t t = 0; t < m.frames; ++t) sum += m.row(t)[column];
  const double mean = sum / static_cast<double>(m.frames);
  for (int64_t t = 0; t < m.frames; ++t)
    squares += (m.row(t)[column] - mean) * (m.row(t)[column] - mean);
  return {mean, squares / static_cast<double>(m.frames)};
}

std::vector<float> tone(size_t n) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = 0.3f * std::sin(static_cast<float>(i) * 0.1f);
  return out;
}

double power(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return sum / static_cast<double>(x.size());
}

}  // namespace

TEST_CASE("an utterance is normalised column by column", "[cmvn]") {
  for (double offset : {0.0, 1000.0}) {
    Matrix m = random_matrix(200, 3, 1, offset);
    for (int64_t t = 0; t < 200; ++t) m.row(t)[2] = 5;  // constant
    Matrix centered = m;
    normalize_utterance(m, CmvnMode::mean_variance);
    normalize_utterance(centered, CmvnMode::mean);
    for (int32_t c = 0; c < 2; ++c) {
      CHECK(std::abs(moments(m, c).first) <= 1e-3);
      CHECK(std::abs(moments(m, c).second - 1) <= 1e-3);
      CHECK(std::abs(moments(centered, c).first) <= 1e-3);
      CHECK(std::abs(moments(centered, c).second - 1) > 1e-3);
    }
    for (int64_t t = 0; t < 200; ++t) CHECK(m.row(t)[2] == 0);
  }
  Matrix one = random_matrix(1, 2, 3);
  normalize_utterance(one, CmvnMode::mean_variance);
  CHECK(one.data == std::vector<float>{0, 0});
  CHECK_THROWS_WITH(cmvn_mode("speaker"), Contains("speaker"));
  CHECK(cmvn_mode("mean_variance") == CmvnMode::mean_variance);
}

TEST_CASE("global statistics normalise the whole set", "[cmvn]") {
  const Matrix a = random_matrix(100, 2, 1, 4), b = random_matrix(300, 2, 2, 9);
  CmvnStats all, part;
  all.add(a);
  all.add(b);
  part.add(b);
  CmvnStats merged;
  merged.add(a);
  merged += part;
  const GlobalCmvn cmvn = all.finish();
  for (size_t i = 0; i < 2; ++i) {
    CHECK(merged.finish().mean[i] == Approx(cmvn.mean[i]));
    CHECK(merged.finish().scale[i] == Approx(cmvn.scale[i]));
  }
  Matrix both(400, 2);
  std::copy(a.data.begin(), a.data.end(), both.data.begin());
  std::copy(b.data.begin(), b.data.end(), both.data.begin() + 200);
  apply(cmvn, both);
  CHECK(std::abs(moments(both, 1).first) <= 1e-4);
  CHECK(std::abs(moments(both, 1).second - 1) <= 1e-4);
  CHECK_THROWS_AS(CmvnStats().finish(), InputError);
  Matrix other(1, 3);
  CHECK_THROWS_AS(apply(cmvn, other), Error);
  CHECK_THROWS_AS(all.add(other), Error);
}

TEST_CASE("augmentation depends on seed, epoch and utterance alone", "[augment]") {
  AugmentConfig c;
  c.speeds = {0.9f, 1.0f, 1.1f};
  c.noise_probability = 1;
  c.time_masks = 2;
  c.frequency_masks = 2;
  const auto run = [&](const AugmentKey& key) {
    std::vector<float> x = tone(3000);
    change_speed(x, speed_percent(c, key));
    add_noise(c, key, x);
    Matrix m = random_matrix(300, 40, 5);
    mask_spectrum(c, key, m);
    x.insert(x.end(), m.data.begin(), m.data.end());
    return x;
  };
  const AugmentKey key{1, 2, 3};
  CHECK(run(key) == run(key));
  CHECK(run(key) != run({2, 2, 3}));
  CHECK(run(key) != run({1, 3, 3}));
  CHECK(run(key) != run({1, 2, 4}));
  std::set<int32_t> drawn;
  for (uint64_t e = 0; e < 50; ++e) drawn.insert(speed_percent(c, {1, e, 3}));
  CHECK(drawn == std::set<int32_t>{90, 100, 110});
}

TEST_CASE("a change of speed moves pitch and length together", "[augment]") {
  for (int32_t percent : {90, 110, 200}) {
    std::vector<float> x = tone(4000);
    change_speed(x, percent);
    REQUIRE(static_cast<int64_t>(x.size()) == samples_at_speed(4000, percent));
    for (size_t i = 500; i + 500 < x.size(); ++i)
      REQUIRE(std::abs(x[i] - 0.3f * std::sin(static_cast<float>(i) * 0.001f *
                                              static_cast<float>(percent))) <= 1e-3f);
  }
}

TEST_CASE("normal numbers have the moments and the independence of normal ones", "[augment]") {
  data::Random random(3, 1, 4, data::Purpose::noise);
  double sum = 0, squares = 0, fourth = 0, product = 0;
  constexpr int n = 200000;
  for (int i = 0; i < n; ++i) {
    const auto [a, b] = random.normals();
    for (double v : {static_cast<double>(a), static_cast<double>(b)}) {
      REQUIRE(std::isfinite(v));
      sum += v;
      squares += v * v;
      fourth += v * v * v * v;
    }
    product += static_cast<double>(a) * b;
  }
  // Five standard errors each.
  CHECK(std::abs(sum / (2 * n)) <= 0.008);
  CHECK(std::abs(squares / (2 * n) - 1) <= 0.012);
  CHECK(std::abs(fourth / (2 * n) - 3) <= 0.08);
  CHECK(std::abs(product / n) <= 0.012);
}

TEST_CASE("noise comes at the ratio that was asked for", "[augment]") {
  AugmentConfig c;
  c.noise_probability = 1;
  c.snr_low_db = c.snr_high_db = 12;
  const std::vector<float> clean = tone(20000);
  for (bool recorded : {false, true}) {
    if (recorded)
      c.noises = {{16000, {0.1f, -0.2f, 0.05f}}, {16000, std::vector<float>(999, 0.5f)}};
    std::vector<float> x = clean;
    add_noise(c, {7, 0, 1}, x);
    std::vector<float> noise(x.size());
    for (size_t i = 0; i < x.size(); ++i) noise[i] = x[i] - clean[i];
    CHECK(10 * std::log10(power(clean) / power(noise)) == Approx(12).margin(0.05));
  }
  std::vector<float> silence(100, 0.0f);
  add_noise(c, {7, 0, 1}, silence);
  CHECK(silence == std::vector<float>(100, 0.0f));
  c.noise_probability = 0.25f;
  int changed = 0;
  for (uint64_t u = 0; u < 400; ++u) {
    std::vector<float> x(4, 0.5f);
    add_noise(c, {7, 0, u}, x);
    changed += x != std::vector<float>(4, 0.5f);
  }
  CHECK(changed > 70);
  CHECK(changed < 130);
}

TEST_CASE("a silent recording of noise leaves the sound as it is", "[augment]") {
  AugmentConfig c;
  c.noise_probability = 1;
  c.noises = {{16000, std::vector<float>(50, 0.0f)}};
  const std::vector<float> clean = tone(200);
  std::vector<float> x = clean;
  add_noise(c, {7, 0, 1}, x);
  CHECK(x == clean);
}

TEST_CASE("spectral masks cover at most what is configured", "[augment]") {
  AugmentConfig c;
  c.time_masks = 1;
  c.time_mask_frames = 30;
  c.time_mask_share = 0.2f;
  int64_t widest = 0;
  for (uint64_t u = 0; u < 300; ++u) {
    Matrix m = random_matrix(100, 8, 11);
    const Matrix before = m;
    mask_spectrum(c, {1, 1, u}, m);
    int64_t masked = 0, first = -1, last = -1;
    for (int64_t t = 0; t < 100; ++t) {
      if (std::equal(m.row(t), m.row(t) + 8, before.row(t))) continue;
      ++masked;
      if (first < 0) first = t;
      last = t;
      for (int i = 1; i < 8; ++i) CHECK(m.row(t)[i] == m.row(t)[0]);
    }
    if (masked) CHECK(last - first + 1 == masked);
    widest = std::max(widest, masked);
  }
  CHECK(widest == 20);  // the share binds
  c = {};
  c.frequency_masks = 1;
  c.frequency_mask_bins = 3;
  widest = 0;
  for (uint64_t u = 0; u < 200; ++u) {
    Matrix m = random_matrix(10, 8, 11);
    const Matrix before = m;
    mask_spectrum(c, {1, 1, u}, m);
    int64_t masked = 0;
    for (int i = 0; i < 8; ++i) masked += m.row(4)[i] != before.row(4)[i];
    widest = std::max(widest, masked);
  }
  CHECK(widest == 3);
  Matrix tiny(1, 1);
  mask_spectrum(c, {1, 1, 1}, tiny);  // no room is no fault
}

TEST_CASE("unsound augmentation settings are named", "[augment]") {
  AugmentConfig c;
  c.speeds = {0};
  CHECK_THROWS_WITH(c.validate(), Contains("speed is 0"));
  c = {};
  c.noise_probability = NAN;
  CHECK_THROWS_WITH(c.validate(), Contains("noise_probability"));
  c = {};
  c.snr_low_db = 40;
  CHECK_THROWS_WITH(c.validate(), Contains("snr_low_db is 40"));
  c = {};
  c.noises.emplace_back();
  CHECK_THROWS_WITH(c.validate(), Contains("noise recording"));
}
