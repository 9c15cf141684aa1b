// engine/text: marks, letter case, punctuation, what has no picture.
#include <string>
#include <utility>
#include <vector>

#include "engine/text/characters.h"
#include "engine/text/letter_case.h"
#include "engine/text/marks.h"
#include "engine/text/text_rules.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

std::string marks_in(std::string_view text) {
  std::string all;
  for (const TextPiece& p : pieces_of(text))
    if (p.is_mark) all += p.text;
  return all;
}

std::string stripped(std::string_view text) {
  TextRules rules;
  rules.strip_punctuation = true;
  return apply_rules(rules, text);
}

std::string changed(Marks marks, std::string_view text) {
  TextRules rules;
  rules.marks = marks;
  return apply_rules(rules, text);
}

std::string without_unseen(std::string_view text) {
  TextRules rules;
  rules.drop_invisible = true;
  return apply_rules(rules, text);
}

}  // namespace

TEST_CASE("what is a mark in brackets", "[text]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"<unk> seven [noise]", "<unk>[noise]"},
      {"one {laugh}", "{laugh}"},
      {"two (())", "(())"},
      {"(( )) ((unclear))", "(())((unclear))"},
      {"<s> a </s> <laugh/> <|en|> <v-noise>", "<s></s><laugh/><|en|><v-noise>"},
      {"[background noise] <SPOKEN_NOISE>", "[background_noise]<SPOKEN_NOISE>"},
      {"[ noise ] [[crosstalk]] <<x>>", "[noise][[crosstalk]]<<x>>"},
      {"[vocalized-noise] [laughter], [inaudible 00:12]",
       "[vocalized-noise][laughter][inaudible_00:12]"},
      {"one<unk>two", "<unk>"},
      {"\u3053\u3093[\u7b11\u3044]\u306b", "[\u7b11\u3044]"},  // no spaces, so it touches letters
      {"\uff3b\u7b11\u3044\uff3d", "\uff3b\u7b11\u3044\uff3d"},
      {"\u3053[\u7b11]\u306b", "[\u7b11]"},
      {"[\u0448\u0443\u043c] [rire]", "[\u0448\u0443\u043c][rire]"},
      // Print, mathematics, code, what is left of words.
      {"a < b and c > d", ""},
      {"x<y and z>w", ""},
      {"th[is] [S]ein d[er", ""},
      {"[1] [12] {3} <4> [] {} <> [.] [?]", ""},
      {"(uh) ((I think so)) ((not sure)) (laughs)", ""},
      {"[he said, and went] [Yes!]", ""},
      {"[one two three four five]", ""},
      {"<abcdefghijklmnopqrstuvwxyzabcdefghijk>", ""},
      {"<unk [noise> <", ""},
      {"<a> [b]", "<a>"},
      {"", ""},
      {"<", ""},
      {"((", ""},
      {"((x)", ""},
      {"[[noise]", "[noise]"},
      // At the borders: of the text, of words and letters that a mark may have.
      {"[noise]b", ""},
      {"b[noise]", ""},
      {"[noise]b ", ""},
      {"[noise].", "[noise]"},
      {".[noise]", "[noise]"},
      {"[noise][noise]", "[noise][noise]"},
      {"[one two three four]", "[one_two_three_four]"},
      {"<abcdefghijklmnopqrstuvwxyzabcdef>", "<abcdefghijklmnopqrstuvwxyzabcdef>"},
      {"<abcdefghijklmnopqrstuvwxyzabcdefg>", ""},
  };
  for (const auto& [text, marks] : cases) {
    INFO(text);
    CHECK(marks_in(text) == marks);
    std::string all;
    for (const TextPiece& p : pieces_of(text)) {
      CHECK_FALSE(p.text.empty());
      CHECK(p.is_mark == is_mark(p.text));
      all += p.text;
    }
    CHECK(all == with_named_marks(text));
    CHECK(with_named_marks(all) == all);
    CHECK(without_marks(without_marks(text)) == without_marks(text));
  }
  CHECK(is_mark("[noise]"));
  for (const char* none : {"", "noise", "[noise] ", "[a b]", "[noise][noise]", "[ noise ]"})
    CHECK_FALSE(is_mark(none));
}

TEST_CASE("marks stay, go, or are symbols", "[text]") {
  CHECK(changed(Marks::keep, "<unk> seven [ noise ]") == "<unk> seven [ noise ]");
  CHECK(changed(Marks::drop, "<unk> seven [ noise ]") == "seven");
  CHECK(changed(Marks::drop, "one<unk>two {laugh}three") == "one two {laugh}three");
  CHECK(changed(Marks::drop, "one {laugh} two") == "one two");
  CHECK(changed(Marks::drop, "\u3053\u3093[\u7b11\u3044]\u306b") == "\u3053\u3093\u306b");
  CHECK(changed(Marks::drop, "<unk>") == "");
  CHECK(changed(Marks::drop, "(()) <unk> [noise]") == "");
  CHECK(changed(Marks::token, "a [ loud noise ] b (( ))") == "a [loud_noise] b (())");
  CHECK(changed(Marks::token, "") == "");
  TextRules rules;
  rules.lowercase = rules.strip_punctuation = true;
  rules.marks = Marks::token;
  CHECK(apply_rules(rules, "So, [NOISE]! <UNK>") == "so [NOISE] <UNK>");
  CHECK(apply_rules(rules, apply_rules(rules, "So, [NOISE]!")) == "so [NOISE]");
  rules.marks = Marks::keep;
  CHECK(apply_rules(rules, "So, [NOISE]! <UNK>") == "so noise <unk>");
  // Replacements come first.
  rules = {};
  rules.marks = Marks::drop;
  rules.replace = {*TextReplacement::parse("(uh)=[uh]"), *TextReplacement::parse("[one]=one")};
  CHECK(apply_rules(rules, "(uh) [one] two") == "one two");
}

TEST_CASE("numbers stay whole without punctuation", "[text]") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"3.14, 1,000 and 10:30.", "3.14 1,000 and 10:30"},
      {"50%! 50 %. %50; 5\u2030", "50% 50 % %50 5\u2030"},
      {"5 %", "5 %"},
      {"\u00a313.60?", "\u00a313.60"},
      {"-5, \u20135, -\u00a35, \u00a3-5, (-5), -.5", "-5 \u20135 -\u00a35 \u00a3-5 -5 -.5"},
      {"1/2 2014-05-06 12.03.2014 06/05/14", "1/2 2014-05-06 12.03.2014 06/05/14"},
      {"1990\u20132000 555-1234 192.168.0.1", "1990\u20132000 555-1234 192.168.0.1"},
      {".5 is half. 5. 5, 5:", ".5 is half 5 5 5"},
      {"1'000 1\u2019000 1_000", "1'000 1\u2019000 1_000"},
      {"\u0663\u066b\u0661\u0664 \u0661\u066c\u0660\u0660\u0660",
       "\u0663\u066b\u0661\u0664 \u0661\u066c\u0660\u0660\u0660"},
      // Two numbers stay two.
      {"5...6 (5)(6) 5\"6 5).(6", "5 6 5 6 5 6 5 6"},
      {"5--6", "5 6"},
      // Words, and numbers at words, are as they were.
      {"COVID-19 F-16 5-year 9-to-5 mid-1990s", "COVID 19 F 16 5 year 9 to 5 mid 1990s"},
      {"well-known \u2014 and/or U.S.", "well known andor US"},
      {"don't '90s 5'", "don't 90s 5"},
      {"\u20145 times", "5 times"},
      {"5,- 100% sure% %", "5 100% sure"},
      {"v1.2.a a.1", "v1.2a a1"},
      {"...", ""},
      {"- . %", ""},
      {"", ""},
      {"5", "5"},
      {".", ""},
      {"-", ""},
      {"%", ""},
  };
  for (const auto& [text, wanted] : cases) {
    INFO(text);
    CHECK(stripped(text) == wanted);
    CHECK(stripped(wanted) == wanted);
  }
}

TEST_CASE("long texts of signs alone take no longer than others", "[slow][text]") {
  // In quadratic time they would take minutes.
  constexpr size_t many = 300000;
  TextRules rules;
  rules.lowercase = rules.strip_punctuation = rules.drop_invisible = true;
  rules.marks = Marks::token;
  for (const char* sign : {".", "-", "'", "<", "[", "(", "[a", "\u00ad", "\u03a3'", "5.", "%"}) {
    INFO(sign);
    std::string text = "5";
    for (size_t i = 0; i < many; ++i) text += sign;
    CHECK(apply_rules(rules, text).size() <= text.size());
  }
}

TEST_CASE("lower case by language and place", "[text]") {
  const TextLocale none, tr = TextLocale::parse("tr").value();
  CHECK(to_lower("DI\u015e \u0130\u0130 i\u0131") == "di\u015f ii i\u0131");
  CHECK(to_lower("DI\u015e \u0130\u0130 i\u0131", tr) == "d\u0131\u015f ii i\u0131");
  CHECK(to_lower("I\u0307I", tr) == "i\u0131");
  CHECK(to_upper("i\u0131", tr) == "\u0130I");
  CHECK(to_upper("i\u0131") == "II");
  CHECK(to_upper("\u03bf\u03b4\u03cc\u03c2") == "\u039f\u0394\u038c\u03a3");
  for (const TextLocale& locale : {none, tr, TextLocale::parse("el").value()}) {
    // ODOS, SOFIAS STIS; a sigma alone, and one within a word with a point.
    CHECK(to_lower("\u039f\u0394\u039f\u03a3", locale) == "\u03bf\u03b4\u03bf\u03c2");
    CHECK(to_lower("\u03a3\u039f\u03a6\u0399\u0391\u03a3 \u03a3\u03a4\u0397\u03a3!", locale) ==
          "\u03c3\u03bf\u03c6\u03b9\u03b1\u03c2 \u03c3\u03c4\u03b7\u03c2!");
    CHECK(to_lower("\u03a3 \u03a3\u03a3", locale) == "\u03c3 \u03c3\u03c2");
    CHECK(to_lower("\u0391.\u03a3.\u039c. \u0391\u03a3\u0301", locale) ==
          "\u03b1.\u03c3.\u03bc. \u03b1\u03c2\u0301");
    CHECK(to_lower("", locale).empty());
  }
  CHECK(TextLocale::parse("az-Latn-AZ")->has_dotless_i());
  CHECK(TextLocale::parse("TR_tr")->has_dotless_i());
  CHECK_FALSE(TextLocale::parse("de_AT")->has_dotless_i());
  CHECK_FALSE(TextLocale::parse("")->has_dotless_i());
  for (const char* wrong :
       {"t", "turkish", "tr-", "tr--x", "-tr", "t1", "tr TR", "\u00e4\u00e4", "_"})
    CHECK_FALSE(TextLocale::parse(wrong));
  TextRules rules;
  rules.lowercase = true;
  rules.locale = tr;
  CHECK(apply_rules(rules, "I\u011eDIR \u0130zmir") == "\u0131\u011fd\u0131r izmir");
  CHECK_THROWS_AS(to_lower("\xff"), InputError);
}

TEST_CASE("what has no picture goes, unless letters need it", "[text]") {
  CHECK(without_unseen("\u200f\u05d0\u200e 12") == "\u05d0 12");
  CHECK(without_unseen("zero\u200bwidth co\u00adop") == "zerowidth coop");
  CHECK(without_unseen("\ufeffname\x01\u2060\u206a\ufff9") == "name");
  CHECK(without_unseen("a\u034f\ufe0f\u3164\u2800\u115f") == "a");
  CHECK(without_unseen("\u200b \u200f") == "");
  CHECK(without_unseen("") == "");
  // Persian and Devanagari words are written with them.
  CHECK(without_unseen("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") ==
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645");
  CHECK(without_unseen("\u0915\u094d\u200d\u0937") == "\u0915\u094d\u200d\u0937");
  CHECK(without_unseen("a\u200cb \u0645\u200c \u200c\u0645") == "ab \u0645 \u0645");
  // Where a line ends it is a hyphen.
  CHECK(without_unseen("co\u00ad") == "co-");
  CHECK(without_unseen("\u00ad") == "");
  // Fonts have pictures for private use; a sign of Arabic stands around its digits.
  CHECK(without_unseen("\ue000\u06dd") == "\ue000\u06dd");
  CHECK(is_private_use(U'\ue000'));
  for (const char32_t seen :
       std::u32string(U" a\u00e4\u4e2d\t\n\u00a0\u3000\u0301\ufffd\U0001f600"))
    CHECK_FALSE(is_invisible(seen));
  CHECK(describe(U'\u200b') == "U+200B (zero-width space)");
  CHECK(describe(U'\u00ad') == "U+00AD (soft hyphen)");
  CHECK(describe(U'\u00a0') == "U+00A0 (no-break space)");
  CHECK(describe(U'\ue000') == "U+E000 (private use)");
  CHECK(describe(0x378) == "U+0378 (not assigned)");
}

TEST_CASE("replacements may be written as code points", "[text]") {
  CHECK(TextReplacement::parse("U+2019='") == TextReplacement{"\u2019", "'"});
  CHECK(TextReplacement::parse("'=U+2019") == TextReplacement{"'", "\u2019"});
  CHECK(TextReplacement::parse("U+0065 U+0301=e") == TextReplacement{"\u00e9", "e"});
  CHECK(TextReplacement::parse("U+1F600=") == TextReplacement{"\U0001f600", ""});
  CHECK(TextReplacement::parse("U+003D=x") == TextReplacement{"=", "x"});
  for (const char* text : {"U+200B=", "U+003D=x", "U+0061 U+003D=b",
                           "U+0055 U+002B U+0030 U+0030 U+0034 U+0031=U+0041",
                           "a==", "a=U+0055 U+002B U+0030 U+0030 U+0034 U+0031"}) {
    INFO(text);
    const TextReplacement r = TextReplacement::parse(text).value();
    CHECK(TextReplacement::parse(r.text()) == r);
  }
  CHECK(TextReplacement::parse("a=b")->text() == "a=b");
  for (const char* literal : {"U+0000", "U+0041 ", "U+0041  U+0041", "U+12", "U+D800", "U+110000",
                              "U+", "u+0041", "U+00GG", "xU+0041"})
    CHECK(TextReplacement::parse(std::string(literal) + "=x") == TextReplacement{literal, "x"});
}

TEST_CASE("a replacement is looked for in what those before it have left", "[text]") {
  const TextReplacement first{"ph", "f"}, second{"ff", "f"}, third{"ph", "v"}, fourth{"x", "y"};
  const std::vector<std::string> texts = {"a", "a fphb", ""};
  CHECK(apply_rules({.replace = {first, second}}, "a fphb") == "a fb");
  CHECK(never_found({first, second}, texts).empty());  // only the first makes what it finds
  CHECK(never_found({second, first}, texts) == std::vector<TextReplacement>{second});
  // Nothing is left of what the third looks for.
  CHECK(never_found({first, third, fourth}, texts) == std::vector<TextReplacement>{third, fourth});
  // What one text has, another need not have; each begins anew.
  CHECK(never_found({first, second}, {"f ph", "ff"}).empty());
  CHECK(never_found({first}, {}) == std::vector<TextReplacement>{first});
}

TEST_CASE("characters by what they are to readers", "[text]") {
  CHECK(zero_of(U'7') == U'0');
  CHECK(zero_of(U'\u0663') == U'\u0660');
  CHECK(zero_of(U'\u06f9') == U'\u06f0');
  CHECK(zero_of(0x1d7d9) == 0x1d7d8);  // the second of five sets without a gap
  CHECK_FALSE(zero_of(U'a'));
  CHECK_FALSE(zero_of(U'\u00b2'));
  CHECK(digits_name(0x6f0) == "Persian (U+06F0 to U+06F9)");
  CHECK(look_alike(U'\u0430', LikeScript::latin) == U'a');
  CHECK(look_alike(U'a', LikeScript::cyrillic) == U'\u0430');
  CHECK(look_alike(U'\u0391', LikeScript::cyrillic) == U'\u0410');
  CHECK_FALSE(look_alike(U'\u0436', LikeScript::latin));
  CHECK_FALSE(look_alike(U'1', LikeScript::latin));
  for (const char32_t c : std::u32string(U"\u4e2d\u3042\u30ab\u0e01\u0e81\u1780\u1000\u0f40"))
    CHECK(is_of_unspaced_script(c));
  for (const char32_t c : std::u32string(U"a\u05d0\u0627\uac00\u3001\u0e3f1 "))
    CHECK_FALSE(is_of_unspaced_script(c));
}

TEST_CASE("a model's rules and others besides", "[text]") {
  TextRules model, asked;
  model.lowercase = true;
  model.locale = *TextLocale::parse("tr");
  model.unit = TextUnit::word;
  CHECK(both(model, {}) == model);
  asked.marks = Marks::drop;
  asked.drop_invisible = asked.strip_punctuation = true;
  model.replace = {{"a", "b"}};
  asked.replace = {{"b", "c"}};
  const TextRules all = both(model, asked);
  CHECK(apply_rules(all, "a b") == "c c");  // the model's first
  CHECK((all.lowercase && all.strip_punctuation && all.drop_invisible));
  CHECK((all.marks == Marks::drop && all.locale.tag == "tr" && all.unit == TextUnit::word));
}
