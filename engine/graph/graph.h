// The graph is data: values, nodes, and nothing that runs.
//
// A value is a matrix (or a few planes of one) whose number of rows is symbolic: the packed frames
// of the batch, its sequences, or a fixed number. A node is an op with inputs, outputs and
// attributes; nodes are stored in execution order. A whole LSTM layer over time is one node, CTC is
// one node, so a model is a few dozen nodes, and every pass over the graph (backward, memory
// layout, pipeline split, gradient buckets, capture) is a loop over one vector.
//
// Build graphs through engine/layers; append_backward() adds the gradient nodes. Plain data: copy
// it, compare it, hash it. Not synchronised.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/dtype.h"

namespace rondo {

using ValueId = int32_t;
inline constexpr ValueId no_value = -1;

// What the rows of a value are.
enum class Axis : uint8_t {
  fixed,      // Shape::rows of them
  frames,     // the packed frames of Shape::level
  sequences,  // the sequences of the batch
};

// planes x rows x cols, dense.
struct Shape {
  Axis axis = Axis::fixed;
  int level = 0;     // frames only: index into Graph::levels
  int64_t rows = 1;  // fixed only
  int64_t cols = 1;
  int64_t planes = 1;  // directions of an LSTM's states
  // Frames only: a frame is a column of so many pixels, from top to bottom, and of each pixel all
  // cols / height channels. 0: a frame is no image, just values.
  int64_t height = 0;
  // Frames only: a row has `cols` numbers for the blank and as many for each label that a sequence
  // of the batch may have (BatchCapacity::max_label_length).
  bool by_label = false;

  bool operator==(const Shape&) const = default;
  static Shape fixed(int64_t rows, int64_t cols) { return {Axis::fixed, 0, rows, cols, 1}; }
  static Shape frames(int level, int64_t cols, int64_t planes = 1) {
    return {Axis::frames, level, 0, cols, planes};
  }
  static Shape image(int level, int64_t height, int64_t channels) {
    return {Axis::frames, level, 0, height * channels, 1, height};
  }
  static Shape labels(int level) { return {Axis::frames, level, 0, 1, 1, 0, true}; }
  static Shape sequences(int64_t cols, int64_t planes = 1) {
    return {Axis::sequences, 0, 0, cols, planes};
  }
};
std::string to_string(const Shape& shape);

enum class ValueRole : uint8_t {
  activation,  // lives in the arena
  input,       // filled from the batch
  parameter,   // owned by Parameters
  gradient,    // of a parameter; owned by Parameters, accumulated into
};

// How a parameter starts.
struct Init {
  enum Kind : uint8_t {
    constant,   // value
    uniform,    // in [-value, value]
    lstm_bias,  // zero, but `value` for the forget gates (Jozefowicz et al. 2015)
  } kind = constant;
  double value = 0;
};

struct Value {
  std::string name;  // unique among inputs and parameters; informative otherwise
  Shape shape;
  DType dtype = DType::f32;
  ValueRole role = ValueRole::activation;
  bool needs_gradient = false;
  bool keep = false;            // still readable after the run
  Init init;                    // parameters
  int64_t taps = 0;             // of a convolution's weights: in files [rows, cols / taps, taps],
  int64_t tap_rows = 0;         // or [rows, cols / taps, tap_rows, taps / tap_rows]
  ValueId gradient = no_value;  // parameters: the value with role gradient
  int stage = 0;
};

// Attributes of a node, sorted by key.
class Attributes {
 public:
  using Item = std::variant<int64_t, double, std::string>;
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Item>> items);
  int64_t integer(std::string_view key) const;  // throws Error when missing or of another type
  double real(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  bool has(std::string_view key) const;
  const std::vector<std::pair<std::string, Item>>& items() const { return items_; }
  // A copy with one more.
  Attributes with(std::string key, Item item) const;

 private:
  const Item& find(std::string_view key) const;
  std::vector<std::pair<std::string, Item>> items_;
};

enum class Phase : uint8_t {
  forward,
  backward,         // on the path of the input gradients
  weight_gradient,  // nobody downstream waits for it
};

struct Node {
  std::string op;                // a rule of engine/ops
  std::vector<ValueId> inputs;   // no_value: an optional input is absent
  std::vector<ValueId> outputs;  // no_value: an optional output is not wanted
  Attributes attributes;
  Phase phase = Phase::forward;
  int stage = 0;
  // What a gradient node belongs to: output 0 of the forward node; no_value for forward nodes.
  ValueId gradient_of = no_value;
};

// Packed frames that were made of another level's, its parent's: fewer of each sequence, or the
// pixels of its frames.
struct Level {
  int parent = -1;
  // So many frames become one. What is left at the end of a sequence becomes one more, unless
  // `whole`: then it is dropped.
  int factor = 1;
  bool whole = false;
  // Above 0: each frame of the parent, a column of so many pixels, is a sequence by itself.
  int column = 0;

  // Frames of a sequence that has `length` in the parent.
  int32_t frames(int32_t length) const {
    return column > 0 ? column : (length + (whole ? 0 : factor - 1)) / factor;
  }
  bool operator==(const Level&) const = default;
};

class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Level> levels = std::vector<Level>(1);  // level 0: the frames of the input
  // Layers add their nodes to this pipeline stage.
  int stage = 0;
  // Storage of activations: f32, bf16, or f64 (gradient checks).
  DType compute = DType::f32;
  // Whether dropout is applied.
  bool training = true;
  bool int8 = false;  // products have operands of 8 bits: in f32, not for training, on CPUs

  const Value& value(ValueId id) const { return values.at(static_cast<size_t>(id)); }
  Value& value(ValueId id) { return values.at(static_cast<size_t>(id)); }
  const Shape& shape(ValueId id) const { return value(id).shape; }

  ValueId add_input(std::string name, Shape shape, DType dtype);
  // The dtype is f32 (f64 in an f64 graph). Throws Error when the name is taken.
  ValueId add_parameter(std::string name, int64_t rows, int64_t cols, Init init);
  ValueId add_activation(std::string name, Shape shape, DType dtype);
  // The level that is made so, which nodes share.
  int add_level(Level level);
  int add_level(int parent, int factor) { return add_level({parent, factor}); }
  // From one of the input's to `level`, itself the last; empty for level 0.
  std::vector<Level> path_to(int level) const;
  // Frames of level 0 per frame of `level`.
  int64_t total_factor(int level) const;
  // Frames of `level` that a sequence of `length` at level 0 has; not below a level of columns.
  int32_t frames_at(int level, int32_t length) const;

  // Appends a node; the rule of `op` infers and adds the outputs.
  std::vector<ValueId> add_node(std::string op, std::vector<ValueId> inputs,
                                Attributes attributes = {});
  // The parameter in the dtype that activations are computed in (a cast node for bf16).
  ValueId as_compute(ValueId parameter);

  // Marks a value to be read after the run.
  void keep(ValueId id) { value(id).keep = true; }
  // The value named so, or no_value.
  ValueId find(std::string_view name) const;

  // A hash of structure, shapes, dtypes and attributes, which ranks compare before they train
  // together.
  uint64_t hash() const;
};

// Appends the nodes that compute the gradients of `loss` (summed over its elements) with respect to
// every parameter, by one rule per op. A value used more than once gets explicit accumulate nodes,
// in a fixed order. Returns the number of nodes added.
int append_backward(Graph& graph, ValueId loss);

// To be called before append_backward: parameters that were added before the first one of `layer`
// (whose name begins with it and a dot) keep their values, so they get no gradients, and neither
// does what depends on them alone. InputError where there is no such parameter; `what` begins the
// sentence.
void freeze_before(Graph& graph, std::string_view layer, std::string_view what);

// To be called before append_backward: replaces the node that makes `loss` by one that is also the
// maker of its input 0, as its rule has it (OpRule::fused), so that the value between them is never
// in memory, where that has `least_columns` or more and no other node reads it. The maker stays,
// for whoever keeps its value; a bound graph leaves out what nobody reads. Returns whether it did.
bool fuse_loss(Graph& graph, ValueId loss, int64_t least_columns);

// The gradient value of an activation or input after append_backward, for those that asked for it
// by `needs_gradient`; see GradientBuilder.
struct BackwardResult {
  int nodes_added = 0;
  std::vector<ValueId> gradients;  // by value id; no_value where none
};
BackwardResult append_backward_with_gradients(Graph& graph, ValueId loss);

}  // namespace rondo
