// What a trained model is given to say something of: recordings, ready features, manifests of
// either, folders of either, standard input.
#pragma once

#include <string>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/io/json.h"
#include "engine/train/recognition/recognizer.h"

namespace rondo {

struct ModelInput {
  std::string name;      // as it was given; a part of a recording has its seconds behind it
  FilePart file;         // "-": standard input
  std::string key = {};  // which tensor of a .safetensors file
  AudioSegment segment = {};
  bool is_audio = true;  // false: ready features
  Json known = Json();   // what a manifest says of it, references among that; else null
};

// The words of a command line, in their order. A manifest (.jsonl) stands for its lines, a folder
// for what is in it at any depth, sorted by name: recordings or, with `ready_features`, .npy
// files; a .safetensors file for its tensors. Throws InputError for a manifest that cannot be read
// and for a folder that holds none.
std::vector<ModelInput> inputs_of(const std::vector<std::string>& words, bool ready_features);

// The outputs of a model, [frames, classes]. Throws InputError for values that are NaN.
Matrix read_scores(const ModelInput& input);
// The recording, or all of standard input as one, at `sample_rate`. Throws InputError.
Waveform read_audio(const ModelInput& input, int32_t sample_rate);
// What the model reads of an input; *seconds: the length of a recording. Throws InputError.
Matrix read_features(const ModelInput& input, const Recognizer& model, double* seconds);

}  // namespace rondo
