// rondo plan: which way to spread a model over devices is the fastest.
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "engine/config/config.h"
#include "engine/data/manifest.h"
#include "engine/io/file.h"
#include "engine/plan/fit.h"
#include "engine/plan/lengths.h"
#include "engine/plan/measure.h"
#include "engine/plan/split.h"
#include "engine/report/charts.h"
#include "engine/train/build_model.h"
#include "kernels/base/cpu.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/config_words.h"

namespace rondo {
namespace {

struct PlanOptions {
  std::vector<std::string> words;  // the configuration file and key=value overrides
  int devices = 8, per_node = 8, features = 0, outputs = 0, threads = 1, ranks = 1, rows = 12;
  std::string device = "h200", link, node_link = "infiniband", lengths, measure, picture, write;
  double labels_per_second = 12;
  bool scaling = false;
};

constexpr double gigabyte = 1e9;

plan::Cluster cluster_of(const PlanOptions& o) {
  plan::Cluster c;
  c.devices = o.devices;
  c.per_node = o.per_node;
  const bool is_file = std::filesystem::exists(o.device);
  if (is_file) {
    const plan::MachineFile machine = plan::parse_machine(read_text_file(o.device), o.device);
    c.device = machine.device;
    c.link = machine.link;
  } else {
    c.device = plan::device_preset(o.device);
  }
  if (!o.link.empty() || !is_file) c.link = plan::link_preset(o.link.empty() ? "nvlink" : o.link);
  c.node_link = plan::link_preset(o.node_link);
  return c;
}

std::vector<plan::LengthShare> lengths_of(const PlanOptions& o, const Config& config) {
  if (!o.lengths.empty()) return plan::parse_lengths(o.lengths);
  if (config.data.train.empty()) return {{10, 1}};
  std::vector<double> seconds;
  const Manifest manifest = read_manifest(config.data.train);
  for (const ManifestEntry& e : manifest.entries) {
    if (!e.duration) {
      fail_input(manifest.where(e), ": no duration, so lengths are not known: give --lengths");
    }
    seconds.push_back(*e.duration);
  }
  return plan::histogram_of(std::move(seconds));
}

ModelSizes sizes_of(const PlanOptions& o, const Config& config) {
  ModelSizes sizes;
  sizes.features = o.features;
  if (sizes.features == 0) {
    if (config.features.type == FeatureType::ready) {
      fail_input("features.type=ready: give --features, the number of columns");
    }
    sizes.features = config.features.type == FeatureType::mfcc ? config.features.coefficients
                                                               : config.features.bins;
  }
  sizes.outputs = o.outputs;
  return sizes;
}

plan::Job job_of(const PlanOptions& o, const Config& config) {
  plan::Job job;
  job.model = build_model(config.model, config.task, sizes_of(o, config));
  job.compute = config.training.dtype;
  job.optimizer = optimizer_options(config);
  job.batches = plan::batches_of(lengths_of(o, config), config.features.hop_ms / 1000,
                                 config.data.batch_frames, o.labels_per_second);
  return job;
}

void print_row(int place, const plan::Prediction& p) {
  const plan::Split& s = p.split;
  std::string how = str(s.micro_batches);
  if (s.pipeline > 1 && s.sequence == 1) how += str(" ", name_of(s.schedule));
  std::printf("%3d  %4d x %2d x %2d  %-16s %9.2f %11.0f %8.2f %6.1f %7s  %s\n", place, s.data,
              s.pipeline, s.sequence, how.c_str(), 1e3 * p.seconds, p.frames_per_second / 1e3,
              p.memory_bytes / gigabyte, 100 * p.bubble,
              p.communication > 0 ? str(std::lround(100 * p.hidden), " %").c_str() : "-",
              p.fits ? "" : "does not fit");
}

void print_heading(const plan::Cluster& c, const plan::Planner& planner, const Config& config) {
  std::printf("%.1f million weights, %d layers, batches of %d frames, %s; %d x %s, %s%s%s\n",
              static_cast<double>(planner.weights()) / 1e6, planner.layers(),
              config.data.batch_frames, name_of(config.training.dtype), c.devices,
              c.device.name.c_str(), c.link.name.c_str(),
              c.devices > c.per_node ? " within nodes, between them " : "",
              c.devices > c.per_node ? c.node_link.name.c_str() : "");
  std::printf("All figures are predicted%s.\n\n",
              c.device.measured ? ", from nodes measured on the machine the file names"
                                : ", from data sheets and published measurements; nothing of it "
                                  "was measured");
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

// Weak: the batch grows with the devices. Strong: it is that of all devices, whoever shares it.
Series scale(const PlanOptions& o, const plan::Job& job, plan::Cluster cluster, bool weak) {
  const int most = 1024, all = std::max(most, o.devices);
  std::printf("\n%s scaling, predicted\n", weak ? "Weak" : "Strong");
  std::printf("devices  best split%46s  kframes/s  efficiency\n", "");
  Series series{weak ? "weak, predicted" : "strong, predicted", {}, {}};
  double one = 0;
  for (cluster.devices = 1; cluster.devices <= all; cluster.devices *= 2) {
    plan::Job scaled = job;
    for (auto& b : scaled.batches) b.shape.sequences *= weak ? cluster.devices : o.devices;
    const auto ranking = plan::Planner(scaled, cluster).rank();
    if (ranking.empty() || !ranking[0].fits) {
      std::printf("%7d  none fits\n", cluster.devices);
      continue;
    }
    const plan::Prediction& p = ranking[0];
    const double each = p.frames_per_second / cluster.devices;
    if (one == 0) one = each;
    series.x.push_back(cluster.devices);
    series.y.push_back(each / one);
    std::printf("%7d  %-56s %9.0f  %8.0f %%\n", cluster.devices, describe(p.split).c_str(),
                p.frames_per_second / 1e3, 100 * each / one);
  }
  return series;
}

void write_text(const std::string& path, const std::string& text) {
  FileWriter file(path);
  file.write(text);
  file.close();
}

void print_scaling(const PlanOptions& o, const Config& config, const plan::Cluster& cluster) {
  const plan::Job job = job_of(o, config);
  ScalingChart chart;
  chart.title = str("Scaling of ", config.model.layers, " layers of ", config.model.hidden, " on ",
                    cluster.device.name);
  chart.note = cluster.device.measured ? "predicted from constants that were measured"
                                       : "predicted from data sheets; nothing was measured";
  for (const bool weak : {true, false}) chart.efficiency.push_back(scale(o, job, cluster, weak));
  if (!o.picture.empty()) write_text(o.picture, scaling_svg(chart));
}

int measure(const PlanOptions& o) {
  plan::MeasureOptions options;
  options.threads = o.threads;
  options.ranks = o.ranks;
  if (cpu_features().avx512_bf16) options.dtypes.push_back(DType::bf16);
  options.progress = [](int shape, int shapes) {
    std::fprintf(stderr, "\rmeasuring %d of %d", shape + 1, shapes);
  };
  const auto samples = plan::measure_nodes(options);
  std::fprintf(stderr, "\n");
  // Half of the shapes make the constants, the other half tells how good they are.
  std::vector<plan::Sample> fitted, held_out;
  for (const plan::Sample& s : samples) (s.shape % 2 ? held_out : fitted).push_back(s);
  plan::MachineFile machine;
  machine.device.name = str("cpu, ", o.threads, o.threads == 1 ? " thread" : " threads",
                            " per rank, ", o.ranks, o.ranks == 1 ? " rank" : " ranks");
  machine.device.measured = true;
  machine.device.memory_bytes = plan::machine_memory_bytes();
  machine.device.costs = plan::fit_costs(fitted);
  machine.link = plan::measure_thread_link();
  std::printf("errors on shapes that the constants were not made from:\n");
  for (const auto& [key, e] : plan::fit_errors(machine.device, held_out)) {
    std::printf("  %-24s %5zu samples  median %5.1f %%  largest %6.1f %%\n", key.c_str(), e.samples,
                100 * e.median, 100 * e.largest);
  }
  std::printf("link between threads: %.1f us, %.2f GB/s\n", 1e6 * machine.link.latency,
              machine.link.bandwidth / gigabyte);
  machine.device.costs = plan::fit_costs(samples);
  write_text(o.measure, to_json(machine));
  std::printf("%s: constants from all shapes\n", o.measure.c_str());
  return 0;
}

// The configuration that runs a split, whatever it said of parallelism before.
Config with_split(Config config, const plan::Split& s) {
  ParallelConfig& p = config.parallel;
  p.data = s.pipeline > 1 ? s.data : 0;  // 0: as many as there are ranks for
  p.pipeline = s.pipeline;
  p.sequence = s.sequence;
  p.schedule = s.schedule;
  p.chunks = s.chunks;
  p.micro_batches = s.pipeline > 1 ? s.micro_batches : 0;
  if (s.pipeline == 1 && s.micro_batches > 1) {
    // Without a pipeline, micro-batches are batches whose gradients add up.
    config.data.batch_frames /= s.micro_batches;
    config.training.accumulation *= s.micro_batches;
  }
  return config;
}

void write_best(const PlanOptions& o, const Config& config,
                const std::vector<plan::Prediction>& ranking) {
  for (const plan::Prediction& p : ranking) {
    if (!p.fits) break;
    if (p.split.sequence > 1 && p.split.pipeline > 1) continue;  // rondo train cannot do both
    write_text(o.write, to_toml(with_split(config, p.split)));
    std::printf("\n%s: %s\n", o.write.c_str(), describe(p.split).c_str());
    return;
  }
  fail_input("no split that fits can be written as a configuration");
}

int plan_command(const PlanOptions& o) {
  if (!o.measure.empty()) return measure(o);
  const Config config = config_from_words(o.words);
  const plan::Cluster cluster = cluster_of(o);
  const plan::Planner planner(job_of(o, config), cluster);
  print_heading(cluster, planner, config);
  const auto ranking = planner.rank();
  if (ranking.empty()) {
    fail_input("no split of ", o.devices,
               " devices is possible: ", planner.objection({o.devices, 1, 1, 1}));
  }
  print_ranking(ranking, o.rows);
  if (!o.write.empty()) write_best(o, config, ranking);
  if (o.scaling || !o.picture.empty()) print_scaling(o, config, cluster);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Command* run) {
  auto* command = app.add_subcommand(
      "plan", "Predict speed and memory of data x pipeline x sequence parallelism");
  auto o = std::make_shared<PlanOptions>();
  command->add_option("config", o->words, "configuration file and key=value settings, as for train")
      ->option_text("CONFIG KEY=VALUE ...");
  command->add_option("--devices", o->devices, "how many")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--device", o->device, "h200, or a file of --measure")->capture_default_str();
  command->add_option("--link", o->link,
                      "pcie, nvlink or infiniband, within a node (default: nvlink, or the file's)");
  command->add_option("--node-link", o->node_link, "between nodes")->capture_default_str();
  command->add_option("--per-node", o->per_node, "devices in a node")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--lengths", o->lengths,
                      "SECONDS:SHARE,... of utterances (default: those of data.train, or 10 s)");
  command->add_option("--labels-per-second", o->labels_per_second, "of speech")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  command->add_option("--features", o->features, "columns of ready features")
      ->check(CLI::Range(1, 100000));
  o->outputs = 32;
  command->add_option("--outputs", o->outputs, "classes, with the blank")
      ->check(CLI::Range(2, 1000000))
      ->capture_default_str();
  command->add_option("--rows", o->rows, "lines of the ranking")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--scaling", o->scaling, "also weak and strong scaling up to 1024 devices");
  command->add_option("--picture", o->picture, "the same, also drawn as SVG to FILE")
      ->option_text("FILE");
  command->add_option("--write", o->write, "write the configuration with the best split to FILE")
      ->option_text("FILE");
  command
      ->add_option("--measure", o->measure,
                   "measure this machine's CPU and write FILE, plan nothing")
      ->option_text("FILE");
  command->add_option("--ranks", o->ranks, "with --measure: so many compute at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--threads", o->threads, "with --measure: of each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->footer(
      "\nExample:  rondo plan model.hidden=1024 model.layers=5 training.dtype=bf16 "
      "data.batch_frames=256000\n");
  command->callback([o, run] { *run = [o] { return plan_command(*o); }; });
}

}  // namespace rondo
