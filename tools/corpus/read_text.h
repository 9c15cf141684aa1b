// Text files as they come: UTF-8 with or without a byte order mark, UTF-16, compressed by gzip.
//
// Errors: InputError that names the file. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace rondo::corpus {

// What the content says, by as_utf8(). `name` is for messages.
std::string decoded_text(std::string content, const std::string& name);

// The same of a file; where there is none, of the file with .gz behind its name.
std::string read_text(const std::string& path);

}  // namespace rondo::corpus
