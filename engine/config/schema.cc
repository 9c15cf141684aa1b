#include "engine/config/schema.h"

#include <array>
#include <utility>

#include "engine/config/layer_types.h"
#include "kernels/base/error.h"

namespace rondo::schema {
namespace {

constexpr std::array task_names{"ctc", "classify", "regress"};
constexpr std::array pooling_names{"last", "mean"};
constexpr std::array feature_names{"log_mel", "mfcc", "ready", "image"};
constexpr std::array ink_names{"dark", "light", "auto"};
constexpr std::array scaling_names{"average", "tesseract"};
constexpr std::array direction_names{"ltr", "rtl", "ttb"};
constexpr std::array cmvn_names{"none", "utterance", "global"};
constexpr std::array sampling_names{"once", "weighted", "class_balanced"};
constexpr std::array bad_data_names{"error", "skip"};
constexpr std::array non_finite_names{"skip", "stop"};
constexpr std::array metric_names{"auto", "cer", "wer", "loss"};
constexpr std::array init_alphabet_names{"keep", "extend", "new"};
constexpr std::array marks_names{"keep", "drop", "token"};
constexpr std::array unit_names{"character", "word"};
constexpr std::array optimizer_names{"sgd", "adam", "adamw"};
constexpr std::array deterministic_names{"same_world", "fixed_order", "world_invariant"};
constexpr std::array transport_names{"auto", "tcp", "gloo", "shared", "mpi"};
constexpr std::array lr_names{"constant", "linear", "cosine", "noam", "step", "plateau"};
constexpr std::array on_resume_names{"stretch", "keep"};
constexpr std::array schedule_names{"1f1b", "zero_bubble"};
constexpr std::array dtype_names{"f32", "bf16"};

// `names` in the order of the enumerators.
template <class E, size_t N>
Choice choice(E& member, const std::array<const char*, N>& names) {
  return {{names.begin(), names.end()},
          [&member] { return static_cast<size_t>(member); },
          [&member](size_t i) { member = static_cast<E>(i); }};
}

class Builder {
 public:
  explicit Builder(std::string section)
      : prefix_(section.empty() ? "" : std::move(section) + ".") {}
  void add(const char* name, Binding value, Range range, const char* doc) {
    fields_.push_back({prefix_ + name, std::move(value), range, doc});
  }
  void append_to(std::vector<Field>& all) {
    for (Field& f : fields_) all.push_back(std::move(f));
  }

 private:
  std::string prefix_;
  std::vector<Field> fields_;
};

Builder model_fields(ModelConfig& c) {
  Builder b("model");
  b.add("hidden", &c.hidden, from(1, 65536), "LSTM cells per direction");
  b.add("layers", &c.layers, from(0, 100), "LSTM layers");
  b.add("bidirectional", &c.bidirectional, any, "read each sequence in both directions");
  b.add("dropout", &c.dropout, below_one, "rate after each LSTM layer");
  b.add("subsample", &c.subsample, from(1, 64),
        "so many frames are stacked into one before the first layer; 1: none");
  b.add("projection", &c.projection, from(0, 65536),
        "outputs per direction after a linear projection of the cells; 0: none");
  b.add("layer_norm", &c.layer_norm, any, "layer normalisation after each LSTM layer");
  b.add("residual", &c.residual, any, "add a layer's input to its output where the sizes agree");
  b.add("input_height", &c.input_height, from(0, 1 << 24),
        "values per frame that the features must have, as the height of images; 0: any");
  b.add("pooling", choice(c.pooling, pooling_names), any,
        "how frames become one vector (tasks classify and regress)");
  b.add("outputs", &c.outputs, from(0, 1 << 24),
        "classes or regression targets; 0: taken from the data");
  return b;
}

Builder data_fields(DataConfig& c) {
  Builder b("data");
  b.add("train", &c.train, any, "manifest (JSON lines) to train on");
  b.add("dev", &c.dev, any, "manifest for validation; empty: none");
  b.add("test", &c.test, any, "manifest for the final evaluation; empty: none");
  b.add("alphabet", &c.alphabet, any,
        "the characters of the output; empty: those of the training texts");
  b.add("text_outside_alphabet", choice(c.text_outside_alphabet, bad_data_names), any,
        "what to do with a text that has other characters");
  b.add("text_too_long", choice(c.text_too_long, bad_data_names), any,
        "what to do with a text that its frames cannot spell");
  b.add("unreadable", choice(c.unreadable, bad_data_names), any,
        "what to do with a file that is missing or cannot be read, when training begins");
  b.add("unreadable_limit", &c.unreadable_limit, share,
        "with \"skip\": a larger share of such files is an error all the same");
  b.add("batch_frames", &c.batch_frames, from(1, 1e9),
        "frames per batch, padding not counted (there is none)");
  b.add("max_frames", &c.max_frames, from(0, 1e9),
        "longer utterances are left out and counted; 0: no limit");
  b.add("sorta_grad", &c.sorta_grad, any, "first epoch from short to long");
  b.add("sampling", choice(c.sampling, sampling_names), any,
        "what an epoch holds: every utterance once, or utterances drawn by weight, or every class "
        "equally often");
  b.add("weight_field", &c.weight_field, any,
        "weighted: the manifest's field with an utterance's weight, a number of at least 0");
  b.add("class_field", &c.class_field, any,
        "class_balanced: the manifest's field with an utterance's class, a string or number");
  b.add("draws_per_epoch", &c.draws_per_epoch, from(0, 1e8),
        "weighted, class_balanced: utterances drawn per epoch; 0: as many as there are");
  b.add("prefetch_threads", &c.prefetch_threads, from(0, 256),
        "threads that read and compute features ahead; 0: the training thread does");
  b.add("prefetch_batches", &c.prefetch_batches, from(1, 1000), "batches kept ready");
  return b;
}

Builder text_fields(TextRules& c) {
  Builder b("text");
  b.add("replace", &c.replace, any,
        "what is written otherwise, before all else, as [\"ß=ss\", \"&= and \"]");
  b.add("lowercase", &c.lowercase, any, "texts, those to compare with as well, in lower case");
  b.add("strip_punctuation", &c.strip_punctuation, any,
        "without punctuation: dashes become spaces, apostrophes within words and all of numbers "
        "stay");
  b.add("compatibility", &c.compatibility, any,
        "characters that look alike are one (Unicode's NFKC rather than NFC)");
  b.add("drop_invisible", &c.drop_invisible, any,
        "without characters that have no picture, as zero-width spaces and soft hyphens");
  b.add(
      "marks", choice(c.marks, marks_names), any,
      "marks in brackets, as [noise]: characters as others, left out, or each a label of its own");
  b.add("locale", &c.locale, any,
        "the language of lower and upper case, \"tr\" or \"az\" say; empty: none in particular");
  b.add("unit", choice(c.unit, unit_names), any,
        "what a label stands for: a character, or what stands between spaces, as phones");
  return b;
}

Builder features_fields(FeaturesConfig& c) {
  Builder b("features");
  b.add("type", choice(c.type, feature_names), any,
        "log-mel energies, MFCC, features stored in files (.npy, safetensors), or columns of the "
        "images of text lines");
  b.add("bins", &c.bins, from(1, 1024), "mel bins");
  b.add("coefficients", &c.coefficients, from(1, 1024), "cepstral coefficients (mfcc)");
  b.add("rate", &c.rate, from(1000, 384000), "samples per second; other rates are resampled");
  b.add("frame_ms", &c.frame_ms, {.low = 1, .high = 1000}, "window length");
  b.add("hop_ms", &c.hop_ms, {.low = 1, .high = 1000}, "from frame to frame");
  b.add("low_hz", &c.low_hz, not_negative, "lower edge of the lowest mel bin");
  b.add("high_hz", &c.high_hz, not_negative, "upper edge of the highest mel bin; 0: half the rate");
  b.add("preemphasis", &c.preemphasis, share, "first-order high-pass coefficient");
  b.add("dither", &c.dither, not_negative, "amplitude of added noise, in 16-bit steps");
  b.add("height", &c.height, from(4, 1024), "image: pixels that lines are scaled to");
  b.add("padding", &c.padding, from(0, 1024), "image: columns of paper before and behind a line");
  b.add("ink", choice(c.ink, ink_names), any, "image: what is written on lighter or darker paper");
  b.add("contrast", &c.contrast, any,
        "image: a line's own paper and ink become 0 and 1, instead of white and black");
  b.add("scaling", choice(c.scaling, scaling_names), any,
        "image: how lines are scaled, and their paper and ink found: tesseract does both as that "
        "program");
  b.add("deskew", &c.deskew, any, "image: a line that slants is made level, by its ink");
  b.add("centre", &c.centre, any,
        "image: columns are shifted so that the ink's middle is level, and rows about it scaled to "
        "the height, by how far the ink spreads");
  b.add("direction", choice(c.direction, direction_names), any,
        "image: how lines are written, from left to right, right to left, or top to bottom");
  b.add("cmvn", choice(c.cmvn, cmvn_names), any,
        "mean and variance normalisation, per utterance or over the training set; of an image per "
        "line, all its pixels as one");
  return b;
}

Builder augment_fields(AugmentConfig& c) {
  Builder b("augment");
  b.add("spec_augment", &c.spec_augment, any, "mask bands of frequency and time");
  b.add("frequency_masks", &c.frequency_masks, from(0, 100), "masks per utterance");
  b.add("frequency_width", &c.frequency_width, from(0, 1024), "greatest width, in bins");
  b.add("time_masks", &c.time_masks, from(0, 100), "masks per utterance");
  b.add("time_width", &c.time_width, from(0, 1e6), "greatest width, in frames");
  b.add("time_share", &c.time_share, share, "greatest width as a share of the utterance");
  b.add("speed", &c.speed, {.low = 0.25, .high = 4},
        "factors, one drawn per utterance; empty: none");
  b.add("noise", &c.noise, share, "share of utterances that get noise");
  b.add("noise_recordings", &c.noise_recordings, any,
        "manifest of recordings to take it from, all kept in memory; empty: white noise");
  b.add("noise_snr_low", &c.noise_snr_low, from(-100, 100), "lowest signal-to-noise ratio, dB");
  b.add("noise_snr_high", &c.noise_snr_high, from(-100, 100), "highest signal-to-noise ratio, dB");
  return b;
}

Builder distort_fields(DistortConfig& c) {
  Builder b("distort");
  b.add("probability", &c.probability, share, "of each of these, drawn by itself");
  b.add("strength", &c.strength, from(0, 100),
        "all that follow are so many times as strong; of cutouts, as large; 0: none");
  b.add("stretch", &c.stretch, from(0, 0.5), "wider or narrower by up to this share");
  b.add("slant", &c.slant, from(0, 60), "greatest lean of upright strokes, degrees");
  b.add("rotation", &c.rotation, from(0, 30), "greatest turn about the middle, degrees");
  b.add("size", &c.size, from(0, 0.5), "higher or lower by up to this share, about the middle");
  b.add("offset", &c.offset, from(0, 100), "greatest move up or down as a whole, pixels");
  b.add("elastic", &c.elastic, from(0, 100),
        "greatest shift of the points of a grid that bends the line, pixels");
  b.add("thickness", &c.thickness, from(0, 10),
        "strokes wider or narrower by up to so many pixels on each side");
  b.add("blur", &c.blur, from(0, 20), "greatest standard deviation, pixels");
  b.add("fade", &c.fade, share, "greatest share that ink loses or paper gains");
  b.add("background", &c.background, share,
        "how dark an uneven paper is where it is darkest, at most; ink is 1");
  b.add("show_through", &c.show_through, share,
        "greatest share of ink that shows through from the page's other side");
  b.add("noise", &c.noise, share, "greatest standard deviation of a pixel's noise, of ink 1");
  b.add("cutouts", &c.cutouts, from(0, 1000), "patches of paper or ink, at most");
  b.add("cutout_size", &c.cutout_size, from(0, 1024), "their greatest side, pixels");
  return b;
}

Builder training_fields(TrainingConfig& c, OptimizerOptions& optimizer) {
  Builder b("training");
  b.add("epochs", &c.epochs, from(1, 1e9), "passes over the training data");
  b.add("max_seconds", &c.max_seconds, not_negative, "stop after so much time; 0: no limit");
  b.add("max_steps", &c.max_steps, not_negative, "stop after so many updates; 0: no limit");
  b.add("seed", &c.seed, any, "of initialisation, sampling, dropout and augmentation");
  b.add("threads", &c.threads, from(0, 4096), "CPU threads; 0: all that may be used");
  b.add("dtype", choice(c.dtype, dtype_names), any,
        "storage of weights and activations; sums and master weights are f32");
  b.add("accumulation", &c.accumulation, from(1, 1e6), "batches per update");
  b.add("tbptt", &c.tbptt, from(0, 1e9),
        "frames of features computed at a time, to train on long recordings in the memory of a "
        "part; gradients through the layers' states end there (docs/training.md); 0: all");
  b.add("fuse_output_from", &c.fuse_output_from, from(0, 1e9),
        "with so many outputs (characters) or more, the loss is computed straight from the output "
        "layer's inputs and the logits are never in memory, for a third more of that layer's "
        "time; 0: never. In training on one rank or on replicas, without tbptt");
  b.add("clip", &optimizer.clip_norm, not_negative,
        "greatest global norm of the gradient; 0: not clipped");
  b.add("ema", &optimizer.ema_decay, below_one,
        "decay of an exponential moving average of the weights, used for validation; 0: none");
  b.add("metric", choice(c.metric, metric_names), any,
        "what chooses the best model, and what patience, plateau and average_best go by, on "
        "data.dev: the error rate of characters or of words, or the loss. By auto it is that of "
        "characters where texts have no spaces between words, else of words. For classes it is "
        "the share of wrong ones, for regress the loss");
  b.add("average_best", &c.average_best, from(0, 100),
        "the final model is the mean of so many best checkpoints; 0: the best one");
  b.add("patience", &c.patience, from(0, 1e6),
        "stop after so many validations without a better one; 0: never");
  b.add("validate_every_steps", &c.validate_every_steps, not_negative, "0: after each epoch");
  b.add("checkpoint_dir", &c.checkpoint_dir, any, "where checkpoints and logs go");
  b.add("checkpoint_every_seconds", &c.checkpoint_every_seconds, not_negative, "0: not by time");
  b.add("checkpoint_every_steps", &c.checkpoint_every_steps, not_negative, "0: not by steps");
  b.add("keep_last", &c.keep_last, from(1, 1e6),
        "newest checkpoints kept; 2 survives damage to the newest");
  b.add("keep_best", &c.keep_best, from(0, 1e6), "best checkpoints kept besides");
  b.add("log", &c.log, any, "JSON-lines log; empty: log.jsonl in checkpoint_dir");
  b.add("tensorboard", &c.tensorboard, any, "directory for TensorBoard event files; empty: none");
  b.add("log_every_steps", &c.log_every_steps, from(1, 1e9), "updates per line of the log");
  b.add("samples", &c.samples, from(0, 1000), "hypotheses shown at each validation");
  b.add("non_finite", choice(c.non_finite, non_finite_names), any,
        "what to do when loss or gradient is not finite: skip the update, or stop");
  b.add("non_finite_limit", &c.non_finite_limit, from(1, 1e9),
        "so many skipped updates in a row stop the training");
  b.add("init_from", &c.init_from, any,
        "checkpoint to take the weights from (not the optimiser's state)");
  b.add("init_alphabet", choice(c.init_alphabet, init_alphabet_names), any,
        "with init_from, the characters: that model's; those and the training texts' others; the "
        "training texts' alone");
  b.add("freeze_before", &c.freeze_before, any,
        "the name of a layer, as in the model's file (lstm3, lstm3.1, output): with init_from, the "
        "layers before it keep their weights; empty: none");
  return b;
}

Builder optimizer_fields(OptimizerOptions& c) {
  Builder b("optimizer");
  b.add("type", choice(c.kind, optimizer_names), any, "the update rule");
  b.add("lr", &c.learning_rate, positive, "highest learning rate");
  b.add("momentum", &c.momentum, below_one, "sgd");
  b.add("nesterov", &c.nesterov, any, "sgd: Nesterov's momentum");
  b.add("beta1", &c.beta1, below_one, "adam, adamw: decay of the first moment");
  b.add("beta2", &c.beta2, below_one, "adam, adamw: decay of the second moment");
  b.add("eps", &c.epsilon, positive, "adam, adamw: added to the denominator");
  b.add("weight_decay", &c.weight_decay, not_negative,
        "L2 penalty (sgd, adam) or decoupled decay (adamw)");
  return b;
}

Builder lr_fields(LearningRateConfig& c) {
  Builder b("lr");
  b.add("type", choice(c.type, lr_names), any, "how the learning rate changes after the warm-up");
  b.add("warmup_steps", &c.warmup_steps, not_negative, "linear rise to optimizer.lr");
  b.add("total_steps", &c.total_steps, not_negative,
        "linear, cosine: where the fall ends; 0: at the end of training");
  b.add("final_factor", &c.final_factor, share,
        "linear, cosine: share of optimizer.lr left at the end");
  b.add("on_resume", choice(c.on_resume, on_resume_names), any,
        "linear, cosine without total_steps: where the fall ends when a run goes on with more "
        "updates than it had, or fewer: at its new end, or where it was");
  b.add("step_every", &c.step_every, from(1), "step: updates between two cuts");
  b.add("step_factor", &c.step_factor, {.low = 0, .high = 1, .open_low = true},
        "step: factor of each cut");
  b.add("plateau_patience", &c.plateau_patience, from(0, 1e6),
        "plateau: validations without progress before a cut");
  b.add("plateau_factor", &c.plateau_factor, {.low = 0, .high = 1, .open_low = true},
        "plateau: factor of each cut");
  b.add("plateau_threshold", &c.plateau_threshold, below_one,
        "plateau: relative gain that counts as progress");
  return b;
}

Builder parallel_fields(ParallelConfig& c) {
  Builder b("parallel");
  b.add("sync", choice(c.sync, sync_names), any,
        "ranks share every update; or each makes its own, and averages its weights with its "
        "neighbours' now and then, without waiting (async)");
  b.add("sync_every", &c.sync_every, from(1, 1e6), "async: updates of a rank between two averages");
  b.add("max_staleness", &c.max_staleness, from(1, 1e9),
        "async: updates by which weights may lag behind those they are averaged with");
  b.add("divide_optimizer", &c.divide_optimizer, any,
        "each rank keeps the optimizer's state of its part of the weights, and updates that part");
  b.add("deterministic", choice(c.deterministic, deterministic_names), any,
        "the same weights, bit for bit, from runs on as many ranks (on GPUs as far as NCCL's sums "
        "repeat themselves; fixed_order: our own sums there too), or on any number of ranks");
  b.add("batch_parts", &c.batch_parts, from(1, 4096),
        "world_invariant: parts of a batch whose gradients are kept apart; ranks at most");
  b.add("bucket_kb", &c.bucket_kb, from(0, 1 << 24),
        "gradients sent at a time, while the backward pass goes on; 0: by the speed of the link");
  b.add("nccl_blocks", &c.nccl_blocks, from(0, 64),
        "GPUs: at most so many multiprocessors for NCCL, beside the kernels of layers; 0: as many "
        "as it likes");
  b.add("sequence", &c.sequence, from(1, 4096),
        "so many neighbouring ranks share each sequence, a part of its frames each");
  b.add("timeout_seconds", &c.timeout_seconds, from(0.01, 1e7),
        "how long a rank waits for the others before it gives up");
  b.add("transport", choice(c.transport, transport_names), any,
        "how processes exchange bytes. auto: by shared memory within a machine where it can be, "
        "between machines by MPI where that has started them, else by TCP. Else by one of these "
        "alone, or an error: TCP of our own (tcp) or Gloo's (gloo), memory (shared), MPI (mpi)");
  b.add("pipeline", &c.pipeline, from(1, 4096),
        "ranks that share the layers of one model among them (docs/distributed.md)");
  b.add("data", &c.data, from(0, 4096),
        "replicas of the pipeline; 0: as many as there are ranks for");
  b.add("schedule", choice(c.schedule, schedule_names), any,
        "the order of the pipeline's work; 1f1b stores less, zero_bubble waits less");
  b.add("micro_batches", &c.micro_batches, from(0, 4096),
        "parts of a replica's batch that follow each other through the pipeline; 0: two per rank");
  b.add("placement", &c.placement, any,
        "layers of each stage, as 3,4; empty: by the time they are measured to take");
  b.add("wire", choice(c.wire, dtype_names), any,
        "what activations and gradients are rounded to between stages");
  b.add("stage_memory_mb", &c.stage_memory_mb, from(0, 1 << 24),
        "most memory that a stage may need, as far as it is placed by cost; 0: no limit");
  return b;
}

Binding binding(const LayerOption& option, LayerValue& value) {
  return std::visit(
      [&]<class T>(T& member) -> Binding {
        if constexpr (std::is_same_v<T, size_t>) {
          return Choice{option.choices, [&member] { return member; },
                        [&member](size_t i) { member = i; }};
        } else {
          return &member;
        }
      },
      value);
}

}  // namespace

std::string Field::section() const {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

std::string Field::name() const {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

std::vector<Field> fields(Config& c) {
  std::vector<Field> all;
  Builder top("");
  top.add("task", choice(c.task, task_names), any,
          "sequence labelling, or one class or vector per sequence");
  top.append_to(all);
  model_fields(c.model).append_to(all);
  data_fields(c.data).append_to(all);
  features_fields(c.features).append_to(all);
  text_fields(c.text).append_to(all);
  augment_fields(c.augment).append_to(all);
  distort_fields(c.distort).append_to(all);
  training_fields(c.training, c.optimizer).append_to(all);
  optimizer_fields(c.optimizer).append_to(all);
  lr_fields(c.lr).append_to(all);
  parallel_fields(c.parallel).append_to(all);
  return all;
}

std::vector<Field> layer_fields(LayerConfig& layer) {
  const std::span<const LayerType> types = layer_types();
  Choice type;
  for (const LayerType& t : types) type.names.push_back(t.name);
  type.get = [&layer, types] { return static_cast<size_t>(&layer.type() - types.data()); };
  type.set = [&layer, types](size_t i) { layer = LayerConfig(types[i]); };
  std::vector<Field> all = {{"type", std::move(type), any, layer.type().help}};
  const std::vector<LayerOption>& options = layer.type().options;
  for (size_t i = 0; i < options.size(); ++i) {
    all.push_back({options[i].name, binding(options[i], layer.values()[i]), options[i].range,
                   options[i].help});
  }
  return all;
}

std::string_view section_doc(std::string_view section) {
  static constexpr std::pair<std::string_view, std::string_view> docs[] = {
      {"", "What is learnt."},
      {"model", "The layers, in short form; or listed one by one as [[model.layer]] tables."},
      {"data",
       "What is read. `data=DIR` stands for DIR/train.jsonl, and for DIR/dev.jsonl and "
       "DIR/test.jsonl "
       "where they are there."},
      {"features", "From sound, or the image of a line, to frames."},
      {"text", "What texts are changed by before they are learnt or compared."},
      {"augment", "Variations of the training data."},
      {"distort", "Variations of the images of lines in training; 0 is none."},
      {"training", "How long, how, and what is kept."},
      {"optimizer", "From gradients to updates."},
      {"lr", "The learning rate over time."},
      {"parallel", "Training on several ranks (docs/distributed.md)."},
  };
  for (const auto& [name, doc] : docs) {
    if (name == section) return doc;
  }
  return "";
}

std::span<const Removed> removed() {
  static constexpr std::string_view averages =
      "ranks share every update (step), or average without waiting (async)";
  static constexpr std::string_view outer =
      "it was for parallel.sync = \"block\", which is no more";
  static constexpr std::string_view schedules =
      "a pipeline works in the order of 1f1b, or of zero_bubble, which waits less";
  static constexpr std::array all{
      Removed{"parallel.sync", "local", "", averages},
      Removed{"parallel.sync", "block", "", averages},
      Removed{"parallel.outer_lr", "", "1", outer},
      Removed{"parallel.outer_momentum", "", "0.5", outer},
      Removed{"parallel.schedule", "gpipe", "", schedules},
      Removed{"parallel.schedule", "interleaved", "", schedules},
      Removed{"parallel.chunks", "", "1", "every rank of a pipeline has one stage",
              [](Config& c) { c.parallel.placement.clear(); }},
      Removed{"training.weights_beside", "", "false",
              "gradients of weights are on the stream of all others"},
  };
  return all;
}

std::span<const Renamed> renamed() {
  static constexpr std::array all{
      Renamed{"schedule", "lr"},
      Renamed{"parallel.shard_optimizer", "parallel.divide_optimizer"},
      Renamed{"parallel.virtual_shards", "parallel.batch_parts"},
  };
  return all;
}

std::string name_now(std::string_view key) {
  for (const Renamed& r : renamed()) {
    if (!key.starts_with(r.before)) continue;
    const std::string_view rest = key.substr(r.before.size());
    if (rest.empty() || rest.front() == '.') return str(r.now, rest);
  }
  return std::string(key);
}

bool is_short_form(std::string_view key) {
  static constexpr std::string_view keys[] = {
      "model.hidden",    "model.layers",     "model.bidirectional", "model.dropout",
      "model.subsample", "model.projection", "model.layer_norm",    "model.residual"};
  for (std::string_view k : keys) {
    if (k == key) return true;
  }
  return false;
}

}  // namespace rondo::schema
