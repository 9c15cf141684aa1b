// Times whole training steps (batch to updated weights) of a speech model, one JSON line per type:
//   build/bench/training_step_bench [--threads N] [--seconds S] [--hidden H] [--device NAME]
//                                   [f32|bf16 ...]
// NAME: cpu (default), cuda, cuda:N, or sim, whose times say nothing about a GPU's.
// The model: 80 features, two bidirectional LSTM layers, a linear layer to 32 classes, CTC, Adam
// with clipping of the gradient's norm. The batch: 32 utterances of 400 down to 160 frames, packed,
// with a label for every 8 frames. bench/peers/training_step_peer.py does the same with PyTorch.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/cases/check/peaks.h"
#include "bench/cases/lstm_bytes.h"
#include "bench/clock.h"
#include "engine/session.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/packed_host.h"
#include "kernels/devices.h"

using namespace rondo;

namespace {

constexpr int features = 80, classes = 32, utterances = 32, longest = 400, shortest = 160;

struct Batch {
  PackedHost layout;
  std::vector<float> x;
  std::vector<int32_t> labels, offsets = {0};
  std::vector<BatchView::Input> inputs;

  Batch() {
    std::vector<int32_t> lengths;
    uint32_t state = 1;
    const auto random = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (int n = 0; n < utterances; ++n) {
      lengths.push_back(longest - n * (longest - shortest) / (utterances - 1));
      for (int i = 0; i < lengths.back() / 8; ++i) {
        labels.push_back(1 + static_cast<int32_t>(random() % (classes - 1)));
      }
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    layout = build_packed(lengths);
    x.resize(static_cast<size_t>(layout.extent.rows * features));
    for (float& v : x) v = static_cast<float>(random()) / 8388608.0f - 1;
    inputs = {{"features", x.data(), x.size() * sizeof(float)}};
  }
  BatchView view() const { return {&layout, labels, offsets, inputs}; }
};

// Products of the LSTM and linear layers: forward, and twice as much backward, but for the gradient
// of the features, which nobody needs.
double flops_of(double rows, double h) {
  const double first = 2 * 4 * h * (features + h), second = 2 * 4 * h * (2 * h + h);
  return rows * 2 * (3 * (first + second + 2 * h * classes) - 2 * 4 * h * features);
}

// Inputs once and outputs once of each op: the LSTM layers, the three products of the linear layer,
// CTC (logits twice, their gradient), Adam (gradient, weight, two moments; the last three written
// as well; with a copy in bf16 when that is what is computed with).
double bytes_of(int64_t rows, int64_t h, DType dtype, int64_t weights) {
  double bytes = 0;
  for (int layer = 0; layer < 2; ++layer) {
    LstmTraffic t;
    t.dims = {2, layer == 0 ? features : 2 * h, h, 0};
    t.rows = rows;
    t.dtype = dtype;
    t.dx = layer > 0;
    for (LstmPhase phase : {LstmPhase::forward, LstmPhase::backward, LstmPhase::weight_grad}) {
      bytes += lstm_bytes(phase, t);
    }
  }
  const double e = static_cast<double>(size_of(dtype));
  const double logits = static_cast<double>(rows * classes);
  bytes += 3 * e * (static_cast<double>(rows * 2 * h + 2 * h * classes) + logits);
  bytes += 3 * e * logits;
  return bytes + static_cast<double>(weights) * (dtype == DType::f32 ? 28 : 30);
}

void time_type(const std::string& type, DeviceId device, int hidden, int threads, double seconds) {
  SessionOptions options;
  options.device = device.kind;
  options.device_index = device.index;
  options.threads = threads;
  options.compute = type == "bf16" ? DType::bf16 : DType::f32;
  options.optimizer.kind = OptimizerOptions::adam;
  options.optimizer.learning_rate = 1e-4;
  options.optimizer.clip_norm = 5;
  Session session(
      [&](Graph& g) {
        ValueId x = layers::input_frames(g, "features", features);
        x = layers::lstm(g, x, "encoder", {.hidden = hidden, .layers = 2, .bidirectional = true});
        const ValueId logits = layers::linear(g, x, "output", classes);
        return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
      },
      options);
  const Batch batch;
  session.train_step(batch.view());
  std::vector<double> times;
  double least_thread = 1e30;
  for (const double end = wall_seconds() + seconds; times.size() < 3 || wall_seconds() < end;) {
    const double begin = wall_seconds(), thread_begin = thread_seconds();
    session.train_step(batch.view());
    times.push_back(wall_seconds() - begin);
    least_thread = std::min(least_thread, thread_seconds() - thread_begin);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2],
               rows = static_cast<double>(batch.layout.extent.rows), flops = flops_of(rows, hidden),
               bytes = bytes_of(batch.layout.extent.rows, hidden, options.compute,
                                session.parameters().trainable());
  const double gflops = flops / median * 1e-9, gbytes = bytes / median * 1e-9;
  ThreadPool pool(threads);
  Stream stream = cpu_device().make_stream();
  const Context cpu{Backend::cpu, &cpu_device(), &stream, &pool};
  // The peaks are the host's; other devices' rows have no share of them.
  const bool host = device.kind == DeviceKind::cpu;
  const double gemm = host ? check::gemm_peak_gflops(cpu, options.compute) : 0;
  const double copy = host ? check::copy_peak_gbytes_per_s(pool) : 0;
  std::printf(
      "{\"op\": \"training_step\", \"case\": \"bilstm2_h%d_n%d_%s\", \"dtype\": \"%s\", \"shape\": "
      "{\"features\": %d, \"layers\": 2, \"directions\": 2, \"hidden\": %d, \"classes\": %d, "
      "\"batch\": %d, \"longest\": %d, \"shortest\": %d}, \"device\": \"%s\", \"threads\": %d, "
      "\"runs\": %zu, "
      "\"median_ms\": %.2f, \"min_ms\": %.2f, \"min_thread_ms\": %.2f, \"frames\": %.0f, "
      "\"flops\": %.0f, \"bytes\": %.0f, \"gflops\": %.1f, \"gbytes_per_s\": %.2f, "
      "\"share_of_gemm_peak\": %s, \"share_of_copy_peak\": %s, \"loss\": %.4f}\n",
      hidden, utterances, type.c_str(), type.c_str(), features, hidden, classes, utterances,
      longest, shortest, name_of(device.kind), threads, times.size(), median * 1e3,
      times.front() * 1e3, least_thread * 1e3, rows, flops, bytes, gflops, gbytes,
      check::share_json(gflops, gemm).c_str(), check::share_json(gbytes, copy).c_str(),
      session.last_result().mean_loss());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int threads = usable_cpus(), hidden = 256;
  double seconds = 3;
  DeviceId device;
  std::vector<std::string> types;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--threads" && i + 1 < argc) {
      threads = std::max(std::atoi(argv[++i]), 1);
    } else if (word == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (word == "--hidden" && i + 1 < argc) {
      hidden = std::max(std::atoi(argv[++i]), 1);
    } else if (word == "--device" && i + 1 < argc && device_named(argv[i + 1])) {
      device = *device_named(argv[++i]);
    } else if (word == "f32" || word == "bf16") {
      types.push_back(word);
    } else {
      std::fprintf(stderr, "training_step_bench: '%s' is neither an option nor a type\n",
                   word.c_str());
      return 2;
    }
  }
  if (types.empty()) types = {"f32", "bf16"};
  try {
    for (const std::string& type : types) time_type(type, device, hidden, threads, seconds);
  } catch (const Error& e) {
    std::fprintf(stderr, "training_step_bench: %s\n", e.what());
    return 1;
  }
}
