// A trained model as one safetensors file: weights, and in its metadata everything else that is
// needed to use them (configuration, alphabet, normalisation).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/io/safetensors.h"
#include "engine/session.h"
#include "engine/train/model/model_description.h"

namespace rondo {

// A configuration of defaults, but that task, features, model and text are those of a model: what
// training from its weights cannot change, and what its texts are to be like. Throws as
// open_model(); the defaults where the file has weights alone.
Config config_of_model(const std::string& path);

// "features.bins: 40 -> 80" for every setting by which `wanted` would read or build something else
// than a model with `stored` was trained on: all of task, features and model, but what is for
// training alone (dropout, dither).
std::vector<std::string> differing_from_model(const Config& stored, const Config& wanted);

// Writes the session's weights and the description, with a checksum of both in the metadata, and
// replaces the file at once. Throws InputError. Where the description says int8, tensors of two
// dimensions and more are written as I8 with a scale for each row, and the checksum is of what they
// stand for.
void save_model(const std::string& path, std::span<const TensorToWrite> weights,
                const ModelDescription& description);
void save_model(const std::string& path, const Session& session,
                const ModelDescription& description);

// A model given as a checkpoint directory (its best model; before there is one, the newest whole
// generation), as a generation, or as the file itself. What carries a checksum is compared with it.
// Throws InputError when there is none or it is damaged; *warnings gets a line for each damaged
// generation that was passed over.
SafetensorsFile open_model(const std::string& path, std::vector<std::string>* warnings);

// Throws InputError where the file carries a checksum and is not what it was taken of.
void require_checksum(const SafetensorsFile& file);

// What there is of such a model: weights, descriptions and settings, and its log. Empty when it
// does not exist.
std::vector<std::string> files_of_model(const std::string& path);

// Throws InputError naming file, tensor and element where a weight is not a finite number: such a
// model computes nothing.
void require_finite(const SafetensorsFile& file);

}  // namespace rondo
