// What a file's name says of its kind: its ending, in small letters or capitals. Whoever compares
// endings does so here.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rondo {

// In small letters: ".txt" for "a/B.GT.TXT"; empty where there is none ("a.b/c", ".txt").
std::string ending_of(std::string_view path);

// Whether the name ends so; `ending` is in small letters and may have several parts (".gt.txt").
bool has_ending(std::string_view path, std::string_view ending);

}  // namespace rondo
