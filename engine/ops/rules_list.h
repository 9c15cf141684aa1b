// The rules of engine/ops, for the table alone.
#pragma once

#include "engine/graph/rules.h"

namespace rondo {

const OpRule& accumulate_rule();
const OpRule& cast_rule();
const OpRule& columns_rule();
const OpRule& conv_rule();
const OpRule& conv_grad_input_rule();
const OpRule& conv_grad_weight_rule();
const OpRule& cross_entropy_rule();
const OpRule& ctc_rule();
const OpRule& ctc_chunk_alpha_rule();
const OpRule& ctc_chunk_grad_rule();
const OpRule& dropout_rule();
const OpRule& edge_frames_rule();
const OpRule& edge_frames_grad_rule();
const OpRule& fill_rule();
const OpRule& group_norm_rule();
const OpRule& group_norm_grad_rule();
const OpRule& images_rule();
const OpRule& layer_norm_rule();
const OpRule& layer_norm_grad_rule();
const OpRule& linear_rule();
const OpRule& linear_ctc_rule();
const OpRule& linear_ctc_grad_rule();
const OpRule& linear_grad_input_rule();
const OpRule& linear_grad_weight_rule();
const OpRule& log_softmax_rule();
const OpRule& log_softmax_grad_rule();
const OpRule& lstm_rule();
const OpRule& lstm_backward_rule();
const OpRule& lstm_stack_rule();
const OpRule& lstm_stack_backward_rule();
const OpRule& lstm_weight_grad_rule();
const OpRule& mse_rule();
const OpRule& pointwise_rule();
const OpRule& pointwise_grad_rule();
const OpRule& pool_rule();
const OpRule& pool_grad_rule();
const OpRule& pool2d_rule();
const OpRule& pool2d_grad_rule();
const OpRule& reverse_frames_rule();
const OpRule& stack_frames_rule();
const OpRule& stack_frames_grad_rule();

}  // namespace rondo
