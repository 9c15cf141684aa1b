#include "kernels/base/check_view.h"

#include "kernels/base/error.h"

namespace rondo {
namespace {

std::string describe(const TensorView& view) {
  if (view.rank == 0) return "absent";
  std::string dims;
  for (int i = 0; i < view.rank; ++i) dims += str(i ? ", " : "", view.dim(i));
  return str(name_of(view.dtype), " [", dims, "]");
}

}  // namespace

void check_like(const char* op, const char* name, const TensorView& view, const TensorView& like) {
  bool same = view.dtype == like.dtype && view.rank == like.rank;
  for (int i = 0; same && i < view.rank; ++i) same = view.dim(i) == like.dim(i);
  RONDO_CHECK(same, op, ": ", name, " is ", describe(view), ", expected ", describe(like));
}

void check_matrix(const char* op, const char* name, const TensorView& view, DType dtype,
                  int64_t rows, int64_t cols) {
  check_like(op, name, view, TensorView(nullptr, dtype, {rows, cols}));
}

void check_elements(const char* op, const char* name, const TensorView& view, int64_t count) {
  RONDO_CHECK(view.rank > 0 && view.numel() == count, op, ": ", name, " is ", describe(view),
              ", expected ", count, " elements");
}

}  // namespace rondo
