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
    for (int64_t t = 0; t < 200; ++t) {
      m.row(t)[1] *= 3;  // a mean and a deviation of its own
      m.row(t)[2] = 5;   // constant
    }
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
  // All values as one: the first column has most of the variance, and keeps it.
  Matrix whole = random_matrix(50, 2, 4, 7);
  for (int64_t t = 0; t < 50; ++t) whole.row(t)[0] *= 4;
  double mean = 0, squares = 0;
  for (const float v : whole.data) mean += v / 100.0;
  for (const float v : whole.data) squares += (v - mean) * (v - mean) / 100;
  const Matrix before = whole;
  normalize_utterance(whole, CmvnMode::whole);
  for (size_t i = 0; i < whole.data.size(); ++i)
    CHECK(std::abs(whole.data[i] - (before.data[i] - mean) / std::sqrt(squares)) <= 1e-5);
  Matrix one = random_matrix(1, 2, 3);
  normalize_utterance(one, CmvnMode::mean_variance);
  CHECK(one.data == std::vector<float>{0, 0});
}

TEST_CASE("global statistics normalise the whole set", "[cmvn]") {
  Matrix a = random_matrix(100, 2, 1, 4), b = random_matrix(300, 2, 2, 9);
  for (Matrix* m : {&a, &b})
    for (int64_t t = 0; t < m->frames; ++t) m->row(t)[1] = 10 * m->row(t)[1] - 3;
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
  for (int32_t column : {0, 1}) {
    CHECK(std::abs(moments(both, column).first) <= 1e-4);
    CHECK(std::abs(moments(both, column).second - 1) <= 1e-4);
  }
  // The same means alone are not the same statistics.
  GlobalCmvn wider = cmvn;
  wider.scale[1] *= 2;
  CHECK_FALSE(wider == cmvn);
  CHECK_THROWS_AS(CmvnStats().finish(), InputError);
  Matrix other(1, 3);
  CHECK_THROWS_AS(apply(cmvn, other), Error);
  CHECK_THROWS_AS(all.add(other), Error);
}

TEST_CASE("augmentation depends on seed, epoch and utterance alone", "[augment]") {
  AugmentConfig c;
  c.speed = {0.9, 1.0, 1.1};
  c.noise = 1;
  c.spec_augment = true;
  const auto run = [&](const AugmentKey& key) {
    std::vector<float> x = tone(3000);
    change_speed(x, speed_percent(c, key));
    add_noise(c, {}, key, x);
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
  CHECK(samples_at_speed(4000, 90) == 4445);  // 4444.4
  CHECK(samples_at_speed(1000, 110) == 910);  // 909.1
  CHECK(samples_at_speed(220, 110) == 200);
  CHECK(samples_at_speed(0, 90) == 0);
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
  c.noise = 1;
  c.noise_snr_low = c.noise_snr_high = 12;
  const std::vector<float> clean = tone(20000);
  const std::vector<Waveform> none,
      two = {{16000, {0.1f, -0.2f, 0.05f}}, {16000, std::vector<float>(999, 0.5f)}};
  for (const auto& recordings : {none, two}) {
    std::vector<float> x = clean;
    add_noise(c, recordings, {7, 0, 1}, x);
    std::vector<float> noise(x.size());
    for (size_t i = 0; i < x.size(); ++i) noise[i] = x[i] - clean[i];
    CHECK(10 * std::log10(power(clean) / power(noise)) == Approx(12).margin(0.05));
  }
  std::vector<float> silence(100, 0.0f);
  add_noise(c, two, {7, 0, 1}, silence);
  CHECK(silence == std::vector<float>(100, 0.0f));
  c.noise = 0.25;
  int changed = 0;
  for (uint64_t u = 0; u < 400; ++u) {
    std::vector<float> x(4, 0.5f);
    add_noise(c, two, {7, 0, u}, x);
    changed += x != std::vector<float>(4, 0.5f);
  }
  CHECK(changed > 70);
  CHECK(changed < 130);
}

TEST_CASE("noise is any part of any recording, over and over, at any ratio of the range",
          "[augment]") {
  AugmentConfig c;
  c.noise = 1;
  c.noise_snr_low = 5, c.noise_snr_high = 20;
  const std::vector<Waveform> recordings = {
      {16000, {0.1f, -0.2f, 0.05f}}, {16000, {0.3f, 0.25f, -0.4f, 0.15f, 0.02f, -0.1f, 0.33f}}};
  const std::vector<float> clean = tone(20);
  std::set<std::pair<size_t, size_t>> parts;  // recording, and where in it
  double lowest = 1e9, highest = -1e9;
  for (uint64_t u = 0; u < 300; ++u) {
    std::vector<float> noise = clean;
    add_noise(c, recordings, {7, 0, u}, noise);
    for (size_t i = 0; i < noise.size(); ++i) noise[i] -= clean[i];
    const double ratio = 10 * std::log10(power(clean) / power(noise));
    lowest = std::min(lowest, ratio), highest = std::max(highest, ratio);
    int fits = 0;
    for (size_t r = 0; r < recordings.size(); ++r) {
      const std::vector<float>& recording = recordings[r].samples;
      for (size_t at = 0; at < recording.size(); ++at) {
        const float gain = noise[0] / recording[at];
        bool fit = gain > 0;
        for (size_t i = 0; i < noise.size(); ++i)
          fit = fit && std::abs(noise[i] - gain * recording[(at + i) % recording.size()]) <= 1e-5f;
        if (fit) parts.insert({r, at});
        fits += fit;
      }
    }
    CHECK(fits == 1);
  }
  CHECK(parts.size() == 3 + 7);
  CHECK((lowest >= 4.99 && lowest < 5.5));
  CHECK((highest <= 20.01 && highest > 19.5));
}

TEST_CASE("a silent recording of noise leaves the sound as it is", "[augment]") {
  AugmentConfig c;
  c.noise = 1;
  const std::vector<Waveform> silent = {{16000, std::vector<float>(50, 0.0f)}};
  const std::vector<float> clean = tone(200);
  std::vector<float> x = clean;
  add_noise(c, silent, {7, 0, 1}, x);
  CHECK(x == clean);
}

// Where the features differ from what they were: the range of rows or columns, which is masked all
// over with the mean of the features.
std::pair<int64_t, int64_t> masked_range(const Matrix& before, const Matrix& m, bool rows) {
  double mean = 0;
  for (const float v : before.data) mean += v / static_cast<double>(before.data.size());
  const auto is_masked = [&](int64_t t, int32_t i) { return m.row(t)[i] != before.row(t)[i]; };
  int64_t first = -1, end = -1;
  for (int64_t at = 0; at < (rows ? m.frames : m.dim); ++at) {
    if (!(rows ? is_masked(at, 0) : is_masked(0, static_cast<int32_t>(at)))) continue;
    first = first < 0 ? at : first;
    end = at + 1;
  }
  bool right = true;
  for (int64_t t = 0; t < m.frames; ++t) {
    for (int32_t i = 0; i < m.dim; ++i) {
      const int64_t at = rows ? t : i;
      const bool inside = at >= first && at < end;
      right =
          right && is_masked(t, i) == inside && !(inside && std::abs(m.row(t)[i] - mean) > 1e-6);
    }
  }
  CHECK(right);
  return {first, end};
}

TEST_CASE("spectral masks are as wide as configured at most, and anywhere", "[augment]") {
  struct Case {
    int32_t widest;  // as configured
    float share;
    int64_t expected;
    int32_t dim;
  };
  for (const bool rows : {true, false}) {
    // Of 40 frames a fifth; so many frames; all of them. Of 8 bins three; all.
    const std::vector<Case> cases =
        rows ? std::vector<Case>{{30, 0.2f, 8, 6}, {3, 0.2f, 3, 6}, {90, 1.0f, 40, 6}}
             : std::vector<Case>{{3, 0, 3, 8}, {90, 0, 8, 8}};
    for (const Case& each : cases) {
      AugmentConfig c;
      c.spec_augment = true;
      c.time_masks = rows;
      c.frequency_masks = !rows;
      (rows ? c.time_width : c.frequency_width) = each.widest;
      c.time_share = each.share;
      const Matrix before = random_matrix(40, each.dim, 11);
      const int64_t size = rows ? 40 : each.dim;
      int64_t widest = 0, least = size, most = 0;
      for (uint64_t u = 0; u < 400; ++u) {
        Matrix m = before;
        mask_spectrum(c, {1, 1, u}, m);
        const auto [first, end] = masked_range(before, m, rows);
        if (first < 0) continue;
        widest = std::max(widest, end - first);
        least = std::min(least, first), most = std::max(most, end);
      }
      CAPTURE(rows, each.widest);
      CHECK(widest == each.expected);
      CHECK((least == 0 && most == size));  // up to both borders
    }
  }
  AugmentConfig c;
  c.spec_augment = true;
  Matrix tiny(1, 1);
  mask_spectrum(c, {1, 1, 1}, tiny);  // no room is no fault
}

TEST_CASE("unsound augmentation settings are named", "[augment]") {
  AugmentConfig c;
  c.speed = {0};
  CHECK_THROWS_WITH(c.validate(), Contains("speed is 0"));
  c = {};
  c.noise = NAN;
  CHECK_THROWS_WITH(c.validate(), Contains("noise is "));
  c = {};
  c.noise_snr_low = 40;
  CHECK_THROWS_WITH(c.validate(), Contains("noise_snr_low is 40"));
  // The limits themselves are sound.
  c = {};
  c.speed = {0.25, 4};
  c.noise = c.time_share = 1;
  c.noise_snr_low = -100, c.noise_snr_high = 200;
  c.time_masks = c.frequency_masks = 1000;
  c.time_width = c.frequency_width = 0;
  CHECK_NOTHROW(c.validate());
  c.noise_snr_low = c.noise_snr_high;
  c.noise = c.time_share = 0;
  CHECK_NOTHROW(c.validate());
  const auto refuses = [&](auto AugmentConfig::*member, auto value) {
    AugmentConfig wrong = c;
    wrong.*member = value;
    CHECK_THROWS_AS(wrong.validate(), InputError);
  };
  refuses(&AugmentConfig::speed, std::vector<double>{1, 4.01});
  refuses(&AugmentConfig::noise, -0.01);
  refuses(&AugmentConfig::noise, 1.01);
  refuses(&AugmentConfig::noise_snr_high, 201.0);
  refuses(&AugmentConfig::noise_snr_low, -101.0);
  refuses(&AugmentConfig::time_masks, 1001);
  refuses(&AugmentConfig::time_width, -1);
  refuses(&AugmentConfig::time_share, 1.01);
  refuses(&AugmentConfig::frequency_masks, 1001);
  refuses(&AugmentConfig::frequency_width, -1);
}
