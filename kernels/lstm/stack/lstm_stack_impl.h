// What the variants of the stack ops share; for kernels/lstm/stack alone.
#pragma once

#include "kernels/lstm/stack/lstm_stack.h"
#include "kernels/simt/gpu_variant.h"

namespace rondo {

// Throws Error unless the layers are what kernels/lstm/stack/lstm_stack.h asks for.
void check_lstm_stack(const LstmStackForwardArgs& args);
void check_lstm_stack(const LstmStackBackwardArgs& args);

RONDO_DECLARE_GPU(lstm_stack_forward_wavefront, LstmStackForwardArgs);
RONDO_DECLARE_GPU(lstm_stack_backward_wavefront, LstmStackBackwardArgs);
namespace sim {
bool lstm_stack_forward_wavefront_accepts(const Context&, const void* args);
bool lstm_stack_backward_wavefront_accepts(const Context&, const void* args);
}  // namespace sim
namespace cuda {
bool lstm_stack_forward_wavefront_accepts(const Context&, const void* args);
bool lstm_stack_backward_wavefront_accepts(const Context&, const void* args);
}  // namespace cuda

}  // namespace rondo
