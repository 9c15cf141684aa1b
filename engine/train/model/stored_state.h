// Weights and the optimiser's state of a checkpoint, read parameter by parameter, however many
// ranks have written it in however many files.
//
// One thread at a time. Throws InputError for what the files do not hold.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/parameters.h"
#include "engine/io/checkpoint.h"
#include "engine/io/stage_index.h"

namespace rondo {

class StoredState {
 public:
  explicit StoredState(const Checkpoint& checkpoint);

  // All weights, with the description of the model as metadata.
  const SafetensorsFile& weights() const { return weights_; }

  // InputError unless the slot is there for all of `entries`, which lie in flat arrays of
  // `flat_size`.
  void require(const std::string& slot, const std::vector<Parameters::Entry>& entries,
               int64_t flat_size) const;
  // The values of one of them, after require().
  void read(const std::string& slot, const Parameters::Entry& entry, std::span<float> into) const;

 private:
  // A stage's files, or the only one, whose offsets are those of the entries.
  struct Holder {
    std::vector<SafetensorsFile> files;
    std::optional<StageIndex::Stage> stage;
  };
  const Holder& holder(const Parameters::Entry& entry) const;

  SafetensorsFile weights_;
  std::vector<Holder> holders_;
};

}  // namespace rondo
