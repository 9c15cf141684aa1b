// Log-mel filterbank and MFCC features, with Kaldi's conventions (compute-fbank-feats,
// compute-mfcc-feats): a model trained on them sees what one trained on Kaldi's would.
//
// Per frame: dither, DC offset removed, energy, pre-emphasis, window, zero-padding to a power of
// two, power spectrum, triangular filters on the mel scale 1127 ln(1 + f / 700), log with a floor
// of FLT_EPSILON; for MFCC an orthonormal DCT-II and a cepstral lifter. Sources: Kaldi's
// documentation of "feature extraction"; Davis and Mermelstein 1980; Young et al., "The HTK Book".
// Unlike Kaldi: dither is 0 by default, and random only through `dither_seed`.
//
// Thread safety: FeatureExtractor is immutable after construction; FeatureStream is not shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/data/features/matrix.h"

namespace rondo {

// What frames are made of. Recordings give the first two; ready: they lie in files; image: columns
// of the image of a line.
enum class FeatureType : uint8_t { log_mel, mfcc, ready, image };
enum class WindowKind : uint8_t { povey, hamming, hanning, blackman, rectangular };
// complete: only frames that fit into the recording ("snip_edges"). centered: one frame per shift,
// reflecting the samples at both ends.
enum class FrameEdges : uint8_t { complete, centered };

// Of recordings. The numbers take part as f32.
struct SoundConfig {
  FeatureType type = FeatureType::log_mel;
  int32_t bins = 40;          // of the mel scale
  int32_t coefficients = 13;  // MFCC: C0 included
  int32_t rate = 16000;       // Hz
  double frame_ms = 25;
  double hop_ms = 10;
  double low_hz = 20;
  double high_hz = 0;  // 0 or negative: so far below half the rate
  double preemphasis = 0.97;
  double dither = 0;  // standard deviation, in units of 16-bit samples

  // What follows is no setting of a run.
  WindowKind window = WindowKind::povey;
  FrameEdges edges = FrameEdges::complete;
  bool remove_dc_offset = true;
  uint64_t dither_seed = 0;
  bool power = true;  // false: magnitude spectrum
  float lifter = 22;  // MFCC: 0 = none

  // Log energy: an extra first column of log-mel features; in place of C0 for MFCC.
  bool energy = false;
  bool raw_energy = true;  // before pre-emphasis and windowing
  float energy_floor = 0;

  // Kaldi's features are those of 16-bit samples; ours lie in [-1, 1].
  float sample_scale = 32768;

  bool operator==(const SoundConfig&) const = default;

  int32_t window_samples() const;
  int32_t shift_samples() const;
  int32_t dim() const;  // columns of the result
  // How many frames so many samples give.
  int64_t frames(int64_t samples) const;
  // Throws InputError: which value is out of range, and the range.
  void validate() const;
};

namespace data {
struct OwnedFeatureTables;
}

class FeatureExtractor {
 public:
  // Throws InputError when the configuration is not sound.
  explicit FeatureExtractor(const SoundConfig& config);
  const SoundConfig& config() const { return config_; }

  // All frames of a recording, full scale [-1, 1]. A recording shorter than a frame gives none.
  // `dither_key` tells recordings apart when there is dither (a FeatureStream's key is 0).
  Matrix compute(std::span<const float> samples, uint64_t dither_key = 0) const;

 private:
  friend class FeatureStream;
  // Frames [first, first + count) into `out`, given samples [offset, offset + part.size()) of a
  // recording of `total` samples (the frames before the end do not depend on it).
  void compute_frames(std::span<const float> part, int64_t offset, int64_t total, int64_t first,
                      int64_t count, uint64_t dither_key, float* out) const;

  SoundConfig config_;
  std::shared_ptr<const data::OwnedFeatureTables> tables_;
};

// The same features as products of matrices, for programs that have no other means: of a frame of
// `window` samples in [-1, 1], `hop` after the one before,
//   log(max((cosines x)^2 + (sines x)^2) mel^T, least))  [dct^T]
// equal up to rounding. Throws InputError for a configuration that is no such product (dither,
// energy, frames beyond the ends).
struct FeatureProducts {
  int64_t window = 0, hop = 0;
  Matrix cosines, sines;  // [spectrum, window]
  Matrix mel;             // [bins, spectrum]
  Matrix dct;             // [coefficients, bins]; empty for log-mel
  float least = 0;
};
FeatureProducts products_of(const SoundConfig& config);

// The same features, bit for bit, while the recording arrives in pieces.
class FeatureStream {
 public:
  explicit FeatureStream(FeatureExtractor extractor) : extractor_(std::move(extractor)) {}

  // The frames that have become complete.
  Matrix accept(std::span<const float> samples);
  // The recording is over: the frames that reflect its end (centered edges only). Afterwards the
  // stream is as new.
  Matrix finish();

 private:
  Matrix take(int64_t up_to, int64_t total);

  FeatureExtractor extractor_;
  std::vector<float> kept_;  // samples [offset_, received)
  int64_t offset_ = 0;
  int64_t next_frame_ = 0;
};

}  // namespace rondo
