#include "engine/data/audio/resample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <numeric>

#include "engine/data/audio/filter_kernel.h"
#include "kernels/base/arithmetic.h"
#include "kernels/base/cpu.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// 80 zero crossings of the sinc and beta 9 (-90 dB) make a transition band of 0.14 of the lower
// Nyquist frequency; it ends there.
constexpr int zero_crossings = 40;  // to each side
constexpr double kaiser_beta = 9.0;
constexpr double transition_middle = 0.93;  // a share of the lower rate
// Rows per cycle of the filter's cutoff, which bounds the table: beyond it rows are interpolated.
constexpr double most_phases = 4096;
constexpr double fewest_phases = 64;

// Modified Bessel function of the first kind, order 0, by its power series.
double bessel_i0(double x) {
  double term = 1, total = 1;
  for (int k = 1; term > total * 1e-17; ++k) {
    term *= (x / (2 * k)) * (x / (2 * k));
    total += term;
  }
  return total;
}

// The filter at `t` input samples from its middle.
double kernel(double t, double cutoff, double half_width) {
  const double edge = t / half_width;
  if (std::abs(edge) >= 1) return 0;
  const double x = std::numbers::pi * cutoff * t;
  const double sinc = x == 0 ? 1.0 : std::sin(x) / x;
  return cutoff * sinc * bessel_i0(kaiser_beta * std::sqrt(1 - edge * edge)) /
         bessel_i0(kaiser_beta);
}

data::FilterKernels best_kernels() {
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512) return isa_avx512::filter_kernels();
  if (cpu.avx2) return isa_avx2::filter_kernels();
  return isa_generic::filter_kernels();
}

}  // namespace

Resampler::Resampler(int32_t in_rate, int32_t out_rate) {
  RONDO_CHECK(in_rate >= 1 && in_rate <= 10'000'000, "input rate is ", in_rate);
  RONDO_CHECK(out_rate >= 1 && out_rate <= 10'000'000, "output rate is ", out_rate);
  const int32_t common = std::gcd(in_rate, out_rate);
  up_ = out_rate / common;
  down_ = in_rate / common;
  if (up_ == down_) return;
  const double lower = std::min(1.0, static_cast<double>(up_) / static_cast<double>(down_));
  const double cutoff = transition_middle * lower;
  const double half_width = zero_crossings / lower;
  const auto half_taps = static_cast<int32_t>(std::ceil(half_width));
  taps_ = 2 * half_taps;
  const double most = std::max(fewest_phases, std::ceil(most_phases * lower));
  phases_ = static_cast<int32_t>(std::min(static_cast<double>(up_), most));
  table_.resize(static_cast<size_t>(phases_ + 1) * static_cast<size_t>(taps_));
  // Row p serves outputs p / phases of a sample after an input sample, which tap half_taps - 1
  // multiplies.
  for (int32_t p = 0; p <= phases_; ++p) {
    float* row = table_.data() + static_cast<size_t>(p) * static_cast<size_t>(taps_);
    const double phase = static_cast<double>(p) / phases_;
    double total = 0;
    std::vector<double> exact(static_cast<size_t>(taps_));
    for (int32_t i = 0; i < taps_; ++i)
      total += exact[static_cast<size_t>(i)] =
          kernel(i - (half_taps - 1) - phase, cutoff, half_width);
    // Unit gain at frequency zero for every phase, so that a constant stays one.
    for (int32_t i = 0; i < taps_; ++i)
      row[i] = static_cast<float>(exact[static_cast<size_t>(i)] / total);
  }
}

int64_t Resampler::output_size(int64_t in) const {
  // in * up would overflow only past 9e11 samples.
  return (in * up_ + down_ - 1) / down_;
}

float Resampler::sample(std::span<const float> in, int64_t whole, const float* row) const {
  const int64_t first = whole - (taps_ / 2 - 1);
  const int64_t begin = std::max<int64_t>(0, -first);
  const int64_t end = std::min<int64_t>(taps_, static_cast<int64_t>(in.size()) - first);
  if (begin >= end) return 0;
  return best_kernels().dot(row + begin, in.data() + first + begin, end - begin);
}

// Outputs k, k + up, k + 2 up, ... have the same phase, and are as many inputs apart as there are
// columns when the input is dealt to `down` columns: they are sums of columns, weighted by one row.
void Resampler::apply_by_phase(std::span<const float> in, std::vector<float>& out) const {
  const auto convolve = best_kernels().convolve;
  const int64_t before = taps_ / 2 - 1, size = static_cast<int64_t>(out.size());
  const int64_t most = round_up(ceil_div(size, up_), data::filter_lanes);  // of a phase
  const int64_t column = most + (down_ + taps_) / down_ + 1;
  std::vector<float> columns(static_cast<size_t>(down_ * column));
  const auto samples = static_cast<int64_t>(in.size());
  for (int64_t q = 0; q < down_; ++q) {
    float* to = columns.data() + q * column;
    // Sample i is number i + before of those that the outputs want, from the first one's first.
    int64_t j = q < before ? (before - q + down_ - 1) / down_ : 0;
    const int64_t end = std::min(column, (samples + before - q + down_ - 1) / down_);
    for (const float* x = in.data() + (j * down_ + q - before); j < end; ++j, x += down_)
      to[j] = *x;
  }
  float sums[data::filter_lanes];
  for (int64_t begin = 0; begin < most; begin += data::filter_lanes) {  // so many of every phase
    for (int64_t r = 0; r < std::min(up_, size - begin * up_); ++r) {
      const float* const row = table_.data() + r * down_ % up_ * taps_;
      convolve(row, taps_, columns.data() + begin, down_, column, r * down_ / up_, sums);
      float* const to = out.data() + (r + begin * up_);
      const int64_t n = std::min(data::filter_lanes, (size - r + up_ - 1) / up_ - begin);
      for (int64_t m = 0; m < n; ++m) to[m * up_] = sums[m];
    }
  }
}

std::vector<float> Resampler::apply(std::span<const float> in) const {
  if (up_ == down_) return {in.begin(), in.end()};
  std::vector<float> out(static_cast<size_t>(output_size(static_cast<int64_t>(in.size()))));
  const bool long_enough = static_cast<int64_t>(out.size()) >= up_ * data::filter_lanes / 2;
  if (phases_ == up_ && long_enough) {
    apply_by_phase(in, out);
    return out;
  }
  int64_t whole = 0, phase = 0;  // output k is at input whole + phase / up
  for (float& y : out) {
    if (phases_ == up_) {
      y = sample(in, whole, table_.data() + phase * taps_);
    } else {
      const double position = static_cast<double>(phase) * phases_ / static_cast<double>(up_);
      const auto p = static_cast<int64_t>(position);
      const auto right = static_cast<float>(position - static_cast<double>(p));
      const float* row = table_.data() + p * taps_;
      y = (1 - right) * sample(in, whole, row) + right * sample(in, whole, row + taps_);
    }
    phase += down_;
    whole += phase / up_;
    phase %= up_;
  }
  return out;
}

std::shared_ptr<const Resampler> shared_resampler(int32_t in_rate, int32_t out_rate) {
  static std::mutex mutex;
  static std::map<std::pair<int32_t, int32_t>, std::shared_ptr<const Resampler>> made;
  // A corpus has few rates; a stream of odd ones must not fill the memory.
  constexpr size_t kept = 32;
  const std::lock_guard lock(mutex);
  const std::pair key(in_rate, out_rate);
  if (const auto found = made.find(key); found != made.end()) return found->second;
  if (made.size() >= kept) made.clear();
  return made[key] = std::make_shared<const Resampler>(in_rate, out_rate);
}

std::vector<float> resample(std::span<const float> in, int32_t in_rate, int32_t out_rate) {
  if (in_rate == out_rate) return {in.begin(), in.end()};
  return shared_resampler(in_rate, out_rate)->apply(in);
}

}  // namespace rondo
