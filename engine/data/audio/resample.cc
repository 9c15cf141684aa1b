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

// Algorithm: Smith, "Digital Audio Resampling" (a Kaiser-windowed sinc, evaluated at the exact
// phase of each output sample). Rates are reduced to L / M; up to L = 4096 min(1, L / M) every
// phase has its own exact row of coefficients, beyond that so many rows are interpolated linearly
// (tables stay near 1.3 MB). Why not a library: libsamplerate and libsoxr work in blocks with
// delays of their own, which would have to be undone, and this is two hundred lines, of a quality
// that tests measure.
struct Resampler::Filter {
  // A part of a signal: samples by their numbers in it. Those outside are zero.
  struct Part {
    const float* samples = nullptr;
    int64_t first = 0, end = 0;
  };

  Filter(int32_t in_rate, int32_t out_rate);

  bool is_idle() const { return up_ == down_; }  // the signal is as it was
  int64_t output_size(int64_t in) const;
  // How a signal of so many outputs is computed: those of one phase at once, or each by itself. The
  // sums differ in their rounding.
  bool is_by_phase(int64_t outputs) const;
  bool may_be_by_phase() const { return phases_ == up_; }
  // Outputs are computed so many at a time.
  int64_t outputs_at_once(bool by_phase) const;
  // The samples that an output, and those that are computed at once with it, are made of.
  int64_t first_input(int64_t output) const;
  int64_t end_of_inputs(int64_t output, bool by_phase) const;
  // The outputs from `first` on, by phase a multiple of outputs_at_once().
  void compute(const Part& in, bool by_phase, int64_t first, std::span<float> out) const;
  void compute_by_sample(const Part& in, int64_t first, std::span<float> out) const;
  void compute_by_phase(const Part& in, int64_t first, std::span<float> out) const;
  void deal(const Part& in, int64_t origin, std::span<float> columns) const;
  float sample(const Part& in, int64_t whole, const float* row) const;
  int64_t column_size() const { return data::filter_lanes + (down_ + taps_) / down_ + 1; }

  int64_t up_ = 1, down_ = 1;  // L, M
  int32_t taps_ = 1;
  int32_t phases_ = 1;
  std::vector<float> table_;  // [phases + 1][taps]
};

Resampler::Filter::Filter(int32_t in_rate, int32_t out_rate) {
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

int64_t Resampler::Filter::output_size(int64_t in) const {
  // in * up would overflow only past 9e11 samples.
  return (in * up_ + down_ - 1) / down_;
}

bool Resampler::Filter::is_by_phase(int64_t outputs) const {
  return phases_ == up_ && outputs >= up_ * data::filter_lanes / 2;
}

int64_t Resampler::Filter::outputs_at_once(bool by_phase) const {
  return by_phase ? up_ * data::filter_lanes : 1;
}

// Output k is at input whole + phase / up, where whole is k down / up.
int64_t Resampler::Filter::first_input(int64_t output) const {
  return std::max<int64_t>(0, output * down_ / up_ - (taps_ / 2 - 1));
}

int64_t Resampler::Filter::end_of_inputs(int64_t output, bool by_phase) const {
  const int64_t at_once = outputs_at_once(by_phase);
  const int64_t last = output / at_once * at_once + at_once - 1;
  return last * down_ / up_ + taps_ / 2 + 1;
}

float Resampler::Filter::sample(const Part& in, int64_t whole, const float* row) const {
  const int64_t first = whole - (taps_ / 2 - 1);
  const int64_t begin = std::max<int64_t>(0, -first);
  const int64_t end = std::min<int64_t>(taps_, in.end - first);
  if (begin >= end) return 0;
  return best_kernels().dot(row + begin, in.samples + (first + begin - in.first), end - begin);
}

void Resampler::Filter::compute_by_sample(const Part& in, int64_t first,
                                          std::span<float> out) const {
  int64_t whole = first * down_ / up_, phase = first * down_ % up_;
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
}

// To `down` columns in turn, from the sample `origin` on.
void Resampler::Filter::deal(const Part& in, int64_t origin, std::span<float> columns) const {
  const int64_t size = column_size();
  for (int64_t q = 0; q < down_; ++q) {
    float* const to = columns.data() + q * size;
    const int64_t at = origin + q;  // the column's first sample
    const auto place = [&](int64_t sample) {
      return std::min(size, ceil_div(std::max<int64_t>(0, sample - at), down_));
    };
    const int64_t begin = place(in.first), end = place(in.end);
    std::fill(to, to + begin, 0.0f);
    for (int64_t j = begin; j < end; ++j) to[j] = in.samples[at + j * down_ - in.first];
    std::fill(to + end, to + size, 0.0f);
  }
}

// Outputs k, k + up, k + 2 up, ... have the same phase, and are as many inputs apart as there are
// columns when the input is dealt to `down` columns: they are sums of columns, weighted by one row.
void Resampler::Filter::compute_by_phase(const Part& in, int64_t first,
                                         std::span<float> out) const {
  const auto convolve = best_kernels().convolve;
  const auto size = static_cast<int64_t>(out.size());
  const int64_t at_once = outputs_at_once(true), column = column_size();
  std::vector<float> columns(static_cast<size_t>(down_ * column));
  float sums[data::filter_lanes];
  for (int64_t begin = 0; begin < size; begin += at_once) {
    deal(in, (first + begin) / up_ * down_ - (taps_ / 2 - 1), columns);
    for (int64_t r = 0; r < std::min(up_, size - begin); ++r) {
      const float* const row = table_.data() + r * down_ % up_ * taps_;
      convolve(row, taps_, columns.data(), down_, column, r * down_ / up_, sums);
      float* const to = out.data() + (begin + r);
      const int64_t n = std::min(data::filter_lanes, ceil_div(size - begin - r, up_));
      for (int64_t m = 0; m < n; ++m) to[m * up_] = sums[m];
    }
  }
}

void Resampler::Filter::compute(const Part& in, bool by_phase, int64_t first,
                                std::span<float> out) const {
  by_phase ? compute_by_phase(in, first, out) : compute_by_sample(in, first, out);
}

Resampler::Resampler(int32_t in_rate, int32_t out_rate)
    : filter_(std::make_shared<const Filter>(in_rate, out_rate)) {}

int64_t Resampler::output_size(int64_t in) const { return filter_->output_size(in); }

std::vector<float> Resampler::apply(std::span<const float> in) const {
  if (filter_->is_idle()) return {in.begin(), in.end()};
  const auto samples = static_cast<int64_t>(in.size());
  std::vector<float> out(static_cast<size_t>(output_size(samples)));
  const bool by_phase = filter_->is_by_phase(static_cast<int64_t>(out.size()));
  filter_->compute({in.data(), 0, samples}, by_phase, 0, out);
  return out;
}

// By phase in whole groups, since the first of the next is where the kept samples begin.
void ResamplerStream::append(int64_t outputs, bool by_phase, std::vector<float>& out) {
  const size_t before = out.size();
  out.resize(before + static_cast<size_t>(outputs));
  const int64_t end = first_ + static_cast<int64_t>(kept_.size());
  filter_->compute({kept_.data(), first_, end}, by_phase, made_, std::span(out).subspan(before));
  made_ += outputs;
  const int64_t wanted = std::min(end, filter_->first_input(made_));
  if (wanted <= first_) return;
  kept_.erase(kept_.begin(), kept_.begin() + (wanted - first_));
  first_ = wanted;
}

void ResamplerStream::accept(std::span<const float> in, std::vector<float>& out) {
  if (filter_->is_idle()) {
    out.insert(out.end(), in.begin(), in.end());
    return;
  }
  kept_.insert(kept_.end(), in.begin(), in.end());
  const int64_t end = first_ + static_cast<int64_t>(kept_.size());
  const bool by_phase = filter_->is_by_phase(filter_->output_size(end));
  // A short signal would be computed otherwise.
  if (filter_->may_be_by_phase() && !by_phase) return;
  const int64_t at_once = filter_->outputs_at_once(by_phase);
  int64_t outputs = 0;
  while (filter_->end_of_inputs(made_ + outputs, by_phase) <= end) outputs += at_once;
  if (outputs > 0) append(outputs, by_phase, out);
}

void ResamplerStream::finish(std::vector<float>& out) {
  const int64_t all = filter_->output_size(first_ + static_cast<int64_t>(kept_.size()));
  if (!filter_->is_idle() && all > made_) append(all - made_, filter_->is_by_phase(all), out);
  kept_.clear();
  first_ = made_ = 0;
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
