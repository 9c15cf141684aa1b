#include <charconv>
#include <cmath>

#include "engine/config/config.h"
#include "engine/config/layer_types.h"
#include "engine/config/schema.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

namespace rondo {
namespace schema {
namespace {

template <class T>
std::string number_text(T value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  RONDO_CHECK(error == std::errc(), "a number does not fit its buffer");
  return {buffer, end};
}

// Shortest text that reads back to the same double, and reads as a float.
std::string float_toml(double value) {
  std::string s = number_text(value);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

bool is_integer(const Binding& value) {
  return std::holds_alternative<int*>(value) || std::holds_alternative<int64_t*>(value) ||
         std::holds_alternative<uint64_t*>(value);
}

std::string range_text(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  const std::string l = number_text(range.low), h = number_text(range.high);
  if (low && high && !range.open_low && !range.open_high) return " from " + l + " to " + h;
  if (low && high) {
    return std::string(range.open_low ? " above " : " of at least ") + l +
           (range.open_high ? " and below " : " and at most ") + h;
  }
  if (low) return (range.open_low ? " above " : " of at least ") + l;
  return "";
}

}  // namespace

std::string quote_toml(std::string_view text) {
  static const char hex[] = "0123456789abcdef";
  std::string s = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      s += '\\';
      s += c;
    } else if (c == '\n') {
      s += "\\n";
    } else if (c == '\t') {
      s += "\\t";
    } else if (u < 0x20 || u == 0x7f) {
      s += "\\u00";
      s += hex[u >> 4];
      s += hex[u & 15];
    } else {
      s += c;
    }
  }
  return s + "\"";
}

std::string expectation(const Field& field) {
  const std::string range = range_text(field.range);
  if (is_integer(field.value)) {
    if (std::holds_alternative<uint64_t*>(field.value)) return "an integer of at least 0";
    return "an integer" + range;
  }
  if (std::holds_alternative<bool*>(field.value)) return "true or false";
  if (std::holds_alternative<double*>(field.value)) return "a number" + range;
  if (std::holds_alternative<std::string*>(field.value)) return "a string";
  if (std::holds_alternative<std::vector<double>*>(field.value)) {
    return "a list of numbers" + (range.empty() ? "" : ", each" + range);
  }
  if (std::holds_alternative<std::vector<TextReplacement>*>(field.value))
    return "a list of \"FROM=TO\"";
  if (std::holds_alternative<TextLocale*>(field.value))
    return "a language, as \"tr\" or \"az-Latn\"";
  std::string s;
  for (const std::string& name : std::get<Choice>(field.value).names) {
    s += (s.empty() ? "" : ", ") + ("\"" + name + "\"");
  }
  return std::get<Choice>(field.value).names.size() == 1 ? s : "one of " + s;
}

std::string value_toml(const Field& field) {
  struct Visitor {
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const int* v) const { return number_text(*v); }
    std::string operator()(const int64_t* v) const { return number_text(*v); }
    std::string operator()(const uint64_t* v) const { return number_text(*v); }
    std::string operator()(const double* v) const { return float_toml(*v); }
    std::string operator()(const std::string* v) const { return quote_toml(*v); }
    std::string operator()(const std::vector<double>* v) const {
      std::string s = "[";
      for (double x : *v) s += (s.size() > 1 ? ", " : "") + float_toml(x);
      return s + "]";
    }
    std::string operator()(const std::vector<TextReplacement>* v) const {
      std::string s = "[";
      for (const TextReplacement& r : *v) s += (s.size() > 1 ? ", " : "") + quote_toml(r.text());
      return s + "]";
    }
    std::string operator()(const TextLocale* v) const { return quote_toml(v->tag); }
    std::string operator()(const Choice& v) const { return quote_toml(v.names.at(v.get())); }
  };
  return std::visit(Visitor{}, field.value);
}

namespace {

struct JsonOf {
  Json operator()(const Choice& v) const { return v.names.at(v.get()); }
  Json operator()(const std::vector<TextReplacement>* v) const {
    Json list = Json::array();
    for (const TextReplacement& r : *v) list.push_back(r.text());
    return list;
  }
  Json operator()(const TextLocale* v) const { return v->tag; }
  template <class T>
  Json operator()(const T* v) const {
    return *v;
  }
};

// The keys that take part: the short form only while it is in force.
std::vector<Field> printed_fields(Config& config) {
  std::vector<Field> all = fields(config);
  if (!config.model.layer.empty())
    std::erase_if(all, [](const Field& f) { return is_short_form(f.key); });
  return all;
}

std::string pad(std::string s, size_t width) {
  if (s.size() < width) s.append(width - s.size(), ' ');
  return s;
}

// What a key is for, and what it may be where that is limited.
std::string meaning(const Field& f) {
  const bool limited = std::holds_alternative<Choice>(f.value) || std::isfinite(f.range.low);
  return limited ? f.doc + " (" + expectation(f) + ")" : f.doc;
}

}  // namespace
}  // namespace schema

using schema::Field;

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string out, section;
  for (const Field& f : schema::printed_fields(copy)) {
    if (f.section() != section) {
      section = f.section();
      out += "\n[" + section + "]\n";
    }
    out += f.name() + " = " + schema::value_toml(f) + "\n";
  }
  for (LayerConfig& layer : copy.model.layer) {
    out += "\n[[model.layer]]\n";
    for (const Field& f : schema::layer_fields(layer))
      out += f.key + " = " + schema::value_toml(f) + "\n";
  }
  return out;
}

std::string to_json(const Config& config) {
  Config copy = config;
  Json root = Json::object();
  for (const Field& f : schema::printed_fields(copy)) {
    (f.section().empty() ? root : root[f.section()])[f.name()] =
        std::visit(schema::JsonOf{}, f.value);
  }
  for (LayerConfig& layer : copy.model.layer) {
    Json table;
    for (const Field& f : schema::layer_fields(layer))
      table[f.key] = std::visit(schema::JsonOf{}, f.value);
    root["model"]["layer"].push_back(std::move(table));
  }
  return root.dump(2) + "\n";
}

std::vector<std::string> config_differences(const Config& before, const Config& after) {
  Config a = before, b = after;
  std::vector<std::string> differences;
  const std::vector<Field> fa = schema::fields(a), fb = schema::fields(b);
  for (size_t i = 0; i < fa.size(); ++i) {
    const std::string va = schema::value_toml(fa[i]), vb = schema::value_toml(fb[i]);
    if (va != vb) differences.push_back(fa[i].key + ": " + va + " -> " + vb);
  }
  if (a.model.layer != b.model.layer) differences.emplace_back("model.layer: the layers differ");
  return differences;
}

std::string config_reference() {
  Config defaults;
  std::string out, section = "?";
  for (const Field& f : schema::fields(defaults)) {
    if (f.section() != section) {
      section = f.section();
      out += (out.empty() ? "# " : "\n# ") + std::string(schema::section_doc(section)) + "\n";
      if (!section.empty()) out += "[" + section + "]\n";
    }
    out += schema::pad(f.name() + " = " + schema::value_toml(f), 34) + " # " + schema::meaning(f) +
           "\n";
  }
  out +=
      "\n# For images of text lines, instead of the short form of [model], a VGSL string:\n#\n"
      "# [model]\n"
      "# vgsl = \"[1,48,0,1 Cr3,13,32 Mp2,2 Cr3,9,64 Mp2,2 S1(1x0)1,3 Lbx200 Do0.5]\"\n";
  out += "\n# Instead of the short form of [model], any number of layers in order:\n";
  for (const LayerType& type : layer_types()) {
    LayerConfig layer(type);
    out += "#\n# [[model.layer]]\n";
    for (const Field& f : schema::layer_fields(layer)) {
      out += schema::pad("# " + f.key + " = " + schema::value_toml(f), 34) + " # " +
             (f.key == "type" ? f.doc : schema::meaning(f)) + "\n";
    }
  }
  return out;
}

std::string config_reference_markdown() {
  Config defaults;
  std::string out, section = "?";
  const auto row = [&](const Field& f) {
    out += "| `" + f.key + "` | `" + schema::value_toml(f) + "` | " + schema::meaning(f) + " |\n";
  };
  for (const Field& f : schema::fields(defaults)) {
    if (f.section() != section) {
      section = f.section();
      out += str(out.empty() ? "" : "\n", schema::section_doc(section),
                 "\n\n| key | default | meaning |\n|---|---|---|\n");
    }
    row(f);
  }
  out += "\nNames of earlier versions are still read:";
  for (const schema::Renamed& r : schema::renamed())
    out += str(&r == schema::renamed().data() ? " `" : ", `", r.before, "` as `", r.now, "`");
  out +=
      ".\n\nTypes of a `[[model.layer]]`, each with its keys below it:\n\n"
      "| type | key | default | meaning |\n|---|---|---|---|\n";
  for (const LayerType& type : layer_types()) {
    LayerConfig layer(type);
    out += "| `" + schema::quote_toml(type.name) + "` | | | " + type.help + " |\n";
    const std::vector<Field> all = schema::layer_fields(layer);
    for (size_t i = 1; i < all.size(); ++i) {
      out += "| ";
      row(all[i]);
    }
  }
  return out;
}

}  // namespace rondo
