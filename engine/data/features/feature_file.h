// Ready features in files: .npy, a tensor of a .safetensors file (one file may hold many
// utterances; each reading opens it anew, so very large ones are better split), or a part of a file
// that is a .npy file or a matrix of a Kaldi archive (kaldi_matrix.h); [frames, dim], also with a
// batch of one, [1, frames, dim] or [frames, 1, dim], or [frames] for a signal of one value per
// frame.
//
// Errors: InputError that names the file: unknown ending, wrong shape or type, no frames. Thread
// safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/features/file_part.h"
#include "engine/data/features/matrix.h"

namespace rondo {

class SafetensorsFile;

struct FeatureShape {
  int64_t frames = 0;
  int32_t dim = 0;
};

// `key` names the tensor of a .safetensors file; empty: its only tensor, or the one called
// "features". A .npy file has no keys.
FeatureShape feature_file_shape(const FilePart& file, const std::string& key);
Matrix read_feature_file(const FilePart& file, const std::string& key);
// The same from a .safetensors file that is open (elements F32, F64 or BF16).
Matrix features_from(const SafetensorsFile& file, const std::string& key);

// The same of the bytes of a .npy file; `name` stands for the file in messages.
Matrix features_from_npy(std::span<const std::byte> bytes, const std::string& name);

// InputError that names `file`, the frame and the column of a value that is not finite.
void require_finite(const Matrix& features, const std::string& file);

// Integers from a .npy file of one dimension (classes of frames).
std::vector<int32_t> read_integer_file(const std::string& path);

// Atomically, as '<f4' [frames, dim].
void write_feature_file(const std::string& path, const Matrix& features);

}  // namespace rondo
