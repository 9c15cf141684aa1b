// What `rondo eval` tells of two models: text, JSON, a page.
#pragma once

#include "engine/data/dataset.h"
#include "engine/io/json.h"
#include "engine/report/evaluation_report.h"
#include "engine/train/recognition/run_comparison.h"
#include "tools/evaluation/results.h"

namespace rondo {

// To standard output.
void print_comparison(const EvalResults& first, const EvalResults& second,
                      const RunComparison& comparison);
Json comparison_json(const EvalResults& first, const EvalResults& second,
                     const RunComparison& comparison);
// `data`, `readers`: for images and sounds of what changed most. Throws InputError.
report::EvaluationPage comparison_page(const EvalResults& first, const EvalResults& second,
                                       const RunComparison& comparison, const ManifestDataset& data,
                                       const MediaReaders& readers);

}  // namespace rondo
