// Weights in 8 bits: what a file has of them is what kernels round them to again.
#include "engine/train/model/int8_tensors.h"

#include <cmath>
#include <limits>
#include <random>

#include "kernels/gemm/int8_ref.h"
#include "tests/catch.h"

using namespace rondo;

TEST_CASE("weights in 8 bits are rounded to the same integers again", "[int8]") {
  constexpr int64_t rows = 270, columns = 37;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> w(rows * columns);
  for (int64_t r = 0; r < rows; ++r) {
    // Of all magnitudes, rows of zeros, and of numbers that count as zeros.
    const float size = r == 7 ? 0 : r == 8 ? 1e-38f : std::ldexp(1.0f, static_cast<int>(r) - 150);
    for (int64_t c = 0; c < columns; ++c) {
      w[static_cast<size_t>(r * columns + c)] = r < 60 && r > 8 ? 0 : size * normal(random);
    }
  }
  const TensorToWrite tensor{"w", DType::f32, {rows, columns}, w.data()};
  const Int8Tensors rounded({&tensor, 1}, "model");
  const std::vector<TensorToWrite> stored = rounded.stored(), meant = rounded.meant();
  REQUIRE(stored.size() == 2);
  REQUIRE(meant.size() == 1);
  CHECK((stored[0].is_signed && stored[0].dtype == DType::u8));
  CHECK(stored[1].name == "w.scale");
  const auto* integers = static_cast<const int8_t*>(stored[0].data);
  const auto* scales = static_cast<const float*>(stored[1].data);
  const auto* values = static_cast<const float*>(meant[0].data);
  for (int64_t r = 0; r < rows; ++r) {
    INFO("row " << r);
    const Int8Row again(values + r * columns, columns), first(w.data() + r * columns, columns);
    CHECK(again.scale == scales[r]);
    CHECK(std::abs(first.scale - again.scale) <= first.scale * 0x1p-16f);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t at = r * columns + c;
      CHECK(again.values[static_cast<size_t>(c)] == integers[at]);
      CHECK(values[at] == static_cast<float>(integers[at]) * scales[r]);
      CHECK(std::abs(values[at] - w[static_cast<size_t>(at)]) <= 0.502f * scales[r] + 1e-30f);
    }
  }
}

TEST_CASE("vectors stay as they are, and weights have to be finite", "[int8]") {
  const float values[] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  const TensorToWrite tensors[] = {{"bias", DType::f32, {1, 6}, values},
                                   {"norm", DType::f32, {6}, values},
                                   {"conv", DType::f32, {2, 1, 3}, values}};
  const Int8Tensors rounded(tensors, "model");
  std::vector<std::string> names;
  for (const TensorToWrite& t : rounded.stored()) names.push_back(t.name);
  CHECK(names == std::vector<std::string>{"bias", "norm", "conv", "conv.scale"});
  for (const TensorToWrite& t : rounded.meant()) {
    const auto* of = static_cast<const float*>(t.data);
    CHECK((of[1] == 0.2f) == (t.name != "conv"));
  }
  float bad[] = {1, 2, std::numeric_limits<float>::infinity(), 4};
  const TensorToWrite tensor{"w", DType::f32, {2, 2}, bad};
  CHECK_THROWS_WITH(Int8Tensors({&tensor, 1}, "m.safetensors"),
                    Catch::Contains("m.safetensors: tensor 'w' holds inf in row 1"));
}
