// What a model said of its inputs, written for people and programs.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "tools/recognition/inputs.h"

namespace rondo {

enum class PredictionFormat { text, jsonl, npy };

struct PredictionStyle {
  PredictionFormat format = PredictionFormat::text;
  std::string folder;  // npy: where the files go
  bool named = false;  // text: a line begins with the input's name and a tab
};

// One line on standard output, or a file and its name. `extent`: of the input. Tokens of an image
// have their places in its pixels already. Throws InputError for a file that cannot be written.
void write_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                      const Prediction& prediction, const InputExtent& extent);

// Where the outputs of an input go: FOLDER/NAME.npy.
std::string npy_path(const PredictionStyle& style, const ModelInput& input);

}  // namespace rondo
