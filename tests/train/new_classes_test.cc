// Output layers of models that get new characters.
#include <cmath>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/train/state/read_weights.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;

TEST_CASE("a new character begins as the mean of the others, however far all are from 0") {
  const TemporaryFolder folder;
  // Three classes: the blank, a, b. A softmax would be the same without the 50.
  const std::vector<float> weight = {9, 9, 1, 2, 3, 6}, bias = {-47, -52, -58};
  const std::vector<TensorToWrite> tensors = {{"output.weight", DType::f32, {3, 2}, weight.data()},
                                              {"output.bias", DType::f32, {1, 3}, bias.data()}};
  write_safetensors(folder.path("model.safetensors"), tensors);
  const SafetensorsFile file(folder.path("model.safetensors"));
  const ReadEntry read = weights_of(file, same_symbols({"a", "b"}, {"b", "new", "a", "newer"}), 7);
  Parameters::Entry entry;
  entry.name = "output.bias";
  entry.rows = 1, entry.cols = 5;
  std::vector<float> biases(5);
  read(entry, biases);
  CHECK(biases == std::vector<float>{-47, -58, -55, -52, -55});
  entry.name = "output.weight";
  entry.rows = 5, entry.cols = 2;
  std::vector<float> rows(10);
  read(entry, rows);
  CHECK(std::vector<float>(rows.begin(), rows.begin() + 4) == std::vector<float>{9, 9, 3, 6});
  CHECK(rows[6] == 1);
  CHECK(rows[7] == 2);
  for (const size_t row : {2, 4}) {
    CHECK(std::abs(rows[2 * row] - 2) <= 0.7072f);
    CHECK(std::abs(rows[2 * row + 1] - 4) <= 0.7072f);
  }
  CHECK(rows[4] != rows[8]);  // each its own chance
}

TEST_CASE("a new class begins as the mean of all others, of which none is a blank") {
  const TemporaryFolder folder;
  const std::vector<float> weight = {1, 2, 3, 6, 5, 1}, bias = {-6, -1, -2};
  const std::vector<TensorToWrite> tensors = {{"output.weight", DType::f32, {3, 2}, weight.data()},
                                              {"output.bias", DType::f32, {1, 3}, bias.data()}};
  write_safetensors(folder.path("model.safetensors"), tensors);
  const SafetensorsFile file(folder.path("model.safetensors"));
  const OutputRows rows = same_symbols({"x", "y", "z"}, {"z", "new", "x"}, 0);
  CHECK(rows.others == 3);
  const ReadEntry read = weights_of(file, rows, 7);
  Parameters::Entry entry;
  entry.name = "output.bias";
  entry.rows = 1, entry.cols = 3;
  std::vector<float> biases(3);
  read(entry, biases);
  CHECK(biases == std::vector<float>{-2, -3, -6});
}
