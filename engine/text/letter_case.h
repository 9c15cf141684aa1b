// Letters in lower and in upper case.
//
// Unicode's simple mapping, one code point to one, with what its SpecialCasing.txt says of context
// and language: a Greek sigma at the end of a word becomes U+03C2, and in Turkish and Azeri I and
// U+0131 are one letter, i and U+0130 another.
// Errors: InputError when the text is not valid UTF-8. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

// The language whose letters change their case: "tr", "az-Latn", "de_AT". Empty: none in
// particular, which is right for all but Turkish and Azeri.
struct TextLocale {
  std::string tag;

  // Nothing for what has not the form of a language tag.
  static std::optional<TextLocale> parse(std::string_view tag);
  bool has_dotless_i() const;
  bool operator==(const TextLocale&) const = default;
};

// Whether the lower case of texts depends on a locale that nobody named: they have a letter of
// Turkish and Azeri alone, and an I, which is i elsewhere.
class DotlessI {
 public:
  void add(std::string_view text);
  void add(const DotlessI& others);
  bool matters() const { return letters_ > 0 && capitals_ > 0; }
  std::string found() const;  // "letters of Turkish or Azeri, İ or ı, 7 times"

 private:
  int64_t letters_ = 0, capitals_ = 0;
};

std::string to_lower(std::string_view text, const TextLocale& locale = {});
std::string to_upper(std::string_view text, const TextLocale& locale = {});

}  // namespace rondo
