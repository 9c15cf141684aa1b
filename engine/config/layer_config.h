// A layer of a configuration: docs/settings.md has the types and their options.
//
// Thread safety: plain data.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace rondo {

struct LayerType;  // engine/config/layer_types.h

// The value of an option. A size_t is a choice: the place of a name among the option's choices.
using LayerValue = std::variant<bool, int, double, size_t>;

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

  const LayerType* type_;
  std::vector<LayerValue> values_;
};

}  // namespace rondo
