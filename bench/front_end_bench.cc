// Times what turns recordings into batches, one JSON line per row:
//   ninja -C build bench/front_end_bench && build/bench/front_end_bench [SECONDS PER ROW]
// audio_hours_per_s is wall time, best run; audio_hours_per_cpu_s is over all runs, per second of
// processor time, which a busy machine disturbs less. The signal is made up; nothing is read from
// disk except by the rows "decode", "open" and "batches".
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/data/acoustic_features.h"
#include "engine/data/audio.h"
#include "engine/data/augment.h"
#include "engine/data/batch.h"
#include "engine/data/cmvn.h"
#include "engine/data/resample.h"
#include "engine/text/alphabet.h"
#include "kernels/base/cpu.h"
#include "kernels/base/parallel.h"

using namespace rondo;

namespace {

double seconds_per_row = 0.5;

std::vector<float> speech_like(double seconds, int rate) {
  std::vector<float> out(static_cast<size_t>(seconds * rate));
  uint32_t state = 1;
  for (size_t i = 0; i < out.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const float noise = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
    out[i] = 0.3f * std::sin(static_cast<float>(i % 8000) * 0.05f) + 0.1f * noise;
  }
  return out;
}

template <class F>
void row(const char* name, double audio_seconds, int threads, F&& run) {
  std::vector<double> times;
  double total = 0;
  run();
  const std::clock_t cpu_begin = std::clock();
  while (total < seconds_per_row || times.size() < 3) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    total += times.back();
  }
  const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  std::sort(times.begin(), times.end());
  const double runs = static_cast<double>(times.size());
  const double hours = audio_seconds / 3600;
  std::printf(
      "{\"name\": \"%s\", \"threads\": %d, \"runs\": %zu, \"audio_hours_per_s\": %.4f, "
      "\"audio_hours_per_cpu_s\": %.4f, \"real_time_factor_per_cpu\": %.0f}\n",
      name, threads, times.size(), hours / times.front(), hours * runs / cpu,
      audio_seconds * runs / cpu);
  std::fflush(stdout);
}

void features_rows() {
  const std::vector<float> wide = speech_like(60, 16000), narrow = speech_like(60, 8000);
  FeatureConfig c;
  const FeatureExtractor fbank80(c);
  c.mel_bins = 40;
  c.sample_rate = 8000;
  const FeatureExtractor fbank40(c);
  c = {};
  c.kind = FeatureKind::mfcc;
  c.mel_bins = 23;
  const FeatureExtractor mfcc13(c);
  row("log-mel 80, 16 kHz", 60, 1, [&] { (void)fbank80.compute(wide); });
  row("log-mel 40, 8 kHz", 60, 1, [&] { (void)fbank40.compute(narrow); });
  row("mfcc 13, 16 kHz", 60, 1, [&] { (void)mfcc13.compute(wide); });
  Matrix m = fbank80.compute(wide);
  row("cmvn mean_variance, 80 columns", 60, 1,
      [&] { normalize_utterance(m, CmvnMode::mean_variance); });
}

void samples_rows() {
  for (int from : {8000, 22050, 44100, 48000}) {
    const std::vector<float> x = speech_like(60, from);
    row(str("resample ", from, " to 16000").c_str(), 60, 1,
        [&] { (void)resample(x, from, 16000); });
  }
  const std::vector<float> x = speech_like(60, 16000);
  row("speed 1.1, 16 kHz", 60, 1, [&] {
    std::vector<float> y = x;
    change_speed(y, 110);
  });
  AugmentConfig c;
  c.noise_probability = 1;
  row("white noise, 16 kHz", 60, 1, [&] {
    std::vector<float> y = x;
    add_noise(c, {1, 1, 1}, y);
  });
}

// A corpus of 64 recordings of 5 s on disk.
void corpus_rows() {
  std::string name = (std::filesystem::temp_directory_path() / "rondo_bench_XXXXXX").string();
  if (!mkdtemp(name.data())) return;
  std::string lines;
  const std::vector<float> x = speech_like(5, 16000);
  for (int i = 0; i < 64; ++i) {
    write_wav(str(name, "/", i, ".wav"), {16000, x});
    lines += str("{\"audio_filepath\": \"", i, ".wav\", \"text\": \"abc\"}\n");
  }
  const Manifest manifest = parse_manifest(lines, name + "/m.jsonl");
  const SndfileReader reader;
  const Alphabet alphabet({"a", "b", "c"});
  DatasetOptions o;
  o.cmvn = CmvnMode::mean_variance;
  row("decode WAV, 16 kHz", 5, 1, [&] { (void)reader.read(name + "/0.wav", 16000); });
  row("open dataset (64 headers)", 5 * 64, 1,
      [&] { ManifestDataset(manifest, o, &reader, &alphabet); });
  for (bool augmented : {false, true}) {
    if (augmented) {
      o.augment.speeds = {0.9f, 1.0f, 1.1f};
      o.augment.noise_probability = 0.5f;
      o.augment.time_masks = o.augment.frequency_masks = 2;
    }
    const ManifestDataset d(manifest, o, &reader, &alphabet);
    for (int threads : {1, usable_cpus()}) {
      SamplerConfig sampling;
      row(augmented ? "batches, all augmentation" : "batches, no augmentation", 5 * 64 * 4, threads,
          [&] {
            Sampler sampler(
                d.size(), [&](int64_t i, uint64_t e) { return d.frames(i, e); }, sampling);
            Prefetcher p(d,
                         [&]() -> std::optional<BatchRequest> {
                           BatchRequest r = sampler.next();
                           if (r.epoch == 4) return std::nullopt;
                           return r;
                         },
                         {threads, 4});
            for (HostBatch b; p.next(b);) {
            }
          });
    }
  }
  std::filesystem::remove_all(name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) seconds_per_row = std::atof(argv[1]);
  const CpuFeatures& cpu = cpu_features();
  std::printf("{\"cpus\": %d, \"isa\": \"%s\"}\n", usable_cpus(),
              cpu.avx512 ? "avx512"
              : cpu.avx2 ? "avx2"
                         : "generic");
  features_rows();
  samples_rows();
  corpus_rows();
}
