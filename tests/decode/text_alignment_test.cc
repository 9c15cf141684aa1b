// Texts in outputs: how they are spelled, where their words lie, how recordings are cut, and the
// formats of other programs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/decode/transcript/utterances.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

Vocabulary letters() { return Vocabulary({"<blank>", " ", "a", "b", "c"}, {}, "", "letters"); }
constexpr int32_t space = 1, a = 2, b = 3, c = 4;

// Logits in which each frame's class has 5 more than the others.
std::vector<float> frames_of(const std::vector<int32_t>& said, int32_t classes = 5) {
  std::vector<float> logits(said.size() * static_cast<size_t>(classes), 0);
  for (size_t t = 0; t < said.size(); ++t)
    logits[t * static_cast<size_t>(classes) + static_cast<size_t>(said[t])] = 5;
  return logits;
}
const double sure = std::exp(5.0) / (std::exp(5.0) + 4);

std::vector<std::vector<std::vector<int32_t>>> spellings_of(const SpelledText& text) {
  std::vector<std::vector<std::vector<int32_t>>> all;
  for (const AlignmentUnit& u : text.units) all.push_back(u.spellings);
  return all;
}
using Spellings = std::vector<std::vector<std::vector<int32_t>>>;
using LeftOut = std::vector<SpelledText::LeftOut>;

AlignedText align(const std::string& text, const std::vector<int32_t>& said, SpellingOptions o = {},
                  const TextAlignmentOptions& alignment = {}) {
  const Vocabulary v = letters();
  return align_text(frames_of(said), v, TextSpeller(v, std::move(o)).spell(text, "text"), alignment,
                    0.1);
}

}  // namespace

TEST_CASE("words are spelled by the model's rules and shown as they were") {
  const Vocabulary v = letters();
  SpellingOptions o;
  o.rules.lowercase = o.rules.strip_punctuation = true;
  const SpelledText t = TextSpeller(v, o).spell(
      "\xe2\x80\x9c"
      "A-B,\n - CAB!",
      "text");
  CHECK(t.words == std::vector<std::string>{"\xe2\x80\x9c"
                                            "A-B,",
                                            "CAB!"});
  CHECK(t.left_out == LeftOut{{"-", 1}});
  CHECK(t.line_ends == std::vector<int32_t>{1, 2});
  CHECK(spellings_of(t) == Spellings{{{a}}, {{space}}, {{b}}, {{space}}, {{c, a, b}}});
  CHECK(t.word_of ==
        std::vector<int32_t>{0, SpelledText::between_words, 0, SpelledText::between_words, 1});
}

TEST_CASE("what no token stands for is named, left out, or anything") {
  const Vocabulary v = letters();
  CHECK_THROWS_WITH(TextSpeller(v, {}).spell("ab qa q\xc3\xa9", "talk.txt"),
                    Equals("talk.txt: no token of the model stands for 'q' (U+0071) 2 times, "
                           "'\xc3\xa9' (U+00E9)"));
  CHECK_THROWS_WITH(TextSpeller(v, {}).spell("ab\n\nb 3\n3", "talk.txt"),
                    Equals("talk.txt:3: no token of the model stands for '3' (U+0033) 2 times"));
  SpellingOptions o;
  o.unspellable = UnspellableText::skip;
  CHECK(spellings_of(TextSpeller(v, o).spell("aqqb 12 c", "text")) ==
        Spellings{{{a, b}}, {{space}}, {{c}}});
  o.unspellable = UnspellableText::wildcard;
  CHECK(spellings_of(TextSpeller(v, o).spell("aqqb 12", "text")) ==
        Spellings{{{a, wildcard_label, b}}, {{space}}, {{wildcard_label}}});
  // What separates words stands for nothing within one.
  const Vocabulary bars({"<blank>", "|", "a", "b"}, {}, "", "bars");
  CHECK(spellings_of(TextSpeller(bars, o).spell("a|b a", "text")) ==
        Spellings{{{2, wildcard_label, 3}}, {{1}}, {{2}}});
  CHECK_THROWS_WITH(TextSpeller(bars, {}).spell("a|b ||", "talk.txt"),
                    Equals("talk.txt: no token of the model stands for '|' (U+007C) 3 times"));
  o.unspellable = UnspellableText::skip;
  CHECK(spellings_of(TextSpeller(bars, o).spell("|a|b| |", "text")) == Spellings{{{2, 3}}});
  CHECK_THROWS_WITH(TextSpeller(v, o).spell("12 -", "talk.txt"),
                    Equals("talk.txt: holds no word that could be aligned"));
  CHECK_THROWS_WITH(TextSpeller(v, {}).spell("a \xff", "talk.txt"), Contains("talk.txt: "));
}

TEST_CASE("labels that are words are spelled by whole words alone") {
  // Other programs write no <unk>, and would spell "ab" by "a" and "b".
  const Vocabulary v = Vocabulary::of(Alphabet({"a ", "b ", "<unk> ", "abc "}));
  CHECK(v.border() == WordBorder::every);
  CHECK(v.text(std::vector<int32_t>{1, 4, 3, 0, 1}) == "a abc <unk> a");
  CHECK(v.words(std::vector<int32_t>{1, 3}).size() == 2);
  CHECK(v.spell("<unk>") == std::vector<int32_t>{3});
  CHECK_FALSE(v.spell("ab"));
  CHECK_FALSE(v.spell(""));
  CHECK(spellings_of(TextSpeller(v, {}).spell("abc a", "text")) == Spellings{{{4}}, {{1}}});
  CHECK_THROWS_WITH(TextSpeller(v, {}).spell("a ab ac ab", "talk.txt"),
                    Equals("talk.txt: no token of the model stands for 'ab' 2 times, 'ac'"));
  SpellingOptions o;
  o.unspellable = UnspellableText::wildcard;
  CHECK(spellings_of(TextSpeller(v, o).spell("a ab", "t")) == Spellings{{{1}}, {{wildcard_label}}});
  o.unspellable = UnspellableText::skip;
  CHECK(TextSpeller(v, o).spell("a ab", "t").left_out == LeftOut{{"ab", 1}});
}

TEST_CASE("marks of a text are symbols, or are not said") {
  const Vocabulary v = Vocabulary::of(Alphabet({" ", "A", "I", "<um>", "[big_noise]"}));
  CHECK(v.text(std::vector<int32_t>{2, 4, 1, 5}) == "A<um> [big_noise]");
  SpellingOptions o;
  o.uppercase = true;
  o.rules.marks = Marks::token;
  const SpelledText t = TextSpeller(v, o).spell("a<um> [big\nnoise] i", "text");
  CHECK(t.words == std::vector<std::string>{"a<um>", "[big_noise]", "i"});
  CHECK(spellings_of(t) == Spellings{{{2, 4}}, {{1}}, {{5}}, {{1}}, {{3}}});
  o.rules.marks = Marks::drop;
  CHECK(TextSpeller(v, o).spell("a [big noise] i", "text").left_out == LeftOut{{"[big_noise]", 1}});
  o.rules.locale = *TextLocale::parse("tr");
  CHECK_THROWS_WITH(TextSpeller(v, o).spell("i", "text"), Contains("(U+0130)"));
}

TEST_CASE("words have the spellings of the lexicon, capitals and marks where the model has them") {
  const Vocabulary v = letters();
  const std::vector<Spelling> lexicon = {{"b", {b, b}}, {"b", {c}}};
  CHECK(spellings_of(TextSpeller(v, {}, lexicon).spell("b a", "text")) ==
        Spellings{{{b, b}, {c}}, {{space}}, {{a}}});
  const Vocabulary capitals({"<pad>", "|", "A", "\xc3\x89"}, {}, "", "capitals");
  SpellingOptions o;
  o.uppercase = true;
  CHECK(spellings_of(TextSpeller(capitals, o).spell("a\xc3\xa9", "text")) == Spellings{{{2, 3}}});
  const Vocabulary pieces({"<blk>",
                           "\xe2\x96\x81"
                           "a",
                           "b", "a", "\xe2\x96\x81"},
                          {}, "", "pieces");
  o = {};
  o.unspellable = UnspellableText::wildcard;
  CHECK(spellings_of(TextSpeller(pieces, o).spell("ab b aqa", "text")) ==
        Spellings{{{1, 2}}, {{4, 2}}, {{1, wildcard_label, 3}}});
}

TEST_CASE("words and tokens have the times of their frames and the probabilities of the softmax") {
  const AlignedText t = align("ab c", {0, a, a, 0, b, space, 0, c, 0});
  const Transcript& found = t.transcript;
  CHECK(found.text == "ab c");
  REQUIRE(found.words.size() == 2);
  CHECK(found.words[0].text == "ab");
  CHECK(found.words[0].begin == Approx(0.1));
  CHECK(found.words[0].end == Approx(0.5));
  CHECK(found.words[0].probability == Approx(sure));
  CHECK(found.words[1].begin == Approx(0.7));
  REQUIRE(found.characters.size() == 4);
  CHECK(found.characters[2].text == " ");
  CHECK(t.score(0, 0.9) == 0);
  CHECK(t.unwritten.empty());
}

TEST_CASE("a text that does not fit has a low score where it does not") {
  // 'b' is said for 'c' in frame 14; a second has ten frames.
  std::vector<int32_t> said(40, 0);
  said[2] = a;
  said[8] = space;
  said[14] = b;
  const AlignedText t = align("a c", said);
  CHECK(t.score(0, 4) == Approx(-5));
  CHECK(t.score(0, 1) == 0);
  CHECK(t.transcript.words[1].probability == Approx(1 / (std::exp(5.0) + 4)));
  CHECK_THROWS_AS(align("abcabcabc", {a, b}), InputError);
}

TEST_CASE("gaps and open ends take what is said and not in the text") {
  SpellingOptions o;
  o.gap_word = "*";
  const std::vector<int32_t> said = {a, space, b, c, b, c, 0, space, c, 0};
  const AlignedText with = align("a * c", said, o);
  REQUIRE(with.unwritten.size() == 1);
  CHECK(with.unwritten[0].begin == Approx(0.2));
  CHECK(with.unwritten[0].end == Approx(0.6));  // a blank costs less than a wildcard
  CHECK(with.score(0, 1) == 0);
  CHECK(with.transcript.words.size() == 2);
  CHECK(with.transcript.words[1].begin == Approx(0.8));
  // A gap stays one where the word behind it cannot be spelled.
  o.unspellable = UnspellableText::skip;
  for (const char* text : {"a * 12 c", "a 12 * c", "a * 12 * 34 c"}) {
    INFO(text);
    const AlignedText skipping = align(text, said, o);
    REQUIRE(skipping.unwritten.size() == 1);
    CHECK(skipping.unwritten[0].begin == with.unwritten[0].begin);
    CHECK(skipping.transcript.words.size() == 2);
  }
  // Where nothing is missing, nothing is found.
  CHECK(align("a * c", {a, 0, space, 0, c}, o).unwritten.empty());
  CHECK(align("a c", said).score(0, 1) < -9);
  o.open_ends = true;
  const AlignedText open = align("c", {a, b, a, b, space, c, space, a, b}, o);
  CHECK(open.unwritten.size() == 2);
  CHECK(open.transcript.words[0].begin == Approx(0.5));
}

TEST_CASE("what is said and not in the text is found without being named") {
  // 10 frames a second: five words, three seconds of others, four words.
  std::vector<int32_t> said;
  const auto say = [&](const std::string& text) {
    for (const char letter : text) {
      said.push_back(letter == ' ' ? space : letter - 'a' + a);
      said.push_back(0);
    }
  };
  say("ab ca b ac cb ");
  const double gap_begins = static_cast<double>(said.size()) / 10;
  say("bcb aab bba ca ");
  const double gap_ends = static_cast<double>(said.size()) / 10;
  say("ca ac b abc");
  TextAlignmentOptions o;
  o.find_gaps = true;
  const std::string text = "ab ca b ac cb ca ac b abc";
  const AlignedText found = align(text, said, {}, o);
  REQUIRE(found.unwritten.size() == 1);
  CHECK(found.unwritten[0].begin == Approx(gap_begins).margin(0.3));
  CHECK(found.unwritten[0].end == Approx(gap_ends).margin(0.3));
  REQUIRE(found.transcript.words.size() == 9);
  CHECK(found.transcript.words[5].begin == Approx(gap_ends).margin(0.05));
  CHECK(found.score(0, 100) > -12);
  CHECK(align(text, said).score(0, 100) < -20);
  // Before the text, behind it, and where nothing is missing.
  const AlignedText late = align("ca ac b abc", said, {}, o);
  CHECK(late.transcript.words[0].begin == Approx(gap_ends).margin(0.05));
  const AlignedText early = align("ab ca b ac cb", said, {}, o);
  CHECK(early.transcript.words.back().end <= gap_begins);
  REQUIRE(early.unwritten.size() == 1);
  CHECK(early.unwritten[0].end > gap_ends);
  const AlignedText whole = align("ab ca b ac cb bcb aab bba ca ca ac b abc", said, {}, o);
  CHECK(whole.unwritten.empty());
  CHECK(whole.score(0, 100) == 0);
  // Words of their own without separators.
  const Vocabulary joined({"<blank>", "\u2581a", "b", "\u2581c"}, {}, "", "joined");
  std::vector<int32_t> pieces = {1, 0, 2, 0, 3, 0};
  for (int n = 0; n < 10; ++n) pieces.insert(pieces.end(), {2, 0, 2, 0});
  pieces.insert(pieces.end(), {3, 0, 2, 0, 1, 0});
  const AlignedText without = align_text(
      frames_of(pieces, 4), joined, TextSpeller(joined, {}).spell("ab c cb a", "text"), o, 0.1);
  REQUIRE(without.unwritten.size() == 1);
  CHECK(without.transcript.words[1].end == Approx(0.5));
  CHECK(without.transcript.words[2].begin == Approx(4.6));
}

TEST_CASE("what is missing from a long text of few words is one gap each") {
  // Each word of the text is in what the text does not have, too, many times.
  const std::vector<std::string> vocabulary = {"ab", "ca", "bac", "cb", "aab"};
  std::mt19937 random(4);
  std::vector<int32_t> said;
  std::vector<double> begins;
  std::string text;
  std::vector<std::pair<double, double>> missing;
  for (int n = 0; n < 700; ++n) {
    const std::string& word = vocabulary[random() % vocabulary.size()];
    const auto now = [&] { return static_cast<double>(said.size()) / 10; };
    const bool is_written = !(n >= 150 && n < 210) && !(n >= 500 && n < 530);
    if (!is_written && (n == 150 || n == 500)) missing.emplace_back(now(), 0);
    if (is_written) {
      begins.push_back(now());
      text += word + " ";
    }
    for (const char letter : word + " ") {
      said.push_back(letter == ' ' ? space : letter - 'a' + a);
      said.push_back(0);
    }
    if (!is_written) missing.back().second = now();
  }
  TextAlignmentOptions o;
  o.find_gaps = true;
  const AlignedText found = align(text, said, {}, o);
  REQUIRE(found.unwritten.size() == missing.size());
  for (size_t i = 0; i < missing.size(); ++i) {
    CHECK(found.unwritten[i].begin == Approx(missing[i].first).margin(0.3));
    CHECK(found.unwritten[i].end == Approx(missing[i].second).margin(0.3));
  }
  REQUIRE(found.transcript.words.size() == begins.size());
  for (size_t w = 0; w < begins.size(); ++w)
    CHECK(found.transcript.words[w].begin == Approx(begins[w]).margin(0.05));
}

TEST_CASE("where a text fits worst is told") {
  std::vector<int32_t> said(100, 0);
  said[10] = a;
  for (size_t t = 60; t < 66; ++t) said[t] = c;
  said[90] = b;
  const AlignedText t = align("ab", said);
  const AlignedText::Fit fit = t.fit(0, 10);
  CHECK(fit.score == Approx(-30));
  CHECK(fit.begin <= 6);
  CHECK(fit.end >= 6.6);
  CHECK(fit.end - fit.begin == Approx(1));
  CHECK(t.fit(0, 5).score == 0);
}

TEST_CASE("where a text fits worst is the worst of all seconds, and of what is shorter") {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    AlignedText t;
    // Ten frames a second, three, one, and frames of no known length, of which fifty are one.
    t.frame_seconds = std::vector<double>{0.1, 0.3, 0.9, 1}[static_cast<size_t>(round % 4)];
    const auto second =
        static_cast<size_t>(std::vector<int>{10, 3, 1, 50}[static_cast<size_t>(round % 4)]);
    const size_t frames = random() % 120;
    for (size_t f = 0; f < frames; ++f)
      t.shortfall.push_back(random() % 3 == 0 ? static_cast<float>(random() % 8) : 0);
    const size_t first = random() % (frames + 1), end = first + random() % (frames + 1 - first);
    double worst = 0;
    for (size_t from = first; from < end; ++from) {
      double sum = 0;
      for (size_t f = from; f < std::min(from + second, end); ++f) {
        sum += static_cast<double>(t.shortfall[f]);
        worst = std::max(worst, sum);
      }
    }
    const double unit = t.frame_seconds;
    const AlignedText::Fit fit =
        t.fit(static_cast<double>(first) * unit, static_cast<double>(end) * unit);
    INFO("round " << round << ": frames " << first << " to " << end << " of " << frames);
    CHECK(fit.score == -worst);
    const auto begins = static_cast<size_t>(std::llround(fit.begin / unit));
    const auto ends = static_cast<size_t>(std::llround(fit.end / unit));
    REQUIRE((begins >= first && begins <= ends && ends <= std::max(end, first)));
    CHECK(ends - begins <= second);
    double found = 0;
    for (size_t f = begins; f < ends; ++f) found += static_cast<double>(t.shortfall[f]);
    if (worst > 0) CHECK(found == worst);
  }
}

TEST_CASE("all places where a text does not fit are told, and what overlaps is one") {
  AlignedText t;
  t.frame_seconds = 0.1;
  t.shortfall.assign(200, 0);
  CHECK(t.misfits(0, 20, -50).empty());
  t.shortfall[20] = 60;                                       // one frame: 2.0 to 2.1 s
  for (size_t f = 80; f < 110; ++f) t.shortfall[f] = 10;      // three seconds
  for (size_t f = 195; f < 200; ++f) t.shortfall[f] = 10.25;  // up to the end
  t.shortfall[150] = 49;                                      // not bad enough
  const std::vector<AlignedText::Fit> places = t.misfits(0, 20, -50);
  REQUIRE(places.size() == 3);
  CHECK(places[0].score == -60);
  CHECK(places[0].begin == Approx(1.1));  // of the first second that has it
  CHECK(places[0].end == Approx(3.0));    // and of the last
  CHECK(places[1].score == -100);
  CHECK(places[1].begin == Approx(7.6));
  CHECK(places[1].end == Approx(11.4));
  CHECK(places[2].score == -51.25);
  CHECK(places[2].end == Approx(20));
  CHECK(t.misfits(4, 7, -50).empty());
  CHECK(t.misfits(0, 20, -20).size() == 4);
  // Each has the second that fit() finds there.
  for (const AlignedText::Fit& p : places) CHECK(t.fit(p.begin, p.end).score == p.score);
}

TEST_CASE("each line of a text is a subtitle, with the words that nothing spells") {
  SpellingOptions o;
  o.unspellable = UnspellableText::skip;
  const std::vector<std::string> lines = {"a 12 b", "", "99", "c\n77", "a"};
  const Vocabulary v = letters();
  const SpelledText spelled = TextSpeller(v, o).spell(lines, "text");
  CHECK(spelled.line_ends == std::vector<int32_t>{2, 2, 2, 3, 4});
  CHECK(spelled.left_out == LeftOut{{"12", 1}, {"99", 2}, {"77", 3}});
  const AlignedText t =
      align_text(frames_of({0, a, space, b, 0, 0, space, 0, c, space, a, 0}), v, spelled, {}, 0.1);
  std::string shown;
  for (const TimedText::Token& w : t.shown_words()) shown += w.text + " ";
  CHECK(shown == "a 12 b 99 c 77 a ");
  const auto cues = subtitles_of_lines(t.transcript.words, t.line_ends, lines, 1.15, {});
  REQUIRE(cues.size() == 4);
  CHECK(cues[0].lines == std::vector<std::string>{"a 12 b"});
  CHECK(cues[0].begin == Approx(0.1));
  CHECK(cues[1].lines == std::vector<std::string>{"99"});
  CHECK(cues[1].begin == Approx(0.4));
  CHECK(cues[1].end == Approx(0.8));
  CHECK(cues[2].lines == std::vector<std::string>{"c", "77"});
  CHECK(cues[3].end == Approx(1.15));  // the recording's
  // Words, too, are shown no longer than the recording.
  CHECK(subtitles_of(t.transcript, 1.12, {}).back().end == Approx(1.12));
}

TEST_CASE("words that are left out side by side are all shown, where they stood") {
  SpellingOptions o;
  o.unspellable = UnspellableText::skip;
  const AlignedText t = align("1 2 a 3 4 5 b 6 6", {0, a, space, b, 0}, o);
  CHECK(t.left_out ==
        LeftOut{{"1", 0}, {"2", 0}, {"3", 1}, {"4", 1}, {"5", 1}, {"6", 2}, {"6", 2}});
  std::string shown;
  for (const TimedText::Token& w : t.shown_words()) shown += str(w.text, " ", w.begin, ", ");
  CHECK(shown == "1 0.1, 2 0.1, a 0.1, 3 0.2, 4 0.2, 5 0.2, b 0.3, 6 0.4, 6 0.4, ");
}

TEST_CASE("subtitles of other programs are read without their times and markup") {
  const std::vector<std::string> expected = {"a b\nc", "d & e"};
  for (const char* file :
       {"1\n00:00:01,000 --> 00:00:02,000\na <i>b</i>\nc\n\n2\n00:00:03,000 --> 00:00:04,000\nd & "
        "e\n",
        "\xef\xbb\xbf"
        "7\r\n00:00:01,000 --> 00:00:02,000 X1:40\r\n{\\an8}a b\r\nc\r\n8\r\n0:0:3,0 --> "
        "0:0:4,0\r\nd & e",
        "WEBVTT - title\n\nNOTE\nnothing of this\n\nSTYLE\n::cue {}\n\nintro\n00:01.000 --> "
        "00:02.000 "
        "line:0\n<v Ann>a b</v>\nc\n\n00:03.000 --> 00:04.000\nd &amp; e\n\n00:05.000 --> "
        "00:06.000\n\n"}) {
    INFO(file);
    CHECK(texts_of_subtitles(file, "x.srt") == expected);
  }
  CHECK(texts_of_subtitles("0 --> 1\n1 < 2 {x}\n", "x") == std::vector<std::string>{"1 < 2 {x}"});
  CHECK_THROWS_WITH(texts_of_subtitles("a\nb\n", "x.srt"), Contains("x.srt: holds no subtitle"));
}

TEST_CASE("wildcards within words have the probability of the best class") {
  SpellingOptions o;
  o.unspellable = UnspellableText::wildcard;
  const AlignedText t = align("aqb", {a, 0, c, 0, b}, o);
  REQUIRE(t.transcript.characters.size() == 3);
  CHECK(t.transcript.characters[1].text == "*");
  CHECK(t.transcript.characters[1].probability == Approx(sure));
}

TEST_CASE("label priors move a boundary from the class that is everywhere") {
  // Frame 1 prefers the blank a little; divided by its frequency it no longer does.
  const Vocabulary v = letters();
  std::vector<float> logits = frames_of({a, 0, 0, 0, 0, 0});
  logits[1 * 5 + a] = 4.9f;
  const SpelledText text = TextSpeller(v, {}).spell("a", "text");
  const auto end = [&](double weight) {
    TextAlignmentOptions o;
    o.label_priors = weight;
    return align_text(logits, v, text, o, 1).transcript.words[0].end;
  };
  CHECK(end(0) == 1);
  CHECK(end(0.3) == 2);
}

namespace {

AlignedText timed(const std::vector<std::pair<double, double>>& words) {
  AlignedText t;
  t.frame_seconds = 0.1;
  for (const auto& [begin, end] : words) {
    Transcript::Token w;
    w.text = std::string(1, static_cast<char>('a' + t.transcript.words.size() % 26));
    w.begin = begin;
    w.end = end;
    w.probability = 0.5;
    t.transcript.words.push_back(w);
  }
  return t;
}

}  // namespace

TEST_CASE("recordings are cut in their longest pauses, as seldom as can be") {
  const AlignedText t = timed({{0.5, 1}, {1.2, 2}, {3, 4}, {4.1, 5}, {7, 8}});
  UtteranceOptions o;
  o.longest = 6;
  const auto cut = split_into_utterances(t, 9, o);
  REQUIRE(cut.size() == 2);
  CHECK((cut[0].first_word == 0 && cut[0].end_word == 4));
  CHECK(cut[0].begin == Approx(0.2));
  CHECK(cut[0].end == Approx(5.3));
  CHECK(cut[1].begin == Approx(6.7));
  CHECK(cut[1].end == Approx(8.3));
  CHECK(cut[0].probability == 0.5);
  o.longest = 4;
  const auto shorter = split_into_utterances(t, 9, o);
  REQUIRE(shorter.size() == 3);
  CHECK(shorter[0].end_word == 2);
  o.longest = 100;
  CHECK(split_into_utterances(t, 9, o).size() == 1);
  CHECK(split_into_utterances(t, 5.1, o)[0].end == 5.1);  // words may end behind the recording
}

TEST_CASE("what is not in the text is in no utterance") {
  AlignedText t = timed({{1, 2}, {6, 7}});
  t.unwritten = {{0.2, 0.9}, {2.1, 3}, {4, 5.9}};
  const auto cut = split_into_utterances(t, 10, {});
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].begin == Approx(0.9));
  CHECK(cut[0].end == Approx(2.1));
  CHECK(cut[1].begin == Approx(5.9));
}

TEST_CASE("utterances of any words cover them in order and are short enough") {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> length(0.1, 1), pause(0, 0.8);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<double, double>> words;
    double at = pause(random);
    for (int i = 0; i < 1 + round % 30; ++i) {
      words.push_back({at, at + length(random)});
      at = words.back().second + pause(random);
    }
    const AlignedText t = timed(words);
    UtteranceOptions o;
    o.longest = 1 + 0.1 * (round % 50);
    const auto cut = split_into_utterances(t, at, o);
    int32_t next = 0;
    double before = 0;
    for (const Utterance& u : cut) {
      CHECK(u.first_word == next);
      CHECK(u.begin >= before);
      const auto& first = words[static_cast<size_t>(u.first_word)];
      const auto& last = words[static_cast<size_t>(u.end_word - 1)];
      CHECK((u.begin <= first.first && u.end >= last.second && u.end <= at + 1e-9));
      CHECK((u.end - u.begin <= o.longest + 1e-9 || u.end_word == u.first_word + 1));
      next = u.end_word;
      before = u.end;
    }
    CHECK(next == static_cast<int32_t>(words.size()));
  }
}

TEST_CASE("formats are those of other programs") {
  Transcript t;
  t.words = {{"say \"x\"", 0.5, 1.25, 0.5}, {"<b>&", 1.25, 2, 0.25}};
  t.characters = {{"s", 0.5, 0.75, 0.5}, {"b", 1.25, 2, 0.25}};
  CHECK(to_ctm(t, "my talk") ==
        "my_talk 1 0.500 0.750 say_\"x\" 0.5000\nmy_talk 1 1.250 0.750 <b>& 0.2500\n");
  const std::string grid = to_text_grid(t, 3);
  CHECK_THAT(grid, Contains("File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\nxmin = 0 "
                            "\nxmax = 3.0000 \ntiers? <exists> \nsize = 2 \n"));
  CHECK_THAT(grid, Contains("intervals: size = 4 \n"));
  CHECK_THAT(grid, Contains("intervals [2]:\n            xmin = 0.5000 \n            xmax = 1.2500 "
                            "\n            text = \"say \"\"x\"\"\" \n"));
  const auto shown = subtitles_of(t, 1e9, {});
  CHECK(to_srt(shown) == "1\n00:00:00,500 --> 00:00:02,500\nsay \"x\" <b>&\n\n");
  CHECK(to_vtt(shown) == "WEBVTT\n\n00:00:00.500 --> 00:00:02.500\nsay \"x\" &lt;b&gt;&amp;\n\n");
  t.words = {{"late", 3725.0625, 3726, 1}};
  CHECK_THAT(to_srt(subtitles_of(t, 1e9, {})), Contains("01:02:05,063 --> 01:02:06,500"));
}

TEST_CASE("times that are rounded up carry over into seconds, minutes and hours") {
  const std::vector<Subtitle> all = {
      {0.9994, 0.9996, {"a"}}, {59.9995001, 60, {"b"}}, {3599.4, 3599.9996, {"c"}}};
  CHECK(to_srt(all) ==
        "1\n00:00:00,999 --> 00:00:01,000\na\n\n2\n00:01:00,000 --> 00:01:00,000\nb\n\n"
        "3\n00:59:59,400 --> 01:00:00,000\nc\n\n");
  CHECK_THAT(to_vtt(all), Contains("00:00:00.999 --> 00:00:01.000\na\n") &&
                              Contains("00:01:00.000 --> 00:01:00.000\nb\n") &&
                              Contains("00:59:59.400 --> 01:00:00.000\nc\n"));
  Transcript t;
  t.words = t.characters = {{"a", 0.9996, 59.9996, 0.99996}};
  CHECK(to_ctm(t, "u") == "u 1 1.000 59.000 a 1.0000\n");
  t.words = t.characters = {{"a", 0.99996, 59.99996, 1}};
  const std::string grid = to_text_grid(t, 60);
  CHECK_THAT(grid, Contains("xmin = 1.0000 \n            xmax = 60.0000 \n"));
  CHECK_THAT(grid, Contains("intervals: size = 2 \n"));  // none from 60.0000 to 60.0000
}

TEST_CASE("subtitles end with sentences, before pauses, and where they would be too long") {
  Transcript t;
  double at = 0;
  for (const char* word : {"One", "two.\xe2\x80\x9d", "Three", "four", "five"}) {
    t.words.push_back({word, at, at + 0.4, 1});
    at += 0.5;
  }
  t.words[4].begin += 1;
  t.words[4].end += 1;
  const auto shown = subtitles_of(t, 1e9, {});
  REQUIRE(shown.size() == 3);
  CHECK(shown[0].lines == std::vector<std::string>{"One two.\xe2\x80\x9d"});
  CHECK(shown[0].end == Approx(1.0));  // the next one comes before it has lingered
  CHECK(shown[1].lines == std::vector<std::string>{"Three four"});
  CHECK(shown[1].end == Approx(2.4));
  SubtitleOptions o;
  o.longest_line = 10;
  o.pause = 10;
  const auto narrow = subtitles_of(t, 1e9, o);
  CHECK(narrow[1].lines == std::vector<std::string>{"Three four", "five"});
  o.longest = 0.6;
  for (const Subtitle& s : subtitles_of(t, 1e9, o)) CHECK(s.end - s.begin <= 1.2);
}
