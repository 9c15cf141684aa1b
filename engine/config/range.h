// The numbers that a setting may have (internal to engine/config).
#pragma once

#include <limits>

namespace rondo::schema {

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;  // low itself is excluded
  bool open_high = false;
};

inline constexpr Range any{};
inline constexpr Range positive{.low = 0, .open_low = true};
inline constexpr Range not_negative{.low = 0};
inline constexpr Range share{.low = 0, .high = 1};
inline constexpr Range below_one{.low = 0, .high = 1, .open_high = true};
constexpr Range from(double low, double high = std::numeric_limits<double>::infinity()) {
  return {.low = low, .high = high};
}

}  // namespace rondo::schema
