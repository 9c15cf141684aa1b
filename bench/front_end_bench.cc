// Times what turns recordings into batches, one JSON line per row:
//   ninja -C build bench/front_end_bench && build/bench/front_end_bench [SECONDS PER ROW]
// audio_hours_per_s is wall time, best run; audio_hours_per_cpu_s is over all runs, per second of
// processor time, which a busy machine disturbs less. The signal is made up; nothing is read from
// disk except by the rows "decode", "open" and "batches". bytes: samples read once, what is made of
// them written once (files as they lie on disk); flops, of features alone: per frame 5/2 N log2 N
// for the real FFT of N points, 6 per sample for offset, pre-emphasis and window, 3 per bin for the
// power, 4 per bin for the filters (each bin is in two), 2 per cosine of the MFCC's transform.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/cases/check/peaks.h"
#include "engine/data/audio/audio.h"
#include "engine/data/audio/resample.h"
#include "engine/data/augment.h"
#include "engine/data/batch.h"
#include "engine/data/features/acoustic_features.h"
#include "engine/data/features/cmvn.h"
#include "engine/text/alphabet.h"
#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/dispatch.h"
#include "kernels/devices.h"

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

struct Work {
  const char* dtype = "f32";
  std::string shape;  // JSON
  double bytes = 0, flops = 0;
};

// Rates of `threads` threads: what a row's are compared with.
struct Peaks {
  double gemm = 0, copy = 0;
};

const Peaks& peaks_of(int threads) {
  static std::map<int, Peaks> all;
  Peaks& p = all[threads];
  if (p.copy > 0) return p;
  ThreadPool pool(threads);
  Stream stream = cpu_device().make_stream();
  p.gemm = check::gemm_peak_gflops({Backend::cpu, &cpu_device(), &stream, &pool}, DType::f32);
  p.copy = check::copy_peak_gbytes_per_s(pool);
  return p;
}

Work of_samples(double seconds, int rate, double out_floats) {
  const double samples = seconds * rate;
  return {"f32", str("{\"seconds\": ", seconds, ", \"rate\": ", rate, "}"),
          4 * (samples + out_floats), 0};
}

Work of_features(double seconds, const SoundConfig& c) {
  Work w = of_samples(seconds, c.rate, 0);
  const double frames = static_cast<double>(c.frames(static_cast<int64_t>(seconds * c.rate)));
  const double samples = c.window_samples(), points = std::exp2(std::ceil(std::log2(samples)));
  w.bytes += 4 * frames * c.dim();
  w.flops = 2.5 * points * std::log2(points) + 6 * samples + 7 * (points / 2 + 1);
  if (c.type == FeatureType::mfcc) w.flops += 2.0 * c.bins * c.coefficients;
  w.flops *= frames;
  w.shape = str("{\"seconds\": ", seconds, ", \"rate\": ", c.rate, ", \"frames\": ", frames,
                ", \"columns\": ", c.dim(), "}");
  return w;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

template <class F>
void row(const char* name, double audio_seconds, int threads, const Work& work, F&& run) {
  std::vector<double> times;
  double total = 0;
  run();
  const double cpu_begin = cpu_seconds();
  while (total < seconds_per_row || times.size() < 3) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    total += times.back();
  }
  const double cpu = cpu_seconds() - cpu_begin;
  std::sort(times.begin(), times.end());
  const double runs = static_cast<double>(times.size());
  const double hours = audio_seconds / 3600, median = times[times.size() / 2];
  const double gflops = work.flops / median * 1e-9, gbytes = work.bytes / median * 1e-9;
  const Peaks& peaks = peaks_of(threads);
  std::printf(
      "{\"op\": \"front_end\", \"case\": \"%s\", \"dtype\": \"%s\", \"shape\": %s, "
      "\"threads\": %d, \"runs\": %zu, \"median_us\": %.1f, \"min_us\": %.1f, "
      "\"audio_hours_per_s\": %.4f, \"audio_hours_per_cpu_s\": %.4f, "
      "\"real_time_factor_per_cpu\": %.0f, \"flops\": %.0f, \"bytes\": %.0f, \"gflops\": %.2f, "
      "\"gbytes_per_s\": %.3f, \"share_of_gemm_peak\": %s, \"share_of_copy_peak\": %s}\n",
      name, work.dtype, work.shape.c_str(), threads, times.size(), median * 1e6,
      times.front() * 1e6, hours / times.front(), hours * runs / cpu, audio_seconds * runs / cpu,
      work.flops, work.bytes, gflops, gbytes, check::share_json(gflops, peaks.gemm).c_str(),
      check::share_json(gbytes, peaks.copy).c_str());
  std::fflush(stdout);
}

void features_rows() {
  const std::vector<float> wide = speech_like(60, 16000), narrow = speech_like(60, 8000);
  SoundConfig c;
  c.bins = 80;
  const FeatureExtractor fbank80(c);
  row("log-mel 80, 16 kHz", 60, 1, of_features(60, c), [&] { (void)fbank80.compute(wide); });
  Matrix m = fbank80.compute(wide);
  Work cmvn = of_features(60, c);
  cmvn.bytes = 2.0 * 4 * static_cast<double>(c.frames(60 * 16000)) * c.dim();
  cmvn.flops = 0;
  c.bins = 40;
  c.rate = 8000;
  const FeatureExtractor fbank40(c);
  row("log-mel 40, 8 kHz", 60, 1, of_features(60, c), [&] { (void)fbank40.compute(narrow); });
  c = {};
  c.type = FeatureType::mfcc;
  c.bins = 23;
  const FeatureExtractor mfcc13(c);
  row("mfcc 13, 16 kHz", 60, 1, of_features(60, c), [&] { (void)mfcc13.compute(wide); });
  row("cmvn mean_variance, 80 columns", 60, 1, cmvn,
      [&] { normalize_utterance(m, CmvnMode::mean_variance); });
}

void samples_rows() {
  for (int from : {8000, 22050, 44100, 48000}) {
    const std::vector<float> x = speech_like(60, from);
    row(str("resample ", from, " to 16000").c_str(), 60, 1, of_samples(60, from, 60 * 16000),
        [&] { (void)resample(x, from, 16000); });
  }
  const std::vector<float> x = speech_like(60, 16000);
  row("speed 1.1, 16 kHz", 60, 1, of_samples(60, 16000, 60 * 16000 / 1.1), [&] {
    std::vector<float> y = x;
    change_speed(y, 110);
  });
  AugmentConfig c;
  c.noise = 1;
  row("white noise, 16 kHz", 60, 1, of_samples(60, 16000, 60 * 16000), [&] {
    std::vector<float> y = x;
    add_noise(c, {}, {1, 1, 1}, y);
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
  o.features.bins = 80;
  o.cmvn = CmvnMode::mean_variance;
  // 16-bit samples in the file, floats in memory.
  const double samples = 5 * 16000;
  const auto on_disk = [&](double copies, double out_bytes) {
    return Work{"i16", str("{\"recordings\": ", copies, ", \"seconds\": 5, \"rate\": 16000}"),
                copies * (2 * samples + out_bytes), 0};
  };
  row("decode WAV, 16 kHz", 5, 1, on_disk(1, 4 * samples),
      [&] { (void)reader.read(name + "/0.wav", 16000); });
  Work headers = on_disk(64, 0);
  headers.bytes = 64 * 44;
  row("open dataset (64 headers)", 5 * 64, 1, headers,
      [&] { ManifestDataset(manifest, o, &reader, &alphabet); });
  for (bool augmented : {false, true}) {
    if (augmented) {
      o.augment.speed = {0.9, 1.0, 1.1};
      o.augment.noise = 0.5;
      o.augment.spec_augment = true;
    }
    const ManifestDataset d(manifest, o, &reader, &alphabet);
    for (int threads : {1, usable_cpus()}) {
      SamplerConfig sampling;
      row(augmented ? "batches, all augmentation" : "batches, no augmentation", 5 * 64 * 4, threads,
          on_disk(64 * 4, 4.0 * static_cast<double>(SoundConfig{}.frames(5 * 16000)) * 80), [&] {
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
