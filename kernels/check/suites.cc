#include "kernels/check/suites.h"

namespace rondo::check {

Suite full_suite() {
  Suite suite;
  lstm_check(suite);
  lstm_stack_check(suite);
  gemm_check(suite);
  ctc_check(suite);
  ctc_chunk_check(suite);
  linear_ctc_check(suite);
  pointwise_check(suite);
  softmax_check(suite);
  dropout_check(suite);
  reduce_check(suite);
  cast_check(suite);
  optimizer_check(suite);
  loss_check(suite);
  pool_check(suite);
  pool2d_check(suite);
  norm_check(suite);
  group_norm_check(suite);
  subsample_check(suite);
  reverse_check(suite);
  beam_search_check(suite);
  conv_check(suite);
  pack_check(suite);
  totals_check(suite);
  return suite;
}

}  // namespace rondo::check
