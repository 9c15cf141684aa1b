// Letters in upper case, for models that write in capitals alone.
//
// Errors: InputError when the text is not valid UTF-8. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rondo {

// Unicode's simple mapping, one code point to one.
std::string to_upper(std::string_view text);

}  // namespace rondo
