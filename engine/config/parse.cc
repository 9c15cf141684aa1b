#define TOML_HEADER_ONLY 1
// toml++ 3.3 asserts where some malformed files bring it ("[.a]"), and without assertions assumes
// that none comes; bad input must do neither.
#undef NDEBUG
#define TOML_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : rondo::detail::toml_assertion_failed())
namespace rondo::detail {
struct TomlAssertion {};
[[noreturn]] static void toml_assertion_failed() { throw TomlAssertion(); }
}  // namespace rondo::detail
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include <toml++/toml.h>

#include "engine/config/config.h"
#include "engine/config/schema.h"
#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using schema::Field;

// Where a value came from, for messages; and for overrides, its text.
struct Source {
  std::string name;     // "conf.toml", or "override 'a=b'"
  bool is_file = true;  // lines mean something
  const std::string* text = nullptr;

  std::string at(const toml::node& node) const {
    return is_file ? str(name, ":", node.source().begin.line) : name;
  }
};

std::string node_text(const toml::node& node) {
  if (node.is_table()) return "a table";
  std::ostringstream out;
  if (const auto* s = node.as_string()) {
    out << schema::quote_toml(s->get());
  } else {
    node.visit([&](const auto& n) { out << n; });
  }
  std::string text = std::move(out).str();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// The known key a wrong one most likely meant: close as a whole, or of the right name in the wrong
// section. Empty if nothing is near.
std::string nearest_key(const std::string& key, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, last_part(key).size() / 3) + 1;
  for (const std::string& k : known) {
    const size_t elsewhere = edit_distance(last_part(key), last_part(k)) + 1;
    const size_t d = std::min(edit_distance(key, k), elsewhere);
    if (d < best_distance) {
      best_distance = d;
      best = k;
    }
  }
  return best;
}

[[noreturn]] void fail_unknown(const Source& source, const toml::node& node, const std::string& key,
                               const std::vector<std::string>& known) {
  const std::string near = nearest_key(key, known);
  fail_input(source.at(node), ": unknown key '", key, "'",
             near.empty() ? "; --help-config lists all keys" : "; did you mean '" + near + "'?");
}

[[noreturn]] void fail_value(const Source& source, const toml::node& node, const std::string& key,
                             const std::string& expected) {
  fail_input(source.at(node), ": ", key, " is ", node_text(node), ", expected ", expected);
}

bool in_range(double x, const schema::Range& r) {
  return std::isfinite(x) && (r.open_low ? x > r.low : x >= r.low) &&
         (r.open_high ? x < r.high : x <= r.high);
}

// Returns false if the node's type or value does not fit.
class Assign {
 public:
  Assign(const toml::node& node, const Field& field, const std::string* text)
      : node_(node), field_(field), text_(text) {}

  bool operator()(bool* member) const {
    const auto* v = node_.as_boolean();
    if (v) *member = v->get();
    return v;
  }
  template <class Int>
  requires std::is_integral_v<Int>
  bool operator()(Int* member) const {
    const auto* v = node_.as_integer();
    if (!v || !std::in_range<Int>(v->get()) ||
        !in_range(static_cast<double>(v->get()), field_.range)) {
      return false;
    }
    *member = static_cast<Int>(v->get());
    return true;
  }
  bool operator()(double* member) const { return number(node_, *member); }
  bool operator()(std::string* member) const {
    const std::string* s = string();
    if (s) *member = *s;
    return s;
  }
  bool operator()(std::vector<double>* member) const {
    const auto* array = node_.as_array();
    if (!array) return false;
    std::vector<double> values(array->size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (!number(*array->get(i), values[i])) return false;
    }
    *member = std::move(values);
    return true;
  }
  bool operator()(const schema::Choice& choice) const {
    const std::string* s = string();
    if (!s) return false;
    const auto it = std::find(choice.names.begin(), choice.names.end(), *s);
    if (it == choice.names.end()) return false;
    choice.set(static_cast<size_t>(it - choice.names.begin()));
    return true;
  }

 private:
  bool number(const toml::node& node, double& out) const {
    double x = 0;
    if (const auto* f = node.as_floating_point()) {
      x = f->get();
    } else if (const auto* i = node.as_integer()) {
      x = static_cast<double>(i->get());
    } else {
      return false;
    }
    if (!in_range(x, field_.range)) return false;
    out = x;
    return true;
  }
  // An override's text stands as it is for a string key: alphabet=0123, data.train=2024-01-01.
  const std::string* string() const {
    if (const auto* s = node_.as_string()) return &s->get();
    return text_;
  }

  const toml::node& node_;
  const Field& field_;
  const std::string* text_;
};

class Loader {
 public:
  explicit Loader(Config& config) : config_(config), fields_(schema::fields(config)) {
    for (const Field& f : fields_) known_.push_back(f.key);
    known_.emplace_back("model.layer");
    for (const Field& f : fields_) {
      if (!f.section().empty() && (sections_.empty() || sections_.back() != f.section())) {
        sections_.push_back(f.section());
      }
    }
  }

  // A table of the document at `prefix`, in the order of the lines.
  void load(const toml::table& table, const std::string& prefix, const Source& source) {
    std::vector<std::pair<std::string, const toml::node*>> entries;
    for (const auto& [key, node] : table)
      entries.emplace_back(prefix + std::string(key.str()), &node);
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.second->source().begin.line < b.second->source().begin.line;
    });
    for (const auto& [key, node] : entries) set(key, *node, source);
  }

  void check_forms() const {
    if (config_.model.layer.empty() || short_form_.empty()) return;
    fail_input(short_form_,
               " belongs to the short form of [model] and cannot be combined with [[model.layer]]");
  }

 private:
  void set(const std::string& key, const toml::node& node, const Source& source) {
    if (key == "data" && set_corpus(node, source)) return;
    if (key == "model.layer") return set_layers(node, source);
    for (const Field& f : fields_) {
      if (f.key == key) {
        assign(f, key, node, source);
        if (schema::is_short_form(key)) short_form_ = source.at(node) + ": " + key;
        return;
      }
    }
    if (std::find(sections_.begin(), sections_.end(), key) == sections_.end()) {
      fail_unknown(source, node, key, node.is_table() ? sections_ : known_);
    }
    if (!node.is_table())
      fail_value(source, node, key, "a table of keys: '" + key + "' is a section");
    load(*node.as_table(), key + ".", source);
  }

  static void assign(const Field& field, const std::string& key, const toml::node& node,
                     const Source& source) {
    if (!std::visit(Assign(node, field, source.text), field.value)) {
      fail_value(source, node, key, schema::expectation(field));
    }
  }

  bool set_corpus(const toml::node& node, const Source& source) {
    const std::string* directory = node.as_string() ? &node.as_string()->get() : source.text;
    if (!directory || node.is_table()) return false;
    if (directory->empty()) fail_value(source, node, "data", "the directory of a corpus");
    const std::filesystem::path path(*directory);
    config_.data.train = (path / "train.jsonl").string();
    config_.data.dev = (path / "dev.jsonl").string();
    config_.data.test = (path / "test.jsonl").string();
    return true;
  }

  void set_layers(const toml::node& node, const Source& source) {
    const auto* array = node.as_array();
    if (!array) fail_value(source, node, "model.layer", "a list of tables: [[model.layer]]");
    std::vector<LayerConfig> layers;
    for (const toml::node& element : *array) {
      if (!element.is_table()) fail_value(source, element, "model.layer", "a table");
      layers.push_back(parse_layer(*element.as_table(), source));
    }
    config_.model.layer = std::move(layers);
  }

  static LayerConfig parse_layer(const toml::table& table, const Source& source) {
    LayerConfig layer;
    const toml::node* type = table.get("type");
    if (!type) fail_input(source.at(table), ": a [[model.layer]] has no 'type'");
    Source plain = source;
    plain.text = nullptr;  // the override's text is the whole list, not one value in it
    assign(schema::layer_fields(layer).front(), "model.layer.type", *type, plain);
    const std::vector<Field> fields = schema::layer_fields(layer);
    std::vector<std::string> known;
    for (const Field& f : fields) known.push_back("model.layer." + f.key);
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      const auto it =
          std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.key == name; });
      if (it == fields.end()) fail_unknown(plain, node, "model.layer." + name, known);
      assign(*it, "model.layer." + name, node, plain);
    }
    return layer;
  }

  Config& config_;
  std::vector<Field> fields_;
  std::vector<std::string> known_;
  std::vector<std::string> sections_;
  std::string short_form_;  // where a key of the short form was set last
};

// The first line that opens a table with a dot, which is what the parser stumbles over; 1 if there
// is none.
size_t malformed_header_line(std::string_view text) {
  size_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t at = text.find_first_not_of("[ \t", begin);
    if (at < end && at > begin && text[at] == '.') return line;
    begin = end + 1;
  }
  return 1;
}

// The position after the string that begins at `at` with a quote; the end of its line if it is not
// closed there.
size_t skip_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool multi_line = text.substr(at, 3) == std::string(3, quote);
  const std::string close(multi_line ? 3 : 1, quote);
  for (at += close.size(); at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text.substr(at, close.size()) == close) {
      at += close.size();
      // Up to two quotes may stand before the closing three.
      for (int i = 0; multi_line && i < 2 && at < text.size() && text[at] == quote; ++i) ++at;
      return at;
    } else if (text[at] == '\n' && !multi_line) {
      return at;
    }
  }
  return text.size();
}

// TOML has characters outside ASCII in strings and comments only, and toml++ 3.3 has undefined
// behaviour where it meets some of them elsewhere (a letter with an accent in a bare key).
void refuse_foreign_characters(std::string_view text, const std::string& name) {
  ptrdiff_t line = 1;
  const size_t begin = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  for (size_t at = begin, next = at; at < text.size(); at = next) {
    const char c = text[at];
    next = at + 1;
    if (c == '#') {
      next = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      next = std::min(skip_string(text, at), text.size());
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      fail_input(name, ":", line, ": a character outside ASCII that is not within quotes");
    }
    const std::string_view passed = text.substr(at, next - at);
    line += std::count(passed.begin(), passed.end(), '\n');
  }
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  refuse_foreign_characters(text, name);
  try {
    return toml::parse(text, std::string_view(name));
  } catch (const toml::parse_error& e) {
    fail_input(name, ":", e.source().begin.line, ": ", e.description());
  } catch (const detail::TomlAssertion&) {
    fail_input(name, ":", malformed_header_line(text), ": malformed table header or key");
  }
}

toml::table bare_word(const std::string& value) {
  toml::table table;
  table.insert("v", value);
  return table;
}

// A bare word is a string; what only looks broken (an open quote or bracket) stays an error.
toml::table parse_override_value(const std::string& value, const Source& source) {
  static constexpr std::string_view openers = "\"'[{";
  const bool opens = !value.empty() && openers.find(value.front()) != std::string_view::npos;
  const bool ascii = std::all_of(value.begin(), value.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!opens && !ascii) return bare_word(value);
  if (opens) refuse_foreign_characters(value, source.name);
  try {
    toml::table table = toml::parse("v = " + value);
    if (table.size() == 1 && table.contains("v")) return table;
  } catch (const toml::parse_error& e) {
    if (opens) fail_input(source.name, ": ", e.description());
  } catch (const detail::TomlAssertion&) {
    fail_input(source.name, ": malformed value");
  }
  return bare_word(value);
}

bool is_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

void load_override(Loader& loader, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || !is_key(std::string_view(text).substr(0, equals))) {
    fail_input("override '", text, "' is not of the form key=value");
  }
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  const Source source{"override '" + text + "'", false, &value};
  toml::table parsed = parse_override_value(value, source);
  // As the document would nest it: a.b.c=v is a table a holding b.c.
  toml::table root;
  root.insert(last_part(key), std::move(*parsed.get("v")));
  const size_t dot = key.rfind('.');
  loader.load(root, dot == std::string::npos ? "" : key.substr(0, dot + 1), source);
}

}  // namespace

Config parse_config(std::string_view toml, const std::string& name,
                    std::span<const std::string> overrides) {
  Config config;
  Loader loader(config);
  const toml::table document = parse_toml(toml, name);
  loader.load(document, "", {name, true, nullptr});
  for (const std::string& text : overrides) load_override(loader, text);
  loader.check_forms();
  return config;
}

Config load_config(const std::filesystem::path& path, std::span<const std::string> overrides) {
  constexpr uint64_t max_config_bytes = 16 << 20;
  if (path.empty()) return parse_config("", "defaults", overrides);
  return parse_config(read_text_file(path, max_config_bytes), path.string(), overrides);
}

void apply_overrides(Config& config, std::span<const std::string> overrides) {
  Config changed = config;
  Loader loader(changed);
  for (const std::string& text : overrides) load_override(loader, text);
  loader.check_forms();
  config = std::move(changed);
}

std::vector<LayerConfig> expand_layers(const ModelConfig& model) {
  if (!model.layer.empty()) return model.layer;
  std::vector<LayerConfig> layers;
  const auto add = [&](LayerType type) -> LayerConfig& {
    layers.emplace_back().type = type;
    return layers.back();
  };
  if (model.subsample > 1) add(LayerType::stack).factor = model.subsample;
  for (int i = 0; i < model.layers; ++i) {
    LayerConfig& lstm = add(LayerType::lstm);
    lstm.hidden = model.hidden;
    lstm.bidirectional = model.bidirectional;
    lstm.projection = model.projection;
    lstm.residual = model.residual;
    if (model.layer_norm) add(LayerType::layer_norm);
    if (model.dropout > 0) add(LayerType::dropout).rate = model.dropout;
  }
  return layers;
}

}  // namespace rondo
