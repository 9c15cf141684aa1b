#include "tools/plan/plan_data.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "engine/data/audio/audio.h"
#include "engine/data/batch.h"
#include "engine/data/image/image.h"
#include "engine/data/sampler.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

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

// The processor time of this thread alone, so that what else the machine does counts little.
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

double positive_number(std::string_view text, std::string_view all) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e6) {
    fail_input("lengths '", all, "': '", text,
               "' is not a number above 0; expected seconds:share,... as in 4:2,8:5,16:3");
  }
  return value;
}

// The frames of an utterance, at the speed whose turn it is.
int32_t frames_of(const Config& config, double seconds, size_t turn) {
  const std::vector<double>& speeds = config.augment.speed;
  const double speed = speeds.empty() ? 1 : speeds[turn % speeds.size()];
  return static_cast<int32_t>(
      std::max(1.0, std::round(seconds / speed / (config.features.hop_ms / 1000))));
}

// The mean of batches (utterances by number), which stands for all of them.
plan::WeightedShape mean_of(std::span<const std::vector<int64_t>> batches,
                            const std::vector<int32_t>& frames, double labels_per_frame) {
  plan::WeightedShape mean;
  double rows = 0;
  for (const std::vector<int64_t>& batch : batches) {
    int32_t longest = 0;
    for (const int64_t i : batch) {
      rows += frames[static_cast<size_t>(i)];
      longest = std::max(longest, frames[static_cast<size_t>(i)]);
    }
    mean.shape.sequences += static_cast<double>(batch.size());
    mean.shape.longest += longest;
  }
  const auto n = static_cast<double>(batches.size());
  mean.shape.frames = rows / mean.shape.sequences;
  mean.shape.sequences /= n;
  mean.shape.longest /= n;
  mean.shape.labels = std::max(1.0, std::round(mean.shape.frames * labels_per_frame));
  mean.weight = n;
  return mean;
}

}  // namespace

std::vector<double> parse_lengths(std::string_view text) {
  std::vector<std::pair<double, double>> lengths;  // seconds, share
  double sum = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, comma - at);
    const size_t colon = part.find(':');
    const bool alone = colon == std::string_view::npos;
    lengths.emplace_back(positive_number(part.substr(0, colon), text),
                         alone ? 1 : positive_number(part.substr(colon + 1), text));
    sum += lengths.back().second;
    at = comma + 1;
  }
  std::vector<double> seconds;
  for (const auto& [length, share] : lengths) {
    const double count = std::max(1.0, std::round(200 * share / sum));
    seconds.insert(seconds.end(), static_cast<size_t>(count), length);
  }
  return seconds;
}

std::vector<plan::WeightedShape> sampled_batches(const Config& config, const PlanData& data,
                                                 int groups) {
  constexpr size_t at_least = 2000;  // utterances, so that lengths in a batch are as in training
  std::vector<int32_t> frames;
  while (frames.size() < at_least || frames.size() < data.seconds.size()) {
    for (const double s : data.seconds) frames.push_back(frames_of(config, s, frames.size()));
  }
  // Batches of more than a hundred of the longest are like those of a hundred.
  const int64_t hundred = 100 * int64_t{*std::max_element(frames.begin(), frames.end())};
  SamplerConfig sampler;
  sampler.batch_frames = std::min<int64_t>(config.data.batch_frames, hundred);
  const double as_many = static_cast<double>(config.data.batch_frames) /
                         static_cast<double>(sampler.batch_frames) * config.training.accumulation;
  auto batches = batches_of_epoch(frames, sampler, 0);
  const auto rows = [&](const std::vector<int64_t>& batch) {
    int64_t sum = 0;
    for (const int64_t i : batch) sum += frames[static_cast<size_t>(i)];
    return sum;
  };
  const auto mean = [&](const std::vector<int64_t>& batch) {
    return static_cast<double>(rows(batch)) / static_cast<double>(batch.size());
  };
  std::sort(batches.begin(), batches.end(),
            [&](const auto& a, const auto& b) { return mean(a) < mean(b); });
  if (batches.size() > 1) {  // the last one of an epoch is not full
    batches.erase(
        std::min_element(batches.begin(), batches.end(),
                         [&](const auto& a, const auto& b) { return rows(a) < rows(b); }));
  }
  const size_t count = std::min(batches.size(), static_cast<size_t>(groups));
  std::vector<plan::WeightedShape> shapes;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = batches.size() * i / count, end = batches.size() * (i + 1) / count;
    shapes.push_back(mean_of(std::span(batches).subspan(begin, end - begin), frames,
                             data.labels_per_second * config.features.hop_ms / 1000));
    shapes.back().weight /= static_cast<double>(batches.size());
    shapes.back().shape.sequences *= as_many;
  }
  return shapes;
}

PlanData look_at_data(const Config& config) {
  const SndfileReader audio;
  const ImageFileReader images;
  std::unique_ptr<Alphabet> alphabet;
  std::vector<std::string> classes;
  if (config.task != Task::regress) {
    const Manifest all = read_texts(config, config.data.train);
    if (config.task == Task::classify) classes = class_names(all);
    if (config.task == Task::ctc) alphabet = std::make_unique<Alphabet>(make_alphabet(config, all));
  }
  const auto sample = open_dataset(config, config.data.train, DataUse::training, {&audio, &images},
                                   {alphabet.get(), classes}, utterances_looked_at);
  PlanData d;
  d.features = sample->feature_dim();
  d.outputs = config.model.outputs;
  for (const int64_t found :
       {int64_t{alphabet ? alphabet->classes() : 0}, static_cast<int64_t>(classes.size()),
        int64_t{sample->classes()}, int64_t{sample->target_dim()}}) {
    d.outputs = std::max(d.outputs, static_cast<int>(found));
  }
  double labels = 0, frames = 0;
  for (int64_t i = 0; i < sample->size(); ++i) {
    labels += static_cast<double>(sample->label_count(i));
    frames += sample->frames(i, 0);
  }
  d.labels_per_second = labels / (frames * config.features.hop_ms / 1000);
  d.seconds = durations(config, *sample);
  load_seconds(*sample);  // files are in memory afterwards, as they are after an epoch
  d.input_seconds_per_frame = std::min(load_seconds(*sample), load_seconds(*sample)) / frames;
  return d;
}

}  // namespace rondo
