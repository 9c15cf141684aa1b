// CTC on padded batches, for the C API: the caller's (T, N, V) memory is used as it is, by a layout
// whose row of frame t of sequence n is t * N + n. Sequences may come in any order of length.
//
// Loss and gradient as in ctc.h, but that a sequence whose labels do not fit into its frames has
// loss 0, and one whose cost per frame is more than a softmax of its type can show has +inf; the
// gradient of frames past a sequence's length is 0.
#pragma once

#include "kernels/ctc/ctc.h"

namespace rondo {

struct CtcPadded {
  const void* activations = nullptr;  // [T, N, V], before softmax, memory of context.device
  void* gradients = nullptr;          // the same shape, or null: loss only
  DType dtype = DType::f32;           // f32 or f64
  int32_t classes = 0, sequences = 0, blank = 0;
  // In host memory: labels one sequence after the other, and N lengths each.
  const int32_t *flat_labels = nullptr, *label_lengths = nullptr, *input_lengths = nullptr;
  void* costs = nullptr;  // [N] in dtype, host memory
};

// Scratch memory that ctc_padded() needs on context.device, for any alignment of its address.
// Throws InputError naming a value that no batch can have.
size_t ctc_padded_workspace_bytes(const Context& context, const CtcPadded& batch);

// Complete on return: waits for context.stream where there is one. Thread safe for contexts with
// streams and pools of their own. `run` is a variant of ctc for context.backend.
// Throws InputError for labels and lengths that cannot be, Error for the rest.
void ctc_padded(const Context& context, void (*run)(const Context&, const CtcArgs&),
                const CtcPadded& batch, void* workspace);

}  // namespace rondo
