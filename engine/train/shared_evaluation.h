// Evaluation shared out over ranks.
#pragma once

#include <vector>

#include "engine/reduce/ranks.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/training_report.h"

namespace rondo {

// evaluate() over all ranks: each takes its share of the batches, all get the whole result, the
// same as of one rank, bit for bit. `samples` (may be nullptr) receives, on rank 0, the hypotheses
// of the first training.samples utterances of the data. Throws as Ranks::together does. `stop` is
// asked between batches; where one rank's says yes, the result of all is marked stopped.
Evaluation evaluate_together(const Ranks& ranks, EvaluatedModel& model, const ManifestDataset& data,
                             const Config& config, const Alphabet* text,
                             std::vector<SampleHypothesis>* samples,
                             const std::function<bool()>& stop = {});

// evaluate() over all ranks by `options`, but for its parts, in which each rank takes a part. On
// rank 0 `each` sees every utterance, in evaluate()'s order; of several ranks without labels and
// scores. Ranks that are ready wait as long as others are at work, see together_at_length() for
// `patience`.
Evaluation evaluate_together(const Ranks& ranks, CommClock::duration patience,
                             EvaluatedModel& model, const ManifestDataset& data,
                             const Alphabet* text, EvaluationOptions options,
                             const std::function<void(const Hypothesis&)>& each);

}  // namespace rondo
