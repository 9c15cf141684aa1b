// rondo train: a configuration in, a model out.
#include <rondo/version.h>
#include <signal.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "comm/in_process/run_ranks.h"
#include "comm/store/memory_store.h"
#include "engine/config/config.h"
#include "engine/config/schema.h"
#include "engine/data/audio/audio.h"
#include "engine/data/image/image.h"
#include "engine/io/checkpoint.h"
#include "engine/io/json.h"
#include "engine/io/output_file.h"
#include "engine/io/signals.h"
#include "engine/parallel/child_process.h"
#include "engine/parallel/launch_environment.h"
#include "engine/reduce/ranks.h"
#include "engine/report/progress.h"
#include "engine/text/text_rules.h"
#include "engine/train/state/kept_run.h"
#include "engine/train/trainer.h"
#include "engine/train/training_report.h"
#include "engine/train/training_setup.h"
#include "engine/train/training_strategy.h"
#include "engine/trial/trial.h"
#include "kernels/base/error.h"
#include "tools/build_id.h"
#include "tools/command.h"
#include "tools/command_line/config_words.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/recipes.h"
#include "tools/ranks/device_ranks.h"
#include "tools/ranks/elastic_member.h"
#include "tools/ranks/rank_world.h"

namespace rondo {
namespace {

struct TrainOptions {
  std::vector<std::string> words;  // the configuration file and key=value overrides
  bool resume = false, resume_or_start = false;
  bool lockstep = false, help_config = false, print_config = false, list = false, json = false;
  std::string show;  // a recipe
  std::string init_from, alphabet, replacements;
  DeviceChoice device;
  int ranks = 1;
  int stages = 0, replicas = 0, shards = 0;  // 0: as configured
  std::string timeline, profile;
};

constexpr int most_ranks = 256;  // as threads: each has some more of its own

StartFrom start_of(const TrainOptions& o) {
  return o.resume            ? StartFrom::checkpoint
         : o.resume_or_start ? StartFrom::checkpoint_if_any
                             : StartFrom::scratch;
}

// As the setting text.replace takes them.
std::string replace_setting(const std::string& file) {
  std::string list;
  for (const TextReplacement& r : read_replacements(file)) {
    list += (list.empty() ? "" : ", ") + schema::quote_toml(r.text());
  }
  return "text.replace=[" + list + "]";
}

Config configuration(const TrainOptions& o) {
  std::vector<std::string> options;
  if (o.stages > 0) options.push_back(str("parallel.pipeline=", o.stages));
  if (o.replicas > 0) options.push_back(str("parallel.data=", o.replicas));
  if (o.shards > 0) options.push_back(str("parallel.sequence=", o.shards));
  if (!o.init_from.empty()) options.push_back("training.init_from=" + o.init_from);
  if (!o.replacements.empty()) options.push_back(replace_setting(o.replacements));
  if (!o.alphabet.empty()) {
    // The union of both is what extending one by the other gives.
    options.push_back("training.init_alphabet=" +
                      (o.alphabet == "union" ? std::string("extend") : o.alphabet));
  }
  return config_from_words(o.words, options, o.resume || o.resume_or_start);
}

CommClock::duration timeout_of(const Config& config) {
  const std::chrono::duration<double> seconds(config.parallel.timeout_seconds);
  return std::chrono::duration_cast<CommClock::duration>(seconds);
}

TrainingSummary train_alone(const Config& config, TrainerOptions options) {
  const SndfileReader audio;
  const ImageFileReader images;
  if (!options.audio) options.audio = &audio;
  if (!options.images) options.images = &images;
  return train(config, options);
}

// --device auto goes on with the CPU where the kernels are not right on the GPU.
TrainingSummary train_alone(const Config& config, TrainerOptions options, bool chose_device) {
  try {
    return train_alone(config, options);
  } catch (const UnfitDevice& e) {
    if (!chose_device) throw;
    warn(e.what());
    options.device = DeviceKind::cpu;
    return train_alone(config, options);
  }
}

// What helps a rank that has lost others.
std::string advice(const Config& config, const CommError& e) {
  const std::string& run = config.training.checkpoint_dir;
  if (stop_requested()) {
    if (list_checkpoints(run).empty()) return "; nothing is saved";
    return "; go on from the last checkpoint with: rondo train --resume " + run;
  }
  if (e.kind() != CommErrorKind::timeout) return {};
  return " (a rank that is only slow gets more time by a larger parallel.timeout_seconds)";
}

// One of several ranks. Those that wait for its sums hear why there are none.
TrainingSummary train_with_others(const Config& config, const TrainerOptions& options) {
  try {
    return train_alone(config, options);
  } catch (const CommError& e) {
    throw CommError(e.kind(), e.peer(), e.what() + advice(config, e));
  } catch (const PeerFailed&) {
    throw;
  } catch (const std::exception& e) {
    if (options.sums) options.sums->abort(e.what());
    throw;
  }
}

// The options of one of several ranks, and what they point to.
struct RankOptions {
  TrainerOptions trainer;
  std::unique_ptr<ProcessGroup> group;
  std::unique_ptr<DeviceGroup> sums;
};

// Of the rank at this place. Waits for the others; `common` are the options of all.
RankOptions options_of_rank(const Config& config, const TrainerOptions& common,
                            const DeviceChoice& choice, const RankPlace& place,
                            Transport& transport, Store& store) {
  RankOptions o{common, nullptr, nullptr};
  TrainerOptions& t = o.trainer;
  GroupOptions g;
  g.timeout = timeout_of(config);
  o.group = make_ring_group(transport, g);
  t.group = o.group.get();
  t.transport = &transport;
  t.device = device_of_rank(choice, common.device, place.local_rank, place.local_size);
  if (spreads_model(config)) {
    t.devices = make_device_groups(t.device, transport, store, "pipeline-" + place.attempt,
                                   g.timeout, nccl_choice(config.parallel));
  } else {
    o.sums = make_device_group(t.device, transport, store, "sums-" + place.attempt, g.timeout,
                               nccl_choice(config.parallel));
  }
  t.sums = o.sums.get();
  if (config.training.threads == 0) t.threads = std::max(1, usable_cpus() / place.local_size);
  return o;
}

// Ranks as threads of this process, each with a device of its own where there are several.
TrainingSummary train_in_threads(const Config& config, const TrainerOptions& options,
                                 const DeviceChoice& choice, int ranks) {
  std::mutex mutex;
  const auto table = make_memory_table();
  std::optional<TrainingSummary> summary;
  const RankOutcome outcome = run_ranks_and_collect(ranks, [&](int rank, Transport& transport) {
    RankPlace place;
    place.rank = place.local_rank = rank;
    place.world_size = place.local_size = ranks;
    const auto store = make_memory_store(table);
    const RankOptions mine = options_of_rank(config, options, choice, place, transport, *store);
    const TrainingSummary s = train_with_others(config, mine.trainer);
    const std::lock_guard lock(mutex);
    if (rank == 0) summary = s;
  });
  rethrow_cause(outcome);
  return *summary;
}

// One rank of several processes.
TrainingSummary train_as_rank(const Config& config, const TrainerOptions& options,
                              const DeviceChoice& choice, const RankPlace& place) {
  const auto world = join_ranks(place, config.parallel.transport, timeout_of(config));
  Transport& transport = world->transport();
  const RankOptions mine =
      options_of_rank(config, options, choice, place, transport, world->store());
  try {
    return train_with_others(config, mine.trainer);
  } catch (...) {
    rethrow_as_rank(place, transport);
  }
}

void require_elastic(const Config& config, DeviceId device) {
  const RankTransport transport = config.parallel.transport;
  if (device.kind != DeviceKind::cpu) {
    fail_input("--elastic is for ranks on CPUs: leave out --device, or give --device cpu");
  }
  if (transport != RankTransport::automatic && transport != RankTransport::tcp) {
    fail_input("--elastic takes parallel.transport = \"auto\" or \"tcp\"");
  }
}

// One of several processes that come and go while the run goes on. `place` says afterwards which
// rank it was in the end.
TrainingSummary train_elastically(const Config& config, const TrainerOptions& options,
                                  const DeviceChoice& choice, RankPlace& place) {
  require_elastic(config, options.device);
  ElasticMember member(place, config.parallel.transport, timeout_of(config));
  const SndfileReader audio;  // the data that are kept open borrow them
  const ImageFileReader images;
  KeptRun kept;
  TrainerOptions common = options;
  common.kept = &kept;
  common.audio = &audio;
  common.images = &images;
  if (place.joins) open_data_early(config, common);
  for (std::string why;;) {
    const auto seat = member.take_seat(kept.progress(), why);
    if (!seat) {
      place.rank = -1;
      return {.stopped_by_signal = true};
    }
    place.rank = seat->rank;
    place.world_size = seat->size;
    common.regroup = [&] { return member.newcomers_wait(*seat); };
    std::unique_ptr<Transport> transport;
    try {
      transport = member.connect(*seat);
      const RankOptions mine =
          options_of_rank(config, common, choice, place, *transport, member.store());
      const TrainingSummary s = train_with_others(config, mine.trainer);
      if (!s.regroups) return s;
      why.clear();
    } catch (const CommError& e) {
      why = e.what();
      if (transport) transport->abort(why);
    } catch (...) {
      if (!transport) throw;
      rethrow_as_rank(place, *transport);
    }
    common.start = StartFrom::checkpoint_if_any;
  }
}

// Of a run that a signal ends before its first update.
std::string stopped_early(const Config& config, bool resumes) {
  const std::string& run = config.training.checkpoint_dir;
  const char* what = "stopped by a signal before the first update; nothing to save";
  if (!resumes || list_checkpoints(run).empty()) return what;
  return str(what, "; go on with: rondo train --resume ", run);
}

// How a run ended, for scripts.
Json summary_json(const Config& config, const TrainingSummary& s) {
  const std::string& run = config.training.checkpoint_dir;
  Json j = Json::object({{"run", run},
                         {"model", run + "/model.safetensors"},
                         {"steps", s.steps},
                         {"epochs", s.epochs},
                         {"seconds", s.seconds},
                         {"stopped", s.stopped_by_signal}});
  if (std::isfinite(s.best_metric)) {
    j["metric"] = name_of(s.chosen_by);
    j["best"] = s.best_metric;
  }
  return j;
}

// Of little data a few epochs are a few updates, after which a model that could learn writes
// nonsense.
std::string advice_on_few_steps(const Config& config, const TrainingSummary& s) {
  constexpr int64_t enough = 1000;
  const bool is_rate = s.chosen_by == Metric::cer || s.chosen_by == Metric::wer;
  const bool ran_out = s.epochs >= config.training.epochs;
  if (!is_rate || !ran_out || !(s.best_metric > 0.5) || s.steps <= 0 || s.steps >= enough)
    return {};
  const int64_t epochs = (s.epochs * enough + s.steps - 1) / s.steps;
  return str(counted(s.steps, "step"), " of training ", s.steps == 1 ? "is" : "are",
             " few: training.epochs=", epochs, " makes ", enough,
             " of them, and so does a smaller data.batch_frames");
}

void tell_text(const Config& config, const TrainingSummary& s) {
  if (s.stopped_by_signal && s.steps == 0) {
    std::printf("%s\n", stopped_early(config, false).c_str());
    return;
  }
  if (s.stopped_by_signal) {
    std::printf("stopped by a signal after step %lld; go on with: rondo train --resume %s\n",
                static_cast<long long>(s.steps), config.training.checkpoint_dir.c_str());
    return;
  }
  std::printf("trained %s, %s in %.0f s; waited for input %.1f%% of the time\n",
              counted(s.steps, "step").c_str(), counted(s.epochs, "epoch").c_str(), s.seconds,
              100 * s.input_wait_share);
  std::printf("best model: %s/model.safetensors", config.training.checkpoint_dir.c_str());
  if (std::isfinite(s.best_metric)) {
    std::printf(" (dev %s)", metric_text(s.chosen_by, s.best_metric).c_str());
  }
  std::printf("\n");
  const std::string advice = advice_on_few_steps(config, s);
  if (!advice.empty()) std::printf("%s\n", advice.c_str());
}

// The exit code.
int tell(const TrainOptions& o, const Config& config, const TrainingSummary& s, bool print) {
  if (print) tell_text(config, s);
  if (print && o.json) std::printf("%s\n", summary_json(config, s).dump_replacing().c_str());
  return s.stopped_by_signal ? 128 + (stop_signal() ? stop_signal() : SIGTERM) : 0;
}

// --data was a number of replicas before it had a name of its own.
std::string wrong_replicas(const std::string& text) {
  if (text.find_first_not_of("+-0123456789") == std::string::npos) return {};
  return str("'", shortened(text), "' is no number of replicas, as --data was called before; ",
             "a corpus is named by data=", shortened(text));
}

void require_one_beginning(const TrainOptions& o) {
  if (o.resume && !o.init_from.empty()) {
    throw WrongUsage(
        "--resume continues with the weights of the run, --init-from would start with those of "
        "another; give one of them, or --resume-or-start for the second unless there is a first");
  }
}

int run_train(const TrainOptions& given) {
  TrainOptions o = given;
  if (o.help_config) {
    std::fputs(config_reference().c_str(), stdout);
    return 0;
  }
  if (o.list || !o.show.empty()) {
    const std::string text = o.list ? list_of_recipes() : std::string(require_recipe(o.show).text);
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  require_one_beginning(o);
  const Config config = configuration(o);
  if (!o.alphabet.empty() && config.training.init_from.empty()) {
    throw WrongUsage(
        "--alphabet says what becomes of the characters, or classes, of --init-from's model");
  }
  if (o.print_config) {
    std::fputs(to_toml(config).c_str(), stdout);
    return 0;
  }
  for (const std::string& path : {o.timeline, o.profile}) require_folder_of(path);
  // Training does not end because nobody reads its messages any more; main() tells of it at the
  // end.
  ::signal(SIGPIPE, SIG_IGN);
  TrainerOptions t;
  t.start = start_of(o);
  t.lockstep = o.lockstep;
  t.timeline = o.timeline;
  t.profile = o.profile;
  t.version = str(RONDO_VERSION, " (sources ", build_id, ")");
  t.out = stdout;
  // Until the first question there is nothing to save, and a signal ends the process.
  t.stop = [] {
    heed_stops();
    return stop_requested();
  };
  t.stop_pending = stop_requested;
  t.trial_helper = ChildProcess::itself;
  t.files_read = {config_file_of(o.words), o.replacements};
  auto place = find_place([](const char* name) { return std::getenv(name); });
  const bool speaks = !place || place->rank == 0;
  say_when_stopped(speaks ? stdout : nullptr, stopped_early(config, t.start != StartFrom::scratch));
  if (!place && o.ranks == 1) {
    const ParallelConfig& p = config.parallel;
    const int64_t ranks = int64_t{std::max(p.data, 1)} * p.pipeline * p.sequence;
    o.ranks = static_cast<int>(std::min<int64_t>(ranks, most_ranks + 1));
  }
  if (o.ranks > most_ranks) {
    fail_input("more than ", most_ranks, " ranks as threads of one process: start them with ",
               "'rondo launch', as processes");
  }
  // Not unasked: lockstep and world_invariant work in host memory, chunks by way of it, and
  // pipelines and ranks on GPUs have not been measured.
  const bool not_on_gpus = place || o.ranks > 1 || o.lockstep || spreads_model(config) ||
                           config.training.tbptt > 0 ||
                           config.parallel.deterministic == Deterministic::world_invariant;
  const bool chooses_device = o.device.named().text == "auto";
  if (not_on_gpus && chooses_device) {
    t.device = DeviceKind::cpu;
    t.note = of_idle_gpus(gpu_count());
  } else {
    t.device = resolve(o.device, &t.note);
  }
  if (place && o.ranks > 1) {
    fail_input("--ranks ", o.ranks, " within one of the ", place->world_size,
               " ranks that a launcher started");
  }
  if (place && place->elastic) {
    const TrainingSummary s = train_elastically(config, t, o.device, *place);
    return tell(o, config, s, place->rank == 0);
  }
  if (place) return tell(o, config, train_as_rank(config, t, o.device, *place), place->rank == 0);
  return tell(o, config,
              o.ranks > 1 ? train_in_threads(config, t, o.device, o.ranks)
                          : train_alone(config, t, chooses_device),
              true);
}

}  // namespace

void add_train(Command& program) {
  Command& command = program.add_command("train", "Train a model");
  auto o = std::make_shared<TrainOptions>();
  command.add_option(
      "config", o->words,
      "a TOML file or a recipe's name, and settings that override it: key=value, or data=DIR for a "
      "prepared corpus");
  command.add_flag("--list", o->list, "name the recipes, and what each is for");
  command.add_option("--show", o->show, "print a recipe, to start a file of your own from")
      .value_text("RECIPE");
  command.add_flag(
      "--resume", o->resume,
      "continue from the newest checkpoint; --resume DIR takes the settings of that run");
  command.add_flag(
      "--resume-or-start", o->resume_or_start,
      "the same, but begin where there is none yet: for jobs that may be started again");
  command.add_option("--init-from", o->init_from, "start with the weights of another model");
  command
      .add_option("--alphabet", o->alphabet,
                  "with --init-from: keep that model's characters; extend them by those of the "
                  "training texts (union: the same); new: those of the training texts alone")
      .one_of({"keep", "extend", "union", "new"});
  command
      .add_option(
          "--replace", o->replacements,
          "a file of lines FROM=TO: what texts write otherwise; text.replace, kept with the "
          "model")
      .check(check_file_name);
  add_device_option(command, &o->device);
  command.add_option("--ranks", o->ranks, "so many ranks, as threads of one process")
      .range(1, most_ranks)
      .show_default();
  command
      .add_option("--stages,--pipeline", o->stages,
                  "so many ranks share the layers of the model (docs/distributed.md)")
      .range(1, 4096);
  command.add_option("--replicas,--data", o->replicas, "so many replicas of the stages")
      .check(wrong_replicas)
      .range(1, 4096);
  command
      .add_option("--shards,--sequence", o->shards,
                  "so many neighbouring ranks share each sequence, a part of its frames each")
      .range(1, 4096);
  command.add_option("--timeline", o->timeline,
                     "draw what every rank did in the last update, as SVG");
  command.add_option("--profile", o->profile,
                     "write what host and device did in a few updates, as a trace for "
                     "ui.perfetto.dev");
  command.add_flag("--lockstep-ref", o->lockstep,
                   "run every kernel beside its reference and stop at the first difference (slow)");
  command.add_flag("--json", o->json, "at the end a line of JSON, for scripts");
  command.add_flag("--help-config", o->help_config, "list all settings with their defaults");
  command.add_flag("--print-config", o->print_config, "print the resolved settings and stop");
  command.footer("\nExample:  rondo train fsdd data=digits training.checkpoint_dir=run\n");
  command.action([o] { return run_train(*o); });
}

}  // namespace rondo
