// kernels/base/text.h: numbers in files and messages.
#include "kernels/base/text.h"

#include <cstdio>
#include <limits>

#include "tests/catch.h"

using namespace rondo;

TEST_CASE("numbers are written as printf writes them in the C locale", "[text]") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {0.0, -0.0, 1.0, 0.5, 2.5, -0.005, 123456.789, 1e-7, 999999.5, 1e22,
                             -1.7976931348623157e308, 5e-324, infinity, -infinity}) {
    for (const int digits : {0, 1, 2, 4, 6, 9}) {
      char text[400];
      std::snprintf(text, sizeof text, "%.*f", digits, value);
      CHECK(fixed_text(value, digits) == text);
      std::snprintf(text, sizeof text, "%.*g", digits, value);
      CHECK(short_text(value, digits) == text);
    }
  }
}
