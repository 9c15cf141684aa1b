// Parts of the pages of evaluations and comparisons (internal to engine/report): markup, of which
// texts are escaped.
#pragma once

#include <string>
#include <string_view>

#include "engine/report/evaluation_report.h"

namespace rondo::report {

std::string percent(double share);
double share(int64_t part, int64_t whole);
std::string rate(const Counts& counts);  // "n/a" of errors in nothing
std::string tag(const char* name, std::string_view text, std::string_view css = {});
// Text from data, in its own direction of writing.
std::string isolated(std::string_view text);

std::string errors_text(const AlignedUtterance& u, bool characters_first);
// The image or the sound that was read.
std::string media(const AlignedUtterance& u);
// The text with every error marked, by words and, where that tells more, by characters.
std::string marked_errors(const AlignedUtterance& u);
inline const char* const how_errors_are_marked =
    "<del>Struck out</del>: in the reference, not written. <ins>Underlined</ins>: written, not in "
    "the reference. Both in a box: one in place of the other. Below in small, the same by "
    "characters.";

// The sections of a page that compares two runs.
std::string comparison_sections(const Comparison& c, const std::string& noun);

}  // namespace rondo::report
