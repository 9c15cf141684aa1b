// What turns a transcript into labels, as the data code sees it: engine/text/alphabet.h is one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Text that has no label, with how often it occurred.
struct UnknownText {
  std::string what;  // as a person reads it: 'q' (U+0071)
  int64_t count = 0;
};

// Whether unknown text is left out of the labels or is an error.
enum class UnknownCharacters : uint8_t { skip, error };

struct EncodedText {
  std::vector<int32_t> labels;       // each in [1, encoder.classes()); unknown text is left out
  std::vector<UnknownText> unknown;  // in the order of first occurrence
};

// 'q' (U+0071) 3 times, 'é' (U+00E9): at most `limit` of them, then how many more.
std::string describe(std::span<const UnknownText> unknown, size_t limit = 10);

// Thread safety: const members may be called from several threads at once.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // The number of classes of the network's output, the blank (0) included.
  virtual int32_t classes() const = 0;
  // What labels stand for, as messages have it.
  virtual std::string_view units() const { return "characters"; }
  // Throws InputError when `text` is not valid UTF-8.
  virtual EncodedText encode(std::string_view text) const = 0;
};

}  // namespace rondo
