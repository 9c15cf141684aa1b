// What a program that uses a model has to know of it: `rondo info --json`, and the metadata of an
// ONNX file.
#pragma once

#include <cstdint>
#include <string>

#include "engine/io/json.h"
#include "engine/train/model/model_description.h"

namespace rondo {

// `weights`: how many there are. `version`: rondo's.
Json model_json(const std::string& file, const ModelDescription& description, int64_t weights,
                const std::string& version);

}  // namespace rondo
