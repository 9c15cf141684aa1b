#include "tools/plan_data.h"

#include <time.h>

#include <algorithm>
#include <numeric>

#include "engine/data/audio.h"
#include "engine/data/batch.h"
#include "engine/train/open_data.h"

namespace rondo {
namespace {

constexpr size_t utterances_looked_at = 64;

std::vector<double> durations(const Config& config, const ManifestDataset& sample) {
  const double hop = config.features.hop_ms / 1000;
  std::vector<double> seconds;
  for (const ManifestEntry& e : read_manifest(config.data.train).entries) {
    if (e.duration) seconds.push_back(*e.duration);
  }
  if (!seconds.empty()) return seconds;
  for (int64_t i = 0; i < sample.size(); ++i) seconds.push_back(hop * sample.frames(i, 0));
  return seconds;
}

// Of this thread alone, so that what else the machine does counts little.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double load_seconds(const ManifestDataset& sample) {
  BatchRequest all;
  all.utterances.resize(static_cast<size_t>(sample.size()));
  std::iota(all.utterances.begin(), all.utterances.end(), 0);
  const double begin = thread_seconds();
  load_batch(sample, all);
  return thread_seconds() - begin;
}

}  // namespace

PlanData look_at_data(const Config& config) {
  const SndfileReader audio;
  std::unique_ptr<Alphabet> alphabet;
  if (config.task == Task::ctc) alphabet = std::make_unique<Alphabet>(make_alphabet(config));
  const auto sample = open_dataset(config, config.data.train, DataUse::training, &audio,
                                   alphabet.get(), utterances_looked_at);
  PlanData d;
  d.features = sample->feature_dim();
  d.outputs = config.model.outputs;
  for (const int64_t found : {int64_t{alphabet ? alphabet->classes() : 0},
                              int64_t{sample->classes()}, int64_t{sample->target_dim()}}) {
    d.outputs = std::max(d.outputs, static_cast<int>(found));
  }
  double labels = 0, frames = 0;
  for (int64_t i = 0; i < sample->size(); ++i) {
    labels += static_cast<double>(sample->label_count(i));
    frames += sample->frames(i, 0);
  }
  d.labels_per_second = labels / (frames * config.features.hop_ms / 1000);
  d.lengths = plan::histogram_of(durations(config, *sample));
  load_seconds(*sample);  // files are in memory afterwards, as they are after an epoch
  d.input_seconds_per_frame = std::min(load_seconds(*sample), load_seconds(*sample)) / frames;
  return d;
}

}  // namespace rondo
