#include "engine/decode/transcript/confidence.h"

#include <algorithm>
#include <cmath>

#include "engine/decode/align/forced_alignment.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr const char* names[] = {"mean", "geometric", "min", "product", "entropy", "posterior"};
constexpr double entropy_order = 1.0 / 3;

// Of a label in the softmax of a row; of a wildcard: the largest.
double probability(std::span<const float> row, float largest, int32_t label) {
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v - largest));
  if (label == wildcard_label) return 1 / sum;
  return std::exp(static_cast<double>(row[static_cast<size_t>(label)] - largest)) / sum;
}

// How far the softmax of a row is from all classes alike.
double certainty(std::span<const float> row, float largest) {
  if (row.size() == 1) return 1;
  double sum = 0, powers = 0;
  for (const float v : row) {
    const auto x = static_cast<double>(v - largest);
    sum += std::exp(x);
    powers += std::exp(entropy_order * x);
  }
  powers /= std::pow(sum, entropy_order);
  const double h = (1 - powers) / (entropy_order - 1);
  const double most =
      (1 - std::pow(static_cast<double>(row.size()), 1 - entropy_order)) / (entropy_order - 1);
  return std::clamp((std::exp(-h) - std::exp(-most)) / -std::expm1(-most), 0.0, 1.0);
}

double of_frame(Confidence definition, std::span<const float> row, int32_t label) {
  const auto is_nan = [](float v) { return std::isnan(v); };
  if (std::any_of(row.begin(), row.end(), is_nan)) return 0;
  const float largest = *std::max_element(row.begin(), row.end());
  if (!std::isfinite(largest)) return 0;
  return definition == Confidence::entropy ? certainty(row, largest)
                                           : probability(row, largest, label);
}

double combine(Confidence definition, std::span<const double> values) {
  RONDO_CHECK(!values.empty(), "the confidence of nothing");
  const auto count = static_cast<double>(values.size());
  double sum = 0, product = 1, logs = 0;
  for (const double v : values) {
    sum += v;
    product *= v;
    logs += std::log(v);
  }
  switch (definition) {
    case Confidence::mean:
    case Confidence::entropy:
      return sum / count;
    case Confidence::geometric:
      return std::exp(logs / count);
    case Confidence::min:
      return *std::min_element(values.begin(), values.end());
    case Confidence::product:
      return product;
    case Confidence::posterior:
      break;
  }
  RONDO_CHECK(false, "confidence '", names[static_cast<size_t>(definition)],
              "' is of a search, not of frames");
}

}  // namespace

Confidence confidence_of(const std::string& name) {
  const auto at = std::find(std::begin(names), std::end(names), name);
  RONDO_CHECK(at != std::end(names), "confidence '", name, "'");
  return static_cast<Confidence>(at - std::begin(names));
}

std::vector<std::string> confidence_names() { return {std::begin(names), std::end(names)}; }

double label_confidence(Confidence definition, std::span<const float> rows, int64_t classes,
                        int32_t label) {
  const auto width = static_cast<size_t>(classes);
  std::vector<double> values;
  for (size_t at = 0; at < rows.size(); at += width)
    values.push_back(of_frame(definition, rows.subspan(at, width), label));
  return combine(definition, values);
}

double word_confidence(Confidence definition, std::span<const double> labels) {
  return combine(definition, labels);
}

}  // namespace rondo
