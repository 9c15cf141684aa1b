#include "engine/text/letter_case.h"

#include <utf8proc.h>

#include "engine/text/unicode.h"

namespace rondo {

std::string to_upper(std::string_view text) {
  std::string upper;
  for (const char32_t c : code_points(text)) {
    upper += to_utf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
  return upper;
}

}  // namespace rondo
