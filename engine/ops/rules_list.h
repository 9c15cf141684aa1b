// The rules of engine/ops, a line each, for the table alone.
#pragma once

#include "engine/graph/rules.h"

#define RONDO_RULES               \
  RONDO_RULE(accumulate)          \
  RONDO_RULE(cast)                \
  RONDO_RULE(columns)             \
  RONDO_RULE(conv)                \
  RONDO_RULE(conv_grad_input)     \
  RONDO_RULE(conv_grad_weight)    \
  RONDO_RULE(cross_entropy)       \
  RONDO_RULE(ctc)                 \
  RONDO_RULE(ctc_chunk_alpha)     \
  RONDO_RULE(ctc_chunk_grad)      \
  RONDO_RULE(dropout)             \
  RONDO_RULE(edge_frames)         \
  RONDO_RULE(edge_frames_grad)    \
  RONDO_RULE(fill)                \
  RONDO_RULE(group_norm)          \
  RONDO_RULE(group_norm_grad)     \
  RONDO_RULE(images)              \
  RONDO_RULE(layer_norm)          \
  RONDO_RULE(layer_norm_grad)     \
  RONDO_RULE(linear)              \
  RONDO_RULE(linear_ctc)          \
  RONDO_RULE(linear_ctc_grad)     \
  RONDO_RULE(linear_grad_input)   \
  RONDO_RULE(linear_grad_weight)  \
  RONDO_RULE(log_softmax)         \
  RONDO_RULE(log_softmax_grad)    \
  RONDO_RULE(lstm)                \
  RONDO_RULE(lstm_backward)       \
  RONDO_RULE(lstm_stack)          \
  RONDO_RULE(lstm_stack_backward) \
  RONDO_RULE(lstm_weight_grad)    \
  RONDO_RULE(mse)                 \
  RONDO_RULE(pointwise)           \
  RONDO_RULE(pointwise_grad)      \
  RONDO_RULE(pool)                \
  RONDO_RULE(pool_grad)           \
  RONDO_RULE(pool2d)              \
  RONDO_RULE(pool2d_grad)         \
  RONDO_RULE(reverse_frames)      \
  RONDO_RULE(stack_frames)        \
  RONDO_RULE(stack_frames_grad)

namespace rondo {

#define RONDO_RULE(op) const OpRule& op##_rule();
RONDO_RULES
#undef RONDO_RULE

}  // namespace rondo
