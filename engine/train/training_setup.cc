#include "engine/train/training_setup.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/io/json.h"
#include "engine/reduce/long_work.h"
#include "engine/train/model/open_data.h"
#include "engine/train/model/shared_lengths.h"
#include "engine/train/model/stored_state.h"
#include "engine/train/run_files.h"
#include "engine/train/state/average.h"
#include "engine/train/state/metric_choice.h"
#include "engine/train/state/stored_slots.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/hash.h"

namespace rondo {

uint64_t hash_of(const ManifestDataset& data) {
  uint64_t h = fnv1a_begin;
  for (int64_t i = 0; i < data.size(); ++i) h = fnv1a(h, data.content_hash(i));
  return h;
}

namespace {

// Hashes of parts of the data, so that a difference has a place: as text, to be sent.
constexpr int64_t parts_of_data = 256;
int64_t first_of_part(int64_t part, int64_t utterances) {
  return part * utterances / parts_of_data;
}

std::string hashes_of_parts(const ManifestDataset* data) {
  const int64_t n = data ? data->size() : 0;
  Json hashes = Json::array({n});
  for (int64_t part = 0; part < parts_of_data; ++part) {
    uint64_t h = fnv1a_begin;
    const int64_t end = first_of_part(part + 1, n);
    for (int64_t i = first_of_part(part, n); i < end; ++i) h = fnv1a(h, data->content_hash(i));
    hashes.push_back(h);
  }
  return hashes.dump();
}

// InputError where the parts' hashes are not those of rank 0. `noun`: noun_of() the data.
void require_same_data(const ManifestDataset* data, std::string_view noun,
                       const std::string& manifest, const std::string& own,
                       const std::string& first) {
  if (own == first) return;
  const Json mine = Json::parse(own), other = Json::parse(first);
  const auto n = mine.at(size_t{0}).get<int64_t>(), others = other.at(size_t{0}).get<int64_t>();
  if (n != others) {
    fail_input(manifest, ": holds ", n, " ", noun, "s that can be used, that of rank 0 ", others);
  }
  size_t part = 0;
  const auto hash = [&](const Json& of) { return of.at(part + 1).get<uint64_t>(); };
  while (hash(mine) == hash(other)) ++part;
  const auto at = static_cast<int64_t>(part);
  const int64_t begin = first_of_part(at, n), end = first_of_part(at + 1, n);
  const std::string last = end - begin == 1 ? "" : " to " + data->name(end - 1);
  fail_input(manifest, ": is not that of rank 0: another text, target, length or name in ",
             data->name(begin), last);
}

class Setup {
 public:
  Setup(const Ranks& ranks, const Config& config, const TrainerOptions& options,
        TrainingReport* report, std::optional<Manifest> training = {})
      : ranks_(ranks),
        config_(config),
        options_(options),
        report_(report),
        training_(std::move(training)) {}

  TrainingSetup run() {
    ranks_.read_at_first([&] { find_start(); });
    read_description();
    look_at_lengths();
    together_at_length(ranks_, patience(), [&] { open_data(); });
    normalise();
    read_state();
    compare_data();
    return std::move(s_);
  }

  void open_early() {
    read_data();
    keep_data();
  }

 private:
  // For a rank that is stopped: what data cost is not counted.
  CommClock::duration patience() const {
    const std::chrono::duration<double> seconds(10 * config_.parallel.timeout_seconds);
    return std::chrono::duration_cast<CommClock::duration>(seconds);
  }

  void find_start() {
    require_validation();
    if (options_.kept && options_.kept->holds_state) {
      s_.kept = options_.kept;
      metadata_ = s_.kept->description.to_metadata();
      return;
    }
    const std::filesystem::path directory = config_.training.checkpoint_dir;
    if (options_.start != StartFrom::scratch) {
      s_.checkpoint = open_latest(directory);
      if (!s_.checkpoint)
        report_->message(directory.string() + " holds no checkpoint: starting anew");
    } else if (!list_checkpoints(directory).empty() || exists(directory / best_model_file)) {
      fail_input(directory.string(),
                 ": holds a training run already; continue it with --resume, or "
                 "choose another training.checkpoint_dir");
    }
    if (!s_.checkpoint) return find_origin();
    const SafetensorsFile file = open_weights(*s_.checkpoint);
    const auto stored = ModelDescription::from_metadata(file.metadata(), file.name());
    metadata_ = file.metadata();
    for (const std::string& w : s_.checkpoint->warnings()) report_->message("warning: " + w);
    require_same_beginning(directory, stored.config.training.init_from);
    require_model_of(directory.string(), stored.config,
                     "leave them out to go on with that run, or choose another "
                     "training.checkpoint_dir");
    for (const std::string& what : stored.ignored)
      report_->message("warning: a setting of the run so far is ignored: " + what);
    for (const std::string& d : config_differences(stored.config, config_)) {
      report_->message("warning: differs from the run so far: " + d);
    }
  }

  // Weights of another model want its features, its layers and its normalisation. Files of weights
  // alone have no description to compare.
  void find_origin() {
    if (config_.training.init_from.empty()) {
      if (config_.training.freeze_before.empty()) return;
      fail_input("training.freeze_before is '", config_.training.freeze_before,
                 "', and training.init_from (--init-from) is empty; expected the model whose "
                 "weights the layers before it keep");
    }
    const SafetensorsFile file = open_model(config_.training.init_from, nullptr);
    if (!file.metadata().contains("config")) return;
    const auto model = ModelDescription::from_metadata(file.metadata(), file.name());
    require_model_of("training.init_from: " + file.name(), model.config,
                     "leave them out to take the model's");
    origin_ = file.metadata();
  }

  void require_model_of(const std::string& whose, const Config& stored, const char* advice) const {
    const std::vector<std::string> differences = differing_from_model(stored, config_);
    if (differences.empty()) return;
    fail_input(whose, " was trained with other settings: ", differences.front(),
               differences.size() > 1 ? str(" (and ", differences.size() - 1, " more)") : "", "; ",
               advice);
  }

  // A run that goes on has weights of its own: others asked for would not be taken.
  void require_same_beginning(const std::filesystem::path& directory,
                              const std::string& init_from) const {
    const std::string& wanted = config_.training.init_from;
    if (wanted.empty() || wanted == init_from) return;
    fail_input("training.init_from is '", wanted, "', but the run in ", directory.string(),
               init_from.empty() ? " began without" : " began with '" + init_from + "'",
               "; leave it out to continue that run, or start another training.checkpoint_dir");
  }

  // What waits for validations would wait for ever without them.
  void require_validation() const {
    if (!config_.data.dev.empty()) return;
    const auto require = [](bool wanted, const char* what, const char* instead) {
      if (wanted) {
        fail_input(what,
                   " needs validations, and data.dev is empty; expected a manifest there, or ",
                   instead);
      }
    };
    require(config_.training.patience > 0, "training.patience", "training.patience=0");
    require(config_.training.average_best > 0, "training.average_best", "training.average_best=0");
    require(config_.training.metric != Metric::automatic, "training.metric",
            "training.metric=auto");
    require(config_.lr.type == LearningRateType::plateau, "lr.type = \"plateau\"",
            "lr.type=cosine");
  }

  // Alphabet and normalisation of a run that goes on are what they were.
  void read_description() {
    const std::string text = ranks_.broadcast(Json(metadata_).dump());
    metadata_ = Json::parse(text).get<StringMap>();
    s_.resumed = !metadata_.empty();
    if (!s_.resumed) return read_origin();
    const auto stored = ModelDescription::from_metadata(metadata_, "the checkpoint of rank 0");
    s_.before = stored.config;
    s_.description.alphabet = stored.alphabet;
    s_.description.classes = stored.classes;
    s_.description.mean = stored.mean;
    s_.description.inverse_std = stored.inverse_std;
  }

  void read_origin() {
    if (config_.training.init_from.empty()) return;
    origin_ = Json::parse(ranks_.broadcast(Json(origin_).dump())).get<StringMap>();
    if (origin_.empty()) return;
    const auto model = ModelDescription::from_metadata(origin_, "training.init_from of rank 0");
    s_.description.mean = model.mean;
    s_.description.inverse_std = model.inverse_std;
    origin_alphabet_ = model.alphabet;
    origin_classes_ = model.classes;
  }

  // What the model writes.
  Alphabet alphabet(const Manifest& training) const {
    const Alphabet found = symbols(training);
    const bool words = config_.text.unit == TextUnit::word;
    // Label sequences are numbers, whatever a label of texts would be.
    if (!found.is_of_numbers() && found.is_of_words() != words && !found.symbols().empty())
      fail_input("text.unit is \"", words ? "word" : "character", "\", but the alphabet of ",
                 s_.resumed ? "the run so far" : config_.training.init_from, " is of ",
                 found.units());
    return as_read(config_.features, found);
  }

  void note_phones(const Manifest& training) const {
    if (!report_ || config_.text.unit == TextUnit::word) return;
    if (look_like_phones(training.transcripts()))
      report_->message(
          "warning: the texts look like phones, of which each character would be learnt by "
          "itself; with text.unit=word a label is what stands between spaces");
  }

  Alphabet symbols(const Manifest& training) const {
    if (s_.resumed) return Alphabet(s_.description.alphabet);
    const InitAlphabet wanted = config_.training.init_alphabet;
    if (origin_alphabet_.empty() || wanted == InitAlphabet::anew) {
      return make_alphabet(config_, training);
    }
    if (wanted == InitAlphabet::extend) {
      return extended(Alphabet(origin_alphabet_), make_alphabet(config_, training));
    }
    return config_.data.alphabet.empty() ? Alphabet(origin_alphabet_)
                                         : make_alphabet(config_, training);
  }

  // Names of what the model tells apart; empty: they have numbers alone.
  std::vector<std::string> classes(const Manifest& training) const {
    if (s_.resumed) return s_.description.classes;
    const InitAlphabet wanted = config_.training.init_alphabet;
    if (origin_classes_.empty() || wanted == InitAlphabet::anew) {
      std::vector<std::string> names = class_names(training);
      if (names.size() != 1) return names;
      fail_input(config_.data.train, ": all lines are of the class \"", names.front(),
                 "\"; expected two classes or more, to tell them apart");
    }
    std::vector<std::string> all = origin_classes_;
    if (wanted == InitAlphabet::keep) return all;
    for (const std::string& name : class_names(training)) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
    return all;
  }

  void open_data() {
    const bool open = take_kept_data();
    if (!open) read_data();
    describe();
    if (!open) look_at_test();
    if (options_.kept) keep_data();
  }

  void keep_data() {
    KeptRun& kept = *options_.kept;
    kept.alphabet = s_.alphabet;
    kept.classes = s_.description.classes;
    kept.train = s_.train;
    kept.dev = s_.dev;
  }

  // Those that are open already, unless the run has another alphabet, or may have.
  bool take_kept_data() {
    const KeptRun* const kept = options_.kept;
    if (!kept || !kept->train) return false;
    if (kept->alphabet && s_.resumed) {
      if (alphabet({}).symbols() != kept->alphabet->symbols()) return false;
    } else if ((kept->alphabet || !kept->classes.empty()) && !config_.training.init_from.empty()) {
      return false;
    }
    if (s_.resumed && kept->classes != s_.description.classes) return false;
    s_.alphabet = kept->alphabet;
    s_.description.classes = kept->classes;
    s_.train = kept->train;
    s_.dev = kept->dev;
    return true;
  }

  void read_data() {
    DotlessI dotless_i;
    Manifest training = training_ ? std::move(*training_) : read_manifest(config_.data.train);
    change_texts(config_, training, &dotless_i);
    if (report_ && dotless_i.matters())
      report_->message("warning: " + dotless_i.found() + "; text.locale=tr makes \u0131 of I");
    if (config_.task == Task::ctc) {
      note_phones(training);
      s_.alphabet = std::make_shared<Alphabet>(alphabet(training));
    }
    if (config_.task == Task::classify) s_.description.classes = classes(training);
    s_.train = open_dataset(config_, std::move(training), DataUse::training, readers(), names());
    if (report_) {
      report_->problems(*s_.train, config_.data.train);
      report_->rates(*s_.train, config_.data.train, options_.audio);
    }
    require_apart_from_data(options_, *s_.train);
    if (!config_.data.dev.empty()) {
      s_.dev = open_dataset(config_, config_.data.dev, DataUse::evaluation, readers(), names());
      require_apart_from_data(options_, *s_.dev);
      note_unwritable(*s_.dev, config_.data.dev);
    }
  }

  void describe() {
    ModelDescription& d = s_.description;
    if (s_.alphabet) d.alphabet = s_.alphabet->symbols();
    d.config = config_;
    d.sizes.features = s_.train->feature_dim();
    switch (config_.task) {
      case Task::ctc:
        d.sizes.outputs = s_.alphabet->classes();
        break;
      case Task::classify:
        d.sizes.outputs = classes_to_tell_apart();
        break;
      case Task::regress:
        d.sizes.outputs = s_.train->target_dim();
        break;
    }
    if (s_.dev) {
      require_fit(*s_.dev, config_.data.dev, config_.task, d.sizes, config_.data.train);
    }
  }

  int64_t classes_to_tell_apart() const {
    const auto named = static_cast<int64_t>(s_.description.classes.size());
    const int64_t wanted = config_.model.outputs;
    if (named == 0) return std::max<int64_t>(wanted, s_.train->classes());
    if (wanted <= named) return named;
    fail_input("model.outputs is ", wanted, ", and ", config_.data.train, " has the names of ",
               named, " classes; expected 0, which takes them from the data");
  }

  // Opened again when it is needed; what is wrong with it should not show after the training.
  void look_at_test() {
    if (config_.data.test.empty()) return;
    const auto test =
        open_dataset(config_, config_.data.test, DataUse::evaluation, readers(), names());
    require_apart_from_data(options_, *test);
    require_fit(*test, config_.data.test, config_.task, s_.description.sizes, config_.data.train);
    note_unwritable(*test, config_.data.test);
  }

  TargetNames names() const { return {s_.alphabet.get(), s_.description.classes}; }

  MediaReaders readers() const {
    return {options_.audio, options_.images, lengths_ ? &*lengths_ : nullptr};
  }

  // Each of several ranks opens its part of the recordings' headers, unless one of them has the
  // data open already.
  void look_at_lengths() {
    if (ranks_.size() == 1 || !options_.audio) return;
    double open = options_.kept && options_.kept->train ? 1 : 0;
    ranks_.sum(std::span(&open, 1));
    if (open > 0 || input_kind(config_.features.type) != InputKind::recording) return;
    lengths_.emplace(*options_.audio);
    const int threads = cpu_threads(config_.training.threads, "training.threads");
    together_at_length(ranks_, patience(), [&] {
      if (!training_) training_ = read_manifest(config_.data.train);
      lengths_->look_at(*training_, ranks_, threads);
      for (const std::string& other : {config_.data.dev, config_.data.test}) {
        if (!other.empty()) lengths_->look_at(read_manifest(other), ranks_, threads);
      }
    });
    lengths_->exchange(ranks_);
  }

  void note_unwritable(const ManifestDataset& data, const std::string& manifest) {
    if (s_.alphabet && report_) report_->unwritable(unwritable_text(data, *s_.alphabet), manifest);
  }

  // One rank's figures for all: sums over parts of the data would depend on the number of ranks.
  void normalise() {
    if (config_.features.cmvn != Cmvn::global) return;
    ModelDescription& d = s_.description;
    // Otherwise they are those of the run so far, or of the model it began with.
    if (d.mean.size() != static_cast<size_t>(d.sizes.features)) {
      together_at_length(ranks_, patience(), [&] {
        if (!ranks_.first()) return;
        const GlobalCmvn cmvn = global_cmvn(*s_.train, 0, usable_cpus());
        d.mean = cmvn.mean;
        d.inverse_std = cmvn.scale;
      });
      for (std::vector<float>* values : {&d.mean, &d.inverse_std}) {
        values->resize(static_cast<size_t>(d.sizes.features));
        ranks_.broadcast(
            TensorView(values->data(), DType::f32, {static_cast<int64_t>(values->size())}));
      }
    }
    const GlobalCmvn cmvn{d.mean, d.inverse_std};
    s_.train->set_global_cmvn(cmvn);
    if (s_.dev) s_.dev->set_global_cmvn(cmvn);
  }

  void read_state() {
    ranks_.read_at_first([&] {
      if (s_.checkpoint) s_.state = read_training_state(*s_.checkpoint);
      if (s_.kept) s_.state = s_.kept->state;
    });
    if (s_.resumed) {
      const std::string text = ranks_.broadcast(s_.state.to_json());
      s_.state = TrainingState::from_json(text, "the state of rank 0");
    } else {
      s_.state.data_hash = hash_of(*s_.train);
    }
    std::optional<WordSpacing> spacing;
    if (s_.dev && s_.alphabet) spacing = word_spacing(*s_.dev, *s_.alphabet);
    const std::string told =
        choose_metric(s_.state, config_, s_.resumed, spacing ? &*spacing : nullptr);
    if (!told.empty() && report_ && ranks_.first()) report_->message(told);
    if (s_.resumed) read_average();
    ranks_.read_at_first([&] {
      // Runs of before this was kept do not say.
      if (s_.state.data_hash == 0 || s_.state.data_hash == hash_of(*s_.train)) return;
      fail_input(config_.data.train, ": holds other ", noun_of(input_kind(config_.features.type)),
                 "s, texts or lengths than the run in ", config_.training.checkpoint_dir,
                 " was trained on; start a new run with --init-from");
    });
  }

  // An average is written after the last checkpoint, which does not know of it.
  void read_average() {
    Score kept;
    ranks_.read_at_first([&] {
      const std::filesystem::path run = config_.training.checkpoint_dir;
      kept = score_of_average(run / best_model_file, s_.state.chosen_by);
    });
    for (double* of : {&kept.metric, &kept.loss}) ranks_.broadcast(TensorView(of, DType::f64, {1}));
    if (std::isfinite(kept.metric)) s_.average = kept;
  }

  void compare_data() {
    if (ranks_.size() == 1) return;
    const std::string train = hashes_of_parts(s_.train.get()), dev = hashes_of_parts(s_.dev.get());
    const std::string first_train = ranks_.broadcast(train), first_dev = ranks_.broadcast(dev);
    ranks_.together([&] {
      const char* const noun = noun_of(input_kind(config_.features.type));
      require_same_data(s_.train.get(), noun, config_.data.train, train, first_train);
      require_same_data(s_.dev.get(), noun, config_.data.dev, dev, first_dev);
    });
  }

  const Ranks& ranks_;
  const Config& config_;
  const TrainerOptions& options_;
  TrainingReport* const report_;          // nullptr: nobody hears what there is to say of the data
  std::optional<Manifest> training_;      // as it is read; taken by read_data()
  std::optional<SharedLengths> lengths_;  // of several ranks that open data
  StringMap metadata_;                    // of a run that goes on
  StringMap origin_;                      // of the model that training.init_from names
  std::vector<std::string> origin_alphabet_, origin_classes_;
  TrainingSetup s_;
};

}  // namespace

void require_same_settings(const Ranks& ranks, const Config& config, const std::string& version) {
  const std::string first_version = ranks.broadcast(version);
  const std::string first_settings = ranks.broadcast(to_toml(config));
  ranks.together([&] {
    if (version != first_version) {
      fail_input("is version ", version, " of the program, rank 0 version ", first_version);
    }
    const Config first = parse_config(first_settings, "the settings of rank 0");
    Config mine = config;
    const auto may_differ = [](std::string& own, const std::string& other) {
      if (own.empty() == other.empty()) own = other;
    };
    may_differ(mine.data.train, first.data.train);
    may_differ(mine.data.dev, first.data.dev);
    may_differ(mine.data.test, first.data.test);
    may_differ(mine.training.init_from, first.training.init_from);
    mine.data.prefetch_threads = first.data.prefetch_threads;
    mine.data.prefetch_batches = first.data.prefetch_batches;
    mine.training.threads = first.training.threads;
    mine.training.checkpoint_dir = first.training.checkpoint_dir;
    mine.training.log = first.training.log;
    mine.training.tensorboard = first.training.tensorboard;
    const std::vector<std::string> differences = config_differences(first, mine);
    if (differences.empty()) return;
    fail_input("its settings are not those of rank 0: ", differences.front(),
               differences.size() > 1 ? str(" (and ", differences.size() - 1, " more)") : "");
  });
}

TrainingSetup set_up_training(const Ranks& ranks, const Config& config,
                              const TrainerOptions& options, TrainingReport& report,
                              std::optional<Manifest> training) {
  return Setup(ranks, config, options, &report, std::move(training)).run();
}

void open_data_early(const Config& config, const TrainerOptions& options) {
  const Ranks alone;
  Setup(alone, config, options, nullptr).open_early();
}

}  // namespace rondo
