// Scripts that set no spaces between words.
//
// Thread safety: plain data. Errors: InputError when a text is not valid UTF-8.
#pragma once

#include <cstdint>
#include <string_view>

namespace rondo {

// Whether a letter belongs to a script whose words stand side by side without spaces: Han, kana,
// bopomofo, Yi, Thai, Lao, Khmer, Myanmar, Tibetan and their like. (Of UAX #14 the letters of line
// breaking classes ID and SA, and Tibetan, whose marks divide syllables.) Hangul has spaces.
bool is_of_unspaced_script(char32_t code_point);

// Whether spaces divide texts into words of which errors can be counted.
class WordSpacing {
 public:
  // Texts without a character add nothing.
  void add(std::string_view text);

  // At least half of the letters are of a script without spaces.
  bool unspaced_script() const { return letters_ > 0 && 2 * unspaced_ >= letters_; }
  // On average fewer than 1.5 words and more than 15 characters.
  bool long_words() const {
    return texts_ > 0 && 2 * words_ < 3 * texts_ && characters_ > 15 * texts_;
  }

 private:
  int64_t texts_ = 0, words_ = 0, characters_ = 0, letters_ = 0, unspaced_ = 0;
};

}  // namespace rondo
