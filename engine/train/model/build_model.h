// The graph a configuration describes.
#pragma once

#include <cstdint>

#include "engine/config/config.h"
#include "engine/session.h"
#include "engine/train/model/model_description.h"
#include "kernels/devices.h"

namespace rondo {

// Names of the graph inputs.
inline constexpr const char* features_input = "features";
inline constexpr const char* targets_input = "targets";  // classify, regress

// features -> model.layer... -> [pooling] -> linear -> loss. Prediction: the linear layer's output.
// `training`: of what is built for it, the layers that keep their weights (freeze_before).
ModelFunction build_model(const ModelConfig& model, Task task, const ModelSizes& sizes,
                          const TrainingConfig& training = {});

// A model in use on `device`: its graph, without dropout and gradients.
ModelFunction model_in_use(const ModelDescription& description, DeviceId device);
Graph inference_graph(const ModelDescription& description, DeviceId device = {});

// Frames of the features per frame of the output, and how many frames an utterance of `frames`
// leaves for its labels.
int64_t subsampling_of(const ModelConfig& model);
int64_t output_frames_of(const ModelConfig& model, int64_t frames);

SessionOptions session_options(const Config& config, DeviceId device);

}  // namespace rondo
