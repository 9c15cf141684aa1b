#include "engine/train/model/open_sampling.h"

#include <map>

#include "engine/data/manifest_field.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

double weight_of(const ManifestDataset& data, int64_t i, const std::string& name) {
  const Json value = field_value(data.entry(i), name);
  if (value.is_null()) {
    fail_input(data.name(i), ": has no field \"", name,
               "\" with its weight (data.weight_field), which data.sampling = \"weighted\" needs");
  }
  const double weight = value.is_number() ? value.get<double>() : -1;
  if (!(weight >= 0 && weight <= greatest_weight)) {
    fail_input(data.name(i), ": the weight \"", name, "\" is ", value.dump(),
               ", expected a number from 0 to ", greatest_weight);
  }
  return weight;
}

std::string class_of(const ManifestDataset& data, int64_t i, const std::string& name) {
  const Json value = field_value(data.entry(i), name);
  if (value.is_null()) {
    fail_input(data.name(i), ": has no field \"", name,
               "\" with its class (data.class_field), which data.sampling = \"class_balanced\" "
               "needs");
  }
  if (!value.is_number() && !value.is_string() && !value.is_boolean()) {
    fail_input(data.name(i), ": the class \"", name, "\" is ", value.dump(),
               ", expected a string or a number");
  }
  return value.dump();
}

}  // namespace

Draws open_draws(const Config& config, const ManifestDataset& data) {
  Draws draws;
  draws.per_epoch = config.data.draws_per_epoch;
  const auto size = static_cast<size_t>(data.size());
  switch (config.data.sampling) {
    case Sampling::once:
      break;
    case Sampling::weighted: {
      double sum = 0;
      for (int64_t i = 0; i < data.size(); ++i) {
        draws.weights.push_back(weight_of(data, i, config.data.weight_field));
        sum += draws.weights.back();
      }
      if (!(sum > 0)) {
        fail_input(config.data.train, ": no utterance has a \"", config.data.weight_field,
                   "\" above 0 (data.weight_field)");
      }
      break;
    }
    case Sampling::class_balanced: {
      // Numbered by name, so that the order of the manifest does not matter.
      std::vector<std::string> names(size);
      std::map<std::string, int32_t> numbers;
      for (size_t i = 0; i < size; ++i) {
        names[i] = class_of(data, static_cast<int64_t>(i), config.data.class_field);
        numbers[names[i]] = 0;
      }
      int32_t next = 0;
      for (auto& [name, number] : numbers) number = next++;
      for (const std::string& name : names) draws.classes.push_back(numbers[name]);
      break;
    }
  }
  return draws;
}

}  // namespace rondo
