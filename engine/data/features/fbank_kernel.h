// The arithmetic of a block of frames, compiled once per instruction set. For acoustic_features.cc
// alone.
#pragma once

#include <cstdint>

namespace rondo::data {

struct MelFilter {
  int32_t first_bin = 0;      // of the power spectrum
  int32_t weight_offset = 0;  // into the table of weights
  int32_t weight_count = 0;
};

// Everything that depends on the configuration alone; plain pointers, because a file that is
// compiled for one instruction set must not instantiate anything of the standard library.
struct FeatureTables {
  int32_t window_samples = 0;
  int32_t fft_size = 0;  // power of two, at least window_samples and 4
  int32_t mel_bins = 0;
  int32_t cepstra = 0;  // 0: log-mel
  int32_t dim = 0;
  float preemphasis = 0;
  bool remove_dc_offset = true;
  bool energy = false;
  bool raw_energy = true;
  bool power = true;
  float log_energy_floor = 0;
  const float* window = nullptr;          // [window_samples]
  const int32_t* bit_reversed = nullptr;  // [fft_size / 2]
  // Twiddle factors e^(-2 pi i k / n) as cosines and sines.
  const float *half_cos = nullptr, *half_sin = nullptr;  // n = fft_size / 2, [fft_size / 4]
  const float *full_cos = nullptr, *full_sin = nullptr;  // n = fft_size, [fft_size / 4 + 1]
  const MelFilter* filters = nullptr;                    // [mel_bins]
  const float* mel_weights = nullptr;
  const float* dct = nullptr;  // [cepstra, mel_bins], the lifter included
};

// Frames in lanes: sample i of lane l is at samples[i * width + l]; `samples` is overwritten.
// Writes `count` <= width rows of dim floats to `out`. `scratch` holds
// (3 * fft_size / 2 + mel_bins + cepstra) * width floats.
struct FeatureKernel {
  int32_t width;
  void (*block)(const FeatureTables& tables, float* samples, float* scratch, int32_t count,
                float* out);
};

}  // namespace rondo::data

namespace rondo::isa_generic {
data::FeatureKernel feature_kernel();
}
namespace rondo::isa_avx2 {
data::FeatureKernel feature_kernel();
}
namespace rondo::isa_avx512 {
data::FeatureKernel feature_kernel();
}
