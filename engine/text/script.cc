#include "engine/text/script.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "engine/text/unicode.h"

namespace rondo {
namespace {

struct Block {
  char32_t first, last;
};

// Unicode's blocks, in their order.
constexpr Block unspaced_blocks[] = {
    {0x0e00, 0x0e7f},    // Thai
    {0x0e80, 0x0eff},    // Lao
    {0x0f00, 0x0fff},    // Tibetan
    {0x1000, 0x109f},    // Myanmar
    {0x1780, 0x17ff},    // Khmer
    {0x1950, 0x197f},    // Tai Le
    {0x1980, 0x19df},    // New Tai Lue
    {0x19e0, 0x19ff},    // Khmer's symbols
    {0x1a20, 0x1aaf},    // Tai Tham
    {0x1b00, 0x1b7f},    // Balinese
    {0x2e80, 0x2fdf},    // radicals of Han
    {0x3005, 0x3007},    // iteration mark, closing mark, zero of Han
    {0x3021, 0x3029},    // numerals
    {0x3031, 0x3035},    // repeat marks of kana
    {0x3038, 0x303c},    // numerals, iteration marks
    {0x3040, 0x30ff},    // hiragana and katakana
    {0x3100, 0x312f},    // bopomofo
    {0x31a0, 0x31bf},    // bopomofo
    {0x31f0, 0x31ff},    // katakana
    {0x3400, 0x4dbf},    // Han, extension A
    {0x4e00, 0x9fff},    // Han
    {0xa000, 0xa4cf},    // Yi
    {0xa980, 0xa9df},    // Javanese
    {0xa9e0, 0xa9ff},    // Myanmar
    {0xaa60, 0xaa7f},    // Myanmar
    {0xaa80, 0xaadf},    // Tai Viet
    {0xf900, 0xfaff},    // Han, compatibility
    {0xff66, 0xff9f},    // katakana of half width
    {0x11700, 0x1174f},  // Ahom
    {0x16fe0, 0x18d8f},  // marks of Han, Tangut, Khitan
    {0x1aff0, 0x1b2ff},  // kana, Nushu
    {0x20000, 0x3ffff},  // Han, further extensions
};

bool is_letter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_of_unspaced_script(char32_t c) {
  const auto* const block =
      std::partition_point(std::begin(unspaced_blocks), std::end(unspaced_blocks),
                           [c](const Block& b) { return b.last < c; });
  return block != std::end(unspaced_blocks) && block->first <= c;
}

void WordSpacing::add(std::string_view text) {
  const std::string plain = normalize_transcript(text);
  if (plain.empty()) return;
  ++texts_;
  words_ += static_cast<int64_t>(split_words(plain).size());
  for (const char32_t c : code_points(plain)) {
    ++characters_;
    if (!is_letter(c)) continue;
    ++letters_;
    if (is_of_unspaced_script(c)) ++unspaced_;
  }
}

}  // namespace rondo
