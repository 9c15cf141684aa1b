#include "engine/train/state/read_weights.h"

#include <algorithm>
#include <cmath>

#include "engine/data/features/random.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* output_weight = "output.weight";  // [classes, inputs]
constexpr const char* output_bias = "output.bias";      // [1, classes]

bool is_output(const Parameters::Entry& e) {
  return e.name == output_weight || e.name == output_bias;
}

// The mean of all rows but the blank's. A softmax does not see what is added to all of its inputs,
// so those of another program's model may all be far below 0, where a new class around 0 would
// drown them; with the mean a new class is as far from being written as classes usually are.
std::vector<double> mean_of_symbols(std::span<const float> rows, size_t columns, size_t blanks) {
  std::vector<double> mean(columns, 0.0);
  const size_t symbols = rows.size() / columns - blanks;
  for (size_t r = blanks; r < blanks + symbols; ++r) {
    for (size_t i = 0; i < columns; ++i)
      mean[i] += rows[r * columns + i] / static_cast<double>(symbols);
  }
  return mean;
}

}  // namespace

OutputRows same_symbols(const std::vector<std::string>& others,
                        const std::vector<std::string>& symbols, int64_t blanks) {
  OutputRows rows{{}, static_cast<int64_t>(others.size()) + blanks, blanks};
  for (int64_t i = 0; i < blanks; ++i) rows.from.push_back(i);
  for (const std::string& symbol : symbols) {
    const auto at = std::find(others.begin(), others.end(), symbol);
    rows.from.push_back(at == others.end() ? -1 : at - others.begin() + blanks);
  }
  return rows;
}

void require_weights(const SafetensorsFile& file, const std::vector<Parameters::Entry>& entries,
                     const OutputRows& rows) {
  for (const auto& e : entries) {
    std::vector<int64_t> shape = e.shape();
    if (!rows.from.empty() && is_output(e)) shape[e.name == output_weight ? 0 : 1] = rows.others;
    file.at(e.name, DType::f32, shape);
  }
  for (const auto& t : file.tensors()) {
    const bool known = std::any_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e.name == t.name; });
    if (!known) {
      fail_input(file.name(), ": tensor '", t.name, "' belongs to no parameter of this model");
    }
  }
}

ReadEntry weights_of(const SafetensorsFile& file, OutputRows rows, uint64_t seed) {
  return [&file, rows = std::move(rows), seed](const Parameters::Entry& e, std::span<float> into) {
    const std::span<const float> stored = file.at(e.name).as<float>();
    if (rows.from.empty() || !is_output(e)) {
      std::ranges::copy(stored, into.begin());
      return;
    }
    const auto columns = static_cast<size_t>(e.name == output_weight ? e.cols : 1);
    const double bound = e.name == output_weight ? 1 / std::sqrt(static_cast<double>(columns)) : 0;
    const std::vector<double> usual =
        mean_of_symbols(stored, columns, static_cast<size_t>(rows.blanks));
    for (size_t c = 0; c < rows.from.size(); ++c) {
      const std::span<float> row = into.subspan(c * columns, columns);
      if (rows.from[c] >= 0) {
        std::ranges::copy(stored.subspan(static_cast<size_t>(rows.from[c]) * columns, columns),
                          row.begin());
        continue;
      }
      data::Random random(seed, 0, c, data::Purpose::new_class);
      for (size_t i = 0; i < columns; ++i)
        row[i] = static_cast<float>(usual[i] + random.uniform(-bound, bound));
    }
  };
}

}  // namespace rondo
