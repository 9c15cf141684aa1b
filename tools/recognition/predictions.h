// What a model said of its inputs, written for people and programs.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "tools/recognition/inputs.h"

namespace rondo {

enum class PredictionFormat { text, jsonl, npy, ctm, text_grid, srt, vtt };

// Of --format: "text", "jsonl", "npy", "ctm", "textgrid", "srt" or "vtt".
PredictionFormat prediction_format(const std::string& name);

struct PredictionStyle {
  PredictionFormat format = PredictionFormat::text;
  // Where files go, one for each input: npy, and if it is not empty TextGrid, SRT and VTT.
  std::string folder;
  bool named = false;  // text: a line begins with the input's name and a tab
};

// Formats of words or subtitles with their times in seconds.
bool is_timed(PredictionFormat format);
// Throws WrongUsage for --out with a format that goes to standard output, and for a format of files
// without it, unless it is subtitles or a TextGrid of a single input (not `named`).
void require_fitting_output(const PredictionStyle& style, const std::string& format);
// Throws InputError where the files of two inputs would be one, and for a name that is not UTF-8 in
// jsonl.
void require_fitting_names(const PredictionStyle& style, const std::vector<ModelInput>& inputs);

// On standard output, or into a file, whose name is written then. `extent`: of the input.
// Tokens of an image have their places in its pixels already. Throws InputError for a file that
// cannot be written.
void write_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                      const Prediction& prediction, const InputExtent& extent);

// What jsonl writes.
Json prediction_json(Task task, const ModelInput& input, const Prediction& prediction,
                     const InputExtent& extent);

// Where the file of an input goes: FOLDER/NAME.npy, .TextGrid, .srt or .vtt.
std::string output_path(const PredictionStyle& style, const ModelInput& input);

}  // namespace rondo
