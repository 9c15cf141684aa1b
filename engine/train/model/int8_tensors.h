// Weights as a model file with 8 bits has them.
//
// Tensors of two dimensions and more than one row become I8 with a scale for each row
// (engine/io/safetensors.h), of 17 bits, so that their products are exact: what reads the file
// rounds to the same integers and scales again (kernels/gemm/int8.h). Others stay as they are.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"

namespace rondo {

class Int8Tensors {
 public:
  // Of F32. InputError, which begins with `where`, for weights that are not finite.
  Int8Tensors(std::span<const TensorToWrite> tensors, const std::string& where);

  // What is written, and what it stands for; both live as long as the object.
  std::vector<TensorToWrite> stored() const;
  std::vector<TensorToWrite> meant() const;

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::vector<int8_t> integers;  // empty: it stays
    std::vector<float> scales;
  };
  void round(Tensor& tensor, const std::string& where) const;
  std::vector<Tensor> tensors_;
};

}  // namespace rondo
