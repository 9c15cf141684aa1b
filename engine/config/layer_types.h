// The types of layers that a [[model.layer]] may have: one row each, in layer_types.cc.
//
// A row says everything about a type: its name, what it is, its options with default, bounds and
// meaning, and the function that builds it. Parsing, the resolved configuration, --help-config, the
// table in docs/settings.md and the model follow from the row, so a new type is one more row.
//
// Thread safety: the rows are constant; a LayerConfig is plain data.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/config/range.h"
#include "engine/graph/graph.h"

namespace rondo {

class LayerConfig;

// The value of an option. A size_t is a choice: the place of a name among the option's choices.
using LayerValue = std::variant<bool, int, double, size_t>;

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

// One [[model.layer]]: a type and a value for each of its options. Every function throws Error for
// a type or an option that does not exist, and for a value of another type than the option's.
// Bounds are looked at where values come from outside, by the parser.
class LayerConfig {
 public:
  // All options have their defaults.
  explicit LayerConfig(const LayerType& type);
  explicit LayerConfig(std::string_view type);

  const LayerType& type() const { return *type_; }
  bool flag(std::string_view option) const;
  int integer(std::string_view option) const;
  double real(std::string_view option) const;
  template <class Enum>
  Enum choice(std::string_view option) const {
    return static_cast<Enum>(place(option));
  }

  LayerConfig& set(std::string_view option, LayerValue value);
  template <class Enum>
  requires std::is_enum_v<Enum> LayerConfig& set(std::string_view option, Enum value) {
    return set(option, LayerValue(static_cast<size_t>(value)));
  }

  // In the order of type().options.
  std::vector<LayerValue>& values() { return values_; }

  bool operator==(const LayerConfig&) const = default;

 private:
  size_t place(std::string_view option) const;  // of a choice
  const LayerValue& find(std::string_view option) const;
  template <class T>
  const T& held(std::string_view option) const;

  const LayerType* type_;  // a row of layer_types()
  std::vector<LayerValue> values_;
};

}  // namespace rondo
