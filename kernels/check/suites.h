// The check suites of all ops: one declaration and one line per op.
#pragma once

#include "kernels/check/check.h"

namespace rondo::check {

void lstm_check(Suite& suite);
void lstm_stack_check(Suite& suite);
void gemm_check(Suite& suite);
void ctc_check(Suite& suite);
void ctc_chunk_check(Suite& suite);
void linear_ctc_check(Suite& suite);
void pointwise_check(Suite& suite);
void softmax_check(Suite& suite);
void dropout_check(Suite& suite);
void reduce_check(Suite& suite);
void cast_check(Suite& suite);
void optimizer_check(Suite& suite);
void loss_check(Suite& suite);
void pool_check(Suite& suite);
void pool2d_check(Suite& suite);
void norm_check(Suite& suite);
void group_norm_check(Suite& suite);
void subsample_check(Suite& suite);
void reverse_check(Suite& suite);
void beam_search_check(Suite& suite);
void conv_check(Suite& suite);
void pack_check(Suite& suite);
void totals_check(Suite& suite);

}  // namespace rondo::check
