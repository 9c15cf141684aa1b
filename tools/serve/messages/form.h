// The body of a form with files, multipart/form-data (RFC 7578).
//
// libwebsockets has a parser of its own. It keeps one value of each name, and clients say
// "timestamp_granularities[]" twice; and a body that breaks off is no error to it.
//
// Errors: InputError, a sentence. Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::serve {

struct FormPart {
  std::string name;
  std::optional<std::string> file_name;  // of a file
  std::string_view content;              // a part of the body
};

// `content_type`: as the header has it, with the boundary.
std::vector<FormPart> parse_form(std::string_view content_type, std::string_view body);

}  // namespace rondo::serve
