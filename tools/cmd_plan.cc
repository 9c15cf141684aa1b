// rondo plan: which way to spread a model over devices is the fastest.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <random>

#include "engine/config/config.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/plan/measure.h"
#include "engine/plan/measure_links.h"
#include "engine/plan/split.h"
#include "engine/rank_grid.h"
#include "engine/report/progress.h"
#include "engine/report/timeline.h"
#include "engine/train/model/build_model.h"
#include "engine/train/training_strategy.h"
#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/config_words.h"
#include "tools/plan/plan_data.h"

namespace rondo {
namespace {

struct PlanOptions {
  std::vector<std::string> words;  // the configuration file and key=value overrides
  int devices = 8, per_node = 8, features = 0, outputs = 0, threads = 1, ranks = 1, rows = 12;
  std::string device = "h200", link, node_link = "infiniband", lengths, measure;
  std::string write, timeline;
  double labels_per_second = 0;
  bool as_configured = false;
};

constexpr double gigabyte = 1e9;
constexpr uint64_t most_bytes_of_a_file = 16 << 20;  // of devices and links

// Is there, or looks like a path.
bool names_a_file(const std::string& text) {
  return text.find_first_of("/.") != std::string::npos || std::filesystem::exists(text);
}

// A preset, or what a file says.
plan::LinkModel link_of(const std::string& text) {
  if (!names_a_file(text)) return plan::link_preset(text);
  return plan::parse_link(read_text_file(text, most_bytes_of_a_file), text);
}

plan::Cluster cluster_of(const PlanOptions& o) {
  plan::Cluster c;
  c.devices = o.devices;
  c.per_node = o.per_node;
  if (names_a_file(o.device)) {
    const plan::MachineFile machine =
        plan::parse_machine(read_text_file(o.device, most_bytes_of_a_file), o.device);
    c.device = machine.device;
    c.link = machine.link;
  } else {
    c.device = plan::device_preset(o.device);
    c.link = plan::link_preset("nvlink");
  }
  if (!o.link.empty()) c.link = link_of(o.link);
  c.node_link = link_of(o.node_link);
  return c;
}

// What the options say, then what the data say, then what is usual.
PlanData data_of(const PlanOptions& o, const Config& config) {
  PlanData d;
  if (!config.data.train.empty()) {
    d = look_at_data(config);
  } else {
    d.seconds = {10};
    d.labels_per_second = 12;
    d.outputs = config.model.outputs > 0 ? config.model.outputs : 32;
    const FeaturesConfig& f = config.features;
    if (f.type == FeatureType::ready && o.features == 0) {
      fail_input("features.type=ready without data.train: give --features, the number of columns");
    }
    d.features = f.type == FeatureType::mfcc    ? f.coefficients
                 : f.type == FeatureType::image ? f.height
                                                : f.bins;
  }
  if (!o.lengths.empty()) d.seconds = parse_lengths(o.lengths);
  if (o.labels_per_second > 0) d.labels_per_second = o.labels_per_second;
  if (o.features > 0) d.features = o.features;
  if (o.outputs > 0) d.outputs = o.outputs;
  return d;
}

plan::Job job_of(const PlanOptions& o, const Config& config) {
  const PlanData data = data_of(o, config);
  plan::Job job;
  job.model =
      build_model(config.model, config.task, {data.features, data.outputs}, config.training);
  job.compute = config.training.dtype;
  job.optimizer = config.optimizer;
  job.wire = config.parallel.wire;
  job.batches = sampled_batches(config, data);
  job.input_seconds_per_frame = data.input_seconds_per_frame;
  job.input_threads = config.data.prefetch_threads;
  return job;
}

void print_row(int place, const plan::Prediction& p) {
  const plan::Split& s = p.split;
  std::string how = str(s.micro_batches);
  if (s.staged()) how += str(" ", name_of(s.schedule));
  std::string notes = p.fits ? "" : "  does not fit";
  if (s.batches > 1) notes += str("  in each of ", s.batches, " batches");
  if (s.divide_optimizer) notes += "  optimizer divided";
  const double size = p.memory_bytes / gigabyte;
  std::printf("%3d  %4d x %2d x %2d  %-16s %9.2f %11.0f %8.*f %6.1f %7s%s\n", place, s.data,
              s.pipeline, s.sequence, how.c_str(), 1e3 * p.seconds, p.frames_per_second / 1e3,
              size < 1 ? 3 : 2, size, 100 * p.bubble,
              p.communication > 0 ? str(std::lround(100 * p.hidden()), " %").c_str() : "-",
              notes.c_str());
}

void print_heading(const plan::Cluster& c, const plan::Planner& planner, const Config& config,
                   const plan::Job& job) {
  const int64_t weights = planner.weights();
  const std::string size =
      weights < 1000000 ? str(weights)
                        : str(std::round(static_cast<double>(weights) / 1e5) / 10, " million");
  std::printf("%s weights, %d layers, batches of %lld frames, %s; %d x %s, %s%s%s\n", size.c_str(),
              planner.layers(),
              static_cast<long long>(config.data.batch_frames) * config.training.accumulation,
              name_of(config.training.dtype), c.devices, c.device.name.c_str(), c.link.name.c_str(),
              c.devices > c.per_node ? " within nodes, between them " : "",
              c.devices > c.per_node ? c.node_link.name.c_str() : "");
  const int cores = c.device.cores, threads = std::min(c.devices, c.per_node) * c.device.threads;
  if (cores > 0 && job.input_seconds_per_frame > 0) {
    std::printf("Preparing 1000 frames takes %.2f ms of a core, measured now.\n",
                1e6 * job.input_seconds_per_frame);
  }
  if (cores > 0 && threads > cores) {
    std::printf("%d threads on the %d cores of a machine take turns.\n", threads, cores);
  }
  if (config.parallel.sync != Sync::step) {
    std::printf("Predicted as if parallel.sync=step: that mode is not modelled.\n");
  }
  const bool links = c.link.measured && (c.devices <= c.per_node || c.node_link.measured);
  std::printf(
      "All figures are predicted, from %s.\n\n",
      !c.device.measured ? "the rates of a data sheet; nothing of it was measured"
      : links || c.devices == 1
          ? "rates measured on the machine the file names"
          : "rates measured on the machine the file names; those of links are a data sheet's");
}

void print_ranking(const std::vector<plan::Prediction>& ranking, int rows) {
  std::printf(
      "     data x pipe x seq  micro-batches    step (ms)  kframes/s  GB each  idle%%  hidden\n");
  for (size_t i = 0; i < ranking.size() && static_cast<int>(i) < rows; ++i) {
    print_row(static_cast<int>(i) + 1, ranking[i]);
  }
  if (static_cast<int>(ranking.size()) > rows) {
    std::printf("     … %zu more (--rows)\n", ranking.size() - static_cast<size_t>(rows));
  }
}

// Every size with every other would take too long: sizes are drawn, with the arithmetic of a step
// bounded, always the same ones. Models are those of the default configuration, in other sizes.
std::vector<plan::MeasuredModel> models_to_measure() {
  const int hidden[] = {32, 64, 96, 128, 192, 256, 384, 512}, classes[] = {12, 32, 80, 400};
  const int frames[] = {20, 40, 80, 160, 320, 640}, sequences[] = {1, 2, 4, 8, 16, 32, 64};
  std::mt19937 random(20);
  const auto draw = [&random](const auto& values) { return values[random() % std::size(values)]; };
  std::vector<plan::MeasuredModel> models;
  while (models.size() < 64) {
    ModelConfig c;
    c.hidden = draw(hidden);
    c.layers = 1 + static_cast<int>(random() % 3);
    c.bidirectional = random() % 2 == 1;
    c.dropout = c.layers > 1 ? 0.1 : 0;
    plan::MeasuredModel m;
    m.features = 40;
    m.classes = draw(classes);
    m.subsample = c.subsample = 1 + static_cast<int>(random() % 3);
    m.frames = draw(frames);
    m.sequences = draw(sequences);
    const double directions = c.bidirectional ? 2 : 1;
    const double operations = 6.0 * m.frames * m.sequences * c.layers * directions * 4 * c.hidden *
                              c.hidden * (1 + directions);
    if (operations > 6e10) continue;
    m.model = build_model(c, Task::ctc, {m.features, m.classes});
    models.push_back(m);
  }
  return models;
}

int measure(const PlanOptions& o) {
  plan::MeasureOptions options;
  options.models = models_to_measure();
  options.threads = o.threads;
  options.ranks = o.ranks;
  if (cpu_features().avx512_bf16) options.dtypes.push_back(DType::bf16);
  const bool watched = isatty(STDERR_FILENO) != 0;
  options.progress = [watched](int shape, int shapes) {
    if (watched) std::fprintf(stderr, "\rmeasuring %d of %d", shape + 1, shapes);
  };
  const auto samples = plan::measure_nodes(options);
  if (watched) std::fprintf(stderr, "\n");
  // Half of the shapes make the rates, the other half tells how good they are.
  std::vector<plan::Sample> fitted, held_out;
  for (const plan::Sample& s : samples) (s.shape % 2 ? held_out : fitted).push_back(s);
  plan::MachineFile machine;
  machine.device.name = str("cpu (", o.threads, o.threads == 1 ? " thread" : " threads",
                            o.ranks > 1 ? str(", measured with ", o.ranks, " at work") : "", ")");
  machine.device.measured = true;
  machine.device.memory_bytes = plan::machine_memory_bytes();
  machine.device.cores = usable_cpus();
  machine.device.threads = o.threads;
  machine.device.rates = plan::fit_all_rates(fitted);
  machine.link = plan::measure_thread_link();
  std::printf("steps that the rates were not made from are wrong by %.1f %% in the median of %zu\n",
              100 * plan::step_error(machine.device, held_out),
              options.models.size() * options.dtypes.size() / 2);
  std::printf("link between threads: %.1f us, %.2f GB/s; a step of a ring: %.1f us, %.2f GB/s\n",
              1e6 * machine.link.latency, machine.link.bandwidth / gigabyte,
              1e6 * machine.link.ring_latency, machine.link.ring_bandwidth / gigabyte);
  machine.device.rates = plan::fit_all_rates(samples);
  replace_text_file(o.measure, to_json(machine));
  std::printf("%s: rates from all shapes\n", o.measure.c_str());
  return 0;
}

// The configuration that runs a split, whatever it said of parallelism before.
Config with_split(Config config, const plan::Split& s) {
  ParallelConfig& p = config.parallel;
  p.data = s.pipeline > 1 ? s.data : 0;  // 0: as many as there are ranks for
  p.pipeline = s.pipeline;
  p.sequence = s.sequence;
  p.schedule = s.schedule;
  const bool alone = s.pipeline == 1 && s.sequence == 1;
  p.micro_batches = alone ? 0 : s.micro_batches;
  p.placement.clear();
  p.divide_optimizer = s.divide_optimizer;
  // Without stages and shards, micro-batches are batches whose gradients add up.
  const int batches = alone ? s.micro_batches : s.batches;
  config.data.batch_frames = config.data.batch_frames * config.training.accumulation / batches;
  config.training.accumulation = batches;
  return config;
}

// The split that a configuration asks for.
plan::Split split_of(const Config& config, int devices) {
  const ParallelConfig& p = config.parallel;
  const WorldSplit world = split_world(devices, p.pipeline, p.data, p.sequence);
  plan::Split s{world.data, world.pipeline, world.sequence};
  s.divide_optimizer = p.divide_optimizer && s.owners() > 1;
  if (p.pipeline == 1 && p.sequence == 1) {
    s.micro_batches = config.training.accumulation;
    return s;
  }
  s.batches = config.training.accumulation;
  s.micro_batches = std::max(1, p.micro_batches);
  if (!s.staged()) return s;
  s.schedule = p.schedule;
  s.micro_batches = split_settings(config).micro_batches;
  return s;
}

std::vector<plan::Prediction> predictions(const PlanOptions& o, const Config& config,
                                          const plan::Planner& planner) {
  if (o.as_configured) {
    const plan::Split s = split_of(config, o.devices);
    const std::string why = planner.objection(s);
    if (!why.empty()) fail_input(describe(s), ": ", why);
    return {planner.predict(s)};
  }
  auto ranking = planner.rank();
  if (ranking.empty()) {
    fail_input("no split of ", o.devices,
               " devices is possible: ", planner.objection({o.devices, 1, 1, 1}));
  }
  return ranking;
}

// Numbers of devices to compare so many with, the largest first: all of a few, else halves.
std::vector<int> fewer_than(int devices) {
  constexpr int few = 4;
  std::vector<int> numbers;
  for (int n = devices; n > 1;) numbers.push_back(n = n <= few ? n - 1 : n / 2);
  return numbers;
}

// Says which fewer devices finish an update of the same batches sooner, where any do.
void tell_if_fewer_are_faster(const plan::Job& job, plan::Cluster cluster,
                              const plan::Prediction& best) {
  if (!best.fits) return;
  constexpr double clearly = 0.98;
  const int asked = cluster.devices;
  int fastest = asked;
  double least = clearly * best.seconds;
  for (const int devices : fewer_than(asked)) {
    cluster.devices = devices;
    const auto ranking = plan::Planner(job, cluster).rank();
    if (ranking.empty() || !ranking.front().fits || ranking.front().seconds >= least) continue;
    fastest = devices;
    least = ranking.front().seconds;
  }
  if (fastest == asked) return;
  std::printf("\nfewer are faster: an update takes %s %.2f ms, %.2f of what it takes %d\n",
              counted(fastest, "device").c_str(), 1e3 * least, least / best.seconds, asked);
}

// What trains it.
std::string command_of(const PlanOptions& o, const plan::Cluster& cluster) {
  const std::string train =
      str("train ", o.write, cluster.device.kind == DeviceKind::cuda ? " --device cuda" : "");
  if (o.devices == 1) return "rondo " + train;
  const int ranks = std::min(o.devices, o.per_node), nodes = (o.devices + ranks - 1) / ranks;
  return str("rondo launch -n ", ranks,
             nodes > 1 ? str(" --nodes ", nodes, " --node-rank … --master …") : "", " -- ", train);
}

void write_best(const PlanOptions& o, const Config& config, const plan::Cluster& cluster,
                const std::vector<plan::Prediction>& ranking) {
  const plan::Prediction& best = ranking.front();
  if (!best.fits) fail_input("no split that fits can be written as a configuration");
  replace_text_file(o.write, to_toml(with_split(config, best.split)));
  std::printf("\n%s: %s\n  %s\n", o.write.c_str(), describe(best.split).c_str(),
              command_of(o, cluster).c_str());
}

// The ranks of one replica: the others do the same.
void draw_timeline(const PlanOptions& o, const plan::Planner& planner, const plan::Prediction& p) {
  const plan::Split& s = p.split;
  const PipelineTimeline timeline = planner.timeline(s);
  std::string title = "predicted: " + describe(s);
  if (s.data > 1) title += str("; one of ", s.data, " replicas");
  if (!p.fits) title += "; does not fit";
  const bool shards = s.sequence > 1 && !s.staged();  // whose neighbours are shards
  replace_text_file(o.timeline, shards ? timeline_svg(timeline, s.sequence, title)
                                       : timeline_svg(timeline, s.pipeline, title, s.sequence));
  std::printf("\n%s: drawn, %s, until the gradients are summed: %.2f ms\n", o.timeline.c_str(),
              describe(s).c_str(), 1e3 * timeline.duration());
}

// What is read must not be lost.
void require_apart(const PlanOptions& o, const Config& config) {
  const OutputFile write(o.write, "--write"), timeline(o.timeline, "--timeline");
  timeline.require_not(write);
  for (const OutputFile& output : {write, timeline}) {
    output.require_not(config_file_of(o.words), "the configuration");
    output.require_not(config.data.train, "the manifest of data.train");
    for (const std::string& file : {o.device, o.link, o.node_link}) {
      output.require_not(file, "a file of the plan's figures");
    }
  }
}

int plan_command(const PlanOptions& o) {
  for (const std::string& path : {o.measure, o.write, o.timeline}) require_folder_of(path);
  if (!o.measure.empty()) return measure(o);
  const Config config = config_from_words(o.words);
  require_apart(o, config);
  const plan::Cluster cluster = cluster_of(o);
  const plan::Job job = job_of(o, config);
  const plan::Planner planner(job, cluster);
  const auto ranking = predictions(o, config, planner);
  print_heading(cluster, planner, config, job);
  print_ranking(ranking, o.rows);
  tell_if_fewer_are_faster(job, cluster, ranking.front());
  if (!o.write.empty()) write_best(o, config, cluster, ranking);
  if (!o.timeline.empty()) draw_timeline(o, planner, ranking.front());
  return 0;
}

// The machine that is planned for.
void add_device_options(Command& command, PlanOptions& o) {
  command.add_option("--devices", o.devices, "how many").range(1, 65536).show_default();
  command.add_option("--device", o.device, "h200, or a file that --measure has written")
      .show_default();
  command.add_option(
      "--link", o.link,
      "within a node: pcie, nvlink, infiniband, infiniband8, or a file of 'rondo bench links' "
      "(default: nvlink, or that of --device's file)");
  command.add_option("--node-link", o.node_link, "between nodes: the same").show_default();
  command.add_option("--per-node", o.per_node, "devices in a node").range(1, 65536).show_default();
}

// What is trained on, where the data are not there to say.
void add_data_options(Command& command, PlanOptions& o) {
  command.add_option("--lengths", o.lengths,
                     "SECONDS:SHARE,... of utterances (default: those of data.train, or 10 s)");
  command
      .add_option("--labels-per-second", o.labels_per_second,
                  "of speech (default: as in data.train, or 12)")
      .range(0.01, 1000.0);
  command.add_option("--features", o.features, "columns of ready features").range(1, 100000);
  command
      .add_option("--outputs", o.outputs,
                  "classes, with the blank (default: those of data.train, or 32)")
      .range(2, 1000000);
}

// What is shown, drawn and written.
void add_output_options(Command& command, PlanOptions& o) {
  command.add_option("--rows", o.rows, "lines of the ranking").range(1, 100000).show_default();
  command.add_flag("--as-configured", o.as_configured,
                   "only the split that the configuration's [parallel] asks for");
  command
      .add_option("--timeline", o.timeline,
                  "draw one predicted update of the best split as SVG to FILE: one replica's "
                  "ranks, until its gradients are summed")
      .value_text("FILE");
  command.add_option("--write", o.write, "write the configuration with the best split to FILE")
      .value_text("FILE");
}

void add_measure_options(Command& command, PlanOptions& o) {
  command
      .add_option("--measure", o.measure, "measure this machine's CPU and write FILE, plan nothing")
      .value_text("FILE");
  command.add_option("--ranks", o.ranks, "with --measure: so many compute at once")
      .range(1, 1024)
      .show_default();
  command.add_option("--threads", o.threads, "with --measure: of each rank")
      .range(1, 1024)
      .show_default();
}

}  // namespace

void add_plan(Command& program) {
  Command& command = program.add_command(
      "plan", "Predict speed and memory of data x pipeline x sequence parallelism");
  auto o = std::make_shared<PlanOptions>();
  command.add_option("config", o->words, "configuration file and key=value settings, as for train")
      .value_text("CONFIG KEY=VALUE ...");
  add_device_options(command, *o);
  add_data_options(command, *o);
  add_output_options(command, *o);
  add_measure_options(command, *o);
  command.footer(
      "\nExample:  rondo plan model.hidden=1024 model.layers=5 training.dtype=bf16 "
      "data.batch_frames=256000\n");
  command.action([o] { return plan_command(*o); });
}

}  // namespace rondo
