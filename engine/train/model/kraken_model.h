// kraken's models for recognising lines of text, as files of safetensors, read and written.
//
// Such a file has metadata "kraken_meta": JSON {prefix: {"_model": "TorchVGSLModel", "_tasks":
// ["recognition"], "vgsl": the layers with their names, "codec": {character: [label]}, ...}}, and
// tensors <prefix>.nn.<name>.co.weight (convolutions), .layer.weight_ih_l0, ... (LSTMs, as PyTorch
// has them) and .lin.weight (the output). (kraken 7, "Model formats" in its documentation.)
//
// Group normalisation has <name>.layer.weight and .bias. LSTMs that are to read backwards (Lrx) are
// read as what kraken makes of them, which reads forwards.
//
// What a layer computes is the same here and there; pooling drops the frames that fill no window
// (pool2d, whole = true). Of a line the same pixels go in where it is as high as the model's
// images; otherwise the two programs scale differently, by less than a grey level on average.
//
// Errors: InputError that begins with the file's name. Thread safety: functions without state.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/train/model/foreign_model.h"

namespace rondo {

bool is_kraken_model(const SafetensorsFile& file);

// The first model in the file that recognises text.
ForeignModel read_kraken_model(const SafetensorsFile& file);

// Writes a model of this program's, and returns the remarks.
std::vector<std::string> write_kraken_model(const std::string& path, const SafetensorsFile& model);

}  // namespace rondo
