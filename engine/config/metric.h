// What chooses among the models of a run: training.metric.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/config/config.h"

namespace rondo {

// "cer", "wer", "error" or "loss"; "auto".
const char* name_of(Metric metric);
std::optional<Metric> metric_named(std::string_view name);

// As people write it: "CER", "WER", "error", "loss".
std::string title_of(Metric metric);

// "CER 3.21%", "WER 3.21%", "error 3.21%" or "loss 0.123".
std::string metric_text(Metric metric, double value);

// Of a task whose data say nothing else: the word error rate, the error rate, the loss.
Metric usual_metric(Task task);

// Throws InputError where training.metric is none of the task's.
void require_metric(const Config& config);

}  // namespace rondo
