#include "kernels/base/error.h"

#include <charconv>

namespace rondo::detail {
namespace {

// "%.6g" for real numbers, and nothing of the locale.
template <class Number, class... Format>
void append_number(std::string& out, Number number, Format... format) {
  char digits[20];  // of the longest integer, and "-1.23457e-308" is shorter
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number, format...);
  out.append(digits, error == std::errc{} ? end : digits);
}

}  // namespace

Piece::Piece(const std::string& text) : Piece(std::string_view(text)) {}

void Piece::append_to(std::string& out) const {
  switch (kind_) {
    case Kind::text:
      out += text_;
      return;
    case Kind::character:
      out += character_;
      return;
    case Kind::integer:
      return append_number(out, integer_);
    case Kind::natural:
      return append_number(out, natural_);
    case Kind::real:
      return append_number(out, real_, std::chars_format::general, 6);
  }
}

std::string join(std::initializer_list<Piece> pieces) {
  size_t most = 0;
  for (const Piece& piece : pieces) most += piece.most_bytes();
  std::string out;
  out.reserve(most);  // one allocation: messages name operations that then succeed, too
  for (const Piece& piece : pieces) piece.append_to(out);
  return out;
}

void throw_input(std::initializer_list<Piece> pieces) { throw InputError(join(pieces)); }

void throw_check(const char* condition, std::source_location where,
                 std::initializer_list<Piece> message) {
  std::string text = str(where.file_name(), ":", where.line(), ": check failed: ", condition);
  if (const std::string more = join(message); !more.empty()) text += ": " + more;
  throw Error(text);
}

void fail_check_plain(const char* file, int line, const char* condition) {
  throw Error(str(file, ":", line, ": check failed: ", condition));
}

}  // namespace rondo::detail
