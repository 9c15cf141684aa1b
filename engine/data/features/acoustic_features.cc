#include "engine/data/features/acoustic_features.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numbers>

#include "engine/data/features/fbank_kernel.h"
#include "engine/data/features/random.h"
#include "kernels/base/cpu.h"
#include "kernels/base/error.h"

namespace rondo {
namespace data {

// Owns what the kernel's tables point to.
struct OwnedFeatureTables {
  FeatureTables view;
  std::vector<float> window, half_cos, half_sin, full_cos, full_sin, mel_weights, dct;
  std::vector<int32_t> bit_reversed;
  std::vector<MelFilter> filters;

  size_t scratch(int32_t width) const {
    return static_cast<size_t>(3 * (view.fft_size / 2) + view.mel_bins + view.cepstra) *
           static_cast<size_t>(width);
  }
};

namespace {

FeatureKernel best_kernel() {
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512) return isa_avx512::feature_kernel();
  if (cpu.avx2) return isa_avx2::feature_kernel();
  return isa_generic::feature_kernel();
}

double mel(double hz) { return 1127.0 * std::log(1.0 + hz / 700.0); }

double window_value(WindowKind kind, int32_t i, int32_t n) {
  const double a = n > 1 ? 2 * std::numbers::pi * i / (n - 1) : 0;
  switch (kind) {
    case WindowKind::povey:
      return std::pow(0.5 - 0.5 * std::cos(a), 0.85);
    case WindowKind::hamming:
      return 0.54 - 0.46 * std::cos(a);
    case WindowKind::hanning:
      return 0.5 - 0.5 * std::cos(a);
    case WindowKind::blackman:
      return 0.42 - 0.5 * std::cos(a) + 0.08 * std::cos(2 * a);
    case WindowKind::rectangular:
      return 1;
  }
  return 1;
}

void fill_fft(OwnedFeatureTables& t) {
  const int32_t half = t.view.fft_size / 2;
  int32_t bits = 0;
  while ((1 << bits) < half) ++bits;
  for (int32_t i = 0; i < half; ++i) {
    int32_t reversed = 0;
    for (int32_t b = 0; b < bits; ++b) reversed |= ((i >> b) & 1) << (bits - 1 - b);
    t.bit_reversed.push_back(reversed);
  }
  const auto fill = [](std::vector<float>& c, std::vector<float>& s, int32_t count, int32_t n) {
    for (int32_t k = 0; k < count; ++k) {
      const double angle = -2 * std::numbers::pi * k / n;
      c.push_back(static_cast<float>(std::cos(angle)));
      s.push_back(static_cast<float>(std::sin(angle)));
    }
  };
  fill(t.half_cos, t.half_sin, std::max(1, half / 2), half);
  fill(t.full_cos, t.full_sin, half / 2 + 1, t.view.fft_size);
}

// Triangles that are equal on the mel scale, over bins 0 to fft_size / 2 - 1.
void fill_filters(OwnedFeatureTables& t, const SoundConfig& c) {
  const double nyquist = c.rate / 2.0, given_high = static_cast<float>(c.high_hz);
  const double high = given_high > 0 ? given_high : nyquist + given_high;
  const double low_mel = mel(static_cast<float>(c.low_hz)),
               step = (mel(high) - low_mel) / (c.bins + 1);
  const double bin_hz = static_cast<double>(c.rate) / t.view.fft_size;
  for (int32_t m = 0; m < c.bins; ++m) {
    const double left = low_mel + m * step, center = left + step, right = center + step;
    MelFilter filter;
    filter.weight_offset = static_cast<int32_t>(t.mel_weights.size());
    for (int32_t bin = 0; bin < t.view.fft_size / 2; ++bin) {
      const double at = mel(bin_hz * bin);
      if (at <= left || at >= right) continue;
      if (filter.weight_count == 0) filter.first_bin = bin;
      ++filter.weight_count;
      t.mel_weights.push_back(static_cast<float>(at <= center ? (at - left) / (center - left)
                                                              : (right - at) / (right - center)));
    }
    if (filter.weight_count == 0)
      fail_input("features: bins is ", c.bins, ", but filter ", m + 1, " (",
                 std::lround(700 * (std::exp(center / 1127) - 1)),
                 " Hz) is narrower than the FFT's ", bin_hz,
                 " Hz: use fewer filters or longer frames");
    t.filters.push_back(filter);
  }
}

void fill_dct(OwnedFeatureTables& t, const SoundConfig& c) {
  const double n = c.bins;
  for (int32_t k = 0; k < c.coefficients; ++k) {
    const double lift =
        c.lifter > 0 ? 1 + 0.5 * c.lifter * std::sin(std::numbers::pi * k / c.lifter) : 1;
    const double scale = lift * std::sqrt((k == 0 ? 1 : 2) / n);
    for (int32_t i = 0; i < c.bins; ++i)
      t.dct.push_back(static_cast<float>(scale * std::cos(std::numbers::pi / n * (i + 0.5) * k)));
  }
}

std::shared_ptr<const OwnedFeatureTables> make_tables(const SoundConfig& c) {
  auto t = std::make_shared<OwnedFeatureTables>();
  FeatureTables& v = t->view;
  v.window_samples = c.window_samples();
  v.fft_size = 4;
  while (v.fft_size < v.window_samples) v.fft_size *= 2;
  v.mel_bins = c.bins;
  v.cepstra = c.type == FeatureType::mfcc ? c.coefficients : 0;
  v.dim = c.dim();
  v.preemphasis = static_cast<float>(c.preemphasis);
  v.remove_dc_offset = c.remove_dc_offset;
  v.energy = c.energy;
  v.raw_energy = c.raw_energy;
  v.power = c.power;
  v.log_energy_floor =
      c.energy_floor > 0 ? std::log(c.energy_floor) : -std::numeric_limits<float>::infinity();
  for (int32_t i = 0; i < v.window_samples; ++i)
    t->window.push_back(static_cast<float>(window_value(c.window, i, v.window_samples)));
  fill_fft(*t);
  fill_filters(*t, c);
  if (c.type == FeatureType::mfcc) fill_dct(*t, c);
  v.window = t->window.data();
  v.bit_reversed = t->bit_reversed.data();
  v.half_cos = t->half_cos.data();
  v.half_sin = t->half_sin.data();
  v.full_cos = t->full_cos.data();
  v.full_sin = t->full_sin.data();
  v.filters = t->filters.data();
  v.mel_weights = t->mel_weights.data();
  v.dct = t->dct.data();
  return t;
}

int64_t first_sample(const SoundConfig& c, int64_t frame) {
  const int64_t shift = c.shift_samples(), window = c.window_samples();
  if (c.edges == FrameEdges::complete) return frame * shift;
  return frame * shift + shift / 2 - window / 2;
}

// The index inside [0, total) that a position beyond the ends is reflected to.
int64_t reflect(int64_t at, int64_t total) {
  while (at < 0 || at >= total) at = at < 0 ? -at - 1 : 2 * total - 1 - at;
  return at;
}

}  // namespace
}  // namespace data

int32_t SoundConfig::window_samples() const {
  return static_cast<int32_t>(rate * 0.001 * static_cast<float>(frame_ms));
}
int32_t SoundConfig::shift_samples() const {
  return static_cast<int32_t>(rate * 0.001 * static_cast<float>(hop_ms));
}
int32_t SoundConfig::dim() const {
  return type == FeatureType::mfcc ? coefficients : bins + (energy ? 1 : 0);
}
int64_t SoundConfig::frames(int64_t samples) const {
  const int64_t shift = shift_samples(), length = window_samples();
  if (edges == FrameEdges::centered) return (samples + shift / 2) / shift;
  return samples < length ? 0 : 1 + (samples - length) / shift;
}

void SoundConfig::validate() const {
  const auto require = [](bool ok, const char* what, auto value, const char* expected) {
    if (!ok) fail_input("features: ", what, " is ", value, ", expected ", expected);
  };
  const auto finite = [](double value) { return std::isfinite(static_cast<float>(value)); };
  const float nyquist = static_cast<float>(rate) / 2, low = static_cast<float>(low_hz);
  const auto given_high = static_cast<float>(high_hz);
  const float high = given_high > 0 ? given_high : nyquist + given_high;
  RONDO_CHECK(type == FeatureType::log_mel || type == FeatureType::mfcc,
              "features of recordings, but not of their kind");
  require(rate >= 100 && rate <= 768000, "rate", rate, "100 to 768000 Hz");
  require(frame_ms > 0 && frame_ms <= 10000 && window_samples() >= 2, "frame_ms", frame_ms,
          "at least two samples and at most 10000 ms");
  require(hop_ms > 0 && hop_ms <= 10000 && shift_samples() >= 1, "hop_ms", hop_ms,
          "at least one sample and at most 10000 ms");
  require(preemphasis >= 0 && preemphasis <= 1, "preemphasis", preemphasis, "0 to 1");
  require(dither >= 0 && finite(dither), "dither", dither, "0 or more");
  require(bins >= 1 && bins <= 4096, "bins", bins, "1 to 4096");
  require(low >= 0 && low < nyquist, "low_hz", low_hz, "0 to half the rate");
  require(high > low && high <= nyquist, "high_hz", high_hz,
          "more than low_hz and at most half the rate");
  require(type != FeatureType::mfcc || (coefficients >= 1 && coefficients <= bins), "coefficients",
          coefficients, "1 to bins");
  require(lifter >= 0 && finite(lifter), "lifter", lifter, "0 or more");
  require(energy_floor >= 0 && finite(energy_floor), "energy_floor", energy_floor, "0 or more");
  require(sample_scale > 0 && finite(sample_scale), "sample_scale", sample_scale, "more than 0");
}

FeatureExtractor::FeatureExtractor(const SoundConfig& config) : config_(config) {
  config_.validate();
  tables_ = data::make_tables(config_);
}

Matrix FeatureExtractor::compute(std::span<const float> samples, uint64_t dither_key) const {
  const auto total = static_cast<int64_t>(samples.size());
  Matrix out(config_.frames(total), config_.dim());
  compute_frames(samples, 0, total, 0, out.frames, dither_key, out.data.data());
  return out;
}

void FeatureExtractor::compute_frames(std::span<const float> part, int64_t offset, int64_t total,
                                      int64_t first, int64_t count, uint64_t dither_key,
                                      float* out) const {
  const data::FeatureKernel kernel = data::best_kernel();
  const int32_t width = kernel.width, window = tables_->view.window_samples;
  std::vector<float> block(static_cast<size_t>(window) * static_cast<size_t>(width));
  std::vector<float> scratch(tables_->scratch(width));
  for (int64_t begin = 0; begin < count; begin += width) {
    const auto lanes = static_cast<int32_t>(std::min<int64_t>(width, count - begin));
    for (int32_t l = 0; l < lanes; ++l) {
      const int64_t frame = first + begin + l;
      const int64_t from = data::first_sample(config_, frame);
      float* column = block.data() + l;
      if (from >= offset && from + window <= total) {
        const float* in = part.data() + (from - offset);
        for (int32_t i = 0; i < window; ++i) column[i * width] = in[i] * config_.sample_scale;
      } else {
        for (int32_t i = 0; i < window; ++i)
          column[i * width] = part[static_cast<size_t>(data::reflect(from + i, total) - offset)] *
                              config_.sample_scale;
      }
      if (config_.dither > 0) {
        data::Random random(config_.dither_seed, dither_key, static_cast<uint64_t>(frame),
                            data::Purpose::dither);
        const auto dither = static_cast<float>(config_.dither);
        for (int32_t i = 0; i < window; ++i) column[i * width] += dither * random.normal();
      }
    }
    kernel.block(tables_->view, block.data(), scratch.data(), lanes,
                 out + begin * tables_->view.dim);
  }
}

FeatureProducts products_of(const SoundConfig& c) {
  c.validate();
  if (c.dither > 0 || c.energy || !c.power || c.edges != FrameEdges::complete) {
    fail_input("features with ", c.dither > 0 ? "dither" : "energy, magnitudes or reflected ends",
               " are no products of matrices");
  }
  const auto tables = data::make_tables(c);
  const data::FeatureTables& v = tables->view;
  const int64_t n = v.window_samples, spectrum = v.fft_size / 2;
  FeatureProducts p{n,
                    c.shift_samples(),
                    Matrix(spectrum, static_cast<int32_t>(n)),
                    Matrix(spectrum, static_cast<int32_t>(n)),
                    Matrix(c.bins, static_cast<int32_t>(spectrum)),
                    {},
                    FLT_EPSILON};
  std::vector<double> of(static_cast<size_t>(n));
  for (int64_t k = 0; k < spectrum; ++k) {
    for (const bool sine : {false, true}) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        // What sample i gives to the window's product with the wave, after pre-emphasis.
        const auto wave = [&](int64_t at) {
          const double angle = 2 * std::numbers::pi * static_cast<double>(k * at % v.fft_size) /
                               static_cast<double>(v.fft_size);
          return static_cast<double>(v.window[at]) * (sine ? std::sin(angle) : std::cos(angle));
        };
        const double emphasis = static_cast<double>(v.preemphasis);
        double value = wave(i);
        if (i == 0) value *= 1 - emphasis;  // its own predecessor
        if (i + 1 < n) value -= emphasis * wave(i + 1);
        sum += value;
        of[static_cast<size_t>(i)] = value;
      }
      float* row = (sine ? p.sines : p.cosines).row(k);
      const double mean = v.remove_dc_offset ? sum / static_cast<double>(n) : 0;
      for (int64_t i = 0; i < n; ++i) {
        row[i] = static_cast<float>((of[static_cast<size_t>(i)] - mean) *
                                    static_cast<double>(c.sample_scale));
      }
    }
  }
  for (int32_t m = 0; m < c.bins; ++m) {
    const data::MelFilter& f = tables->filters[static_cast<size_t>(m)];
    std::copy_n(tables->mel_weights.begin() + f.weight_offset, f.weight_count,
                p.mel.row(m) + f.first_bin);
  }
  if (v.cepstra > 0) {
    p.dct = Matrix(v.cepstra, c.bins);
    p.dct.data = tables->dct;
  }
  return p;
}

Matrix FeatureStream::accept(std::span<const float> samples) {
  kept_.insert(kept_.end(), samples.begin(), samples.end());
  const SoundConfig& c = extractor_.config();
  const int64_t received = offset_ + static_cast<int64_t>(kept_.size());
  int64_t ready = next_frame_;
  while (data::first_sample(c, ready) + c.window_samples() <= received) ++ready;
  return take(ready, received);
}

Matrix FeatureStream::finish() {
  const int64_t received = offset_ + static_cast<int64_t>(kept_.size());
  Matrix out = take(std::max(next_frame_, extractor_.config().frames(received)), received);
  kept_.clear();
  offset_ = next_frame_ = 0;
  return out;
}

Matrix FeatureStream::take(int64_t up_to, int64_t total) {
  const SoundConfig& c = extractor_.config();
  Matrix out(up_to - next_frame_, c.dim());
  extractor_.compute_frames(kept_, offset_, total, next_frame_, out.frames, 0, out.data.data());
  next_frame_ = up_to;
  // Reflection at the end reaches back by less than a window from the next frame's first sample.
  const int64_t needed = std::max(offset_, data::first_sample(c, up_to) - c.window_samples());
  const int64_t drop = std::min<int64_t>(needed - offset_, static_cast<int64_t>(kept_.size()));
  kept_.erase(kept_.begin(), kept_.begin() + drop);
  offset_ += drop;
  return out;
}

}  // namespace rondo
