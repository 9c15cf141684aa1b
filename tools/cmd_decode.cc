// rondo decode: texts out of the outputs of any CTC model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "engine/decode/beam_search.h"
#include "engine/decode/forced_alignment.h"
#include "engine/decode/transcript.h"
#include "engine/text/greedy.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/recognition/predictions.h"

namespace rondo {
namespace {

struct DecodeOptions {
  std::string vocabulary, blank, border, scores = "auto", format = "text";
  std::vector<std::string> files;
  int beam = 100, nbest = 1, threads = 0;
  double frame_ms = 0;
};

// Of --blank: a class, or "last".
std::optional<int32_t> blank_class(const DecodeOptions& o) {
  if (o.blank.empty()) return {};
  char* end = nullptr;
  const long value = std::strtol(o.blank.c_str(), &end, 10);
  if (*end != '\0' || value < 0 || value > INT32_MAX)
    throw WrongUsage("--blank is '" + o.blank + "', expected a class, 0 or more");
  return static_cast<int32_t>(value);
}

bool are_probabilities(const Matrix& scores) {
  for (int64_t t = 0; t < scores.frames; ++t) {
    double sum = 0;
    for (int32_t c = 0; c < scores.dim; ++c) {
      if (!(scores.row(t)[c] >= 0)) return false;
      sum += scores.row(t)[c];
    }
    if (!(std::abs(sum - 1) < 1e-2)) return false;
  }
  return scores.frames > 0;
}

// As logits: the search normalises them.
void make_logits(const std::string& kind, const std::string& name, Matrix& scores) {
  const bool probabilities = are_probabilities(scores);
  if (kind == "probabilities" && !probabilities)
    fail_input(name, ": is not of probabilities: a row has negative ones, or does not add up to 1");
  if (kind == "logits" || !probabilities) return;
  for (float& v : scores.data) v = std::log(v);
}

Prediction decode_one(const DecodeOptions& o, const Vocabulary& vocabulary,
                      const ModelInput& input) {
  Matrix scores = read_scores(input);
  if (scores.dim != vocabulary.classes())
    fail_input(input.name, ": has ", scores.dim, " classes per frame, ", o.vocabulary, " names ",
               vocabulary.classes());
  make_logits(o.scores, input.name, scores);
  const auto frames = static_cast<int32_t>(scores.frames);
  Prediction p;
  Transcript& t = p.transcript;
  t.frames = scores.frames;
  t.classes = scores.dim;
  t.logits = std::move(scores.data);
  std::vector<TimedLabel> labels;
  if (o.beam == 0) {
    labels = greedy_ctc(t.logits.data(), frames, vocabulary.classes(), vocabulary.blank());
    std::erase_if(labels, [&](const auto& l) { return !vocabulary.token(l.label).is_written; });
  } else {
    BeamOptions beam;
    beam.beam = o.beam;
    beam.nbest = o.nbest;
    beam.blank = vocabulary.blank();
    const auto best = beam_search(t.logits.data(), frames, vocabulary.classes(), beam);
    for (const BeamHypothesis& h : best)
      t.alternatives.push_back({vocabulary.text(h.labels), h.log_probability});
    labels = forced_alignment(t.logits.data(), frames, vocabulary.classes(), best.front().labels,
                              vocabulary.blank());
  }
  t.text = vocabulary.text(labels_of(labels));
  set_labels(t, vocabulary, labels, o.frame_ms > 0 ? o.frame_ms / 1000 : 1);
  return p;
}

int run_decode(const DecodeOptions& o) {
  if (o.nbest > 1 && (o.beam < o.nbest || o.format != "jsonl"))
    throw WrongUsage("--nbest takes --format jsonl and a --beam that is at least as large");
  const Vocabulary vocabulary = Vocabulary::open(o.vocabulary, blank_class(o), o.border);
  const std::vector<ModelInput> inputs = inputs_of(o.files, true);
  PredictionStyle style;
  if (o.format == "jsonl") style.format = PredictionFormat::jsonl;
  style.named = inputs.size() != 1 || inputs.front().name != o.files.front();
  ThreadPool pool(o.threads > 0 ? o.threads : usable_cpus());
  constexpr size_t together = 256;
  int failures = 0;
  for (size_t first = 0; first < inputs.size(); first += together) {
    const size_t count = std::min(together, inputs.size() - first);
    std::vector<Prediction> found(count);
    std::vector<std::string> wrong(count);
    pool.for_each(static_cast<int64_t>(count), [&](int64_t i) {
      const auto n = static_cast<size_t>(i);
      try {
        found[n] = decode_one(o, vocabulary, inputs[first + n]);
        found[n].transcript.logits = {};
      } catch (const InputError& e) {
        wrong[n].assign(e.what());
      }
    });
    for (size_t n = 0; n < count; ++n) {
      if (!wrong[n].empty()) {
        std::fprintf(stderr, "rondo: %s\n", wrong[n].c_str());
        ++failures;
      } else {
        write_prediction(style, Task::ctc, inputs[first + n], found[n], 0);
      }
    }
  }
  return failures > 0 ? 1 : 0;
}

}  // namespace

void add_decode(Command& program) {
  Command& command =
      program.add_command("decode", "Write the texts in the outputs of any CTC model");
  auto o = std::make_shared<DecodeOptions>();
  command
      .add_option("vocabulary", o->vocabulary,
                  "what the classes are: tokens one a line, or a JSON list, or a JSON object from "
                  "tokens to classes")
      .required()
      .check(check_file_name);
  command
      .add_option("files", o->files,
                  "outputs [frames, classes]: .npy, .safetensors, folders of .npy files, manifests "
                  "of features; '-': standard input")
      .required()
      .check(check_file_name);
  command
      .add_option("--blank", o->blank,
                  "the blank's class; else the token that is called <blank>, <pad> or the like")
      .type_name("INT");
  command.add_option("--word-border", o->border,
                     "the token between words, 'every' where each token is a word, 'none'; else "
                     "told from the tokens");
  command
      .add_option("--scores", o->scores,
                  "what the outputs are; logarithms of probabilities may be given as logits")
      .one_of({"auto", "logits", "probabilities"})
      .show_default();
  command
      .add_option("--beam", o->beam,
                  "search for the most probable text among so many beginnings of one; 0: the best "
                  "class of each frame")
      .range(0, 100000)
      .type_name("INT")
      .show_default();
  command.add_option("--nbest", o->nbest, "so many of them, as alternatives of --format jsonl")
      .range(1, 100000)
      .type_name("INT")
      .show_default();
  command
      .add_option("--frame-ms", o->frame_ms,
                  "milliseconds between two frames, for times in seconds; 0: times are frames")
      .range(0.0, 100000.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--format", o->format, "text; jsonl, with words, times and probabilities")
      .one_of({"text", "jsonl"})
      .show_default();
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  command.footer("\nExample:  rondo decode vocab.json logits.npy --frame-ms 20 --format jsonl\n");
  command.action([o] { return run_decode(*o); });
}

}  // namespace rondo
