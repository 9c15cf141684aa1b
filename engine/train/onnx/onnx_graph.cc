#include "engine/train/onnx/onnx_graph.h"

#include <bit>
#include <cstring>

#include "kernels/base/error.h"

namespace rondo::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "constants are written as they lie");

constexpr int64_t ir_version = 8, opset = 17;

// Fields of messages: a key (number and wire type), then the value.
enum class Wire : uint8_t { varint = 0, bytes = 2, fixed32 = 5 };

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
  to += static_cast<char>(value);
}
void put_key(std::string& to, int field, Wire wire) {
  put_varint(to, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}
void put(std::string& to, int field, int64_t value) {
  put_key(to, field, Wire::varint);
  put_varint(to, static_cast<uint64_t>(value));
}
void put(std::string& to, int field, std::string_view bytes) {
  put_key(to, field, Wire::bytes);
  put_varint(to, bytes.size());
  to += bytes;
}
void put(std::string& to, int field, float value) {
  put_key(to, field, Wire::fixed32);
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  to.append(raw, sizeof raw);
}

std::string attribute_bytes(const Attribute& a) {
  // AttributeProto: name, the value by its type, and the type.
  enum Field { name = 1, f = 2, i = 3, s = 4, ints = 8, type = 20 };
  enum Type : int64_t { is_float = 1, is_int = 2, is_string = 3, are_ints = 7 };
  std::string out;
  put(out, name, a.name);
  Type kind = is_int;
  if (const auto* integer = std::get_if<int64_t>(&a.value)) {
    put(out, i, *integer);
  } else if (const auto* real = std::get_if<float>(&a.value)) {
    put(out, f, *real);
    kind = is_float;
  } else if (const auto* text = std::get_if<std::string>(&a.value)) {
    put(out, s, std::string_view(*text));
    kind = is_string;
  } else {
    for (const int64_t value : std::get<std::vector<int64_t>>(a.value)) put(out, ints, value);
    kind = are_ints;
  }
  put(out, type, int64_t{kind});
  return out;
}

// ValueInfoProto of a tensor.
std::string value_info(const Name& name, ElementType type, const std::vector<Dimension>& dims) {
  std::string shape, tensor, kind, out;
  for (const Dimension& d : dims) {
    std::string dim;
    if (const auto* size = std::get_if<int64_t>(&d)) {
      put(dim, 1, *size);
    } else {
      put(dim, 2, std::string_view(std::get<std::string>(d)));
    }
    put(shape, 1, dim);
  }
  put(tensor, 1, static_cast<int64_t>(type));
  put(tensor, 2, shape);
  put(kind, 1, tensor);
  put(out, 1, name);
  put(out, 2, kind);
  return out;
}

// GraphProto's fields.
enum GraphField {
  graph_node = 1,
  graph_name = 2,
  graph_constant = 5,
  graph_input = 11,
  graph_output = 12
};

}  // namespace

Name Model::new_name(std::string_view hint) {
  const auto found = names_.try_emplace(std::string(hint), 0).first;
  const int n = found->second++;
  return n == 0 ? std::string(hint) : str(hint, "_", n);
}

Name Model::input(const Name& name, ElementType type, const std::vector<Dimension>& dims) {
  put(inputs_, graph_input, value_info(new_name(name), type, dims));
  return name;
}

void Model::output(const Name& value, const Name& name, ElementType type,
                   const std::vector<Dimension>& dims) {
  std::string node;
  put(node, 1, value);
  put(node, 2, name);
  put(node, 3, name);
  put(node, 4, std::string_view("Identity"));
  put(nodes_, graph_node, node);
  put(outputs_, graph_output, value_info(name, type, dims));
}

void Model::add_constant(const Name& name, ElementType type, std::span<const int64_t> dims,
                         std::string_view raw) {
  // TensorProto.
  std::string tensor;
  for (const int64_t d : dims) put(tensor, 1, d);
  put(tensor, 2, static_cast<int64_t>(type));
  put(tensor, 8, name);
  put(tensor, 9, raw);
  put(constants_, graph_constant, tensor);
}

Name Model::constant(const std::string& hint, const std::vector<int64_t>& dims,
                     std::span<const float> values) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  RONDO_CHECK(count == static_cast<int64_t>(values.size()), "constant ", hint, ": ", values.size(),
              " numbers, the shape has ", count);
  const Name name = new_name(hint);
  const auto raw = std::as_bytes(values);
  add_constant(name, ElementType::f32, dims,
               {reinterpret_cast<const char*>(raw.data()), raw.size()});
  return name;
}

Name Model::integers(std::initializer_list<int64_t> values) {
  const std::vector<int64_t> list(values);
  const auto [found, is_new] = integers_.try_emplace(list);
  if (is_new) {
    found->second = new_name("integers");
    const int64_t count = static_cast<int64_t>(list.size());
    add_constant(found->second, ElementType::i64, {&count, 1},
                 {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(int64_t)});
  }
  return found->second;
}

Name Model::scalar(float value) {
  const auto [found, is_new] = scalars_.try_emplace(value);
  if (is_new) {
    found->second = new_name("number");
    add_constant(found->second, ElementType::f32, {},
                 {reinterpret_cast<const char*>(&value), sizeof value});
  }
  return found->second;
}

Name Model::node(std::string_view op, const std::vector<Name>& inputs,
                 const std::vector<Attribute>& attributes) {
  return nodes(op, inputs, attributes, 1).front();
}

std::vector<Name> Model::nodes(std::string_view op, const std::vector<Name>& inputs,
                               const std::vector<Attribute>& attributes, int outputs) {
  // NodeProto.
  std::string node;
  for (const Name& name : inputs) put(node, 1, name);
  std::vector<Name> made;
  for (int i = 0; i < outputs; ++i) {
    made.push_back(new_name(op));
    put(node, 2, made.back());
  }
  put(node, 3, made.front());
  put(node, 4, op);
  for (const Attribute& a : attributes) put(node, 5, attribute_bytes(a));
  put(nodes_, graph_node, node);
  return made;
}

void Model::describe(const std::string& key, const std::string& value) {
  std::string entry;
  put(entry, 1, key);
  put(entry, 2, value);
  put(metadata_, 14, entry);
}

std::string Model::bytes(const std::string& producer_version) const {
  std::string graph = nodes_;
  put(graph, graph_name, std::string_view("rondo"));
  graph += constants_ + inputs_ + outputs_;
  std::string opsets, out;
  put(opsets, 2, opset);
  // ModelProto.
  put(out, 1, ir_version);
  put(out, 2, std::string_view("rondo"));
  put(out, 3, producer_version);
  put(out, 7, graph);
  put(out, 8, opsets);
  out += metadata_;
  if (out.size() >= size_t{1} << 31)
    fail_input("an ONNX model of ", out.size(), " bytes, expected less than 2 GB");
  return out;
}

}  // namespace rondo::onnx
