#include "bench/cases/check/check.h"

// A line for each op, in the order in which their cases run: those of `pool` are in pool.cc.
#define RONDO_OPS       \
  RONDO_OP(lstm)        \
  RONDO_OP(lstm_stack)  \
  RONDO_OP(gemm)        \
  RONDO_OP(ctc)         \
  RONDO_OP(linear_ctc)  \
  RONDO_OP(pointwise)   \
  RONDO_OP(softmax)     \
  RONDO_OP(dropout)     \
  RONDO_OP(reduce)      \
  RONDO_OP(cast)        \
  RONDO_OP(optimizer)   \
  RONDO_OP(loss)        \
  RONDO_OP(pool)        \
  RONDO_OP(pool2d)      \
  RONDO_OP(norm)        \
  RONDO_OP(group_norm)  \
  RONDO_OP(subsample)   \
  RONDO_OP(reverse)     \
  RONDO_OP(beam_search) \
  RONDO_OP(conv)        \
  RONDO_OP(pack)        \
  RONDO_OP(totals)

namespace rondo::check {

#define RONDO_OP(op) void op##_cases(Suite& suite);
RONDO_OPS
#undef RONDO_OP
void ctc_cudnn_peers(Suite& suite);
void lstm_cudnn_peers(Suite& suite);

Suite full_suite() {
  Suite suite;
#define RONDO_OP(op) op##_cases(suite);
  RONDO_OPS
#if defined(RONDO_WITH_CUDA) && __has_include(<cudnn.h>)
  ctc_cudnn_peers(suite);
  lstm_cudnn_peers(suite);
#endif
  return suite;
}

}  // namespace rondo::check
