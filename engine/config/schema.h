// The binding of keys to the members of a Config (internal to engine/config).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/config/config.h"
#include "engine/config/range.h"

namespace rondo::schema {

// One of a fixed set of names, bound to an enum.
struct Choice {
  std::vector<std::string> names;
  std::function<size_t()> get;
  std::function<void(size_t)> set;
};

using Binding =
    std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<double>*,
                 std::vector<TextReplacement>*, TextLocale*, Choice>;

struct Field {
  std::string key;  // dotted
  Binding value;
  Range range;
  std::string doc;

  std::string section() const;  // "training"; "" at the top level
  std::string name() const;     // "epochs"
};

// The whole schema, bound to `config`, in the order of printing. The short form of the model is
// included; the [[model.layer]] tables are not.
std::vector<Field> fields(Config& config);

// What a [[model.layer]] of this type may hold, "type" first. Setting the type makes a new layer of
// it, with the defaults: the other fields are no longer bound to anything then.
std::vector<Field> layer_fields(LayerConfig& layer);

// What each section is for.
std::string_view section_doc(std::string_view section);

// What earlier versions had: a key, or one name of a choice. Their models and runs hold it.
struct Removed {
  std::string_view key;
  std::string_view name;   // of the choice; empty: the key is gone
  std::string_view usual;  // the key's default
  std::string_view instead;
  // What becomes of stored settings that were made for it, once all of them are read.
  void (*adapt)(Config& config) = nullptr;
};

std::span<const Removed> removed();

// A key, or a section, that earlier versions had by another name. It is read by that one as well,
// wherever it stands, and written by its own.
struct Renamed {
  std::string_view before, now;
};

std::span<const Renamed> renamed();
// What a key is called that may stand by its name of before.
std::string name_now(std::string_view key);

// A key of the short form, which excludes [[model.layer]].
bool is_short_form(std::string_view key);

// "an integer from 1 to 100", "one of error, skip"
std::string expectation(const Field& field);
// The value as TOML.
std::string value_toml(const Field& field);
std::string quote_toml(std::string_view text);

}  // namespace rondo::schema
