// Training of a model that is spread over ranks: world = replicas x pipeline stages.
//
// The same batches, updates, checkpoints and reports as engine/train/trainer.h. A batch is cut into
// replicas x micro-batches parts of equal cost; a replica runs its parts through its pipeline.
// Checkpoints are those of one rank: rank 0 gathers the stages (and needs the host memory of the
// whole model and its optimiser's state for as long as that takes), so a run goes on with any other
// split, or none.
#pragma once

#include "engine/parallel/pipeline_trainer.h"
#include "engine/train/trainer.h"

namespace rondo {

// Whether the settings spread the model, or name replicas of a pipeline.
bool wants_pipeline(const Config& config);

// What `parallel` in the configuration asks for.
PipelineSettings pipeline_settings(const Config& config);

// Called by all ranks; options.group and options.transport are given where there are several.
// Throws as train() does; InputError before the first step for what does not fit the ranks or the
// model.
TrainingSummary train_in_pipelines(const Config& config, const TrainerOptions& options);

}  // namespace rondo
