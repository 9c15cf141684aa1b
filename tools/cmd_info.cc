// rondo info: the program, the machine, the kernels, a model.
#include <rondo/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "engine/io/json.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/model/model_json.h"
#include "engine/train/training_report.h"
#include "engine/trial/trial.h"
#include "kernels/base/cpu.h"
#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/conditions.h"
#include "kernels/devices.h"
#include "kernels/gemm/gemm.h"
#include "tools/build_id.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"

namespace rondo {
namespace {

struct InfoOptions {
  std::string model;
  bool kernels = false, json = false, device = false, try_again = false;
  int seconds = 10, batch = 16, labels = 50;
};

constexpr double mebibyte = 1024.0 * 1024.0;

void print_machine() {
  const CpuFeatures& f = cpu_features();
  std::printf("rondo %s (sources %s)\n", RONDO_VERSION, build_id);
  std::printf("cpu: %d usable, %s\n", usable_cpus(),
              f.amx           ? "AMX with bf16"
              : f.avx512_bf16 ? "AVX-512 with bf16"
              : f.avx512      ? "AVX-512"
              : f.avx2        ? "AVX2"
                              : "generic");
  std::string why;
  const Device* gpu = find_device(DeviceKind::cuda, &why);
  std::printf("cuda: %s\n", gpu ? gpu->describe().c_str() : why.c_str());
  if (built_with_cuda()) std::printf("matrix products: %s\n", gemm_library().c_str());
  if (*built_with) std::printf("built with: %s\n", built_with);
  if (*built_without) std::printf("built without: %s\n", built_without);
}

void print_kernels() {
  const Stream none;
  for (auto variants : all_ops()) {
    std::printf("%s\n", variants.front().op);
    for (const Variant& v : variants) {
      Context context;
      context.backend = v.backend;
      const bool here = v.accepts == nullptr || v.accepts(context, nullptr);
      const bool chosen = &v == default_variant(variants, chooser_of(v.op), context, nullptr);
      const bool tried = v.role == Role::named && call_class_of(v.op) != nullptr;
      const char* chosen_when = !here                       ? "not on this machine"
                                : tried                     ? "where a trial chose it"
                                : v.role == Role::named     ? "by name only"
                                : v.backend == Backend::ref ? "reference"
                                : chosen                    ? "default"
                                                            : "when the default does not fit";
      std::printf("  %-5s %-26s %-29s  %s\n", name_of(v.backend), v.name, chosen_when,
                  std::string(condition_of(v)).c_str());
    }
  }
}

struct Model {
  std::string path;
  ModelDescription description;
  std::unique_ptr<Session> session;
};

// nullopt when none is asked for.
std::optional<Model> load(const InfoOptions& o) {
  if (o.model.empty()) return std::nullopt;
  require_model(o.model);
  std::vector<std::string> warnings;
  const SafetensorsFile file = open_model(o.model, &warnings);
  for (const std::string& w : warnings) warn(w);
  Model m{file.name(), ModelDescription::from_metadata(file.metadata(), file.name()), nullptr};
  const Config& config = m.description.config;
  SessionOptions options = session_options(config, DeviceKind::cpu);
  options.training = false;
  m.session = std::make_unique<Session>(build_model(config.model, config.task, m.description.sizes),
                                        options);
  m.session->load(file);
  return m;
}

void print_model(const InfoOptions& o, const Model& model) {
  const ModelDescription& d = model.description;
  const std::string& path = model.path;
  const Session& session = *model.session;
  std::printf("model: %s\n", path.c_str());
  std::printf("  %lld features -> %lld outputs, one frame of output per %lld of input\n",
              static_cast<long long>(d.sizes.features), static_cast<long long>(d.sizes.outputs),
              static_cast<long long>(session.subsampling()));
  for (const auto& e : session.parameters().entries()) {
    std::string columns;
    for (int64_t size : e.shape()) columns += columns.empty() ? str(size) : str(" x ", size);
    std::printf("  %-32s %-20s %10lld\n", e.name.c_str(), columns.c_str(),
                static_cast<long long>(e.numel()));
  }
  std::printf("  %lld weights, graph of %zu nodes, hash %016llx\n",
              static_cast<long long>(session.parameters().trainable()),
              session.training_graph().nodes.size(),
              static_cast<unsigned long long>(session.training_graph().hash()));
  if (d.int8) std::printf("  weights of 8 bits in the file, and products of them on CPUs\n");
  if (!d.alphabet.empty()) {
    std::printf("  alphabet:");
    // Words have a space behind them.
    for (const std::string& s : d.alphabet)
      std::printf(" %s", s == " " ? "space" : s.substr(0, s.find(' ')).c_str());
    std::printf("\n");
  }
  if (!d.classes.empty()) {
    std::printf("  classes:");
    for (const std::string& name : d.classes) {
      std::printf("%s %s", &name == &d.classes.front() ? "" : ",", name.c_str());
    }
    std::printf("\n");
  }
  if (!d.origin.version.empty()) {
    std::printf("  trained by rondo %s, %s%s\n", d.origin.version.c_str(),
                counted(d.origin.updates, "update").c_str(),
                std::isfinite(d.origin.metric)
                    ? (", dev " + metric_text(d.origin.chosen_by, d.origin.metric)).c_str()
                    : "");
  }
  const double hop = d.config.features.hop_ms / 1000;
  const auto frames = static_cast<int32_t>(o.seconds / hop);
  BatchCapacity c;
  c.packed = {int64_t{frames} * o.batch, frames, o.batch};
  c.max_label_length = o.labels;
  c.labels = int64_t{o.labels} * o.batch;
  const Session::Memory m = session.predict_memory(c);
  const bool is_image = d.config.features.type == FeatureType::image;
  const std::string length = is_image ? str(frames, " columns") : str(o.seconds, " s");
  std::printf("memory of a training step on %d utterances of %s (%d labels each), predicted:\n",
              o.batch, length.c_str(), o.labels);
  std::printf(
      "  weights %.1f + gradients %.1f + optimiser %.1f + activations %.1f + batch %.1f = "
      "%.1f MiB\n",
      static_cast<double>(m.weights) / mebibyte, static_cast<double>(m.gradients) / mebibyte,
      static_cast<double>(m.optimizer) / mebibyte, static_cast<double>(m.activations) / mebibyte,
      static_cast<double>(m.batch) / mebibyte, static_cast<double>(m.total()) / mebibyte);
}

// What trials of kernels found here; with a model those that its training needs are tried first.
void print_trials(const InfoOptions& o, const std::optional<Model>& model) {
  std::string note;
  const DeviceId id = resolve({}, &note);
  if (id.kind == DeviceKind::cpu) {
    std::printf("kernels are tried on GPUs; this is %s\n", note.empty() ? "the CPU" : note.c_str());
    return;
  }
  const std::string device = identity_of(require_device(id.kind, id.index));
  std::vector<TriedCalls> calls;
  if (model) calls = tried_calls(model->session->training_graph(), o.batch);
  if (o.try_again && !model) {
    for (const TrialRow& row : read_trial_cache(device).rows) {
      if (std::find(calls.begin(), calls.end(), row.calls) == calls.end())
        calls.push_back(row.calls);
    }
  }
  TrialSettings settings;
  settings.again = o.try_again;
  settings.tried = [](const TrialRow& row) {
    std::fprintf(stderr, "trying %s %s %s: %s\n", row.calls.op.c_str(),
                 row.calls.call_class.c_str(), row.variant.c_str(), name_of(row.outcome));
  };
  const TrialOutcome outcome = choose_kernels({}, id, calls, settings);
  const TrialTable table = outcome.table.rows.empty() ? read_trial_cache(device) : outcome.table;
  std::printf("device: %s\ntrials: %s\n", device.c_str(),
              table.rows.empty() ? "none so far" : trial_cache(device).c_str());
  std::vector<TriedCalls> seen;
  for (const TrialRow& row : table.rows) {
    if (std::find(seen.begin(), seen.end(), row.calls) != seen.end()) continue;
    seen.push_back(row.calls);
    std::printf("  %s\n", line_of(table, row.calls).c_str());
  }
}

}  // namespace

void add_info(Command& program) {
  Command& command = program.add_command("info", "The program, this machine, the kernels, a model");
  auto o = std::make_shared<InfoOptions>();
  command.add_flag("--kernels", o->kernels, "list every kernel variant and which would run");
  command.add_option("--model", o->model, "describe a checkpoint directory or model file");
  command.add_flag(
      "--device", o->device,
      "what a trial of kernels found on the GPU; with --model it tries what that needs");
  command.add_flag("--try-again", o->try_again, "with --device: repeats the trial");
  command.add_flag("--json", o->json, "with --model: what a program needs to know, as JSON");
  command.add_option("--batch", o->batch, "with --model: utterances of the predicted step")
      .range(1, 100000)
      .show_default();
  command.add_option("--seconds", o->seconds, "with --model: length of each utterance")
      .range(1, 100000)
      .show_default();
  command.add_option("--labels", o->labels, "with --model: labels of each utterance")
      .range(0, 100000)
      .show_default();
  command.footer("\nExample:  rondo info --model run\n");
  command.action([o] {
    if (o->json && o->model.empty()) throw WrongUsage("--json describes a --model");
    if (o->try_again && !o->device) throw WrongUsage("--try-again repeats a trial of --device");
    const std::optional<Model> model = load(*o);
    if (o->json) {
      std::printf("%s\n", model_json(model->path, model->description,
                                     model->session->parameters().trainable(), RONDO_VERSION)
                              .dump(1)
                              .c_str());
      return 0;
    }
    print_machine();
    if (o->device) {
      print_trials(*o, model);
      return 0;
    }
    if (o->kernels) print_kernels();
    if (model) print_model(*o, *model);
    return 0;
  });
}

}  // namespace rondo
