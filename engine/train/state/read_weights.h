// The weights of a model that begins with another one's.
#pragma once

#include <string>
#include <vector>

#include "engine/rank_model.h"

namespace rondo {

// Which row of another model's output layer each class takes; -1: none, it is new. Empty: as it is.
struct OutputRows {
  std::vector<int64_t> from;
  int64_t others = 0;  // classes of the other model
  int64_t blanks = 1;  // of both: rows before those of symbols
};
// By symbol, behind the blank, class 0 of both, if there is one.
OutputRows same_symbols(const std::vector<std::string>& others,
                        const std::vector<std::string>& symbols, int64_t blanks = 1);

// InputError unless the file holds the weights of `entries`, and no others.
void require_weights(const SafetensorsFile& file, const std::vector<Parameters::Entry>& entries,
                     const OutputRows& rows = {});
// Reads entries from a file with these weights, which is borrowed. The weights of new classes are
// the mean of the other model's symbols, and what is drawn with the seed, uniformly up to
// 1 / sqrt(inputs); their biases are the mean.
ReadEntry weights_of(const SafetensorsFile& file, OutputRows rows = {}, uint64_t seed = 0);

}  // namespace rondo
