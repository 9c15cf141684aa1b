// rondo card: what a model is, as the page that goes with it where models are shared.
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "engine/config/metric.h"
#include "engine/data/features/files.h"
#include "engine/data/manifest.h"
#include "engine/io/json.h"
#include "engine/report/progress.h"
#include "engine/train/model/model_file.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/path_words.h"

namespace rondo {
namespace {

struct CardOptions {
  std::string model, name, language, license;
  std::vector<std::string> results;
};

// Rates of a model on a manifest, as `rondo eval --json` wrote them.
struct TestResult {
  std::string manifest;
  int64_t utterances = 0;
  std::vector<std::pair<std::string, double>> rates;  // "WER" and 0.12
};

struct Card {
  std::string name, path;
  ModelDescription description;
  int64_t weights = 0;
  std::vector<TestResult> tests;
};

bool reads_lines(const Card& card) {
  return input_kind(card.description.config.features.type) == InputKind::image;
}

// A text as YAML and JSON have it.
std::string quoted(const std::string& text) { return Json(text).dump_replacing(); }

// "12.3" of 0.12345: per cent, as model cards have rates.
std::string per_cent(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", 100 * rate);
  return text;
}

TestResult read_result(const std::string& file, const Card& card) {
  const auto wrong = [&](const std::string& what) {
    fail_input(file, ": ", what, "; expected what 'rondo eval --json' writes");
  };
  try {
    const Json j = Json::parse(data::read_regular_file(file));
    const std::string of = j.at("model").get<std::string>();
    if (of != card.path)
      warn(str(file, ": is of ", printable_start(of, 80), ", not of ", card.path));
    TestResult r;
    r.manifest = j.at("manifest").get<std::string>();
    r.utterances = j.at("utterances").get<int64_t>();
    const Json& all = j.contains("all") ? j.at("all") : j;
    for (const auto& [key, name] :
         {std::pair("wer", "WER"), {"cer", "CER"}, {"error", "error"}, {"mae", "MAE"}}) {
      if (all.contains(key) && !all.at(key).is_null())
        r.rates.push_back({name, all.at(key).get<double>()});
    }
    if (r.rates.empty()) wrong("has no rates");
    return r;
  } catch (const JsonError& e) {
    wrong(e.what());
  }
  return {};
}

Card open_card(const CardOptions& o) {
  require_model(o.model);
  std::vector<std::string> warnings;
  const SafetensorsFile file = open_model(o.model, &warnings);
  for (const std::string& w : warnings) warn(w);
  Card card;
  card.path = file.name();
  card.description = ModelDescription::from_metadata(file.metadata(), card.path);
  for (const StoredTensor& t : file.tensors()) card.weights += t.numel();
  const std::filesystem::path given = std::filesystem::path(o.model) / "";
  card.name = !o.name.empty() ? o.name : given.parent_path().stem().string();
  for (const std::string& result : o.results) card.tests.push_back(read_result(result, card));
  return card;
}

// What the Hugging Face hub calls the task: its identifier and its title.
std::pair<const char*, const char*> hub_task(const Card& card) {
  const bool lines = reads_lines(card);
  switch (card.description.config.task) {
    case Task::ctc:
      return lines ? std::pair("image-to-text", "Recognition of text lines")
                   : std::pair("automatic-speech-recognition", "Speech recognition");
    case Task::classify:
      return lines ? std::pair("image-classification", "Classification of lines")
                   : std::pair("audio-classification", "Classification of recordings");
    case Task::regress:
      break;
  }
  return {"other", "Regression"};
}

void print_front_matter(const CardOptions& o, const Card& card) {
  std::printf("---\nlibrary_name: rondo\n");
  if (!o.language.empty()) std::printf("language: %s\n", quoted(o.language).c_str());
  if (!o.license.empty()) std::printf("license: %s\n", quoted(o.license).c_str());
  const auto [task, title] = hub_task(card);
  std::printf("pipeline_tag: %s\ntags:\n- rondo\n- lstm\n", task);
  if (card.description.config.task == Task::ctc) std::printf("- ctc\nmetrics:\n- wer\n- cer\n");
  if (!card.tests.empty()) {
    std::printf("model-index:\n- name: %s\n  results:\n", quoted(card.name).c_str());
  }
  for (const TestResult& t : card.tests) {
    const std::string data = quoted(std::filesystem::path(t.manifest).filename().string());
    std::printf("  - task:\n      type: %s\n      name: %s\n", task, title);
    std::printf("    dataset:\n      type: %s\n      name: %s\n    metrics:\n", data.c_str(),
                data.c_str());
    for (const auto& [name, rate] : t.rates) {
      std::string type;
      for (const char c : name) type += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      const std::string value = name == "MAE" ? Json(rate).dump() : per_cent(rate);
      std::printf("    - type: %s\n      name: %s\n      value: %s\n", type.c_str(), name.c_str(),
                  value.c_str());
    }
  }
  std::printf("---\n\n");
}

std::string sentence_of(const Card& card) {
  const Config& c = card.description.config;
  const FeaturesConfig& f = c.features;
  const bool lines = reads_lines(card);
  std::string what;
  switch (c.task) {
    case Task::ctc:
      what = lines ? "writes what stands in images of text lines" : "writes what is said in sound";
      break;
    case Task::classify:
      what = lines ? "tells the class of images" : "tells the class of sounds";
      break;
    case Task::regress:
      what = "tells numbers";
  }
  std::string input = str("ready features of ", card.description.sizes.features, " columns");
  if (lines) input = str("images, scaled to a height of ", f.height, " pixels");
  if (input_kind(f.type) == InputKind::recording) input = str("sound of ", f.rate, " Hz");
  return str("This model ", what, ". It reads ", input, " and has ", card.weights,
             " weights. It was trained with rondo",
             card.description.origin.version.empty() ? "" : " " + card.description.origin.version,
             ".");
}

void print_use(const Card& card) {
  const bool writes = card.description.config.task == Task::ctc;
  const char* const input = reads_lines(card) ? "line.png"
                            : card.description.config.features.type == FeatureType::ready
                                ? "features.npy"
                                : "recording.wav";
  std::printf("# %s\n\n%s\n\n```sh\nrondo %s %s %s\n```\n\n", card.name.c_str(),
              sentence_of(card).c_str(), writes ? "transcribe" : "predict",
              std::filesystem::path(card.path).filename().string().c_str(), input);
}

// The utterances and hours of a manifest that is still there.
std::string size_of_data(const std::string& manifest) {
  try {
    const Manifest m = read_manifest(manifest);
    double seconds = 0;
    for (const ManifestEntry& e : m.entries) seconds += e.duration.value_or(0);
    const auto n = static_cast<int64_t>(m.entries.size());
    const std::string text = counted(n, noun_of(m.entries.front().kind));
    return seconds > 0 ? str(text, ", ", format_duration(seconds)) : text;
  } catch (const InputError&) {
    return "not at hand when this was written";
  }
}

void print_data(const Card& card) {
  const DataConfig& data = card.description.config.data;
  std::printf("## Data\n\n| | file | size |\n| --- | --- | --- |\n");
  for (const auto& [name, file] :
       {std::pair("training", &data.train), {"development", &data.dev}, {"test", &data.test}}) {
    if (file->empty()) continue;
    std::printf("| %s | `%s` | %s |\n", name,
                std::filesystem::path(*file).filename().string().c_str(),
                size_of_data(*file).c_str());
  }
  std::printf("\n");
}

void print_rates(const Card& card) {
  const ModelOrigin& origin = card.description.origin;
  const bool is_measured = std::isfinite(origin.metric);
  if (!is_measured && card.tests.empty()) return;
  std::printf("## Errors\n\n");
  if (is_measured) {
    std::printf("On the development data, by which the weights were chosen: %s.\n\n",
                metric_text(origin.chosen_by, origin.metric).c_str());
  }
  for (const TestResult& t : card.tests) {
    std::string rates;
    for (const auto& [name, rate] : t.rates) {
      rates += str(rates.empty() ? "" : ", ", name, " ",
                   name == "MAE" ? Json(rate).dump() : per_cent(rate) + " %");
    }
    std::printf("* `%s`, %lld utterances: %s\n",
                std::filesystem::path(t.manifest).filename().string().c_str(),
                static_cast<long long>(t.utterances), rates.c_str());
  }
  std::printf("%s", card.tests.empty() ? "" : "\n");
}

void print_outputs(const Card& card) {
  const ModelDescription& d = card.description;
  const std::vector<std::string>& names = d.config.task == Task::ctc ? d.alphabet : d.classes;
  if (names.empty()) return;
  std::printf("## What it writes\n\n%zu %s:", names.size(),
              d.config.task == Task::ctc ? "characters" : "classes");
  for (const std::string& name : names) {
    // Words have a space behind them.
    const std::string shown = name == " " ? "space" : name.substr(0, name.find(' '));
    // A code span ends at a backtick, so that one stands for itself.
    std::printf(" %s", shown == "`" ? "`` ` ``" : str("`", printable(shown), "`").c_str());
  }
  std::printf("\n\n");
}

// Without the folders of the machine that it was trained on.
Config published(Config c) {
  for (std::string* path : {&c.data.train, &c.data.dev, &c.data.test, &c.training.checkpoint_dir,
                            &c.augment.noise_recordings, &c.training.init_from})
    *path = std::filesystem::path(*path).filename().string();
  return c;
}

int run_card(const CardOptions& o) {
  const Card card = open_card(o);
  print_front_matter(o, card);
  print_use(card);
  print_data(card);
  print_rates(card);
  print_outputs(card);
  std::printf("## Settings\n\n```toml\n%s```\n",
              to_toml(published(card.description.config)).c_str());
  return 0;
}

}  // namespace

void add_card(Command& program) {
  Command& command =
      program.add_command("card", "Describe a model on a page (Markdown) to publish with it");
  auto o = std::make_shared<CardOptions>();
  command.add_option("model", o->model, "checkpoint directory or model file")
      .required()
      .check(check_file_name);
  command.add_option("--test", o->results, "error rates, as 'rondo eval --json' writes; repeatable")
      .check(check_file_name);
  command.add_option("--name", o->name, "of the model; without it, that of its folder or file");
  command.add_option("--language", o->language, "of the texts, as en");
  command.add_option("--license", o->license, "of the model, as apache-2.0");
  command.footer(
      "\nExample:  rondo eval run digits/test.jsonl --json > rates.json\n"
      "          rondo card run --test rates.json --language en > README.md\n");
  command.action([o] { return run_card(*o); });
}

}  // namespace rondo
