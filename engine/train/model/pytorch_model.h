// A model's weights by the names and shapes of PyTorch's modules, as a file of safetensors, written
// and read.
//
// Layers with weights are `layers.0`, `layers.1`, ... in their order, each LSTM of one layer by
// itself, and the last is `output`. Below that the names are those of nn.LSTM (weight_ih_l0,
// weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0, `_reverse`), nn.Linear, nn.Conv1d, nn.Conv2d,
// nn.LayerNorm and nn.GroupNorm, and so are the shapes. An LSTM here has one bias: it is bias_ih,
// and bias_hh is zero; back, they are added. What has no weights, as dropout, counts for nothing.
//
// Metadata: "format" is "pt"; "layers" is JSON, all layers with their options and, where they have
// weights, their "name" and the width of their "input"; and all that a model file has.
//
// Errors: InputError that begins with the file's name. Thread safety: functions without state.
#pragma once

#include <string>

#include "engine/io/safetensors.h"
#include "engine/train/model/foreign_model.h"

namespace rondo {

// Whether a file has such weights.
bool is_pytorch_model(const SafetensorsFile& file);

// Writes a model of this program's.
void write_pytorch_model(const std::string& path, const SafetensorsFile& model);

// Weights for a model that is described by the metadata of `like`, which may be `file` itself.
ForeignModel read_pytorch_model(const SafetensorsFile& file, const SafetensorsFile& like);

}  // namespace rondo
