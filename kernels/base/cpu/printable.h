// Text from outside as a message may hold it: names of files, rows of tables, transcripts.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rondo {

enum class LineBreaks { escaped, kept };

// The text with what a terminal would obey, or show out of order, written out: control characters
// as \n, \t and \x1b, those beyond ASCII (C1, line separators, the marks and overrides of
// bidirectional text, invisible spaces) as \u202e, and bytes that are no UTF-8 as \xff. Joiners
// stay, which some scripts are spelt with. `kept`: line breaks, and tabs, are the message's own.
std::string printable(std::string_view text, LineBreaks breaks = LineBreaks::escaped);

// The same of at most so many bytes, with "..." for the rest.
std::string printable_start(std::string_view text, size_t most);

// A word or a line from outside as a message quotes it: 'printable_start(text, 80)'. A file may
// hold one as long as itself.
std::string quoted_start(std::string_view text);

}  // namespace rondo
