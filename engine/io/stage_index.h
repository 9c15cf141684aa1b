// Which file of a checkpoint holds what, where the stages of a pipeline have written their own.
//
// index.json, a file of the generation like the others:
//   {"format": "rondo stages 1",
//    "model": {what model.safetensors has as metadata},
//    "tensors": {"lstm0.0.w": "model-stage-0-of-2.safetensors", ...},
//    "optimizer": [{"files": ["optimizer-stage-0-of-2.safetensors"], "elements": 8256,
//                   "offsets": {"lstm0.0.w": 0, ...}}, ...]}
//
// An entry of "optimizer" is one stage's: its parameters lie in flat arrays of so many elements, in
// row-major order from these offsets. A file holds the arrays by name ("first_moment"); where a
// stage has N files, file r holds the blocks of part r of N (PartLayout).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/io/checkpoint.h"

namespace rondo {

inline constexpr const char* stage_index_file = "index.json";

// What a stage's file of weights has in its metadata: "1 of 3".
inline constexpr const char* stage_key = "stage";

struct StageIndex {
  struct Stage {
    std::vector<std::string> files;
    int64_t elements = 0;
    std::map<std::string, int64_t> offsets;
  };
  StringMap model;
  std::map<std::string, std::string> tensors;
  std::vector<Stage> optimizer;

  std::string to_json() const;
  // Throws InputError naming `where`.
  static StageIndex from_json(std::string_view json, const std::string& where);
};

// The weights of a checkpoint and the description of the model, in whatever files they are. Throws
// InputError: files that the checkpoint does not have, a tensor that is missing, in two files, or
// in another one than the index says.
SafetensorsFile open_weights(const Checkpoint& checkpoint);

}  // namespace rondo
