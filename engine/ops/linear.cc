// linear: y = x W^T + b. Inputs x, W [out, in], b [1, out] or absent; output y. Attribute int8, or
// none.
#include <algorithm>

#include "engine/ops/bind.h"
#include "kernels/base/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/reduce/reduce.h"

namespace rondo {
namespace {

std::vector<InferredValue> infer(const Graph& g, const Node& node) {
  const Shape& x = g.shape(node.inputs.at(0));
  const Shape& w = g.shape(node.inputs.at(1));
  RONDO_CHECK(x.cols == w.cols && x.planes == 1, "linear: input has ", x.cols,
              " columns, the weights expect ", w.cols);
  Shape y = x;
  y.height = 0;
  y.cols = w.rows;
  return {{"linear", y, g.value(node.inputs[0]).dtype}};
}

void backward(GradientBuilder& b, const Node& node) {
  const ValueId x = node.inputs[0], w = node.inputs[1], bias = node.inputs[2];
  const ValueId dy = b.of(node.outputs[0]);
  if (b.needs(x)) {
    const ValueId dx = b.like(x, "linear.dx");
    b.emit("linear_grad_input", {dy, w}, {dx}, {}, Phase::backward, node.stage);
    b.contribute(x, dx);
  }
  const ValueId dw = b.parameter_gradient(w), db = b.parameter_gradient(bias);
  if (dw != no_value || db != no_value) {
    b.emit("linear_grad_weight", {dy, x}, {dw, db}, {}, Phase::weight_gradient, node.stage);
  }
}

GemmArgs forward_args(const Graph& g, const Node& node, int64_t rows) {
  const Shape& w = g.shape(node.inputs[1]);
  GemmArgs a;
  a.m = rows;
  a.n = w.rows;
  a.k = w.cols;
  a.transpose_b = true;
  a.lda = a.ldb = w.cols;
  a.ldc = w.rows;
  a.dtype = a.c_dtype = g.value(node.inputs[0]).dtype;
  a.int8 = node.attributes.has("int8");
  return a;
}

GemmArgs grad_input_args(const Graph& g, const Node& node, int64_t rows) {
  const Shape& w = g.shape(node.inputs[1]);
  GemmArgs a;
  a.m = rows;
  a.n = w.cols;
  a.k = w.rows;
  a.lda = w.rows;
  a.ldb = a.ldc = w.cols;
  a.dtype = a.c_dtype = g.value(node.inputs[0]).dtype;
  return a;
}

GemmArgs grad_weight_args(const Graph& g, const Node& node, int64_t rows) {
  const Shape& dy = g.shape(node.inputs[0]);
  const Shape& x = g.shape(node.inputs[1]);
  GemmArgs a;
  a.m = dy.cols;
  a.n = x.cols;
  a.k = rows;
  a.transpose_a = true;
  a.lda = dy.cols;
  a.ldb = a.ldc = x.cols;
  a.dtype = g.value(node.inputs[0]).dtype;
  a.c_dtype = a.dtype == DType::f64 ? DType::f64 : DType::f32;
  a.beta = 1;
  return a;
}

int64_t capacity_rows(const Graph& g, const BatchCapacity& capacity, ValueId id) {
  return value_elements(g, capacity, g.shape(id)) / g.shape(id).cols;
}

template <GemmArgs (*make)(const Graph&, const Node&, int64_t)>
size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  return gemm_workspace_bytes(context, make(g, node, capacity_rows(g, capacity, node.inputs[0])));
}

// Weight and bias gradients follow one another in the same scratch.
size_t grad_weight_workspace(const Context& context, const Graph& g, const Node& node,
                             const BatchCapacity& capacity) {
  const int64_t rows = capacity_rows(g, capacity, node.inputs[0]);
  return std::max(workspace<grad_weight_args>(context, g, node, capacity),
                  reduce_rows_workspace_bytes(context, rows, g.shape(node.inputs[0]).cols));
}

// The product that `make` describes, of the node's first two inputs.
template <GemmArgs (*make)(const Graph&, const Node&, int64_t)>
GemmArgs product(const Binder& b, const Node& node) {
  GemmArgs a = make(b.graph(), node, capacity_rows(b.graph(), b.capacity(), node.inputs[0]));
  a.a = b.input(node, 0).data;
  a.b = b.input(node, 1).data;
  a.c = b.output(node, 0).data;
  a.row_count = b.row_count(node.inputs[0]);
  a.spare_rows = true;
  a.workspace = b.workspace();
  return a;
}

Thunk bind(const Binder& b, const Node& node) {
  GemmArgs a = product<forward_args>(b, node);
  a.bias = flat(b.input(node, 2));
  a.packed_b = b.packed(node.inputs[1]);
  return bound(b, a);
}

Thunk bind_grad_input(const Binder& b, const Node& node) {
  return bound(b, product<grad_input_args>(b, node));
}

Thunk bind_grad_weight(const Binder& b, const Node& node) {
  const GemmArgs a = product<grad_weight_args>(b, node);
  Thunk weight = a.c ? bound(b, a) : Thunk{};
  ReduceRowsArgs r;
  r.x = b.input(node, 0);
  r.y = flat(b.output(node, 1));
  r.row_count = a.row_count;
  r.accumulate = true;
  r.workspace = b.workspace();
  Thunk bias = r.y ? bound(b, r) : Thunk{};
  return [weight = std::move(weight), bias = std::move(bias)](const Context& context) {
    if (weight) weight(context);
    if (bias) bias(context);
  };
}

// Two flops per row, input and output column.
template <GemmArgs (*make)(const Graph&, const Node&, int64_t)>
NodeWork work(const Graph& g, const Node& node, const BatchShape& batch) {
  NodeWork w = operand_work(g, node, batch);
  const GemmArgs a = make(g, node, 1);
  const double rows = rows_of(g, g.shape(node.inputs[0]), batch);
  w.operations = 2 * rows * static_cast<double>(a.m * a.n * a.k);
  return w;
}

}  // namespace

std::span<const OpRule> linear_rules() {
  static const OpRule rules[] = {{.op = "linear",
                                  .infer = infer,
                                  .backward = backward,
                                  .workspace = workspace<forward_args>,
                                  .bind = bind,
                                  .time = {.kind = TimeKind::rows},
                                  .work = work<forward_args>},
                                 {.op = "linear_grad_input",
                                  .workspace = workspace<grad_input_args>,
                                  .bind = bind_grad_input,
                                  .time = {.kind = TimeKind::rows},
                                  .work = work<grad_input_args>},
                                 {.op = "linear_grad_weight",
                                  .workspace = grad_weight_workspace,
                                  .bind = bind_grad_weight,
                                  .time = {.kind = TimeKind::rows},
                                  .work = work<grad_weight_args>}};
  return rules;
}

}  // namespace rondo
