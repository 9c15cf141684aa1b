// What rondo eval and rondo score write with --report.
#include <cmath>
#include <limits>

#include "engine/config/metric.h"
#include "engine/report/progress.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"
#include "tools/evaluation/results.h"

namespace rondo {
namespace {

constexpr size_t most_confusions = 20;

std::optional<report::Interval> interval_of(const std::optional<RateInterval>& interval) {
  if (!interval) return std::nullopt;
  return report::Interval{interval->low, interval->high};
}

report::RateTable group_table(const EvalResults& r) {
  report::RateTable table{"Voices", "voices", {}};
  if (r.group_is_asked_for) table = {"By " + r.group, r.group, {}};
  for (const auto& [value, rates] : r.groups) {
    const std::string label = r.group_is_asked_for ? value : group_label(r, value);
    table.rows.push_back(rates_for_report(label.empty() ? "unknown" : label, rates));
  }
  return table;
}

std::string trained_text(const ModelOrigin& origin) {
  std::string text = counted(origin.updates, "update");
  if (origin.averaged > 0) text += str(", mean of ", counted(origin.averaged, "checkpoint"));
  if (std::isfinite(origin.metric)) text += ", dev " + metric_text(origin.chosen_by, origin.metric);
  return text;
}

report::Transcription transcription_of(const EvalResults& r) {
  report::Transcription t;
  const ErrorRate& e = r.evaluation.errors;
  t.all = rates_for_report("all", e);
  t.wrong_utterances = e.wrong_utterances();
  t.wer_interval = interval_of(r.errors.wer_interval());
  t.cer_interval = interval_of(r.errors.cer_interval());
  const std::string nouns = str(noun_of(r.kind), "s");
  if (const auto bare = r.errors.words_without_punctuation()) {
    t.bare_words = counts_for_report(*bare);
    t.bare_interval = interval_of(r.errors.interval_without_punctuation());
  }
  t.characters_first = r.kind == InputKind::image;
  t.interval_method =
      str("The 95% interval is a percentile bootstrap over ", nouns, ": ", bootstrap_samples,
          " draws of as many ", nouns, ", with replacement, from a fixed seed. It takes ", nouns,
          " for independent; with few ", r.kind == InputKind::image ? "books or hands" : "speakers",
          " it is too narrow.");
  t.tables.push_back(group_table(r));
  // Not twice the same.
  if (r.group != "speaker") t.tables.push_back(r.errors.by_speaker());
  t.tables.push_back(r.errors.by_length());
  t.words = r.errors.confused_words(most_confusions);
  t.characters = r.errors.confused_characters(most_confusions);
  t.worst = r.errors.worst();
  for (size_t i = 0; i < r.worst_media.size(); ++i) add_media(r.worst_media[i], t.worst.at(i));
  return t;
}

std::vector<std::string> remarks_of(const EvalResults& r) {
  std::vector<std::string> remarks;
  if (r.unwritable && r.unwritable->any())
    remarks.push_back(r.unwritable->sentence(noun_of(r.kind)) + ".");
  if (r.evaluation.infeasible > 0) {
    remarks.push_back(str("The loss leaves out ", counted(r.evaluation.infeasible, noun_of(r.kind)),
                          " whose text is too long for their frames."));
  }
  return remarks;
}

report::EvaluationPage page_of_texts(const EvalResults& r) {
  report::EvaluationPage page;
  page.title = str("Errors in ", r.hypotheses);
  page.facts = {{"reference", r.manifest},
                {"hypothesis", r.hypotheses},
                {"utterances", std::to_string(r.evaluation.utterances)}};
  page.loss = std::numeric_limits<double>::quiet_NaN();
  page.transcription = transcription_of(r);
  return page;
}

}  // namespace

report::EvaluationPage results_page(const EvalResults& r) {
  if (!r.hypotheses.empty()) return page_of_texts(r);
  const Evaluation& e = r.evaluation;
  report::EvaluationPage page;
  page.title = str("Evaluation of ", r.model);
  page.noun = noun_of(r.kind);
  page.facts = {{"model", r.model_file}};
  for (const std::string& other : r.others) page.facts.push_back({"averaged with", other});
  if (r.origin.updates > 0) page.facts.push_back({"trained", trained_text(r.origin)});
  page.facts.push_back({"manifest", r.manifest});
  if (!r.search.empty()) page.facts.push_back({"search", r.search});
  page.facts.push_back({str(page.noun, "s"), std::to_string(e.utterances)});
  if (e.audio_seconds > 0) page.facts.push_back({"recordings", format_duration(e.audio_seconds)});
  page.remarks = remarks_of(r);
  page.loss = e.loss;
  page.curve = r.curve;
  page.settings = to_toml(r.config);
  switch (r.task) {
    case Task::ctc:
      page.transcription = transcription_of(r);
      break;
    case Task::classify:
      page.classification = report::Classification{e.utterances, e.wrong, r.matrix, r.classes};
      break;
    case Task::regress: {
      const RegressionErrors::Figures f = r.regression.all();
      page.regression = report::Regression{e.utterances, r.worst, f.mae, f.rmse, f.r2};
      break;
    }
  }
  return page;
}

}  // namespace rondo
