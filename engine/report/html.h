// HTML pages that need nothing from outside (internal to engine/report).
#pragma once

#include <string>
#include <string_view>

namespace rondo::report {

// Text for the body or a quoted attribute: markup is escaped; control characters (but line breaks
// and tabs, which become spaces) and bytes that are not UTF-8 become U+FFFD.
std::string html_text(std::string_view text);

// A document of this content, which is markup, with the style of our pages: light or dark as the
// reader prefers, and for paper. Its policy forbids scripts and whatever comes from outside; images
// and sounds are part of it (data:).
//
// Classes: line (an image of a line of text), figures and figure (boxes of numbers), wide (scrolls
// sideways where it does not fit), bar (a cell with a bar), more
// (a cell that narrow pages leave out), lists (columns of tables), aligned
// (text with <del> and <ins>), soft. Names of engine/report/svg.h are not used, because a picture
// in the page brings its own style.
std::string html_page(std::string_view title, std::string_view content);

}  // namespace rondo::report
