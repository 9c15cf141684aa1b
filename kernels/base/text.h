// Text of messages and files: numbers, and guesses at what a mistyped word meant.
//
// Thread safety: free functions. Errors: none.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rondo {

// Numbers with a point, whatever the locale: `digits` behind it, as printf's %.*f, or at most so
// many that count, as %.*g.
std::string fixed_text(double value, int digits);
std::string short_text(double value, int digits);

// Levenshtein's: insertions, deletions and substitutions of bytes.
size_t edit_distance(std::string_view a, std::string_view b);

// The first of the nearest candidates; empty when none is near (2 changes, or a third of the word).
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace rondo
