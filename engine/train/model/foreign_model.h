// A model that was read from another program's file, before it is written as one of ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/train/model/model_file.h"

namespace rondo {

struct ForeignModel {
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  ModelDescription description;
  std::vector<Tensor> tensors;  // named as in a model file
  // What is different from the program that it comes from, or goes to: sentences.
  std::vector<std::string> remarks;
};

}  // namespace rondo
