// The configuration of a model and its training: a TOML file plus `key=value` overrides.
//
// Keys, defaults, ranges and documentation are declared once, in schema.cc, and those of layers in
// layer_types.cc; parsing, printing and `rondo train --help-config` follow from there. Later
// sources win: defaults, then the file, then the overrides in their order.
//
// Errors: InputError with file:line (or the override) for an unknown key (naming the nearest known
// one), a wrong type, a value out of range, or TOML that cannot be parsed. Thread safety: plain
// data.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/schedule_kind.h"
#include "engine/config/layer_config.h"
#include "engine/data/augment_config.h"
#include "engine/data/features/acoustic_features.h"
#include "engine/data/image/line_features.h"
#include "engine/text/text_rules.h"
#include "kernels/base/dtype.h"
#include "kernels/optimizer/optimizer_options.h"
#include "kernels/pool/pooling.h"

namespace rondo {

enum class Task : uint8_t { ctc, classify, regress };
enum class Cmvn : uint8_t { none, utterance, global };
enum class Sampling : uint8_t { once, weighted, class_balanced };
enum class OnBadData : uint8_t { error, skip };
enum class OnNonFinite : uint8_t { skip, stop };
enum class Deterministic : uint8_t { same_world, fixed_order, world_invariant };
enum class Sync : uint8_t { step, async };
inline constexpr std::array sync_names{"step", "async"};
enum class RankTransport : uint8_t { automatic, tcp, gloo, shared, mpi };
enum class LearningRateType : uint8_t { constant, linear, cosine, noam, step, plateau };
enum class OnResume : uint8_t { stretch, keep };

// The layers between the features and the output layer, which is always there and linear.
struct ModelConfig {
  // The short form, used while `layer` is empty.
  int hidden = 256;
  int layers = 3;
  bool bidirectional = true;
  double dropout = 0.1;
  int subsample = 2;
  int projection = 0;
  bool layer_norm = false;
  bool residual = false;

  std::vector<LayerConfig> layer;
  int input_height = 0;
  Pooling pooling = Pooling::mean;
  int outputs = 0;

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train, dev, test;
  std::string alphabet;
  OnBadData text_outside_alphabet = OnBadData::error;
  OnBadData text_too_long = OnBadData::error;
  OnBadData unreadable = OnBadData::error;
  double unreadable_limit = 0.01;
  int batch_frames = 8000;
  int max_frames = 0;
  bool sorta_grad = true;
  Sampling sampling = Sampling::once;
  std::string weight_field = "weight";
  std::string class_field = "label";
  int64_t draws_per_epoch = 0;
  int prefetch_threads = 1;
  int prefetch_batches = 4;

  bool operator==(const DataConfig&) const = default;
};

struct FeaturesConfig : SoundConfig, LineConfig {
  Cmvn cmvn = Cmvn::utterance;

  bool operator==(const FeaturesConfig&) const = default;
};

// What a model that begins with the weights of another one writes: the other's characters, those
// and what the training texts have besides, or those of the training texts alone.
enum class InitAlphabet : uint8_t { keep, extend, anew };

// What validations are compared by; see engine/config/metric.h. `error`, the share of wrong
// classes, is what `automatic` means for the task classify, and no name of its own.
enum class Metric : uint8_t { automatic, cer, wer, loss, error };

struct TrainingConfig {
  int epochs = 50;
  double max_seconds = 0;
  int64_t max_steps = 0;
  uint64_t seed = 1;
  int threads = 0;
  DType dtype = DType::f32;
  int accumulation = 1;
  int tbptt = 0;
  int fuse_output_from = 4096;
  Metric metric = Metric::automatic;
  int average_best = 0;
  int patience = 0;
  int64_t validate_every_steps = 0;
  std::string checkpoint_dir = "run";
  double checkpoint_every_seconds = 300;
  int64_t checkpoint_every_steps = 0;
  int keep_last = 2;
  int keep_best = 1;
  std::string log;
  std::string tensorboard;
  int log_every_steps = 10;
  int samples = 3;
  OnNonFinite non_finite = OnNonFinite::skip;
  int non_finite_limit = 20;
  std::string init_from;
  InitAlphabet init_alphabet = InitAlphabet::keep;
  std::string freeze_before;

  bool operator==(const TrainingConfig&) const = default;
};

struct LearningRateConfig {
  LearningRateType type = LearningRateType::cosine;
  int64_t warmup_steps = 200;
  int64_t total_steps = 0;
  double final_factor = 0.01;
  OnResume on_resume = OnResume::stretch;
  int64_t step_every = 1000;
  double step_factor = 0.5;
  int plateau_patience = 2;
  double plateau_factor = 0.5;
  double plateau_threshold = 0;

  bool operator==(const LearningRateConfig&) const = default;
};

struct ParallelConfig {
  Sync sync = Sync::step;
  int sync_every = 16;
  int max_staleness = 64;
  bool divide_optimizer = false;
  Deterministic deterministic = Deterministic::same_world;
  int batch_parts = 8;
  int64_t bucket_kb = 0;
  int nccl_blocks = 0;
  int sequence = 1;
  double timeout_seconds = 300;
  RankTransport transport = RankTransport::automatic;
  int pipeline = 1;
  int data = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 0;
  std::string placement;
  DType wire = DType::f32;
  int64_t stage_memory_mb = 0;

  bool operator==(const ParallelConfig&) const = default;
};

struct Config {
  Task task = Task::ctc;
  ModelConfig model;
  DataConfig data;
  FeaturesConfig features;
  TextRules text;
  AugmentConfig augment;
  DistortConfig distort;
  TrainingConfig training;
  OptimizerOptions optimizer{.momentum = 0.9, .weight_decay = 0.01, .clip_norm = 1};
  LearningRateConfig lr;
  ParallelConfig parallel;

  bool operator==(const Config&) const = default;
};

// `path` may be empty: overrides alone. `base`: what is not set.
Config load_config(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                   const Config& base = {});

// Reads text; `name` stands for the file in messages (the config inside a checkpoint).
Config parse_config(std::string_view toml, const std::string& name,
                    std::span<const std::string> overrides = {}, const Config& base = {});

// The settings of a model or a run, which an earlier version may have written: what is no more is
// ignored. Overrides are today's.
struct StoredConfig {
  Config config;
  std::vector<std::string> ignored;  // a sentence for each that did something then
};

StoredConfig parse_stored_config(std::string_view toml, const std::string& name,
                                 std::span<const std::string> overrides = {},
                                 const Config& base = {});
StoredConfig load_stored_config(const std::filesystem::path& path,
                                std::span<const std::string> overrides = {},
                                const Config& base = {});

// `key=value` on top of a config: dotted keys; values as in TOML, bare words as strings, and for a
// string key the text as it stands. `data=DIR`, taken first, sets data.train, and .dev and .test
// where they are there, to DIR/train.jsonl, …; a folder without train.jsonl is an InputError.
void apply_overrides(Config& config, std::span<const std::string> overrides);

// Every key with its resolved value. parse_config(to_toml(c)) == c.
std::string to_toml(const Config& config);
std::string to_json(const Config& config);

// "training.epochs: 50 -> 60" for every key whose resolved value differs.
std::vector<std::string> config_differences(const Config& before, const Config& after);

// The layers to build: `layer`, or what the short form stands for.
std::vector<LayerConfig> expand_layers(const ModelConfig& model);

// All keys with defaults, ranges and documentation, for a terminal and for docs/settings.md.
std::string config_reference();
std::string config_reference_markdown();

}  // namespace rondo
