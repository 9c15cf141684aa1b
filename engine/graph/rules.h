// What the engine knows about each op of a graph: shapes, gradient, workspace, and how to run it.
//
// A rule lives in engine/ops/<op>.cc and is listed in engine/ops/rules.cc. See
// docs/adding_an_op.md.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/graph/batch.h"
#include "engine/graph/graph.h"
#include "engine/graph/time_rule.h"
#include "engine/graph/work.h"
#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

class PackedWeights;  // kernels/base/cpu/packed_weights.h

// The capacity of a level under that of level 0.
PackedCapacity level_capacity(const Graph& graph, const BatchCapacity& capacity, int level);
// Elements of a value under a capacity.
int64_t value_elements(const Graph& graph, const BatchCapacity& capacity, const Shape& shape);
// Numbers in a row of a value.
int64_t value_columns(const BatchCapacity& capacity, const Shape& shape);

// Hands a rule the memory behind its node's values, once per bound graph.
class Binder {
 public:
  virtual ~Binder() = default;
  virtual const Context& context() const = 0;
  virtual const Graph& graph() const = 0;
  virtual const BatchCapacity& capacity() const = 0;
  // [rows, cols] or [planes, rows, cols] of the value; absent for no_value and for outputs that
  // nobody reads.
  virtual TensorView view(ValueId id) const = 0;
  virtual PackedView layout(int level) const = 0;
  virtual const int32_t* labels() const = 0;
  virtual const int32_t* label_offsets() const = 0;
  virtual const uint64_t* step_seed() const = 0;
  // Scratch for the node being bound, as large as its rule's workspace() asked for.
  virtual TensorView workspace() const = 0;

  // Where kernels keep the parameter `id`, or what a cast makes of one, packed; null where they may
  // not.
  virtual PackedWeights* packed(ValueId id) const = 0;

  TensorView input(const Node& node, size_t i) const { return view(node.inputs.at(i)); }
  TensorView output(const Node& node, size_t i) const { return view(node.outputs.at(i)); }
  // The layout of a value on the frames axis.
  PackedView layout_of(ValueId id) const { return layout(graph().shape(id).level); }
  // The number of rows really used, in device memory; nullptr for fixed rows.
  const int32_t* row_count(ValueId id) const;
};

// Collects gradient contributions while append_backward walks the graph in reverse.
class GradientBuilder {
 public:
  explicit GradientBuilder(Graph& graph);

  Graph& graph() { return graph_; }
  bool needs(ValueId id) const { return id != no_value && graph_.value(id).needs_gradient; }
  // The summed gradient of a value, or no_value when nothing flows into it.
  ValueId of(ValueId id) const {
    return id == no_value ? no_value : gradients_[static_cast<size_t>(id)];
  }
  // Adds a contribution; a second one makes an accumulate node.
  void contribute(ValueId id, ValueId gradient);
  // The f32 gradient of the parameter behind `id` (through as_compute's cast), to accumulate into;
  // no_value when it is absent or frozen.
  ValueId parameter_gradient(ValueId id);
  // An activation with the shape and dtype of `like`.
  ValueId like(ValueId like, std::string name);
  // The forward node whose gradients are emitted from now on.
  void differentiate(const Node& node) { of_ = node.outputs.at(0); }
  // Appends a node with given outputs, as a gradient of that one.
  void emit(std::string op, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
            Attributes attributes, Phase phase, int stage);

  std::vector<ValueId> take() { return std::move(gradients_); }

 private:
  Graph& graph_;
  std::vector<ValueId> gradients_;  // by value id
  ValueId of_ = no_value;
};

// Runs one node; owns the bound arguments.
using Thunk = std::function<void(const Context&)>;

struct InferredValue {
  std::string name;
  Shape shape;
  DType dtype;
};

struct OpRule {
  const char* op = "";
  // The outputs of a node about to be added; throws Error when the inputs do not fit. nullptr: the
  // op appears in backward passes only, where outputs are given.
  std::vector<InferredValue> (*infer)(const Graph& graph, const Node& node) = nullptr;
  // Appends the gradient nodes; nullptr: nothing flows back.
  void (*backward)(GradientBuilder& builder, const Node& node) = nullptr;
  // Bytes of scratch; nullptr: none.
  size_t (*workspace)(const Context& context, const Graph& graph, const Node& node,
                      const BatchCapacity& capacity) = nullptr;
  // Binds memory and chooses the kernel variant.
  Thunk (*bind)(const Binder& binder, const Node& node) = nullptr;
  // What the op does to time; by default the rule does not say, and who has to know refuses it.
  TimeRule time = {};
  // How much there is to do, for the planner; nullptr: the planner refuses the op.
  WorkFunction work = nullptr;
  // Output i may take the memory of input j when nobody reads that input later. Pairs of outputs
  // that a node does not have count for nothing.
  std::vector<std::pair<int, int>> in_place = {};
  // Output 0 is a loss: append_backward may start here, with a gradient of 1 for each element.
  bool is_loss = false;
  // How many classes the batch's labels are of, which the op reads: they have to be such, and other
  // than the attribute blank. nullptr: it reads none.
  int64_t (*label_classes)(const Graph& graph, const Node& node) = nullptr;
  // Of a loss: the node that is both this one and `maker`, which makes its input 0, without that
  // value in between. Output 0 is this one's; the others are added to `graph`. nothing: there is
  // none for such a maker.
  std::optional<Node> (*fused)(Graph& graph, const Node& loss, const Node& maker) = nullptr;
  // Output 0 is input 0 in another dtype: gradients of parameters look through it.
  bool converts = false;
  // Output 0 is the sum of two gradients of one value, made by whoever contributed the second.
  bool adds_gradients = false;
};

// Defined with the table of rules, engine/ops/rules.cc.in: a program that links the graph links its
// ops. Throws Error for an unknown op.
const OpRule& rule_of(std::string_view op);
std::vector<std::string_view> rule_names();

// An op beside those of the table for as long as this lives, for tests. `rule` outlives it. Not
// thread-safe: none may be made or end while others look rules up.
class ExtraRule {
 public:
  explicit ExtraRule(const OpRule& rule);
  ~ExtraRule();
  ExtraRule(const ExtraRule&) = delete;
  ExtraRule& operator=(const ExtraRule&) = delete;
};

}  // namespace rondo
