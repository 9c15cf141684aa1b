// A network as nodes of ONNX.
//
// Values are batches that are padded to their longest sequence, [N, T, columns]; lengths [N] i64
// say where each ends, and what lies behind changes nothing: it is set to zero wherever an operator
// of ONNX would look at it. Values of columns of pixels (Level::column) are [N T, height, columns].
#pragma once

#include <span>
#include <string>

#include "engine/graph/graph.h"
#include "engine/io/safetensors.h"
#include "engine/train/onnx/onnx_graph.h"

namespace rondo::onnx {

struct Exported {
  Name outputs;  // [N, T', columns], or [N, columns] of what is one row per sequence
  Name lengths;  // of the outputs; empty for one row per sequence
};

// Whether each frame of each sequence is there, [N, T, 1]; `like` is [N, T, ...]. As 1 and 0, f32.
Name frames_there(Model& model, const Name& like, const Name& lengths);
Name as_numbers(Model& model, const Name& truth);

// Of batches whole sequences; of streams the next frames of each, with what the layers remember as
// inputs and outputs besides: `LAYER.h`, `LAYER.c` [1, N, hidden] of an LSTM and `LAYER.past`
// [N, frames, columns] of a convolution, and the same with `.next` behind the name. All begin as
// zeros.
enum class Lifetime { batches, streams };

// `graph` is for inference, in f32, with the loss at its end, whose input is exported; `weights` is
// the model's file. Throws InputError, which names the layer, for what ONNX has no operator for.
Exported export_graph(Model& model, const Graph& graph, const SafetensorsFile& weights,
                      const Name& features, const Name& lengths, Lifetime lifetime);

}  // namespace rondo::onnx
