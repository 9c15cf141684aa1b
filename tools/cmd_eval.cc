// rondo eval: error rates of a model on a manifest.
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "engine/data/audio/audio.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/io/output_file.h"
#include "engine/report/progress.h"
#include "engine/train/recognition/recognizer.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"

namespace rondo {
namespace {

struct EvalOptions {
  std::string model, manifest, group, hypotheses;
  int threads = 0;
  bool json = false;
  DeviceChoice device;
};

// The value of a field of a manifest line, as text; empty when it is not there.
std::string field_of(const ManifestEntry& entry, const std::string& field) {
  if (field == "speaker") return entry.speaker;
  if (entry.extra.empty()) return {};
  const Json extra = Json::parse(entry.extra);
  const Json* value = extra.find(field);
  if (!value) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

bool has_field(const ManifestDataset& data, const std::string& field) {
  for (int64_t i = 0; i < data.size(); ++i) {
    if (!field_of(data.entry(i), field).empty()) return true;
  }
  return false;
}

void require_apart(const EvalOptions& o, const ManifestDataset& data) {
  const OutputFile hypotheses(o.hypotheses, "--hypotheses");
  hypotheses.require_not(o.manifest, "the manifest");
  for (const std::string& file : files_of_model(o.model)) {
    hypotheses.require_not(file, "a file of the model");
  }
  for (int64_t i = 0; i < data.size(); ++i) {
    const ManifestEntry& e = data.entry(i);
    hypotheses.require_not(e.path, e.is_audio ? "the recording" : "the features");
  }
}

// Groups that the demo corpus marks itself have words; the others are named by field and value.
std::string label_of(const EvalOptions& o, const std::string& group, const std::string& value) {
  if (o.group.empty() && value == "true") return "seen voices";
  if (o.group.empty() && value == "false") return "unseen voices";
  return group + " " + value;
}

void print_rates(const std::string& name, const ErrorRate& e) {
  std::printf(
      "%-24s WER %7s  CER %7s  %5lld %s, %s (%lld substituted, %lld inserted, %lld deleted)\n",
      name.c_str(), percent_text(e.wer()).c_str(), percent_text(e.cer()).c_str(),
      static_cast<long long>(e.utterances()), e.utterances() == 1 ? "utterance" : "utterances",
      counted(e.words().reference, "word").c_str(), static_cast<long long>(e.words().substitutions),
      static_cast<long long>(e.words().insertions), static_cast<long long>(e.words().deletions));
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void print_unwritable(const Unwritable& text, const ErrorRate& e) {
  if (!text.any()) return;
  std::printf("%s\n  at least WER %s CER %s come of these alone\n", text.sentence().c_str(),
              percent_text(share(text.words(), e.words().reference)).c_str(),
              percent_text(share(text.characters(), e.characters().reference)).c_str());
}

Json unwritable_json(const Unwritable& text, const ErrorRate& e) {
  Json kinds = Json::array();
  for (const UnknownText& u : text.kinds()) kinds.push_back(Json::array({u.what, u.count}));
  return Json::object({{"utterances", text.utterances()},
                       {"characters", text.characters()},
                       {"words", text.words()},
                       {"wer", share(text.words(), e.words().reference)},
                       {"cer", share(text.characters(), e.characters().reference)},
                       {"kinds", kinds}});
}

void print_text(const EvalOptions& o, const std::string& group, const Evaluation& e, Task task,
                const std::map<std::string, ErrorRate>& groups, const Unwritable& unwritable) {
  switch (task) {
    case Task::ctc:
      std::printf("WER %s CER %s on %s\n", percent_text(e.errors.wer()).c_str(),
                  percent_text(e.errors.cer()).c_str(), counted(e.utterances, "utterance").c_str());
      break;
    case Task::classify:
      std::printf("error %.2f%% on %s\n", 100 * e.metric(task),
                  counted(e.utterances, "utterance").c_str());
      break;
    case Task::regress:
      std::printf("loss %.6g on %s\n", e.loss, counted(e.utterances, "utterance").c_str());
      break;
  }
  if (task == Task::ctc) {
    const EditCounts& w = e.errors.words();
    std::printf("%s: %lld substituted, %lld inserted, %lld deleted\n",
                counted(w.reference, "word").c_str(), static_cast<long long>(w.substitutions),
                static_cast<long long>(w.insertions), static_cast<long long>(w.deletions));
    print_unwritable(unwritable, e.errors);
    for (const auto& [name, rates] : groups) print_rates(label_of(o, group, name), rates);
    std::printf("loss %s per utterance", loss_text(e.loss).c_str());
    if (e.infeasible) {
      std::printf(", without %lld whose text is too long for their frames",
                  static_cast<long long>(e.infeasible));
    }
    std::printf("\n");
  }
  if (e.audio_seconds > 0) {
    std::printf("%.1f s of audio in %.1f s: %.0f times real time (%s)\n", e.audio_seconds,
                e.seconds, e.audio_seconds / e.seconds, o.model.c_str());
  }
}

Json rates_json(const ErrorRate& e) {
  return Json::object({{"wer", e.wer()},
                       {"cer", e.cer()},
                       {"utterances", e.utterances()},
                       {"words", e.words().reference},
                       {"substitutions", e.words().substitutions},
                       {"insertions", e.words().insertions},
                       {"deletions", e.words().deletions}});
}

int run_eval(const EvalOptions& o) {
  require_model_first("rondo eval", o.model, o.manifest);
  require_manifest(o.manifest);
  const SndfileReader audio;
  Recognizer model(o.model, resolve(o.device), o.threads);
  for (const std::string& w : model.warnings()) std::fprintf(stderr, "warning: %s\n", w.c_str());
  const auto data = model.open(o.manifest, &audio, true);
  require_apart(o, *data);
  const Task task = model.description().config.task;
  // Voices of the demo corpus are marked as seen or unseen in training.
  const std::string group = !o.group.empty() ? o.group : has_field(*data, "seen") ? "seen" : "";
  if (!group.empty() && !has_field(*data, group)) {
    fail_input(o.manifest, ": no utterance has the field '", group, "' of --group-by");
  }
  std::map<std::string, ErrorRate> groups;
  std::map<int64_t, std::string> lines;  // in the manifest's order
  EvaluationOptions options;
  options.task = task;
  const Evaluation e =
      evaluate(model.session(), *data, task == Task::ctc ? &model.alphabet() : nullptr, options,
               [&](const Hypothesis& h) {
                 const ManifestEntry& entry = data->entry(h.utterance);
                 const auto reference =
                     task == Task::ctc ? reference_text(entry, model.alphabet()) : std::nullopt;
                 if (reference && !group.empty()) {
                   groups[field_of(entry, group)].add(*reference, h.text);
                 }
                 if (o.hypotheses.empty()) return;
                 Json line = Json::object({{"name", data->name(h.utterance)}, {"loss", h.loss}});
                 if (task == Task::ctc) {
                   line["reference"] = reference.value_or("");
                   line["hypothesis"] = h.text;
                 } else if (task == Task::classify) {
                   line["class"] = h.class_index;
                 } else {
                   line["values"] = h.values;
                 }
                 lines[h.utterance] = line.dump_replacing();
               });
  Unwritable unwritable(model.alphabet());
  if (task == Task::ctc) unwritable = unwritable_text(*data, model.alphabet());
  if (!o.hypotheses.empty()) {
    std::string text;
    for (const auto& [index, line] : lines) text += line + "\n";
    replace_text_file(o.hypotheses, text);
  }
  if (o.json) {
    Json j = Json::object({{"model", model.file()},
                           {"manifest", o.manifest},
                           {"loss", std::isnan(e.loss) ? Json() : Json(e.loss)},
                           {"utterances", e.utterances},
                           {"seconds", e.seconds},
                           {"audio_seconds", e.audio_seconds}});
    if (task == Task::ctc) j["all"] = rates_json(e.errors);
    if (unwritable.any()) j["unwritable"] = unwritable_json(unwritable, e.errors);
    if (task == Task::classify) j["error"] = e.metric(task);
    for (const auto& [name, rates] : groups) j["groups"][group + "=" + name] = rates_json(rates);
    std::printf("%s\n", j.dump().c_str());
  } else {
    print_text(o, group, e, task, groups, unwritable);
  }
  return 0;
}

}  // namespace

void add_eval(Command& program) {
  Command& command = program.add_command("eval", "Error rates of a model on a manifest");
  auto o = std::make_shared<EvalOptions>();
  command.add_option("model", o->model, "checkpoint directory or model file")
      .required()
      .check(check_file_name);
  command.add_option("manifest", o->manifest, "JSONL manifest with references")
      .required()
      .check(check_file_name);
  command.add_option("--group-by", o->group,
                     "rates for each value of this manifest field (speaker, voice, ...)");
  command.add_option("--hypotheses", o->hypotheses, "write what the model wrote, as JSONL");
  command.add_flag("--json", o->json, "one JSON object instead of text");
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
  command.footer("\nExample:  rondo eval run digits/test.jsonl --group-by speaker\n");
  command.action([o] { return run_eval(*o); });
}

}  // namespace rondo
