// Which utterances of the training data an epoch holds, from a configuration and its manifest.
#pragma once

#include "engine/config/config.h"
#include "engine/data/dataset.h"
#include "engine/data/sampler.h"

namespace rondo {

// Weights (data.weight_field) or classes (data.class_field) as the manifest's lines give them.
// Throws InputError that names the line without one, or what is wrong with it.
Draws open_draws(const Config& config, const ManifestDataset& data);

}  // namespace rondo
