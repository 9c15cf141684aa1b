// What is said of the texts of a data set.
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tools/corpus/examination/text_findings.h"

using namespace rondo;

namespace {

TextFindings of(const std::vector<std::string>& texts, const TextRules& rules = {},
                bool lines = false) {
  TextExaminer examiner(rules, lines);
  for (size_t i = 0; i < texts.size(); ++i) examiner.add(texts[i], str("t", i));
  return examiner.findings();
}

std::vector<std::string> sentences(const TextFindings& all) {
  std::vector<std::string> out;
  for (const TextFinding& f : all.findings) out.push_back(f.sentence(all.texts));
  return out;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("ordinary texts give nothing to say", "[texts]") {
  CHECK(of({}).findings.empty());
  CHECK(of({"", "A cat, a dog - and \u201cmore\u201d.", "\u00c4rger 12"}).findings.empty());
  CHECK(of({"\xff"}).texts == 0);
}

TEST_CASE("marks are counted by name", "[texts]") {
  const Strings texts = {"<unk> seven [noise]", "one {laugh}", "two (())", "three", "<unk>"};
  CHECK(sentences(of(texts)) ==
        Strings{"marks in brackets, kept as characters: 4 of 5 texts, the first t0: '<unk>' 2 "
                "times, '(())', '[noise]', '{laugh}'"});
  TextRules rules;
  rules.marks = Marks::drop;
  CHECK(of(texts, rules).findings.at(0).what == "marks in brackets, left out");
  rules.marks = Marks::token;
  CHECK(of(texts, rules).findings.at(0).advice == "train with text.marks=token");
  // A second use counts anew; a rule that takes them away leaves nothing to say.
  rules = {};
  rules.replace = {{"<unk>", ""}};
  CHECK(of({"<unk> a"}, rules).findings.empty());
  CHECK(sentences(of({"yes (uh)", "*cough* no"})) ==
        Strings{"words between signs, which may be noises: 2 of 2 texts, the first t0: '(uh)', "
                "'*cough*'"});
  CHECK(of({"yes (uh)", "*cough* no"}, {}, true).findings.empty());
}

TEST_CASE("of many kinds the eight most frequent are named, and the others counted", "[texts]") {
  Strings texts(2);
  for (const char c : std::string("abcdefgh")) texts[0] += str("[m", c, "] ");
  texts[1] = "[mh]";
  const std::string begin =
      "marks in brackets, kept as characters: 2 of 2 texts, the first t0: '[mh]' 2 times, "
      "'[ma]', '[mb]', '[mc]', '[md]', '[me]', '[mf]', '[mg]'";
  CHECK(sentences(of(texts)) == Strings{begin});
  texts[1] += " [mx] [my] [mz]";
  CHECK(sentences(of(texts)) == Strings{begin + " and 3 more"});
}

TEST_CASE("characters without a picture are named", "[texts]") {
  CHECK(
      sentences(of({"a\u200bb", "\u200f\u05d0 x\u00ad\u00ady", "a\u2009b c\u00a0d", "\ue000 \ufffd",
                    "e\u0301", "\u0645\u06cc\u200c\u062e"})) ==
      Strings{"characters without a picture: 2 of 6 texts, the first t0: U+00AD (soft hyphen) 2 "
              "times, U+200B (zero-width space), U+200F (right-to-left mark)",
              "characters for private use, which have a picture in fonts of their own alone: 1 of "
              "6 texts, the first t3: U+E000 (private use)",
              "characters that were lost when the text was converted: 1 of 6 texts, the first "
              "t3: U+FFFD",
              "spaces of other kinds, read as plain ones: 1 of 6 texts, the first t2: U+00A0 "
              "(no-break space), U+2009 (thin space)",
              "letters and accents apart, read as one (NFC): 1 of 6 texts, the first t4"});
  TextRules rules;
  rules.drop_invisible = true;
  const TextFindings dropped = of({"a\u200bb"}, rules);
  CHECK(dropped.findings.at(0).what == "characters without a picture, left out");
  CHECK(dropped.findings.at(0).advice.empty());
}

TEST_CASE("what looks alike is named, with lines that make it one", "[texts]") {
  const TextFindings digits = of({"\u0661\u0662\u0663 \u0664", "\u06f1", "1"});
  CHECK(sentences(digits) == Strings{"digits of 3 kinds: Arabic-Indic (U+0660 to U+0669) 4 times, "
                                     "plain (U+0030 to U+0039), Persian (U+06F0 to U+06F9)"});
  CHECK(digits.findings[0].advice == "the first of the rarest: t2");
  CHECK(digits.replacements == Strings{"U+06F1=U+0661"});  // 1 looks otherwise
  CHECK(of({"\u0661 \u06f1\u06f2 \uff11"}).replacements == Strings{"U+0661=U+06F1", "U+FF11=1"});
  const TextFindings signs = of({"don't", "don\u2019t can\u2019t", "a - b \u2010"});
  CHECK(sentences(signs) ==
        Strings{"apostrophes that look alike: '\u2019' (U+2019) 2 times, ''' (U+0027)",
                "hyphens that look alike: '-' (U+002D), '\u2010' (U+2010)"});
  CHECK(signs.replacements == Strings{"U+2019='", "U+2010=-"});
  CHECK(of({"\u201ca\u201d \u201eb\u201c"}).findings.empty());  // pairs
  CHECK(of({"\u201ca\u201d \"b\""}).findings.size() == 1);
  const TextFindings wide = of({"A, b", "\uff21\uff0c\uff22 \uff0c"});
  CHECK(sentences(wide) ==
        Strings{"full-width characters that stand there in plain form, too: '\uff0c' (U+FF0C) 2 "
                "times, '\uff21' (U+FF21)"});
  CHECK(wide.findings[0].advice == "the first: t1");
  CHECK(wide.replacements == Strings{"U+FF0C=,", "U+FF21=A"});
  CHECK(of({"\uff0c \uff21"}).findings.empty());
  const TextFindings letters =
      of({"a c\u043emputer, c\u043emputer", "\u043c\u043e\u0441\u043a\u0432a", "\u03bcm \u0416k"});
  CHECK(sentences(letters) ==
        Strings{"letters of two scripts in one word, which look alike: 2 of 3 texts, the first t0: "
                "'c\u043emputer' with Cyrillic '\u043e' (U+043E) 2 times, "
                "'\u043c\u043e\u0441\u043a\u0432a' with Latin 'a' (U+0061)"});
  CHECK(letters.replacements ==
        Strings{"c\u043emputer=computer",
                "\u043c\u043e\u0441\u043a\u0432a=\u043c\u043e\u0441\u043a\u0432\u0430"});
  // The lines do what they say.
  TextRules rules;
  for (const TextFindings& found : {digits, signs, letters}) {
    for (const std::string& line : found.replacements)
      rules.replace.push_back(TextReplacement::parse(line).value());
  }
  CHECK(of({"\u0661 \u06f1", "' \u2019 - \u2010", "c\u043emputer"}, rules).findings.empty());
}

TEST_CASE("what texts are written in is said where it matters", "[texts]") {
  const TextFindings thai = of({"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a",
                                "\u4f60\u597d\u5417\u4eca\u5929"});
  CHECK(thai.without_spaces);
  CHECK_FALSE(of({"\u4f60 \u597d \u5417"}).without_spaces);  // spaces between all
  CHECK(of({"\u4f60", "\u597d"}).without_spaces);
  CHECK_FALSE(of({"only one \u4f60"}).without_spaces);
  const TextFindings phones = of(Strings(10, "W AH1 N"));
  CHECK(phones.like_phones);
  TextRules rules;
  rules.unit = TextUnit::word;
  CHECK_FALSE(of(Strings(10, "W AH1 N"), rules).like_phones);
  rules = {};
  rules.lowercase = true;
  CHECK(of({"I\u011eDIR \u0130zmir"}, rules).findings.size() == 1);
  rules.locale = *TextLocale::parse("tr");
  CHECK(of({"I\u011eDIR \u0130zmir"}, rules).findings.empty());
}
