// rondo score: error rates of texts, without a model.
#include <cstdio>
#include <map>
#include <memory>

#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/report/progress.h"
#include "engine/text/edit_alignment.h"
#include "engine/text/text_rules.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/text_options.h"
#include "tools/corpus/lists/named_texts.h"
#include "tools/evaluation/results.h"

namespace rondo {
namespace {

struct ScoreOptions {
  std::string reference, hypothesis, group, speakers, report;
  bool ids = false, json = false;
  TextOptions text;
};

constexpr size_t quoted = 80;

void warn_of_odd_ones(const NamedTexts& references, const NamedTexts& hypotheses,
                      const TextPairs& pairs) {
  if (pairs.names_left_out) {
    warn(str(references.file, " and ", hypotheses.file,
             " belong together line by line: only one of them has names"));
  }
  if (pairs.by_file_names)
    warn(str(hypotheses.file, " and ", references.file,
             " belong together by the names of files, without folders and endings"));
  size_t missing = 0;
  const NamedText* first = nullptr;
  for (size_t i = 0; i < pairs.hypotheses.size(); ++i) {
    if (pairs.hypotheses[i]) continue;
    if (missing++ == 0) first = &references.texts[i];
  }
  if (first) {
    warn(str(hypotheses.file, ": no text for ", counted(static_cast<int64_t>(missing), "utterance"),
             " of ", references.file, ", counted as deleted; the first is '",
             printable_start(first->name, quoted), "'"));
  }
  if (!pairs.left_over.empty()) {
    warn(str(hypotheses.file, ": ",
             counted(static_cast<int64_t>(pairs.left_over.size()), "utterance"), " not in ",
             references.file, ", not counted; the first is '",
             printable_start(pairs.left_over.front()->name, quoted), "'"));
  }
}

// Lines that begin with a name of their own, the same in both files.
bool look_like_ids(const NamedTexts& references, const NamedTexts& hypotheses) {
  if (references.named || hypotheses.named || references.texts.size() < 2) return false;
  std::map<std::string_view, int> seen;
  for (size_t i = 0; i < references.texts.size(); ++i) {
    const auto first = [](const std::string& text) {
      return std::string_view(text).substr(0, text.find_first_of(" \t"));
    };
    const std::string_view name = first(references.texts[i].text);
    if (name.find_first_of("0123456789") == std::string_view::npos || seen[name]++ > 0 ||
        name != first(hypotheses.texts[i].text))
      return false;
  }
  return true;
}

// The value of --group-by, and who speaks, of an utterance.
std::string group_of(const ScoreOptions& o, const NamedText& reference,
                     const std::map<std::string, std::string>& speakers) {
  if (!o.speakers.empty()) {
    const auto found = speakers.find(reference.name);
    return found == speakers.end() ? "" : found->second;
  }
  const auto found = reference.fields.find(o.group.empty() ? "speaker" : o.group);
  return found == reference.fields.end() ? "" : found->second;
}

void require_group(const ScoreOptions& o, const NamedTexts& references) {
  if (o.group.empty()) return;
  for (const NamedText& t : references.texts)
    if (t.fields.contains(o.group)) return;
  fail_input(o.reference, ": no utterance has the field '", printable_start(o.group, quoted),
             "' of --group-by");
}

EvalResults compare(const ScoreOptions& o, const NamedTexts& references,
                    const NamedTexts& hypotheses, const TextPairs& pairs) {
  const TextRules rules = o.text.rules();
  std::map<std::string, std::string> speakers;
  if (!o.speakers.empty()) speakers = read_speakers(o.speakers);
  EvalResults r;
  r.manifest = references.file;
  r.hypotheses = hypotheses.file;
  r.group = !o.speakers.empty() ? "speaker" : o.group;
  r.group_is_asked_for = !r.group.empty();
  for (size_t i = 0; i < references.texts.size(); ++i) {
    const NamedText& reference = references.texts[i];
    const NamedText* const hypothesis = pairs.hypotheses[i];
    const AlignedTranscripts aligned =
        align_transcripts(apply_rules(rules, reference.text),
                          hypothesis ? apply_rules(rules, hypothesis->text) : std::string());
    EvaluatedUtterance utterance;
    utterance.index = static_cast<int64_t>(i);
    utterance.name = references.named ? reference.name : str(references.file, ":", reference.line);
    utterance.speaker = group_of(o, reference, speakers);
    const ErrorRate one(aligned.word_counts, aligned.character_counts, 1,
                        aligned.character_counts.errors() > 0);
    r.errors.add(utterance, aligned);
    r.evaluation.errors += one;
    if (r.group_is_asked_for) r.groups[utterance.speaker] += one;
  }
  r.evaluation.utterances = r.evaluation.errors.utterances();
  return r;
}

int run_score(const ScoreOptions& o) {
  const OutputFile report{o.report, "--report"};
  for (const std::string& file : {o.reference, o.hypothesis, o.speakers})
    if (!file.empty()) report.require_not(file, "a file of texts");
  require_folder_of(o.report);
  const std::string& second = o.hypothesis.empty() ? o.reference : o.hypothesis;
  const NamedTexts references = read_named_texts(o.reference, o.ids, TextRole::reference);
  const NamedTexts hypotheses = read_named_texts(second, o.ids, TextRole::hypothesis);
  const auto& fields = references.texts.front().fields;
  const bool has_both =
      fields.contains("reference") || (fields.contains("text") && fields.contains("pred_text"));
  if (o.hypothesis.empty() && !has_both) {
    fail_input(o.reference,
               ": has no \"reference\" beside a hypothesis, nor \"text\" beside \"pred_text\": the "
               "file of the hypotheses comes second");
  }
  require_group(o, references);
  const TextPairs pairs = pair_texts(references, hypotheses);
  warn_of_odd_ones(references, hypotheses, pairs);
  if (look_like_ids(references, hypotheses))
    warn(str(references.file,
             ": the first words look like names of utterances, which --ids "
             "takes from the texts"));
  const EvalResults results = compare(o, references, hypotheses, pairs);
  if (!o.report.empty()) replace_text_file(o.report, evaluation_html(results_page(results)));
  if (o.json) {
    std::printf("%s\n", results_json(results).dump().c_str());
  } else {
    print_text(results);
  }
  return 0;
}

}  // namespace

void add_score(Command& program) {
  Command& command =
      program.add_command("score", "Error rates of texts that any program wrote, without a model");
  auto o = std::make_shared<ScoreOptions>();
  command
      .add_option("reference", o->reference,
                  "what should have been written: .jsonl, .trn, .ctm, .stm, .srt, .vtt, or a text "
                  "in each line")
      .required()
      .check(check_file_name);
  command
      .add_option("hypothesis", o->hypothesis,
                  "what was written; none: .jsonl with both, as eval --hypotheses or NeMo write")
      .check(check_file_name);
  command.add_flag("--ids", o->ids,
                   "lines begin with the name of their utterance, as in Kaldi's text");
  add_text_options(command, &o->text);
  command.add_option("--group-by", o->group,
                     "rates for each value of this field of the reference (.jsonl)");
  command.add_option("--speakers", o->speakers,
                     "rates of each speaker; a line: utterance, speaker, as Kaldi's utt2spk");
  command.add_option("--report", o->report, "write a page (HTML) with the errors in detail");
  command.add_flag("--json", o->json, "one JSON object instead of text");
  command.footer(
      "\nExample:  rondo score test.jsonl recognised.jsonl --group-by speaker\n"
      "          rondo score data/test/text exp/hypotheses --ids --report report.html\n");
  command.action([o] { return run_score(*o); });
}

}  // namespace rondo
