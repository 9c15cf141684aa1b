#include "engine/data/audio/sound_check.h"

#include <algorithm>
#include <cmath>

#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/sound_source.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

struct Sums {
  double sum = 0, squares = 0;
  void add(double x) {
    sum += x;
    squares += x * x;
  }
  double power(int64_t n) const {
    if (n == 0) return 0;
    const double mean = sum / static_cast<double>(n);
    return std::max(0.0, squares / static_cast<double>(n) - mean * mean);
  }
};

// Runs of samples at the highest or the lowest value. What that is shows at the end only: of each
// value that was the extreme when it came, runs are counted, and forgotten when a further one
// comes.
class Clipping {
 public:
  void add(float x) {
    take(x, high_);
    take(-x, low_);
  }
  int64_t samples() const { return high_.in_runs + low_.in_runs; }

 private:
  struct Side {
    float extreme = 0;
    int64_t run = 0, in_runs = 0;
  };
  static void take(float x, Side& side) {
    constexpr int64_t least = 3;
    // Decoders and resampling leave no two samples quite the same.
    constexpr float nearly = 0.999f;
    if (x > side.extreme) {
      if (side.extreme < nearly * x) side = {x, 0, 0};
      side.extreme = x;
    }
    if (x <= 0 || x < nearly * side.extreme) {
      side.run = 0;
      return;
    }
    ++side.run;
    if (side.run == least) side.in_runs += least;
    if (side.run > least) ++side.in_runs;
  }
  Side high_, low_;
};

// What is added up while a recording passes.
class Listening {
 public:
  Listening(int32_t channels, int32_t channel, int64_t samples)
      : channel_(channel), each_(static_cast<size_t>(channels)), band_(samples) {}

  void take(const float* interleaved, size_t frames) {
    const size_t channels = each_.size();
    mono_.resize(frames);
    for (size_t i = 0; i < frames; ++i) {
      const float* frame = interleaved + i * channels;
      float sum = 0;
      for (size_t c = 0; c < channels; ++c) {
        sum += frame[c];
        each_[c].add(frame[c]);
      }
      const float x = channel_ >= 0 ? frame[channel_] : sum / static_cast<float>(channels);
      mono_[i] = x;
      used_.add(x);
      peak_ = std::max(peak_, std::abs(x));
      clipping_.add(x);
    }
    band_.add(mono_.data(), frames);
    samples_ += static_cast<int64_t>(frames);
  }

  void report(SoundReport& r) const {
    r.samples = samples_;
    r.peak = peak_;
    r.mean = samples_ > 0 ? used_.sum / static_cast<double>(samples_) : 0;
    r.power = used_.power(samples_);
    for (const Sums& sums : each_)
      r.channel_power = std::max(r.channel_power, sums.power(samples_));
    r.clipped = clipping_.samples();
    r.bandwidth = band_.hertz(r.info.sample_rate);
  }

 private:
  const int32_t channel_;
  std::vector<Sums> each_;
  Sums used_;
  Clipping clipping_;
  Bandwidth band_;
  std::vector<float> mono_;
  float peak_ = 0;
  int64_t samples_ = 0;
};

// As a reader of the recording would ask for it (audio.cc).
void require_numbers(const float* x, size_t n, const std::string& name) {
  constexpr float largest = 1e10f;
  const float* const wrong =
      std::find_if(x, x + n, [](float v) { return !(std::abs(v) <= largest); });
  if (wrong == x + n) return;
  throw SoundError(SoundFault::no_number, str(name, ": holds a sample that is ", *wrong,
                                              ", expected numbers of about -1 to 1"));
}

}  // namespace

SoundReport check_sound(const FilePart& file, const AudioSegment& segment,
                        const SoundReading& reading) {
  data::SoundSource source(file, reading);
  SoundReport report;
  const AudioInfo info = report.info = source.open();
  report.is_foreign = source.is_foreign();
  report.truncation = source.truncation();
  require_channel(report.info, segment, source.name());
  const SampleRange range = sample_range(report.info, segment);
  if (range.first > 0 && !source.seek(range.first))
    fail_input(source.name(), ": cannot be read from sample ", range.first, " of ", info.frames,
               " (damaged or truncated)");
  Listening listening(info.channels, segment.channel, range.count);
  constexpr int64_t block = 16384;
  std::vector<float> interleaved(
      static_cast<size_t>(std::min(block, std::max<int64_t>(range.count, 1)) * info.channels));
  for (int64_t done = 0; done < range.count;) {
    const int64_t got = source.read(interleaved.data(), std::min(block, range.count - done));
    if (got <= 0) {
      report.truncation =
          str("ends after ", range.first + done, " samples, its header announces ", info.frames);
      if (!reading.salvage)
        throw SoundError(SoundFault::truncated, source.name() + ": " + report.truncation);
      break;
    }
    const auto frames = static_cast<size_t>(got);
    require_numbers(interleaved.data(), frames * static_cast<size_t>(info.channels), source.name());
    listening.take(interleaved.data(), frames);
    done += got;
  }
  listening.report(report);
  return report;
}

}  // namespace rondo
