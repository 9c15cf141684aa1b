// What rondo eval says: text and JSON.
#include "tools/recognition/eval_results.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/report/progress.h"
#include "engine/train/model/open_data.h"
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
    case Task::regress:
      std::printf("loss %.6g on %s\n", e.loss, utterances.c_str());
      break;
  }
}

void print_rates_of_ctc(const EvalResults& r) {
  const char* const noun = noun_of(r.kind);
  const Evaluation& e = r.evaluation;
  const EditCounts& w = e.errors.words();
  std::printf("%s: %lld substituted, %lld inserted, %lld deleted\n",
              counted(w.reference, "word").c_str(), static_cast<long long>(w.substitutions),
              static_cast<long long>(w.insertions), static_cast<long long>(w.deletions));
  if (r.unwritable) print_unwritable(*r.unwritable, e.errors, noun);
  for (const auto& [value, rates] : r.groups) print_rates(group_label(r, value), rates, noun);
  std::printf("loss %s per %s", loss_text(e.loss).c_str(), noun);
  if (e.infeasible) {
    std::printf(", without %lld whose text is too long for their frames",
                static_cast<long long>(e.infeasible));
  }
  std::printf("\n");
}

void print_errors(const ErrorAnalysis& errors, const char* noun) {
  std::string confused;
  for (const auto& c : errors.confused_words(confusions_in_text).substitutions) {
    confused +=
        str(confused.empty() ? "" : ", ", c.reference, " as ", c.hypothesis, " (", c.count, ")");
  }
  if (!confused.empty()) std::printf("most confused: %s\n", confused.c_str());
  if (errors.worst().empty()) return;
  const report::AlignedUtterance& worst = errors.worst().front();
  std::printf("worst %s: %s (%s in %s)\n", noun, worst.name.c_str(),
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
  if (e.audio_seconds > 0) {
    std::printf("%.1f s of audio in %.1f s: %.0f times real time (%s)\n", e.audio_seconds,
                e.seconds, e.audio_seconds / e.seconds, r.model.c_str());
  }
  if (r.task == Task::ctc) print_errors(r.errors, noun_of(r.kind));
}

Json results_json(const EvalResults& r) {
  const Evaluation& e = r.evaluation;
  Json j = Json::object({{"model", r.model_file},
                         {"manifest", r.manifest},
                         {"loss", std::isnan(e.loss) ? Json() : Json(e.loss)},
                         {"utterances", e.utterances},
                         {"seconds", e.seconds},
                         {"audio_seconds", e.audio_seconds}});
  if (!r.others.empty()) j["averaged_with"] = r.others;
  if (r.task == Task::ctc) {
    Json all = rates_json(e.errors);
    all["wer_interval"] = interval_json(r.errors.wer_interval());
    all["cer_interval"] = interval_json(r.errors.cer_interval());
    j["all"] = all;
  }
  if (r.unwritable && r.unwritable->any()) {
    j["unwritable"] = unwritable_json(*r.unwritable, e.errors);
  }
  if (r.task == Task::classify) j["error"] = e.value(Metric::error);
  for (const auto& [value, rates] : r.groups) {
    j["groups"][r.group + "=" + value] = rates_json(rates);
  }
  return j;
}

}  // namespace rondo
