// Text files as they come: UTF-8 with or without a byte order mark, UTF-16, compressed by gzip.
//
// Errors: InputError that names the file. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rondo::corpus {

// What the content says as UTF-8 without a byte order mark. UTF-16 is known by its mark, or by the
// zeros that it has between the letters of its beginning; a surrogate without its other half
// becomes bytes that are no UTF-8, as what else is neither stays what it is. `name` is for
// messages.
std::string decoded_text(std::string content, const std::string& name);

// The same of a file; where there is none, of the file with .gz behind its name.
std::string read_text(const std::string& path);

}  // namespace rondo::corpus
