// What `rondo eval` and `rondo score` find, and the forms in which they tell it: text, JSON, a
// page.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/data/manifest.h"
#include "engine/io/json.h"
#include "engine/report/charts.h"
#include "engine/report/evaluation_report.h"
#include "engine/text/unwritable.h"
#include "engine/train/model/model_description.h"
#include "engine/train/recognition/error_analysis.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/regression_errors.h"
#include "tools/evaluation/media.h"

namespace rondo {

struct EvalResults {
  std::string model, model_file, manifest;  // as given; the file that was read
  std::string hypotheses;           // a file of texts, of which no model is known; empty: a model's
  std::vector<std::string> others;  // that it was averaged with, as given
  Task task = Task::ctc;
  InputKind kind = InputKind::recording;  // of the data
  Evaluation evaluation;
  std::optional<LearningCurve> curve;  // of the run that made the model
  Config config;                       // of that run, as the model has it
  ModelOrigin origin;
  std::string search;  // how texts are found; empty: each frame's best class

  // ctc
  ErrorAnalysis errors;
  std::string group;                        // a field of the manifest; empty: none
  bool group_is_asked_for = false;          // --group-by, not what the demo corpus marks
  std::map<std::string, ErrorRate> groups;  // by the field's value
  std::optional<Unwritable> unwritable;
  std::vector<WorstMedia> worst_media;  // of errors.worst()

  // classify
  std::vector<std::vector<int64_t>> matrix;  // [reference][answer]
  std::vector<std::string> classes;          // their names; empty: they have none
  struct Wrong {
    int64_t wrong = 0, all = 0;
  };
  std::map<std::string, Wrong> wrong_in_groups;  // by the field's value

  // regress
  RegressionErrors regression;
  std::vector<report::Regression::Utterance> worst;  // the highest losses first
};

// To standard output.
void print_text(const EvalResults& results);
Json results_json(const EvalResults& results);
report::EvaluationPage results_page(const EvalResults& results);

// The name of a group for people.
std::string group_label(const EvalResults& results, const std::string& value);

}  // namespace rondo
