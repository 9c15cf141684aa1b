// ctc in chunks of time (kernels/ctc/ctc_chunk.h), as engine/cut/sequence_graph.cc puts it in
// place of ctc. Attributes of both: blank, log_softmax_input (0/1), zero_infinity (0/1).
//   ctc_chunk_alpha   inputs logits, total_frames, alpha_in; output alpha_out
//   ctc_chunk_grad    inputs logits, total_frames, alpha_in, beta_in; outputs loss, dlogits,
//                     beta_out
#include "kernels/ctc/ctc_chunk.h"

#include "engine/ops/bind.h"

namespace rondo {
namespace {

size_t workspace(const Context& context, const Graph& g, const Node& node,
                 const BatchCapacity& capacity) {
  const Value& x = g.value(node.inputs[0]);
  return ctc_chunk_workspace_bytes(context, level_capacity(g, capacity, x.shape.level), x.dtype,
                                   x.shape.cols, capacity.max_label_length);
}

void bind_chunk(const Binder& b, const Node& node, CtcChunk& a) {
  a.layout = b.layout_of(node.inputs[0]);
  a.logits = b.input(node, 0);
  a.total_frames = b.input(node, 1).as<int32_t>();
  a.alpha_in = b.input(node, 2);
  a.labels = b.labels();
  a.label_offsets = b.label_offsets();
  a.max_label_length = b.capacity().max_label_length;
  a.blank = static_cast<int32_t>(node.attributes.integer("blank"));
  a.input = node.attributes.integer("log_softmax_input") ? CtcInput::log_softmax : CtcInput::logits;
  a.workspace = b.workspace();
}

Thunk bind_alpha(const Binder& b, const Node& node) {
  CtcChunkAlphaArgs a;
  bind_chunk(b, node, a);
  a.alpha_out = b.output(node, 0);
  return bound(b, a);
}

Thunk bind_grad(const Binder& b, const Node& node) {
  CtcChunkGradArgs a;
  bind_chunk(b, node, a);
  a.zero_infinity = node.attributes.integer("zero_infinity") != 0;
  a.beta_in = b.input(node, 3);
  a.loss = flat(b.output(node, 0));
  a.grad = b.output(node, 1);
  a.beta_out = b.output(node, 2);
  return bound(b, a);
}

}  // namespace

std::span<const OpRule> ctc_chunk_rules() {
  static const OpRule rules[] = {{.op = "ctc_chunk_alpha",
                                  .workspace = workspace,
                                  .bind = bind_alpha,
                                  .time = {.kind = TimeKind::part},
                                  .label_classes = input_columns},
                                 {.op = "ctc_chunk_grad",
                                  .workspace = workspace,
                                  .bind = bind_grad,
                                  .time = {.kind = TimeKind::part},
                                  .in_place = {{1, 0}},
                                  .label_classes = input_columns}};
  return rules;
}

}  // namespace rondo
