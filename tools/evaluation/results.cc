// What rondo eval and rondo score say: text and JSON.
#include "tools/evaluation/results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/report/progress.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "engine/train/model/model_file.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t confusions_in_text = 5;

void print_rates(const std::string& name, const ErrorRate& e, const char* noun) {
  std::printf(
      "%-24s WER %7s  CER %7s  %5lld %s%s, %s (%lld substituted, %lld inserted, %lld deleted)\n",
      name.c_str(), percent_text(e.wer()).c_str(), percent_text(e.cer()).c_str(),
      static_cast<long long>(e.utterances()), noun, e.utterances() == 1 ? "" : "s",
      counted(e.words().reference, "word").c_str(), static_cast<long long>(e.words().substitutions),
      static_cast<long long>(e.words().insertions), static_cast<long long>(e.words().deletions));
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

void print_unwritable(const Unwritable& text, const ErrorRate& e, const char* noun) {
  if (!text.any()) return;
  std::printf("%s\n  at least WER %s CER %s come of these alone\n", text.sentence(noun).c_str(),
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

std::string r2_text(double r2) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", r2);
  return std::isnan(r2) ? "n/a" : text;
}

struct ConfusedClasses {
  size_t reference = 0, answer = 0;
  int64_t count = 0;
};

// The most frequent first.
std::vector<ConfusedClasses> confused_classes(const EvalResults& r) {
  std::vector<ConfusedClasses> all;
  for (size_t i = 0; i < r.matrix.size(); ++i) {
    for (size_t j = 0; j < r.matrix[i].size(); ++j) {
      if (i != j && r.matrix[i][j] > 0) all.push_back({i, j, r.matrix[i][j]});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  return all;
}

std::string name_of_class(const EvalResults& r, size_t index) {
  return class_text(r.classes, static_cast<int64_t>(index));
}

void print_rates_of_classes(const EvalResults& r) {
  const char* const noun = noun_of(r.kind);
  for (const auto& [value, w] : r.wrong_in_groups) {
    std::printf("%-24s error %s  %s\n", group_label(r, value).c_str(),
                percent_text(share(w.wrong, w.all)).c_str(), counted(w.all, noun).c_str());
  }
  std::vector<ConfusedClasses> all = confused_classes(r);
  all.resize(std::min(all.size(), confusions_in_text));
  std::string confused;
  for (const ConfusedClasses& c : all) {
    confused += str(confused.empty() ? "" : ", ", name_of_class(r, c.reference), " as ",
                    name_of_class(r, c.answer), " (", c.count, ")");
  }
  if (!confused.empty()) std::printf("most confused: %s\n", confused.c_str());
}

// Of several numbers per utterance.
void print_columns(const EvalResults& r) {
  const std::vector<RegressionErrors::Figures> columns = r.regression.columns();
  for (size_t i = 0; columns.size() > 1 && i < columns.size(); ++i) {
    const RegressionErrors::Figures& f = columns[i];
    std::printf("  number %zu: MAE %.6g RMSE %.6g R2 %s\n", i + 1, f.mae, f.rmse,
                r2_text(f.r2).c_str());
  }
  std::printf("loss %.6g per %s\n", r.evaluation.loss, noun_of(r.kind));
}

void print_headline(const EvalResults& r) {
  const Evaluation& e = r.evaluation;
  const std::string utterances = counted(e.utterances, noun_of(r.kind));
  switch (r.task) {
    case Task::ctc:
      std::printf("WER %s CER %s on %s\n", percent_text(e.errors.wer()).c_str(),
                  percent_text(e.errors.cer()).c_str(), utterances.c_str());
      break;
    case Task::classify:
      std::printf("error %.2f%% on %s\n", 100 * e.value(Metric::error), utterances.c_str());
      break;
    case Task::regress: {
      const RegressionErrors::Figures f = r.regression.all();
      std::printf("MAE %.6g RMSE %.6g R2 %s on %s\n", f.mae, f.rmse, r2_text(f.r2).c_str(),
                  utterances.c_str());
      break;
    }
  }
}

void print_rates_of_ctc(const EvalResults& r) {
  const char* const noun = noun_of(r.kind);
  const Evaluation& e = r.evaluation;
  const EditCounts& w = e.errors.words();
  std::printf("%s: %lld substituted, %lld inserted, %lld deleted\n",
              counted(w.reference, "word").c_str(), static_cast<long long>(w.substitutions),
              static_cast<long long>(w.insertions), static_cast<long long>(w.deletions));
  if (const auto bare = r.errors.words_without_punctuation())
    std::printf("without punctuation: WER %s\n", percent_text(bare->rate()).c_str());
  if (r.unwritable) print_unwritable(*r.unwritable, e.errors, noun);
  for (const auto& [value, rates] : r.groups) print_rates(group_label(r, value), rates, noun);
  if (!r.hypotheses.empty()) return;
  std::printf("loss %s per %s", loss_text(e.loss).c_str(), noun);
  if (e.infeasible) {
    std::printf(", without %lld whose text is too long for their frames",
                static_cast<long long>(e.infeasible));
  }
  std::printf("\n");
}

// Letters from right to left would change the order of what stands around the word: Unicode's
// isolates keep them apart.
std::string apart(const std::string& word) {
  const std::vector<char32_t> points = code_points(word);
  if (std::none_of(points.begin(), points.end(), is_written_leftwards)) return word;
  return "\u2068" + word + "\u2069";
}

void print_errors(const ErrorAnalysis& errors, const char* noun) {
  std::string confused;
  for (const auto& c : errors.confused_words(confusions_in_text).substitutions) {
    confused += str(confused.empty() ? "" : ", ", apart(c.reference), " as ", apart(c.hypothesis),
                    " (", c.count, ")");
  }
  if (!confused.empty()) std::printf("most confused: %s\n", confused.c_str());
  if (errors.worst().empty()) return;
  const report::AlignedUtterance& worst = errors.worst().front();
  std::printf("worst %s: %s%s%s (%s in %s)\n", noun, printable(worst.name).c_str(),
              worst.note.empty() ? "" : ", ", printable(worst.note).c_str(),
              counted(worst.words.errors(), "error").c_str(),
              counted(worst.words.reference, "word").c_str());
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

Json rate_json(const EditCounts& counts) {
  return counts.reference > 0 ? Json(counts.rate()) : Json();
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json figures_json(const RegressionErrors::Figures& f) {
  return Json::object(
      {{"mae", number_json(f.mae)}, {"rmse", number_json(f.rmse)}, {"r2", number_json(f.r2)}});
}

void add_regression(const RegressionErrors& regression, Json& j) {
  const Json all = figures_json(regression.all());
  for (const auto& [name, value] : all.members()) j[name] = value;
  const std::vector<RegressionErrors::Figures> columns = regression.columns();
  if (columns.size() < 2) return;
  j["columns"] = Json::array();
  for (const RegressionErrors::Figures& f : columns) j["columns"].push_back(figures_json(f));
}

// By class, and which are taken for which.
void add_classification(const EvalResults& r, Json& j) {
  j["error"] = r.evaluation.value(Metric::error);
  j["classes"] = Json::array();
  for (size_t i = 0; i < r.matrix.size(); ++i) {
    int64_t all = 0;
    for (const int64_t n : r.matrix[i]) all += n;
    j["classes"].push_back(Json::object({{"class", class_json(r.classes, static_cast<int64_t>(i))},
                                         {"utterances", all},
                                         {"wrong", all - r.matrix[i][i]}}));
  }
  j["confused"] = Json::array();
  for (const ConfusedClasses& c : confused_classes(r)) {
    j["confused"].push_back(
        Json::array({class_json(r.classes, static_cast<int64_t>(c.reference)),
                     class_json(r.classes, static_cast<int64_t>(c.answer)), c.count}));
  }
  for (const auto& [value, w] : r.wrong_in_groups) {
    j["groups"][r.group + "=" + value] =
        Json::object({{"error", share(w.wrong, w.all)}, {"utterances", w.all}, {"wrong", w.wrong}});
  }
}

Json interval_json(const std::optional<RateInterval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json();
}

}  // namespace

// Groups that the demo corpus marks itself have words; the others are named by field and value.
std::string group_label(const EvalResults& r, const std::string& value) {
  if (!r.group_is_asked_for && value == "true") return "seen voices";
  if (!r.group_is_asked_for && value == "false") return "unseen voices";
  return r.group + " " + value;
}

void print_text(const EvalResults& r) {
  const Evaluation& e = r.evaluation;
  print_headline(r);
  if (r.task == Task::ctc) print_rates_of_ctc(r);
  if (r.task == Task::classify) print_rates_of_classes(r);
  if (r.task == Task::regress) print_columns(r);
  if (e.audio_seconds > 0) {
    std::printf("%.1f s of audio in %.1f s: %.0f times real time (%s)\n", e.audio_seconds,
                e.seconds, e.audio_seconds / e.seconds, r.model.c_str());
  }
  if (r.task == Task::ctc) print_errors(r.errors, noun_of(r.kind));
}

Json results_json(const EvalResults& r) {
  const Evaluation& e = r.evaluation;
  Json j = Json::object({{"reference", r.manifest}, {"hypothesis", r.hypotheses}});
  if (r.hypotheses.empty()) {
    j = Json::object({{"model", r.model_file},
                      {"manifest", r.manifest},
                      {"loss", std::isnan(e.loss) ? Json() : Json(e.loss)}});
  }
  j["utterances"] = e.utterances;
  if (r.hypotheses.empty()) {
    j["seconds"] = e.seconds;
    j["audio_seconds"] = e.audio_seconds;
  }
  if (!r.others.empty()) j["averaged_with"] = r.others;
  if (r.task == Task::ctc) {
    Json all = rates_json(e.errors);
    all["wer_interval"] = interval_json(r.errors.wer_interval());
    all["cer_interval"] = interval_json(r.errors.cer_interval());
    if (const auto bare = r.errors.words_without_punctuation())
      all["wer_without_punctuation"] = rate_json(*bare);
    j["all"] = all;
  }
  if (r.unwritable && r.unwritable->any()) {
    j["unwritable"] = unwritable_json(*r.unwritable, e.errors);
  }
  if (r.task == Task::classify) add_classification(r, j);
  if (r.task == Task::regress) add_regression(r.regression, j);
  for (const auto& [value, rates] : r.groups) {
    j["groups"][r.group + "=" + value] = rates_json(rates);
  }
  return j;
}

}  // namespace rondo
