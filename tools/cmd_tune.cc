// rondo tune: the weights of a language model that make the fewest errors on data with texts.
#include <cstdio>
#include <memory>

#include "engine/data/audio/audio.h"
#include "engine/data/image/image.h"
#include "engine/decode/tuning.h"
#include "engine/text/text_rules.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/recognizer.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/ensemble_option.h"
#include "tools/recognition/outputs.h"

namespace rondo {
namespace {

struct TuneOptions {
  std::string model, manifest, metric = "wer";
  std::vector<std::string> others;
  OutputsOptions outputs;
  DecodingOptions decoding;
  int threads = 0;
  DeviceChoice device;
};

struct TuningData {
  Vocabulary vocabulary;
  std::vector<KnownOutputs> utterances;
  TextRules rules = {};  // of the model
};

// Of a model of rondo's: it is run over the manifest once.
void add_outputs(const TuneOptions& o, const std::string& path, TuningData& all) {
  const SndfileReader audio;
  const ImageFileReader images;
  Recognizer model(path, resolve(o.device), o.threads);
  for (const std::string& w : model.warnings()) warn(w);
  if (model.description().config.task != Task::ctc)
    fail_input(model.file(), ": is not a ctc model: it writes no text");
  const auto data = open_dataset(model, o.manifest, {&audio, &images}, true);
  all.vocabulary = model.vocabulary();
  all.rules = model.description().config.text;
  const size_t before = all.utterances.size();
  all.utterances.resize(before + static_cast<size_t>(data->size()));
  evaluate(evaluated(model), *data, &model.alphabet(), {}, [&](const Hypothesis& h) {
    KnownOutputs& known = all.utterances[before + static_cast<size_t>(h.utterance)];
    known.scores.assign(h.scores.begin(), h.scores.end());
    // Compared with what a decoder finds, which is in the order of reading.
    known.reference = model.alphabet().in_label_order(
        reference_text(data->entry(h.utterance), model.alphabet()).value_or(std::string()));
  });
}

// Several models that are to write together weigh what a decoder knows as each does alone, so the
// weights are found on the outputs of all.
TuningData run_models(const TuneOptions& o) {
  require_manifest(o.manifest);
  if (!o.others.empty()) Recognizer(o.model, resolve(o.device), o.threads, o.others);  // or refuses
  TuningData all;
  add_outputs(o, o.model, all);
  for (const std::string& other : o.others) add_outputs(o, other, all);
  return all;
}

// Of any other model: the manifest's features are its outputs.
TuningData read_outputs(const TuneOptions& o) {
  TuningData all{open_vocabulary(o.model, o.outputs), {}};
  for (const ModelInput& input : inputs_of({o.manifest}, InputKind::features)) {
    const Json* text = input.known.is_null() ? nullptr : input.known.find("text");
    if (!text || !text->is_string())
      fail_input(input.name,
                 ": has no text to compare with; expected a manifest of outputs and "
                 "texts");
    Matrix scores = read_logits(input, o.outputs, all.vocabulary, o.model);
    all.utterances.push_back({std::move(scores.data), text->get<std::string>()});
  }
  return all;
}

void print_row(const TriedWeights& t) {
  std::printf("%10.4g  %10.4g  %7.2f %%  %7.2f %%\n", t.lm_weight, t.word_score,
              100 * t.errors.wer(), 100 * t.errors.cer());
  std::fflush(stdout);
}

int run_tune(const TuneOptions& o) {
  if (o.decoding.lm.empty()) throw WrongUsage("--lm is missing: whose weights are to be found?");
  const bool is_model = is_own_model(o.model);
  if (!is_model && !o.others.empty())
    fail_input(o.model, ": is no model of rondo's, and --with is for such");
  const TuningData data = is_model ? run_models(o) : read_outputs(o);
  const DecoderKnowledge knowledge = read_knowledge(o.decoding, data.vocabulary, data.rules);
  ThreadPool threads(cpu_threads(o.threads, "--threads"));
  const ErrorRate greedy = errors_of(data.utterances, data.vocabulary, nullptr, threads);
  std::printf("%zu utterances; by the best class of each frame WER %.2f %%, CER %.2f %%\n\n",
              data.utterances.size(), 100 * greedy.wer(), 100 * greedy.cer());
  std::printf(" lm-weight  word-score        WER        CER\n");
  TuningOptions tuning;
  tuning.by_characters = o.metric == "cer";
  const TriedWeights best = tune_weights(data.utterances, data.vocabulary,
                                         search_options(o.decoding, data.vocabulary.classes()),
                                         knowledge, tuning, threads, print_row);
  std::printf("\nbest: --lm-weight %.4g --word-score %.4g  (WER %.2f %%, CER %.2f %%)\n",
              best.lm_weight, best.word_score, 100 * best.errors.wer(), 100 * best.errors.cer());
  return 0;
}

}  // namespace

void add_tune(Command& program) {
  Command& command = program.add_command(
      "tune", "Find the language model's weights that make the fewest errors on data with texts");
  auto o = std::make_shared<TuneOptions>();
  command
      .add_option("model", o->model,
                  "checkpoint directory or model file; or what the classes of another program's "
                  "model are, as for rondo decode")
      .required()
      .check(check_file_name);
  command
      .add_option("manifest", o->manifest,
                  "JSONL manifest with texts that were not trained on; of another program's model, "
                  "with its outputs as features")
      .required()
      .check(check_file_name);
  add_ensemble_option(command, &o->others).check(check_file_name);
  add_decoding_options(command, &o->decoding, false);
  command.add_option("--metric", o->metric, "what to make small: errors in words or in characters")
      .one_of({"wer", "cer"})
      .show_default();
  add_outputs_options(command, &o->outputs);
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
  command.footer(
      "\nExample:  rondo tune run mine/dev.jsonl --lm 3gram.lm\n"
      "          rondo tune tokens.txt outputs.jsonl --lm 3gram.lm --beam 50\n");
  command.action([o, &command] {
    use_language_model_of(o->model, command, &o->decoding);
    return run_tune(*o);
  });
}

}  // namespace rondo
