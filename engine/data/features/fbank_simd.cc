// A block of frames at once, one per vector lane: every step of the algorithm is then a loop over
// whole vectors, the FFT too, and a frame's result does not depend on its neighbours.
#include <cfloat>

#include "engine/data/features/fbank_kernel.h"
#include "kernels/base/cpu/simd.h"

namespace rondo::RONDO_ISA {
namespace {

using data::FeatureTables;

vf log_floored(vf x) { return log(max(x, broadcast(FLT_EPSILON))); }

// The log energy per lane of `n` samples.
vf log_energy(const FeatureTables& t, const float* x) {
  vf total = broadcast(0);
  for (int32_t i = 0; i < t.window_samples; ++i) {
    const vf v = load(x + i * W);
    total += v * v;
  }
  return max(log_floored(total), broadcast(t.log_energy_floor));
}

void remove_mean(const FeatureTables& t, float* x) {
  vf total = broadcast(0);
  for (int32_t i = 0; i < t.window_samples; ++i) total += load(x + i * W);
  const vf mean = total / static_cast<float>(t.window_samples);
  for (int32_t i = 0; i < t.window_samples; ++i) store(x + i * W, load(x + i * W) - mean);
}

void preemphasize_and_window(const FeatureTables& t, float* x) {
  for (int32_t i = t.window_samples - 1; i > 0; --i) {
    const vf v = load(x + i * W) - t.preemphasis * load(x + (i - 1) * W);
    store(x + i * W, v * t.window[i]);
  }
  store(x, (load(x) - t.preemphasis * load(x)) * t.window[0]);
}

// Real samples as complex pairs, zero-padded, in bit-reversed order: z[j] = x[2r] + i x[2r + 1].
void gather(const FeatureTables& t, const float* x, float* re, float* im) {
  const int32_t half = t.fft_size / 2;
  const vf zero = broadcast(0);
  for (int32_t j = 0; j < half; ++j) {
    const int32_t at = 2 * t.bit_reversed[j];
    store(re + j * W, at < t.window_samples ? load(x + at * W) : zero);
    store(im + j * W, at + 1 < t.window_samples ? load(x + (at + 1) * W) : zero);
  }
}

struct Complex {
  vf re, im;
};
Complex load_complex(const float* re, const float* im, int32_t k) {
  return {load(re + k * W), load(im + k * W)};
}
void store_complex(float* re, float* im, int32_t k, Complex v) {
  store(re + k * W, v.re);
  store(im + k * W, v.im);
}
Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
Complex times(Complex a, float c, float s) { return {a.re * c - a.im * s, a.re * s + a.im * c}; }

// Two stages of the decimation-in-time FFT (Cooley and Tukey 1965) in one pass over memory.
void radix4_stage(const FeatureTables& t, float* re, float* im, int32_t n, int32_t h) {
  const int32_t stride1 = n / (2 * h), stride2 = n / (4 * h);
  for (int32_t base = 0; base < n; base += 4 * h) {
    for (int32_t k = 0; k < h; ++k) {
      const int32_t i1 = k * stride1, i2 = k * stride2;
      const float c1 = t.half_cos[i1], s1 = t.half_sin[i1];
      const float c2 = t.half_cos[i2], s2 = t.half_sin[i2];
      const int32_t at = base + k;
      const Complex a = load_complex(re, im, at), b = times(load_complex(re, im, at + h), c1, s1);
      const Complex c = load_complex(re, im, at + 2 * h);
      const Complex d = times(load_complex(re, im, at + 3 * h), c1, s1);
      const Complex a1 = a + b, b1 = a - b;
      const Complex c3 = times(c + d, c2, s2), d2 = times(c - d, c2, s2);
      const Complex d3{d2.im, -d2.re};  // times -i
      store_complex(re, im, at, a1 + c3);
      store_complex(re, im, at + h, b1 + d3);
      store_complex(re, im, at + 2 * h, a1 - c3);
      store_complex(re, im, at + 3 * h, b1 - d3);
    }
  }
}

void fft(const FeatureTables& t, float* re, float* im) {
  const int32_t n = t.fft_size / 2;
  int32_t h = 1;
  // Two stages at a time leave one over when log2(n) is odd.
  int32_t stages = 0;
  while ((1 << stages) < n) ++stages;
  if (stages % 2 == 1) {
    for (int32_t k = 0; k < n; k += 2) {
      const Complex a = load_complex(re, im, k), b = load_complex(re, im, k + 1);
      store_complex(re, im, k, a + b);
      store_complex(re, im, k + 1, a - b);
    }
    h = 2;
  }
  for (; h < n; h *= 4) radix4_stage(t, re, im, n, h);
}

vf spectrum_value(const FeatureTables& t, vf re, vf im) {
  const vf power = re * re + im * im;
  if (t.power) return power;
  vf magnitude;
  for (int l = 0; l < W; ++l) magnitude[l] = __builtin_sqrtf(power[l]);
  return magnitude;
}

// The spectrum of 2n real samples from the FFT of n complex ones, bins 0 to n - 1 (no filter
// reaches the Nyquist bin): X[k] = E + W^k O with E, O the even and odd parts of Z.
void power_spectrum(const FeatureTables& t, const float* re, const float* im, float* spectrum) {
  const int32_t n = t.fft_size / 2;
  const vf dc = load(re) + load(im);
  store(spectrum, spectrum_value(t, dc, broadcast(0)));
  for (int32_t k = 1; k <= n / 2; ++k) {
    const Complex z = load_complex(re, im, k), y = load_complex(re, im, n - k);
    const vf even_re = 0.5f * (z.re + y.re), even_im = 0.5f * (z.im - y.im);
    const vf odd_re = 0.5f * (z.im + y.im), odd_im = 0.5f * (y.re - z.re);
    const float c = t.full_cos[k], s = t.full_sin[k];
    const Complex turned = times({odd_re, odd_im}, c, s);
    store(spectrum + k * W, spectrum_value(t, even_re + turned.re, even_im + turned.im));
    store(spectrum + (n - k) * W, spectrum_value(t, even_re - turned.re, turned.im - even_im));
  }
}

void log_mel(const FeatureTables& t, const float* spectrum, float* mel) {
  for (int32_t m = 0; m < t.mel_bins; ++m) {
    const data::MelFilter& f = t.filters[m];
    const float* weights = t.mel_weights + f.weight_offset;
    vf total = broadcast(0);
    for (int32_t i = 0; i < f.weight_count; ++i)
      total += weights[i] * load(spectrum + (f.first_bin + i) * W);
    store(mel + m * W, log_floored(total));
  }
}

void cepstra(const FeatureTables& t, const float* mel, float* out) {
  for (int32_t c = 0; c < t.cepstra; ++c) {
    const float* row = t.dct + c * t.mel_bins;
    vf total = broadcast(0);
    for (int32_t i = 0; i < t.mel_bins; ++i) total += row[i] * load(mel + i * W);
    store(out + c * W, total);
  }
}

void feature_block(const FeatureTables& t, float* samples, float* scratch, int32_t count,
                   float* out) {
  const int32_t half = t.fft_size / 2;
  float* re = scratch;
  float* im = re + half * W;
  float* spectrum = im + half * W;
  float* mel = spectrum + half * W;
  float* ceps = mel + t.mel_bins * W;
  vf energy = broadcast(0);
  if (t.remove_dc_offset) remove_mean(t, samples);
  if (t.energy && t.raw_energy) energy = log_energy(t, samples);
  preemphasize_and_window(t, samples);
  if (t.energy && !t.raw_energy) energy = log_energy(t, samples);
  gather(t, samples, re, im);
  fft(t, re, im);
  power_spectrum(t, re, im, spectrum);
  log_mel(t, spectrum, mel);
  const float* result = mel;
  const bool is_mfcc = t.cepstra > 0;
  if (is_mfcc) {
    cepstra(t, mel, ceps);
    if (t.energy) store(ceps, energy);
    result = ceps;
  }
  const int32_t shift = t.energy && !is_mfcc ? 1 : 0;
  for (int32_t l = 0; l < count; ++l) {
    float* row = out + static_cast<int64_t>(l) * t.dim;
    if (shift) row[0] = energy[l];
    for (int32_t i = shift; i < t.dim; ++i) row[i] = result[(i - shift) * W + l];
  }
}

}  // namespace

data::FeatureKernel feature_kernel() { return {W, feature_block}; }

}  // namespace rondo::RONDO_ISA
