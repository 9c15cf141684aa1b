// A limit on how deep a TOML document nests, to be asked before it is parsed: the parser and its
// tables are recursive, so that a key of 300,000 parts would overflow the stack.
#pragma once

#include <cstddef>
#include <string_view>

namespace rondo {

// Parts of a key (a.b.c has 3), and brackets within brackets.
inline constexpr size_t most_toml_depth = 64;

// Throws InputError with `name`, the line and the beginning of what is too deep. A text that is no
// TOML may pass; the parser refuses it.
void require_shallow_toml(std::string_view text, std::string_view name);

}  // namespace rondo
