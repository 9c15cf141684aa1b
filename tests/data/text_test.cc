// engine/text: alphabet, error rates, greedy decoding.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/text/alphabet.h"
#include "engine/text/characters.h"
#include "engine/text/error_rate.h"
#include "engine/text/greedy.h"
#include "engine/text/reading_order.h"
#include "engine/text/text_rules.h"
#include "engine/text/unicode.h"
#include "engine/text/unwritable.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

// The definition, by recursion: for short strings.
int64_t distance(std::u32string_view a, std::u32string_view b) {
  if (a.empty()) return static_cast<int64_t>(b.size());
  if (b.empty()) return static_cast<int64_t>(a.size());
  if (a[0] == b[0]) return distance(a.substr(1), b.substr(1));
  return 1 + std::min({distance(a.substr(1), b), distance(a, b.substr(1)),
                       distance(a.substr(1), b.substr(1))});
}

}  // namespace

TEST_CASE("lines end with LF or CR LF", "[unicode]") {
  CHECK(split_lines("").empty());
  CHECK(split_lines("a\r\n\nb\rc\n") == std::vector<std::string_view>{"a", "", "b\rc"});
  CHECK(split_lines("\ufeffa\n\ufeffb") == std::vector<std::string_view>{"a", "\ufeffb"});
  CHECK(split_lines("\n\r") == std::vector<std::string_view>{"", ""});
}

TEST_CASE("bytes that make no character are replaced, all others stay", "[unicode]") {
  CHECK(replace_broken_utf8("") == "");
  CHECK(replace_broken_utf8("a\u00e9\u6771\U0001f600") == "a\u00e9\u6771\U0001f600");
  const std::pair<const char*, const char*> cases[] = {
      {"a\xe6\x9d", "a\ufffd"},              // ends too early
      {"\xe6\x9dz", "\ufffdz"},              // broken off
      {"\x80\x80", "\ufffd\ufffd"},          // without a beginning
      {"\xff\xe6\x9d\xb1", "\ufffd\u6771"},  // what follows is sound
      {"\xc3\xc3\xa9", "\ufffd\u00e9"},
      {"\xf0\x9f\x98", "\ufffd"},
  };
  for (const auto& [broken, sound] : cases) CHECK(replace_broken_utf8(broken) == sound);
}

TEST_CASE("an alphabet is built from NFC characters, sorted", "[text]") {
  // "e" + combining acute, U+00E9, sharp s, a character beyond the basic plane.
  const std::vector<std::string> texts = {"be\xcc\x81 b", "\xc3\xa9\xc3\x9f", "\xf0\x90\x8d\x88"};
  const Alphabet a = Alphabet::from_transcripts(texts);
  CHECK(a.symbols() ==
        std::vector<std::string>{" ", "b", "\xc3\x9f", "\xc3\xa9", "\xf0\x90\x8d\x88"});
  CHECK(a.classes() == 6);
  const EncodedText e = a.encode("  e\xcc\x81\t\xc2\xa0 b ");
  CHECK(e.labels == std::vector<int32_t>{4, 1, 2});
  CHECK(e.unknown.empty());
  CHECK(a.decode(e.labels) == "\xc3\xa9 b");
}

TEST_CASE("an alphabet survives storing its symbols", "[text]") {
  const std::vector<std::string> texts = {"the quick brown fox", "\xc3\xbc\xe4\xb8\xad"};
  const Alphabet a = Alphabet::from_transcripts(texts);
  const Alphabet b(a.symbols());
  CHECK(b.encode(texts[0]).labels == a.encode(texts[0]).labels);
  CHECK_THROWS_WITH(Alphabet({"a", "a"}), Contains("'a' (U+0061) occurs twice"));
  CHECK_THROWS_WITH(Alphabet({"ab"}), Contains("'ab'"));
  CHECK_THROWS_AS(Alphabet({""}), InputError);
  CHECK_THROWS_AS(Alphabet({"e\xcc\x81"}), InputError);
  CHECK_THROWS_AS(Alphabet({"\xff"}), InputError);
}

TEST_CASE("a line from right to left is read with its numbers from their end", "[text]") {
  // Hebrew alef, bet, gimel.
  const std::string a = "\xd7\x90", b = "\xd7\x91", g = "\xd7\x92";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {a + b + " " + g + ".", a + b + " " + g + "."},
      {a + " 123 " + b, a + " 321 " + b},
      {a + " 12 34 " + b, a + " 21 43 " + b},
      {a + " 1,234.5% " + b, a + " %5.432,1 " + b},
      {a + " 12, " + b, a + " 21, " + b},
      {a + " 3-4-99.", a + " 99-4-3."},
      {a + " hello world! " + b, a + " dlrow olleh! " + b},
      {a + "abc12" + b, a + "21cba" + b},
      {a + " (page 7) " + b, a + " (7 egap) " + b},
      {a + " abc 50%, " + b, a + " %05 cba, " + b},
      // A mark (dagesh, U+05BC) stays behind its letter, an acute accent behind its own.
      {b + "\xd6\xbc" + a, b + "\xd6\xbc" + a},
      {a + " xe\xcc\x81z", a + " ze\xcc\x81x"},
      // Arabic letters and digits.
      {"\xd8\xa7 \xd9\xa1\xd9\xa2", "\xd8\xa7 \xd9\xa2\xd9\xa1"},
      {"", ""},
      {"12", "21"},
  };
  for (const auto& [text, read] : cases) {
    INFO(text);
    CHECK(in_leftward_order(text) == read);
    CHECK(in_logical_order(read) == text);
  }
  // Of Unicode's BidiCharacterTest.txt: pairs within pairs, and brackets that cross, of which the
  // second are no pair.
  CHECK(in_leftward_order("a(" + a + "[" + b + "]!)b") == "a(" + a + "[" + b + "]!)b");
  CHECK(in_leftward_order(a + "(a[b]!)" + b) == a + "(]b[a!)" + b);
  CHECK(in_leftward_order("a(b[)]") == ")[b(a]");
  CHECK(is_written_leftwards(U'\u05d0'));
  CHECK(is_written_leftwards(U'\u0627'));
  CHECK_FALSE(is_written_leftwards(U'a'));
  CHECK_FALSE(is_written_leftwards(U'1'));
}

TEST_CASE("an alphabet that reads leftwards turns what it encodes, and back", "[text]") {
  const std::string text = "\xd7\x90 12 \xd7\x91";
  const std::vector<std::string> texts = {text};
  const Alphabet rightwards = Alphabet::from_transcripts(texts);
  const Alphabet a = rightwards.reading_leftwards();
  CHECK((a.reads_leftwards() && !rightwards.reads_leftwards()));
  CHECK(a.symbols() == rightwards.symbols());
  CHECK(a.encode(text).labels == rightwards.encode("\xd7\x90 21 \xd7\x91").labels);
  CHECK(a.decode(a.encode(text).labels) == text);
  CHECK(rightwards.in_label_order(text) == text);
  CHECK(Alphabet::of_numbers(30).reading_leftwards().decode(std::vector<int32_t>{12, 7}) == "12 7");
}

TEST_CASE("what references hold that an alphabet cannot write is counted", "[text]") {
  const std::vector<std::string> texts = {"a bc"};
  const Alphabet a = Alphabet::from_transcripts(texts);
  Unwritable found(a);
  found.add("a b");
  found.add("");
  CHECK_FALSE(found.any());
  found.add(" axx  by b\xc4\x99 ");  // e with ogonek
  found.add("\xc4\x99\xc4\x99 a x");
  CHECK(found.any());
  CHECK(found.utterances() == 2);
  CHECK(found.characters() == 7);
  CHECK(found.words() == 5);
  CHECK(found.sentence() ==
        "2 of 4 utterances hold 7 characters this model cannot write: 'x' (U+0078) 3 times, "
        "'\xc4\x99' (U+0119) 3 times, 'y' (U+0079)");
  CHECK_THROWS_AS(found.add("\xff"), InputError);
}

TEST_CASE("what an alphabet of numbers cannot write is counted in numbers", "[text]") {
  const Alphabet a = Alphabet::of_numbers(12);
  Unwritable found(a);
  found.add("12 13 4");
  CHECK(found.words() == 1);
  CHECK(found.sentence() == "1 of 1 utterance holds 1 number this model cannot write: 13");
}

TEST_CASE("an alphabet of numbers", "[text]") {
  const Alphabet a = Alphabet::of_numbers(12);
  CHECK(a.classes() == 13);
  CHECK(a.decode(std::vector<int32_t>{3, 12, 3}) == "3 12 3");
  CHECK(a.decode({}) == "");
  CHECK(a.encode(" 12  3 ").labels == std::vector<int32_t>{12, 3});
  const EncodedText e = a.encode("0 13 3 x 3x 13");
  CHECK(e.labels == std::vector<int32_t>{3});
  REQUIRE(e.unknown.size() == 4);
  CHECK(e.unknown[1].what == "13");
  CHECK(e.unknown[1].count == 2);
  const Alphabet stored(a.symbols());
  CHECK(stored.encode("7 11").labels == std::vector<int32_t>{7, 11});
  CHECK_FALSE(Alphabet({"1 ", "3 "}).is_of_numbers());  // but of words
  // Digits that are characters stay characters.
  CHECK(Alphabet({"1", "2"}).decode(std::vector<int32_t>{1, 2}) == "12");
}

TEST_CASE("a symbol may be a letter with its signs, the longest that fits", "[text]") {
  // Devanagari ka, virama; Hebrew alef with a dagesh.
  const std::string ka = "\u0915", virama = "\u094d", joiner = "\u200d", alef = "\u05d0\u05bc";
  const Alphabet a({" ", ka, ka + virama, ka + virama + joiner, virama, alef, "1", "2"});
  CHECK(a.encode(ka + virama + joiner + ka + " " + ka + virama + ka).labels ==
        std::vector<int32_t>{4, 2, 1, 3, 2});
  CHECK(a.encode(virama + ka).labels == std::vector<int32_t>{5, 2});
  CHECK(a.decode(std::vector<int32_t>{4, 2, 3}) == ka + virama + joiner + ka + ka + virama);
  CHECK(describe(a.encode("\u05d0 " + alef).unknown) == describe(U'\u05d0'));
  const Alphabet turned = a.reading_leftwards();
  CHECK(turned.encode(alef + " 12").labels == std::vector<int32_t>{6, 1, 8, 7});
  CHECK(turned.decode(std::vector<int32_t>{6, 1, 8, 7}) == alef + " 12");
  CHECK_THROWS_WITH(Alphabet({alef, alef}), Contains("occurs twice"));
  CHECK_THROWS_WITH(Alphabet({ka + ka}), Contains("expected one character"));
}

TEST_CASE("an alphabet of words has a label for each", "[text]") {
  TextRules rules;
  rules.unit = TextUnit::word;
  // The second has a token called as other programs call what is not written, and a mark.
  const std::vector<std::string> texts = {"W AH1  N", " <s> AH1 \u0259\u02d0 [noise]", ""};
  const Alphabet a = Alphabet::from_transcripts(texts, rules);
  CHECK(a.symbols() ==
        std::vector<std::string>{"<s> ", "AH1 ", "N ", "W ", "[noise] ", "\u0259\u02d0 "});
  CHECK((a.is_of_words() && !a.is_of_numbers() && a.units() == "words"));
  for (const Alphabet& used : {a, Alphabet(a.symbols()), a.reading_leftwards()}) {
    CHECK(used.encode("W AH1 N").labels == std::vector<int32_t>{4, 2, 3});
    CHECK(used.encode("").labels.empty());
    CHECK(used.decode(std::vector<int32_t>{4, 2, 2, 1}) == "W AH1 AH1 <s>");
    CHECK(used.decode({}) == "");
    CHECK(used.in_label_order("AH1 W") == "AH1 W");
  }
  const EncodedText e = a.encode("W AH N AH WAH1");
  CHECK(e.labels == std::vector<int32_t>{4, 3});
  CHECK(describe(e.unknown) == "'AH' 2 times, 'WAH1'");
  CHECK_THROWS_WITH(encode_or_fail(a, "W X", UnknownCharacters::error, "t"),
                    Equals("t: the text holds words outside the alphabet: 'X'"));
  Unwritable found(a);
  found.add("W X X");
  CHECK(found.sentence() == "1 of 1 utterance holds 2 words this model cannot write: 'X' 2 times");
  CHECK_THROWS_WITH(Alphabet({"W ", "W "}), Contains("'W ' occurs twice"));
  CHECK_THROWS_AS(Alphabet({"W ", "AH"}), InputError);    // not a word and not a character
  CHECK_THROWS_AS(Alphabet({"W H ", "A "}), InputError);  // two words
  CHECK_THROWS_AS(Alphabet({"e\u0301 "}), InputError);    // not in normal form
  const Alphabet more = extended(a, Alphabet({"N ", "Z "}));
  CHECK(more.symbols().back() == "Z ");
  CHECK(more.classes() == a.classes() + 1);
  CHECK_THROWS_WITH(extended(a, Alphabet({"N"})),
                    Equals("an alphabet of words cannot be extended by characters"));
  // Words that are the numbers from 1 are numbers.
  const std::vector<std::string> numbers = {"2 1 2"};
  CHECK(Alphabet::from_transcripts(numbers, rules).is_of_numbers());
}

TEST_CASE("an alphabet of characters has a label for each mark", "[text]") {
  TextRules rules;
  rules.marks = Marks::token;
  const std::vector<std::string> texts = {"<unk> ab [noise]", "b<unk>", "<unk>", ""};
  const Alphabet a = Alphabet::from_transcripts(texts, rules);
  CHECK(a.symbols() == std::vector<std::string>{" ", "a", "b", "<unk>", "[noise]"});
  CHECK(a.units() == "characters");
  const Alphabet stored(a.symbols());
  CHECK(stored.encode("a<unk> [noise]").labels == std::vector<int32_t>{2, 4, 1, 5});
  CHECK(stored.decode(stored.encode("a<unk> [noise]").labels) == "a<unk> [noise]");
  CHECK(describe(stored.encode("[laugh] a [laugh]").unknown) == "'[laugh]' 2 times");
  // Without a mark in it they are characters.
  CHECK(describe(Alphabet({"a", "<"}).encode("<a>").unknown) == "'>' (U+003E)");
  CHECK_THROWS_WITH(Alphabet({"<unk>", "<unk>"}), Contains("'<unk>' occurs twice"));
  CHECK_THROWS_AS(Alphabet({"<a b>"}), InputError);
  CHECK(extended(a, Alphabet({"[noise]", "{um}", "z"})).symbols().size() == 7);
  // Read from right to left a mark stays as it is.
  const std::vector<std::string> hebrew = {"\u05d0 [noise] 12 \u05d1<unk>"};
  const Alphabet r = Alphabet::from_transcripts(hebrew, rules).reading_leftwards();
  CHECK(r.in_label_order(hebrew[0]) == "\u05d0 [noise] 21 \u05d1<unk>");
  CHECK(r.decode(r.encode(hebrew[0]).labels) == hebrew[0]);
  CHECK(r.encode(hebrew[0]).unknown.empty());
  // What touches a mark once the text is turned was apart from it.
  const std::vector<std::string> near = {"\u05d0 12 [noise] \u05d1", "\u05d0[noise] 1 [noise]"};
  const Alphabet n = Alphabet::from_transcripts(near, rules).reading_leftwards();
  for (const std::string& text : near) {
    CHECK(n.encode(text).unknown.empty());
    CHECK(n.decode(n.encode(text).labels) == text);
  }
}

TEST_CASE("texts that look like phones", "[text]") {
  const auto repeated = [](const std::vector<std::string>& texts) {
    std::vector<std::string> all;
    for (int i = 0; i < 8; ++i) all.insert(all.end(), texts.begin(), texts.end());
    return all;
  };
  CHECK(look_like_phones(repeated({"W AH1 N", "T UW1", "TH R IY1 SIL"})));
  CHECK(look_like_phones(repeated({"w \u028c n", "\u03b8 r i\u02d0", "f a\u026a v"})));
  CHECK(look_like_phones(repeated({"h# s ix kcl k s h#", "w ah n pau pau n"})));
  CHECK_FALSE(look_like_phones(repeated({"one two three", "four five"})));
  CHECK_FALSE(look_like_phones(repeated({"yes no", "no yes"})));
  CHECK_FALSE(look_like_phones(repeated({"1 3 12", "10 7"})));
  CHECK_FALSE(look_like_phones(repeated({"a b c", "d e f g"})));
  CHECK_FALSE(look_like_phones(repeated({"go", "up", "no"})));        // a word each
  CHECK_FALSE(look_like_phones(std::vector<std::string>{"W AH N"}));  // too few to say
  CHECK_FALSE(look_like_phones({}));
  CHECK_FALSE(look_like_phones(repeated({"", " "})));
}

TEST_CASE("text outside the alphabet is named by character and code point", "[text]") {
  const Alphabet a({"a", "b"});
  const EncodedText e = a.encode("aq\xc3\xa9qb");
  CHECK(e.labels == std::vector<int32_t>{1, 2});
  REQUIRE(e.unknown.size() == 2);
  CHECK(e.unknown[0].what == "'q' (U+0071)");
  CHECK(e.unknown[0].count == 2);
  CHECK_THROWS_WITH(encode_or_fail(a, "aq\xc3\xa9qb", UnknownCharacters::error, "t.jsonl:3"),
                    Equals("t.jsonl:3: the text holds characters outside the alphabet: 'q' "
                           "(U+0071) 2 times, '\xc3\xa9' (U+00E9)"));
  CHECK(encode_or_fail(a, "aqb", UnknownCharacters::skip, "t").size() == 2);
  CHECK(describe(U'\n') == "U+000A (control)");
  CHECK(describe(U'\u0301') == "U+0301");
  CHECK(describe(e.unknown, 1) == "'q' (U+0071) 2 times and 1 more");
}

TEST_CASE("invalid UTF-8 is an input error with its offset", "[text]") {
  const std::vector<std::string> bad = {"ok", "ab\xc3"};
  CHECK_THROWS_WITH(Alphabet::from_transcripts(bad),
                    Contains("transcript 2") && Contains("0xc3") && Contains("offset 2"));
  for (const char* s : {"\x80", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "\xe2\x82"})
    CHECK_THROWS_AS(to_nfc(s), InputError);
}

TEST_CASE("labels outside the alphabet break a contract", "[text]") {
  const Alphabet a({"a", "b"});
  for (int32_t bad : {0, 3, -1}) CHECK_THROWS_AS(a.decode(std::vector<int32_t>{bad}), Error);
}

TEST_CASE("words are split on Unicode white space", "[text]") {
  CHECK(split_words("a\xe2\x80\x89"
                    "b\xe3\x80\x80 c\n") == std::vector<std::string>{"a", "b", "c"});
  CHECK(split_words(" \t ").empty());
  CHECK(normalize_transcript(" x \r\n y ") == "x y");
}

TEST_CASE("scripts without spaces are known by their letters", "[text]") {
  for (const char32_t c : {U'上', U'の', U'カ', U'ｶ', U'ㄅ', U'ไ', U'ລ', U'ខ', U'မ', U'ག', U'ꆈ',
                           U'ꦲ', U'𠀀', U'々', U'ー'}) {
    CAPTURE(static_cast<uint32_t>(c));
    CHECK(is_of_unspaced_script(c));
  }
  for (const char32_t c : {U'a', U'ß', U'я', U'ع', U'न', U'한', U'አ', U'。', U'！', U' ', U'1'}) {
    CAPTURE(static_cast<uint32_t>(c));
    CHECK_FALSE(is_of_unspaced_script(c));
  }
}

TEST_CASE("whether spaces divide texts into words", "[text]") {
  const auto spacing = [](std::initializer_list<const char*> texts) {
    WordSpacing s;
    for (const char* text : texts) s.add(text);
    return s;
  };
  CHECK_FALSE(spacing({}).unspaced_script());
  CHECK_FALSE(spacing({}).long_words());
  CHECK_FALSE(spacing({"", " "}).long_words());
  CHECK(spacing({"床前明月光", "ok"}).unspaced_script());
  CHECK(spacing({"ถอยหลัง 12 !"}).unspaced_script());
  CHECK(spacing({"上a"}).unspaced_script());  // half of the letters
  CHECK_FALSE(spacing({"上ab"}).unspaced_script());
  CHECK_FALSE(spacing({"12 345"}).unspaced_script());
  CHECK_FALSE(spacing({"나는 학교에 간다"}).unspaced_script());
  // Fewer than 1.5 words and more than 15 characters, on average, of texts that are not empty.
  CHECK(spacing({"abcdefghijklmnop"}).long_words());
  CHECK_FALSE(spacing({"abcdefghijklmno"}).long_words());
  CHECK_FALSE(spacing({"abcdefghijklmnop", "abcdefghijk lmnop"}).long_words());
  CHECK(spacing({"abcdefghijklmnop", "abcdefghijk lmnop", "abcdefghijklmnop"}).long_words());
  CHECK(spacing({"abcdefghijklmnop", ""}).long_words());
  CHECK_FALSE(spacing({"seven", "eight"}).long_words());
}

TEST_CASE("edit counts equal the definition and add up", "[text]") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    std::u32string a, b;
    for (unsigned i = random() % 7; i > 0; --i) a += U'a' + random() % 3;
    for (unsigned i = random() % 7; i > 0; --i) b += U'a' + random() % 3;
    const EditCounts c = edit_counts(std::span<const char32_t>(a), std::span<const char32_t>(b));
    CHECK(c.errors() == distance(a, b));
    CHECK(c.reference == static_cast<int64_t>(a.size()));
    CHECK(c.insertions - c.deletions ==
          static_cast<int64_t>(b.size()) - static_cast<int64_t>(a.size()));
  }
}

TEST_CASE("word and character error rates", "[text]") {
  ErrorRate rate;
  rate.add("one two three", "one too three four");
  rate.add("five", "five");
  CHECK(rate.words() == EditCounts{1, 1, 0, 4});
  CHECK(rate.wer() == Approx(0.5));
  CHECK(rate.characters().errors() == 6);  // w -> o, " four"
  CHECK(rate.characters().reference == 17);
  CHECK(rate.utterances() == 2);
  CHECK(rate.wrong_utterances() == 1);
  // The same text in another normal form and spacing is no error.
  ErrorRate same;
  same.add("caf\xc3\xa9 ok", " cafe\xcc\x81   ok ");
  CHECK(same.cer() == 0);
  ErrorRate empty;
  empty.add("", "");
  CHECK(empty.wer() == 0);
  empty.add("", "x");
  CHECK(std::isinf(empty.wer()));
  CHECK(percent_text(empty.wer()) == "n/a (empty references)");
  CHECK(percent_text(rate.wer()) == "50.00%");
  // A sum has everything that its parts have, in any order.
  for (const auto& [first, second] :
       {std::pair(rate, same), {same, rate}, {rate, rate}, {empty, rate}}) {
    ErrorRate sum = first;
    sum += second;
    CHECK(sum.words().reference == first.words().reference + second.words().reference);
    CHECK(sum.words().errors() == first.words().errors() + second.words().errors());
    CHECK(sum.characters().errors() == first.characters().errors() + second.characters().errors());
    CHECK(sum.utterances() == first.utterances() + second.utterances());
    CHECK(sum.wrong_utterances() == first.wrong_utterances() + second.wrong_utterances());
  }
}

TEST_CASE("transcripts by rule", "[text]") {
  const TextRules lower{true, false}, bare{false, true}, both{true, true};
  CHECK(apply_rules({}, " A \t b ") == "A b");
  CHECK(apply_rules(lower, "\u00c4RGER \u0130") == "\u00e4rger i");
  CHECK(apply_rules(bare, "\u201cYes,\u201d he said\u2014no!") == "Yes he said no");
  CHECK(apply_rules(bare, "don't 'quote' rock 'n' roll's d\u2019accord '") ==
        "don't quote rock n roll's d\u2019accord");
  CHECK(apply_rules(bare, "well-known snake_case 5 + 3 = 8 $") ==
        "well known snake case 5 + 3 = 8 $");
  CHECK(apply_rules(both, "\u00bfQu\u00c9?") == "qu\u00e9");
  CHECK(apply_rules(both, "e\u0301") == "\u00e9");  // composed, as the alphabet has it
  CHECK(apply_rules({false, false, true}, "\ufb01ne \uff21 \u2460") == "fine A 1");
  CHECK(apply_rules(both, "...") == "");
  CHECK_THROWS_AS(apply_rules(both, "\xff"), InputError);
}

TEST_CASE("replacements in transcripts", "[text]") {
  const auto with = [](std::vector<std::string> all) {
    TextRules rules;
    for (const std::string& r : all) rules.replace.push_back(TextReplacement::parse(r).value());
    return rules;
  };
  CHECK(apply_rules(with({"\u00df=ss", "&= and "}), "Ma\u00df&Zahl \u00df") == "Mass and Zahl ss");
  CHECK(apply_rules(with({"a=b", "b=c"}), "ab") == "cc");  // one after another
  CHECK(apply_rules(with({"a=aa"}), "aba") == "aabaa");
  CHECK(apply_rules(with({"==equals", "[noise]="}), "x = y [noise]") == "x equals y");
  CHECK(apply_rules(with({"e\u0301=e"}), "\u00e9 e\u0301") == "e e");  // in normal form
  TextRules lower = with({"USA=united states"});
  lower.lowercase = true;
  CHECK(apply_rules(lower, "USA usa") == "united states usa");
  CHECK(TextReplacement::parse("a=b=c") == TextReplacement{"a", "b=c"});
  for (const char* wrong : {"", "=", "a", "=b"}) CHECK_FALSE(TextReplacement::parse(wrong));
}

TEST_CASE("greedy decoding collapses repeats and keeps time", "[text]") {
  const std::vector<int32_t> path = {0, 1, 1, 0, 1, 2, 2, 2, 0, 0, 2};
  CHECK(collapse_ctc(path) ==
        std::vector<TimedLabel>{{1, 1, 3}, {1, 4, 5}, {2, 5, 8}, {2, 10, 11}});
  CHECK(collapse_ctc({}).empty());
  // Blank 2.
  CHECK(labels_of(collapse_ctc(path, 2)) == std::vector<int32_t>{0, 1, 0, 1, 0});
}

TEST_CASE("greedy decoding takes the best class of each row", "[text]") {
  // Rows of a packed batch: this sequence owns rows 0, 2 and 3.
  const std::vector<float> scores = {0, 1, 0, /*other*/ 9, 0, 0, 0, 3, 2, 5, 5, 1};
  const std::vector<int64_t> rows = {0, 2, 3};
  CHECK(greedy_ctc(scores.data(), rows, 3) == std::vector<TimedLabel>{{1, 0, 2}});
  CHECK(greedy_ctc(scores.data(), 4, 3) == std::vector<TimedLabel>{{1, 0, 1}, {1, 2, 3}});
  std::vector<float> bad = scores;
  bad[8] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(greedy_ctc(bad.data(), rows, 3), Contains("frame 1"));
  bad[8] = -std::numeric_limits<float>::infinity();
  CHECK_NOTHROW(greedy_ctc(bad.data(), rows, 3));
}
