#include "engine/config/metric.h"

#include "engine/text/error_rate.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {

const char* name_of(Metric metric) {
  switch (metric) {
    case Metric::automatic:
      break;
    case Metric::cer:
      return "cer";
    case Metric::wer:
      return "wer";
    case Metric::loss:
      return "loss";
    case Metric::error:
      return "error";
  }
  return "auto";
}

std::optional<Metric> metric_named(std::string_view name) {
  for (const Metric m : {Metric::cer, Metric::wer, Metric::error, Metric::loss}) {
    if (name == name_of(m)) return m;
  }
  return std::nullopt;
}

std::string title_of(Metric metric) {
  return metric == Metric::cer ? "CER" : metric == Metric::wer ? "WER" : name_of(metric);
}

std::string metric_text(Metric metric, double value) {
  const bool of_texts = metric == Metric::cer || metric == Metric::wer;
  if (of_texts) return title_of(metric) + " " + percent_text(value);
  if (metric == Metric::error) return "error " + fixed_text(100 * value, 2) + "%";
  return "loss " + short_text(value, 4);
}

Metric usual_metric(Task task) {
  switch (task) {
    case Task::ctc:
      return Metric::wer;
    case Task::classify:
      return Metric::error;
    case Task::regress:
      break;
  }
  return Metric::loss;
}

void require_metric(const Config& config) {
  const Metric metric = config.training.metric;
  if (config.task == Task::ctc || (metric != Metric::cer && metric != Metric::wer)) return;
  const bool classes = config.task == Task::classify;
  fail_input("training.metric is \"", name_of(metric), "\", a rate of errors in texts, and task ",
             classes ? "\"classify\"" : "\"regress\"", " writes none; expected \"auto\" (",
             classes ? "the share of wrong classes" : "the loss", ") or \"loss\"");
}

}  // namespace rondo
