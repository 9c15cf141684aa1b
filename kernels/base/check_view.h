// What the views of a call must look like: kernels take it for granted, so their hosts ask before
// they launch anything. For contracts; what comes from outside is an InputError elsewhere.
#pragma once

#include "kernels/base/tensor.h"

namespace rondo {

// Each throws Error naming the op, the view, what it is and what was expected:
// "ctc: grad is bf16 [3, 4], expected f32 [3, 5]". An absent view is one of no dimensions.
void check_matrix(const char* op, const char* name, const TensorView& view, DType dtype,
                  int64_t rows, int64_t cols);
void check_like(const char* op, const char* name, const TensorView& view, const TensorView& like);
// So many, in any shape; the type is asked by TensorView::as().
void check_elements(const char* op, const char* name, const TensorView& view, int64_t count);

}  // namespace rondo
