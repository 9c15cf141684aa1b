// The types of layers that a [[model.layer]] may have: one row each, in layer_types.cc.
//
// A row says everything about a type: its name, what it is, its options with default, bounds and
// meaning, and the function that builds it. Parsing, the resolved configuration, --help-config, the
// table in docs/settings.md and the model follow from the row, so a new type is one more row.
//
// Thread safety: the rows are constant.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/config/layer_config.h"
#include "engine/config/range.h"
#include "engine/graph/graph.h"

namespace rondo {

struct LayerOption {
  std::string name;
  LayerValue initial;  // the default, of the option's type
  schema::Range range;
  std::string help;
  std::vector<std::string> choices = {};  // in the order of the enumerators they stand for
};

struct LayerType {
  std::string name;    // type = "lstm"
  std::string prefix;  // the parameters of layer 3 are <prefix>3.weight, ...
  std::string help;
  std::vector<LayerOption> options;
  // Adds the layer behind x and returns its output. `name` begins the names of its parameters.
  ValueId (*build)(Graph& g, ValueId x, const std::string& name, const LayerConfig& layer);
  // The option that says how many frames become one; nullptr: every frame stays.
  const char* frames_per_frame = nullptr;
  // The option that says whether the frames that are left at the end, too few, are dropped.
  const char* drops_rest = nullptr;
};

// All of them, in the order in which they are listed for users.
std::span<const LayerType> layer_types();

}  // namespace rondo
