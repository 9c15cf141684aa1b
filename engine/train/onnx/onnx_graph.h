// An ONNX model in the making: nodes, constants, inputs and outputs, and their bytes.
//
// The format is protobuf's wire format of onnx.proto (IR version 8, opset 17), as far as networks
// need it; it is written here, because that is a page of code and the library is large. Values are
// known by their names. Not synchronised. Errors: InputError for a model of 2 GB or more, which
// protobuf cannot hold.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rondo::onnx {

enum class ElementType : int32_t { f32 = 1, i32 = 6, i64 = 7 };

// A size that is known, or the name of one that is not.
using Dimension = std::variant<int64_t, std::string>;

struct Attribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};

using Name = std::string;

class Model {
 public:
  Name input(const Name& name, ElementType type, const std::vector<Dimension>& dims);
  // `value` becomes an output called `name`.
  void output(const Name& value, const Name& name, ElementType type,
              const std::vector<Dimension>& dims);

  Name constant(const std::string& hint, const std::vector<int64_t>& dims,
                std::span<const float> values);
  Name integers(std::initializer_list<int64_t> values);  // a vector; the same twice is one constant
  Name scalar(float value);

  // A node and its output. An empty name among the inputs is an absent one.
  Name node(std::string_view op, const std::vector<Name>& inputs,
            const std::vector<Attribute>& attributes = {});
  // The same with several outputs.
  std::vector<Name> nodes(std::string_view op, const std::vector<Name>& inputs,
                          const std::vector<Attribute>& attributes, int outputs);

  // What else is to be known of the model: metadata_props.
  void describe(const std::string& key, const std::string& value);
  std::string bytes(const std::string& producer_version) const;

 private:
  Name new_name(std::string_view hint);
  void add_constant(const Name& name, ElementType type, std::span<const int64_t> dims,
                    std::string_view raw);

  std::string nodes_, constants_, inputs_, outputs_, metadata_;  // fields of the graph, the model
  std::map<std::vector<int64_t>, Name> integers_;
  std::map<float, Name> scalars_;
  std::map<std::string, int, std::less<>> names_;  // how often a hint was used
};

}  // namespace rondo::onnx
