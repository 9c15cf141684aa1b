#include "kernels/base/cpu/printable.h"

#include <cstdint>
#include <cstdio>

namespace rondo {
namespace {

struct Decoded {
  char32_t code_point = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

// The code point at the start of a text that is not empty.
Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  char32_t c = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    c = c << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
  if (c < least[bytes] || c > 0x10ffff || is_surrogate) return {};
  return {c, bytes};
}

bool is_obeyed(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || c == 0x200b ||
         c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe007f);
}

std::string escape(char32_t c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c == '\r') return "\\r";
  char text[16];
  const char* format = c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text, sizeof text, format, static_cast<unsigned>(c));
  return text;
}

}  // namespace

std::string printable(std::string_view text, LineBreaks breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded d = decode(text);
    const size_t bytes = d.bytes == 0 ? 1 : d.bytes;
    const bool is_layout = d.code_point == '\n' || d.code_point == '\t';
    if (d.bytes == 0) {
      char byte[8];
      std::snprintf(byte, sizeof byte, "\\x%02x", static_cast<unsigned char>(text[0]));
      out += byte;
    } else if (is_obeyed(d.code_point) && !(is_layout && breaks == LineBreaks::kept)) {
      out += escape(d.code_point);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

std::string printable_start(std::string_view text, size_t most) {
  if (text.size() <= most) return printable(text);
  size_t end = most;
  // Not within a character.
  while (end > 0 && end + 3 > most && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u)
    --end;
  return printable(text.substr(0, end)) + "...";
}

std::string quoted_start(std::string_view text) {
  constexpr size_t most = 80;
  std::string quoted = "'";
  return quoted.append(printable_start(text, most)).append("'");
}

}  // namespace rondo
