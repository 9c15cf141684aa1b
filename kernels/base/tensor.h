// TensorView: a non-owning, dense, row-major view of memory on some device.
//
// Ownership: none; whoever owns the Buffer or Arena behind it keeps it alive. A default-constructed
// view is "absent" (data == nullptr), which is how optional kernel arguments are spelled.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"

namespace rondo {

struct TensorView {
  static constexpr int max_rank = 4;

  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, max_rank> dims{};

  TensorView() = default;
  [[gnu::always_inline]] TensorView(void* data_, DType dtype_, std::initializer_list<int64_t> dims_)
      : data(data_), dtype(dtype_), rank(static_cast<int>(dims_.size())) {
    RONDO_CHECK(dims_.size() <= max_rank, "a view has at most ", max_rank, " dimensions");
    int i = 0;
    for (int64_t d : dims_) {
      RONDO_CHECK(d >= 0, "dimension ", i, " is ", d);
      dims[static_cast<size_t>(i++)] = d;
    }
  }

  [[gnu::always_inline]] explicit operator bool() const { return data != nullptr; }

  [[gnu::always_inline]] int64_t dim(int i) const {
    RONDO_CHECK(i >= 0 && i < rank, "dimension ", i, " of a view of rank ", rank);
    return dims[static_cast<size_t>(i)];
  }
  [[gnu::always_inline]] int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  [[gnu::always_inline]] size_t bytes() const {
    return static_cast<size_t>(numel()) * size_of(dtype);
  }

  // The elements, checked against the dtype: view.as<float>()[i].
  template <class T>
  [[gnu::always_inline]] T* as() const {
    RONDO_CHECK(data == nullptr || dtype == DTypeOf<T>::value, "view is ", name_of(dtype),
                ", read as ", name_of(DTypeOf<T>::value));
    return static_cast<T*>(data);
  }
};

// Calls f with a value of the element type of a floating dtype: f(T{}).
template <class F>
void visit_floating(DType t, F&& f) {
  switch (t) {
    case DType::f32:
      f(float{});
      return;
    case DType::bf16:
      f(bf16{});
      return;
    case DType::f64:
      f(double{});
      return;
    default:
      RONDO_CHECK(false, name_of(t), " is not a floating type");
  }
}

}  // namespace rondo
