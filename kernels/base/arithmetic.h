// Divisions that round up, of numbers that are not negative.
#pragma once

#include <type_traits>

namespace rondo {

template <class A, class B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return (a + b - 1) / b;
}
template <class A, class B>
constexpr std::common_type_t<A, B> round_up(A a, B multiple) {
  return ceil_div(a, multiple) * multiple;
}

}  // namespace rondo
