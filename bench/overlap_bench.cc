// How much of the gradients' communication hides behind the backward pass: ranks as threads over a
// link of limited speed. One JSON line per size of buckets:
//   build/bench/overlap_bench [--ranks N] [--mb-per-second B] [--latency-us L] [--hidden H]
//                             [--layers K] [--steps S]
// The model: 80 features, K bidirectional LSTM layers, a linear layer to 32 classes, CTC; 16
// utterances of 200 frames per rank. Says when there were more ranks than CPUs: the ranks then
// compete, and times mean little.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "comm/in_process/run_ranks.h"
#include "engine/rank_model.h"
#include "engine/reduce/bucket_sums.h"
#include "engine/session.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/packed_host.h"
#include "tests/comm/decorators.h"

using namespace rondo;

namespace {

constexpr int features = 80, classes = 32, utterances = 16, frames = 200;

struct Setting {
  int ranks = 2, hidden = 256, layers = 4, steps = 6;
  double mb_per_second = 200, latency_us = 50;
};

struct Batch {
  PackedHost layout = build_packed(std::vector<int32_t>(utterances, frames));
  std::vector<float> x;
  std::vector<int32_t> labels, offsets = {0};
  std::vector<BatchView::Input> inputs;

  explicit Batch(uint32_t state) {
    const auto random = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (int n = 0; n < utterances; ++n) {
      for (int i = 0; i < frames / 8; ++i) {
        labels.push_back(1 + static_cast<int32_t>(random() % (classes - 1)));
      }
      offsets.push_back(static_cast<int32_t>(labels.size()));
    }
    x.resize(static_cast<size_t>(utterances * frames * features));
    for (float& v : x) v = static_cast<float>(random()) / 8388608.0f - 1;
    inputs = {{"features", x.data(), x.size() * sizeof(float)}};
  }
  BatchView view() const { return {&layout, labels, offsets, inputs}; }
};

struct Result {
  double step_ms = 0;
  Sums::Times times;
  size_t buckets = 0;
  int64_t bytes = 0, gradient = 0;
};

Result run_rank(const Setting& setting, int rank, Transport& link, int64_t bucket_bytes) {
  const auto group = make_ring_group(link);
  SessionOptions options;
  options.threads = 1;
  Session session(
      [&](Graph& g) {
        ValueId x = layers::input_frames(g, "features", features);
        for (int i = 0; i < setting.layers; ++i) {
          x = layers::lstm(g, x, "lstm" + std::to_string(i),
                           {.hidden = setting.hidden, .bidirectional = true});
        }
        const ValueId logits = layers::linear(g, x, "output", classes);
        return Outputs{.loss = layers::ctc_loss(g, logits), .prediction = logits};
      },
      options);
  Result r;
  r.bytes = bucket_bytes > 0 ? bucket_bytes : bucket_bytes_for(measure_link(*group));
  BucketSums sums(*group, session.rank_model().executed_graph(), session.parameters(), r.bytes);
  r.buckets = sums.buckets().size();
  r.gradient = session.parameters().flat_size() * 4;
  session.set_sums(&sums);
  const Batch batch(static_cast<uint32_t>(rank + 1));
  CommClock::time_point began;
  Sums::Times before;
  for (int step = 0; step <= setting.steps; ++step) {
    if (step == 1) {  // the first warms up
      before = sums.times();
      began = CommClock::now();
    }
    sums.last_batch();
    session.train_step(batch.view());
  }
  const std::chrono::duration<double> took = CommClock::now() - began;
  r.step_ms = took.count() / setting.steps * 1e3;
  r.times.communication = (sums.times().communication - before.communication) / setting.steps;
  r.times.exposed = (sums.times().exposed - before.exposed) / setting.steps;
  return r;
}

void run(const Setting& s, const char* name, int64_t bucket_bytes) {
  std::mutex mutex;
  Result first;
  run_ranks(s.ranks, [&](int rank, Transport& transport) {
    const auto link = make_throttled(
        transport,
        {s.mb_per_second * 1e6, std::chrono::microseconds(static_cast<int64_t>(s.latency_us))});
    const Result r = run_rank(s, rank, *link, bucket_bytes);
    const std::lock_guard lock(mutex);
    if (rank == 0) first = r;
  });
  std::printf(
      "{\"op\": \"training_step\", \"case\": \"overlap_%s\", \"dtype\": \"f32\", \"shape\": "
      "{\"features\": %d, \"layers\": %d, \"directions\": 2, \"hidden\": %d, \"classes\": %d, "
      "\"batch\": %d, \"frames\": %d}, \"bytes\": %lld, \"ranks\": %d, \"cpus\": %d, "
      "\"oversubscribed\": %s, "
      "\"link_mb_per_second\": %g, \"latency_us\": %g, \"gradient_mb\": %.2f, \"bucket_kib\": "
      "%lld, "
      "\"buckets\": %zu, \"step_ms\": %.1f, \"communication_ms\": %.1f, \"exposed_ms\": %.1f, "
      "\"hidden\": %.3f}\n",
      name, features, s.layers, s.hidden, classes, utterances, frames,
      static_cast<long long>(first.gradient), s.ranks, usable_cpus(),
      s.ranks > usable_cpus() ? "true" : "false", s.mb_per_second, s.latency_us,
      static_cast<double>(first.gradient) / 1e6, static_cast<long long>(first.bytes / 1024),
      first.buckets, first.step_ms, first.times.communication * 1e3, first.times.exposed * 1e3,
      first.times.hidden_share());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Setting s;
  for (int i = 1; i < argc; i += 2) {
    const std::string word = argv[i];
    const double value = i + 1 < argc ? std::atof(argv[i + 1]) : -1;
    if (!(value > 0)) {
      std::fprintf(stderr, "overlap_bench: '%s' needs a number above 0\n", word.c_str());
      return 2;
    }
    if (word == "--ranks") {
      s.ranks = static_cast<int>(value);
    } else if (word == "--mb-per-second") {
      s.mb_per_second = value;
    } else if (word == "--latency-us") {
      s.latency_us = value;
    } else if (word == "--hidden") {
      s.hidden = static_cast<int>(value);
    } else if (word == "--layers") {
      s.layers = static_cast<int>(value);
    } else if (word == "--steps") {
      s.steps = static_cast<int>(value);
    } else {
      std::fprintf(stderr, "overlap_bench: unknown option '%s'\n", word.c_str());
      return 2;
    }
  }
  try {
    run(s, "one_bucket", int64_t{1} << 40);
    run(s, "measured", 0);
    run(s, "64_kib", 65536);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "overlap_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
