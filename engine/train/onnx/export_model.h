// A trained model as a file of ONNX.
//
// Inputs, of N sequences that are padded to the longest:
//   samples [N, samples] f32, full scale [-1, 1], of the model's rate; or, of models of other
//   things than sound and where it is asked for, features [N, frames, columns] f32, not normalised
//   lengths [N] i64, of each sequence
// Outputs:
//   logits [N, frames of output, classes] f32, of which class 0 is the blank, and output_lengths
//   [N] i64; of models that are not ctc: outputs [N, columns]
// Of streams, the next part of each sequence, all of one length, and no lengths:
//   samples: a part begins `overlap` samples before the part before it ends, the first with the
//   sound; or features. Either is a multiple of what the metadata's "stream" says. What layers
//   remember are inputs and outputs besides (export_graph.h).
// The file's metadata have what `rondo info --json` says: the alphabet, rates and settings.
// What lies behind a sequence's end may be anything and changes nothing.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "engine/io/safetensors.h"

namespace rondo {

enum class OnnxInput { automatic, features };

struct OnnxOptions {
  OnnxInput input = OnnxInput::automatic;
  bool streams = false;
  std::string version;   // rondo's
  std::string metadata;  // JSON about the model
};

// The bytes of the file. Throws InputError, which names the model and the layer, for what has no
// form in ONNX, and of streams for what `rondo transcribe --stream` does not take either.
std::string onnx_of_model(const SafetensorsFile& model, const OnnxOptions& options);

}  // namespace rondo
