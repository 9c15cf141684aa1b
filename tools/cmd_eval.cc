// rondo eval: error rates of a model on a manifest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/data/audio/audio.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest_field.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/report/charts.h"
#include "engine/report/evaluation_report.h"
#include "engine/report/jsonl.h"
#include "engine/text/edit_alignment.h"
#include "engine/train/model/open_data.h"
#include "engine/train/model/shared_lengths.h"
#include "engine/train/recognition/recognizer.h"
#include "engine/train/recognition/run_comparison.h"
#include "engine/train/shared_evaluation.h"
#include "engine/train/training_setup.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"
#include "tools/evaluation/comparison.h"
#include "tools/evaluation/media.h"
#include "tools/evaluation/results.h"
#include "tools/ranks/corpus_ranks.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/ensemble_option.h"
#include "tools/recognition/predictions.h"

namespace rondo {
namespace {

struct EvalOptions {
  std::string model, second, manifest, group, hypotheses, report;
  std::vector<std::string> others;
  int threads = 0;
  bool json = false;
  DecodingOptions decoding;
  DeviceChoice device;
};

// What a model wrote, and what it should have written by its rules of texts.
struct SaidText {
  EvaluatedUtterance utterance;
  std::string reference, hypothesis;
};

// The value of a field of a manifest line, as text; empty when it is not there.
std::string field_of(const ManifestEntry& entry, const std::string& field) {
  const Json value = field_value(entry, field);
  if (value.is_null()) return {};
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool has_field(const ManifestDataset& data, const std::string& field) {
  for (int64_t i = 0; i < data.size(); ++i) {
    if (!field_of(data.entry(i), field).empty()) return true;
  }
  return false;
}

void require_apart(const EvalOptions& o, const std::string& model, const ManifestDataset& data) {
  const OutputFile outputs[] = {{o.hypotheses, "--hypotheses"}, {o.report, "--report"}};
  outputs[1].require_not(outputs[0]);
  require_folder_of(o.report);
  for (const OutputFile& output : outputs) {
    output.require_not(o.manifest, "the manifest");
    for (const std::string& file : files_of_models(model, o.others)) {
      output.require_not(file, "a file of the model");
    }
    for (int64_t i = 0; i < data.size(); ++i) {
      const ManifestEntry& e = data.entry(i);
      output.require_not(e.path, name_of(e.kind));
    }
  }
}

std::string search_text(const DecodingOptions& o) {
  if (!o.searches()) return {};
  std::string text = str("beam ", o.beam_used());
  for (const auto& [name, file] :
       {std::pair("language model", &o.lm), {"lexicon", &o.lexicon}, {"hot words", &o.hot_words}}) {
    if (!file->empty()) text += str(", ", name, " ", *file);
  }
  return text;
}

// The learning curve of the run whose folder the model was given as.
std::optional<LearningCurve> curve_of(const std::string& model, const ModelOrigin& origin) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path log = fs::path(model) / "log.jsonl";
  if (!fs::is_regular_file(log, ignored)) return std::nullopt;
  const fs::path folder = fs::path(model) / "";  // "run" and "run/" alike
  LearningCurve curve =
      learning_curve_of(read_training_log(log), folder.parent_path().filename().string());
  if (origin.averaged > 0) curve.kept.reset();  // a mean was not at any one place
  return curve;
}

Json edits_json(const std::vector<TextEdit>& edits) {
  const auto text = [](const std::string& t) { return t.empty() ? Json() : Json(t); };
  Json all = Json::array();
  for (const TextEdit& e : edits) {
    all.push_back(Json::array(
        {std::string(1, static_cast<char>(e.edit)), text(e.reference), text(e.hypothesis)}));
  }
  return all;
}

Json rate_json(const EditCounts& counts) {
  return counts.reference > 0 ? Json(counts.rate()) : Json();
}

// Takes what a model writes, utterance by utterance.
class Collector {
 public:
  Collector(const EvalOptions& options, const ManifestDataset& data, const Recognizer& model,
            int64_t classes, EvalResults& results)
      : options_(options), data_(data), model_(model), results_(results) {
    if (results.task != Task::classify) return;
    const auto n = static_cast<size_t>(classes);
    results.matrix.assign(n, std::vector<int64_t>(n));
  }

  void take(const Hypothesis& h) {
    Json line = Json::object({{"name", data_.name(h.utterance)},
                              {"id", data_.entry(h.utterance).name()},
                              {"loss", h.loss}});
    switch (results_.task) {
      case Task::ctc:
        take_text(h, line);
        break;
      case Task::classify:
        take_class(h, line);
        break;
      case Task::regress:
        take_values(h, line);
        break;
    }
    if (!options_.hypotheses.empty()) lines_[h.utterance] = line.dump_replacing();
  }

  // After the last: the worst come into the results.
  void finish() {
    for (auto& [key, utterance] : worst_) results_.worst.push_back(std::move(utterance));
    worst_.clear();
  }

  // ctc: what was written, by the manifest's line.
  const std::map<int64_t, SaidText>& said() const { return said_; }

  // In the manifest's order.
  std::string lines() const {
    std::string text;
    for (const auto& [index, line] : lines_) text += line + "\n";
    return text;
  }

 private:
  void take_text(const Hypothesis& h, Json& line) {
    const ManifestEntry& entry = data_.entry(h.utterance);
    const auto reference = reference_text(entry, model_.alphabet());
    line["reference"] = reference.value_or("");
    line["hypothesis"] = h.text;
    if (!reference) return;
    const AlignedTranscripts aligned = align_transcripts(*reference, h.text);
    const EditCounts &words = aligned.word_counts, &characters = aligned.character_counts;
    EvaluatedUtterance utterance{h.utterance, data_.name(h.utterance), entry.name(), entry.speaker};
    utterance.kind = entry.kind;
    utterance.length = entry.kind == InputKind::recording
                           ? data_.seconds(h.utterance)
                           : static_cast<double>(data_.frames(h.utterance, 0));
    results_.errors.add(utterance, aligned);
    if (!options_.second.empty()) said_[entry.line] = {utterance, *reference, h.text};
    if (!results_.group.empty()) {
      results_.groups[field_of(entry, results_.group)] +=
          ErrorRate(words, characters, 1, characters.errors() > 0);
    }
    line["wer"] = rate_json(words);
    line["cer"] = rate_json(characters);
    line["edits"] = edits_json(aligned.words);
  }

  void take_class(const Hypothesis& h, Json& line) {
    const ManifestEntry& entry = data_.entry(h.utterance);
    const auto reference = static_cast<size_t>(entry.label.value());
    line["reference"] = class_json(results_.classes, entry.label.value());
    line["class"] = class_json(results_.classes, h.class_index);
    ++results_.matrix.at(reference).at(static_cast<size_t>(h.class_index));
    if (results_.group.empty()) return;
    EvalResults::Wrong& group = results_.wrong_in_groups[field_of(entry, results_.group)];
    ++group.all;
    group.wrong += h.class_index != *entry.label;
  }

  void take_values(const Hypothesis& h, Json& line) {
    const std::vector<float>& target = data_.entry(h.utterance).target;
    line["reference"] = target;
    line["values"] = h.values;
    results_.regression.add(target, h.values);
    // The highest first, of equal ones the first of the manifest; no number is the worst.
    const auto key = [](double loss, int64_t index) {
      return std::pair(std::isnan(loss) ? -std::numeric_limits<double>::infinity() : -loss, index);
    };
    worst_[key(h.loss, h.utterance)] = {data_.name(h.utterance), h.loss, target, h.values};
    if (worst_.size() > most_worst) worst_.erase(std::prev(worst_.end()));
  }

  static constexpr size_t most_worst = 20;

  const EvalOptions& options_;
  const ManifestDataset& data_;
  const Recognizer& model_;
  EvalResults& results_;
  std::map<int64_t, std::string> lines_;
  std::map<int64_t, SaidText> said_;
  std::map<std::pair<double, int64_t>, report::Regression::Utterance> worst_;
};

// Where the data are read, for all models.
struct EvalSources {
  SndfileReader audio;
  ImageFileReader images;
  std::optional<SharedLengths> lengths;  // of several ranks

  MediaReaders readers() const { return {&audio, &images, lengths ? &*lengths : nullptr}; }
};

// A model and what it wrote for the data, on every rank the same.
struct EvalSubject {
  std::string path;
  std::unique_ptr<Recognizer> model;
  std::unique_ptr<ManifestDataset> data;
  std::optional<Decoder> decoder;
  EvalResults results;
  std::optional<Collector> collector;
};

// By which field of the manifest utterances are grouped, and that there is such a one.
void choose_group(const EvalOptions& o, const ManifestDataset& data, EvalResults& results) {
  // Voices of the demo corpus are marked as seen or unseen in training.
  results.group = !o.group.empty() ? o.group : has_field(data, "seen") ? "seen" : "";
  results.group_is_asked_for = !o.group.empty();
  if (!results.group.empty() && !has_field(data, results.group)) {
    fail_input(o.manifest, ": no ", noun_of(results.kind), " has the field '", results.group,
               "' of --group-by");
  }
  if (results.group.empty() || results.task != Task::regress) return;
  if (results.group_is_asked_for)
    fail_input(results.model_file,
               ": says numbers: --group-by is for models of texts and of classes");
  results.group.clear();
}

void describe(const EvalOptions& o, EvalSubject& s) {
  const ModelDescription& description = s.model->description();
  EvalResults& results = s.results;
  results.model = s.path;
  results.model_file = s.model->file();
  results.others = o.others;
  results.manifest = o.manifest;
  results.task = description.config.task;
  results.kind = input_kind(description.config.features.type);
  results.classes = description.classes;
  results.config = description.config;
  results.origin = description.origin;
  results.search = search_text(o.decoding);
  choose_group(o, *s.data, results);
  if (!o.report.empty()) results.curve = curve_of(s.path, results.origin);
}

// Each of several ranks opens its part of the recordings' headers.
void look_at_lengths(const EvalOptions& o, const CorpusRanks& ranks, EvalSources& sources) {
  if (ranks.ranks().size() == 1) return;
  sources.lengths.emplace(sources.audio);
  const int threads = ranks.threads(o.threads);
  ranks.together(
      [&] { sources.lengths->look_at(read_manifest(o.manifest), ranks.ranks(), threads); });
  sources.lengths->exchange(ranks.ranks());
}

void open(const EvalOptions& o, const CorpusRanks& ranks, const EvalSources& sources,
          EvalSubject& s) {
  s.model = std::make_unique<Recognizer>(s.path, ranks.device(o.device), ranks.threads(o.threads),
                                         o.others);
  for (const std::string& w : s.model->warnings()) warn(w);
  s.data = open_dataset(*s.model, o.manifest, sources.readers(), true);
  require_apart(o, s.path, *s.data);
  describe(o, s);
  const bool compares = !o.second.empty();
  if (s.results.task != Task::ctc && (o.decoding.searches() || compares))
    fail_input(s.model->file(), ": is not a ctc model: there is no text to ",
               compares ? "compare" : "search for");
  s.decoder = make_decoder(o.decoding, s.model->vocabulary(), s.model->description().config.text);
}

void evaluate_subject(const EvalOptions& o, const CorpusRanks& ranks, const EvalSources& sources,
                      EvalSubject& s) {
  ranks.together([&] { open(o, ranks, sources, s); });
  ranks.require_same([&] {
    return str(hash_of(*s.data), ' ', hash_of_models(s.path, o.others), ' ', given_of(o.decoding),
               ' ', s.results.group);
  });
  const bool is_text = s.results.task == Task::ctc;
  s.collector.emplace(o, *s.data, *s.model, s.model->session().prediction_shape().cols, s.results);
  EvaluationOptions options;
  options.task = s.results.task;
  options.decoder = s.decoder ? &*s.decoder : nullptr;
  const int threads = ranks.threads(o.threads);
  options.decoder_threads = cpu_threads(threads, "--threads");
  s.results.evaluation =
      evaluate_together(ranks.ranks(), CorpusRanks::patience(), evaluated(*s.model), *s.data,
                        is_text ? &s.model->alphabet() : nullptr, options,
                        [&](const Hypothesis& h) { s.collector->take(h); });
  s.collector->finish();
}

void write_one(const EvalOptions& o, const EvalSources& sources, EvalSubject& s) {
  EvalResults& results = s.results;
  if (!o.hypotheses.empty()) replace_text_file(o.hypotheses, s.collector->lines());
  if (!o.report.empty()) {
    results.worst_media = media_of(results.errors.worst_indices(), *s.data, sources.readers(),
                                   results.config.features.rate);
    replace_text_file(o.report, evaluation_html(results_page(results)));
  }
  if (o.json) {
    std::printf("%s\n", results_json(results).dump().c_str());
  } else {
    print_text(results);
  }
}

void write_two(const EvalOptions& o, const EvalSources& sources, const EvalSubject& first,
               const EvalSubject& second) {
  if (first.results.kind != second.results.kind)
    fail_input(first.results.model_file, " and ", second.results.model_file,
               ": read different kinds of data, expected two models for the same");
  RunComparison comparison;
  const std::map<int64_t, SaidText>& said = second.collector->said();
  for (const auto& [line, one] : first.collector->said()) {
    const auto other = said.find(line);
    if (other == said.end()) continue;
    comparison.add(one.utterance, align_transcripts(one.reference, one.hypothesis),
                   align_transcripts(other->second.reference, other->second.hypothesis));
  }
  if (!o.report.empty()) {
    const auto page =
        comparison_page(first.results, second.results, comparison, *first.data, sources.readers());
    replace_text_file(o.report, evaluation_html(page));
  }
  if (o.json) {
    std::printf("%s\n", comparison_json(first.results, second.results, comparison).dump().c_str());
  } else {
    print_comparison(first.results, second.results, comparison);
  }
}

// Which of the words are models, and which the data: of two models without a manifest, the test
// data of the first one's run, or what it was validated on.
void sort_words(EvalOptions& o, const std::string& third) {
  const auto is_model = [](const std::string& path) {
    const PathKind kind = kind_of_path(path);
    return kind == PathKind::run || kind == PathKind::model;
  };
  if (!third.empty() && !is_model(o.manifest))
    throw WrongUsage("unexpected argument '" + shortened(third) + "' of 'rondo eval': '" +
                     shortened(o.manifest) + "' is no second model to compare");
  if (third.empty() && !(is_model(o.model) && is_model(o.manifest))) return;
  o.second = o.manifest;
  o.manifest = third;
  if (!o.others.empty() || !o.group.empty() || !o.hypotheses.empty())
    throw WrongUsage("--with, --group-by and --hypotheses go with one model; '" + o.model +
                     "' and '" + o.second + "' are two to compare");
  if (!third.empty()) return;
  const DataConfig data = Recognizer(o.model, DeviceId(), 1).description().config.data;
  o.manifest = !data.test.empty() ? data.test : data.dev;
  if (o.manifest.empty())
    throw WrongUsage("'" + o.model + "' and '" + o.second +
                     "' are two models, and the first names no data.test or data.dev: the manifest "
                     "to compare them on comes third");
}

int run_eval(EvalOptions o, const std::string& third) {
  sort_words(o, third);
  require_model_first("rondo eval", o.model, o.manifest);
  require_manifest(o.manifest);
  const CorpusRanks ranks("rondo eval");
  EvalSources sources;
  std::vector<EvalSubject> subjects(o.second.empty() ? 1 : 2);
  subjects.front().path = o.model;
  if (!o.second.empty()) subjects.back().path = o.second;
  ranks.run([&] {
    look_at_lengths(o, ranks, sources);
    for (EvalSubject& s : subjects) evaluate_subject(o, ranks, sources, s);
  });
  if (!ranks.ranks().first()) return 0;
  for (EvalSubject& s : subjects) {
    if (s.results.task == Task::ctc)
      s.results.unwritable = unwritable_text(*s.data, s.model->alphabet());
  }
  if (o.second.empty()) {
    write_one(o, sources, subjects.front());
  } else {
    write_two(o, sources, subjects.front(), subjects.back());
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
  auto third = std::make_shared<std::string>();
  command
      .add_option("manifest", o->manifest,
                  "JSONL manifest with references; or a second model, to compare the two")
      .required()
      .check(check_file_name);
  command
      .add_option("compare-on", *third,
                  "with two models: the manifest; without it the test data of the first one's run")
      .check(check_file_name);
  add_ensemble_option(command, &o->others).check(check_file_name);
  add_decoding_options(command, &o->decoding, false);
  command.add_option("--group-by", o->group,
                     "rates for each value of this manifest field (speaker, voice, ...)");
  command.add_option("--hypotheses", o->hypotheses,
                     "write what the model wrote, and how it differs, as JSONL");
  command.add_option(
      "--report", o->report,
      "write a page (HTML) with the errors in detail, and images or sounds (15 seconds at "
      "most) of the worst");
  command.add_flag("--json", o->json, "one JSON object instead of text");
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
  command.footer(
      "\nExample:  rondo eval run digits/test.jsonl --group-by speaker --report report.html\n"
      "          rondo eval run1 run2 digits/test.jsonl --report changes.html\n");
  command.action([o, third] { return run_eval(*o, *third); });
}

}  // namespace rondo
