// Catch2, version 2 (Debian 12) or 3 (Debian 13, Ubuntu 24.04). Tests are written with version 2's
// names of matchers.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>

namespace Catch {
namespace Matchers {
// What version 3 has under this name, in a header that is not included, is about elements of a
// range.
inline auto Contains(const std::string& part) { return ContainsSubstring(part); }
}  // namespace Matchers
using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::StartsWith;
}  // namespace Catch
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
