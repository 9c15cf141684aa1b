// The table of ops: a line for each list of variants.
#include <span>
#include <vector>

#include "kernels/base/dispatch.h"
#include "kernels/beam_search/beam_search.h"
#include "kernels/cast/cast.h"
#include "kernels/conv/conv.h"
#include "kernels/conv/edge_frames.h"
#include "kernels/ctc/ctc.h"
#include "kernels/ctc/ctc_chunk.h"
#include "kernels/dropout/dropout.h"
#include "kernels/gemm/gemm.h"
#include "kernels/group_norm/group_norm.h"
#include "kernels/linear_ctc/linear_ctc.h"
#include "kernels/loss/loss.h"
#include "kernels/lstm/lstm.h"
#include "kernels/lstm/lstm_prediction.h"
#include "kernels/lstm/stack/lstm_stack.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/pack/pack.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/pool/pool.h"
#include "kernels/pool2d/pool2d.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reverse/reverse.h"
#include "kernels/softmax/softmax.h"
#include "kernels/subsample/subsample.h"
#include "kernels/totals/totals.h"

namespace rondo {

std::span<const std::span<const Variant>> all_ops() {
  static const std::vector<std::span<const Variant>> ops = {
      lstm_forward_variants(),
      lstm_backward_variants(),
      lstm_weight_grad_variants(),
      lstm_stack_forward_variants(),
      lstm_stack_backward_variants(),
      gemm_variants(),
      pointwise_variants(),
      pointwise_grad_variants(),
      ctc_variants(),
      ctc_chunk_alpha_variants(),
      ctc_chunk_grad_variants(),
      linear_ctc_variants(),
      linear_ctc_grad_variants(),
      log_softmax_variants(),
      log_softmax_grad_variants(),
      dropout_variants(),
      reduce_rows_variants(),
      sum_squares_variants(),
      count_nonfinite_variants(),
      cast_variants(),
      fill_variants(),
      scale_variants(),
      accumulate_variants(),
      optimizer_prepare_variants(),
      sgd_variants(),
      adam_variants(),
      ema_variants(),
      cross_entropy_variants(),
      mse_variants(),
      pool_variants(),
      pool_grad_variants(),
      pool2d_variants(),
      pool2d_grad_variants(),
      layer_norm_variants(),
      layer_norm_grad_variants(),
      group_norm_variants(),
      group_norm_grad_variants(),
      reverse_frames_variants(),
      stack_frames_variants(),
      stack_frames_grad_variants(),
      beam_search_variants(),
      conv_variants(),
      conv_grad_input_variants(),
      conv_grad_weight_variants(),
      edge_frames_variants(),
      edge_frames_grad_variants(),
      pack_variants(),
      unpack_variants(),
      loss_totals_variants(),
      combine_totals_variants(),
  };
  return ops;
}

Chooser chooser_of(std::string_view op) {
  if (op == LstmForwardArgs::op) return choose_lstm_forward;
  if (op == LstmBackwardArgs::op) return choose_lstm_backward;
  if (op == LstmStackForwardArgs::op) return choose_lstm_stack_forward;
  if (op == LstmStackBackwardArgs::op) return choose_lstm_stack_backward;
  for (std::string_view conv : {ConvArgs::op, ConvGradInputArgs::op, ConvGradWeightArgs::op}) {
    if (op == conv) return choose_conv;
  }
  return nullptr;
}

}  // namespace rondo
