#include "engine/graph/graph.h"

#include <algorithm>

#include "engine/graph/rules.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace rondo {
namespace {

// FNV-1a over whatever is fed in.
struct Hasher {
  uint64_t state = fnv1a_begin;
  void bytes(const void* data, size_t n) { state = fnv1a(data, n, state); }
  template <class T>
  void number(T v) {
    bytes(&v, sizeof v);
  }
  void text(std::string_view s) {
    number(s.size());
    bytes(s.data(), s.size());
  }
};

}  // namespace

std::string to_string(const Shape& s) {
  std::string lead;
  switch (s.axis) {
    case Axis::fixed:
      lead = str(s.rows);
      break;
    case Axis::frames:
      lead = s.level == 0 ? "frames" : str("frames/", s.level);
      break;
    case Axis::sequences:
      lead = "sequences";
      break;
  }
  return str(s.planes == 1 ? "" : str(s.planes, " x "), lead, " x ",
             s.height == 0 ? str(s.cols) : str("(", s.height, " x ", s.cols / s.height, ")"),
             s.by_label ? " a label" : "");
}

Attributes::Attributes(std::initializer_list<std::pair<std::string, Item>> items) : items_(items) {
  std::sort(items_.begin(), items_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
}

Attributes Attributes::with(std::string key, Item item) const {
  Attributes copy = *this;
  copy.items_.emplace_back(std::move(key), std::move(item));
  std::sort(copy.items_.begin(), copy.items_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return copy;
}

const Attributes::Item& Attributes::find(std::string_view key) const {
  for (const auto& [k, item] : items_) {
    if (k == key) return item;
  }
  RONDO_CHECK(false, "node has no attribute '", key, "'");
}

bool Attributes::has(std::string_view key) const {
  return std::any_of(items_.begin(), items_.end(), [&](const auto& i) { return i.first == key; });
}
int64_t Attributes::integer(std::string_view key) const {
  const auto* v = std::get_if<int64_t>(&find(key));
  RONDO_CHECK(v, "attribute '", key, "' is not an integer");
  return *v;
}
double Attributes::real(std::string_view key) const {
  const auto* v = std::get_if<double>(&find(key));
  RONDO_CHECK(v, "attribute '", key, "' is not a real number");
  return *v;
}
const std::string& Attributes::text(std::string_view key) const {
  const auto* v = std::get_if<std::string>(&find(key));
  RONDO_CHECK(v, "attribute '", key, "' is not text");
  return *v;
}

ValueId Graph::add_input(std::string name, Shape s, DType dtype) {
  RONDO_CHECK(find(name) == no_value, "there is a value named '", name, "' already");
  Value v;
  v.name = std::move(name);
  v.shape = s;
  v.dtype = dtype;
  v.role = ValueRole::input;
  v.stage = stage;
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_parameter(std::string name, int64_t rows, int64_t cols, Init init) {
  RONDO_CHECK(find(name) == no_value, "there is a value named '", name, "' already");
  RONDO_CHECK(rows > 0 && cols > 0, "parameter '", name, "' would be ", rows, " x ", cols);
  Value v;
  v.name = std::move(name);
  v.shape = Shape::fixed(rows, cols);
  v.dtype = compute == DType::f64 ? DType::f64 : DType::f32;
  v.role = ValueRole::parameter;
  v.needs_gradient = true;
  v.init = init;
  v.stage = stage;
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

ValueId Graph::add_activation(std::string name, Shape s, DType dtype) {
  Value v;
  v.name = std::move(name);
  v.shape = s;
  v.dtype = dtype;
  v.stage = stage;
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size()) - 1;
}

int Graph::add_level(Level level) {
  RONDO_CHECK(level.parent >= 0 && level.parent < static_cast<int>(levels.size()), "no level ",
              level.parent);
  RONDO_CHECK(level.factor >= 1, "subsampling factor ", level.factor);
  RONDO_CHECK(level.column == 0 || (level.column > 0 && level.factor == 1), "columns of ",
              level.column, " pixels, subsampled");
  const auto found = std::find(levels.begin() + 1, levels.end(), level);
  if (found != levels.end()) return static_cast<int>(found - levels.begin());
  levels.push_back(level);
  return static_cast<int>(levels.size()) - 1;
}

std::vector<Level> Graph::path_to(int level) const {
  std::vector<Level> path;
  for (int l = level; l > 0; l = path.back().parent)
    path.push_back(levels.at(static_cast<size_t>(l)));
  std::reverse(path.begin(), path.end());
  return path;
}

int64_t Graph::total_factor(int level) const {
  int64_t factor = 1;
  for (const Level& l : path_to(level)) factor *= l.factor;
  return factor;
}

int32_t Graph::frames_at(int level, int32_t length) const {
  for (const Level& l : path_to(level)) {
    RONDO_CHECK(l.column == 0, "frames of a line, of its columns' pixels");
    length = l.frames(length);
  }
  return length;
}

std::vector<ValueId> Graph::add_node(std::string op, std::vector<ValueId> inputs,
                                     Attributes attributes) {
  const OpRule& rule = rule_of(op);
  RONDO_CHECK(rule.infer, "op ", op, " appears in backward passes only");
  Node node{std::move(op), std::move(inputs), {}, std::move(attributes), Phase::forward, stage};
  bool needs = false;
  for (ValueId id : node.inputs) needs = needs || (id != no_value && value(id).needs_gradient);
  for (InferredValue& out : rule.infer(*this, node)) {
    const ValueId id = add_activation(std::move(out.name), out.shape, out.dtype);
    value(id).needs_gradient = needs && rule.backward != nullptr;
    node.outputs.push_back(id);
  }
  nodes.push_back(node);
  return node.outputs;
}

ValueId Graph::as_compute(ValueId parameter) {
  if (parameter == no_value || value(parameter).dtype == compute) return parameter;
  // One cast per parameter, however often it is used.
  for (const Node& node : nodes) {
    if (rule_of(node.op).converts && node.inputs[0] == parameter) return node.outputs[0];
  }
  return add_node("cast", {parameter}, {{"dtype", static_cast<int64_t>(compute)}})[0];
}

ValueId Graph::find(std::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    if ((v.role == ValueRole::input || v.role == ValueRole::parameter) && v.name == name) {
      return static_cast<ValueId>(i);
    }
  }
  return no_value;
}

uint64_t Graph::hash() const {
  Hasher h;
  for (const Level& l : levels) {
    h.number(l.parent);
    h.number(l.factor);
    h.number(l.whole);
    h.number(l.column);
  }
  for (const Value& v : values) {
    if (v.role == ValueRole::parameter || v.role == ValueRole::input) h.text(v.name);
    h.text(to_string(v.shape));
    h.number(v.dtype);
    h.number(v.role);
    h.number(v.stage);
  }
  for (const Node& n : nodes) {
    h.text(n.op);
    h.number(n.stage);
    for (ValueId id : n.inputs) h.number(id);
    h.number(-2);
    for (ValueId id : n.outputs) h.number(id);
    for (const auto& [key, item] : n.attributes.items()) {
      h.text(key);
      if (const auto* i = std::get_if<int64_t>(&item)) h.number(*i);
      if (const auto* d = std::get_if<double>(&item)) h.number(*d);
      if (const auto* s = std::get_if<std::string>(&item)) h.text(*s);
    }
  }
  return h.state;
}

}  // namespace rondo
