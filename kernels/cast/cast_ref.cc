#include "kernels/cast/cast_impl.h"

namespace rondo {

void cast_ref(const Context&, const CastArgs& a) {
  const int64_t n = covered_elements(a.x, a.row_count);
  visit_floating(a.x.dtype, [&]<class X>(X) {
    visit_floating(a.y.dtype, [&]<class Y>(Y) {
      for (int64_t i = 0; i < n; ++i) {
        a.y.as<Y>()[i] = static_cast<Y>(static_cast<double>(a.x.as<X>()[i]));
      }
    });
  });
}

void fill_ref(const Context&, const FillArgs& a) {
  const int64_t n = covered_elements(a.y, a.row_count);
  const auto fill = [&]<class T>(T value) {
    for (int64_t i = 0; i < n; ++i) a.y.as<T>()[i] = value;
  };
  switch (a.y.dtype) {
    case DType::f32:
      return fill(static_cast<float>(a.value));
    case DType::bf16:
      return fill(bf16(a.value));
    case DType::f64:
      return fill(a.value);
    case DType::i32:
      return fill(static_cast<int32_t>(a.value));
    case DType::i64:
      return fill(static_cast<int64_t>(a.value));
    case DType::u8:
      return fill(static_cast<uint8_t>(a.value));
  }
}

void scale_ref(const Context&, const ScaleArgs& a) {
  const int64_t n = covered_elements(a.x, a.row_count);
  visit_floating(a.x.dtype, [&]<class X>(X) {
    visit_floating(a.y.dtype, [&]<class Y>(Y) {
      for (int64_t i = 0; i < n; ++i) {
        a.y.as<Y>()[i] =
            static_cast<Y>(static_cast<double>(a.alpha) * static_cast<double>(a.x.as<X>()[i]));
      }
    });
  });
}

void accumulate_ref(const Context&, const AccumulateArgs& a) {
  const int64_t n = covered_elements(a.x, a.row_count);
  visit_floating(a.x.dtype, [&]<class X>(X) {
    visit_floating(a.y.dtype, [&]<class Y>(Y) {
      for (int64_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(a.x.as<X>()[i]);
        Y& y = a.y.as<Y>()[i];
        y = static_cast<Y>(static_cast<double>(y) + static_cast<double>(a.alpha) * x);
      }
    });
  });
}

}  // namespace rondo
