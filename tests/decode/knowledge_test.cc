// Searches with a lexicon, a language model and hot words beside the scores of all texts that there
// are.
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "engine/decode/decoder.h"
#include "engine/decode/tuning.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/decode/all_texts.h"

using namespace rondo;

TEST_CASE("a language model of words scores each text as by itself", "[decoder]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  const Vocabulary vocabulary(spaced, {}, "", "test");
  for (unsigned seed = 0; seed < 4; ++seed) {
    const Scores s = random_scores(5, 4, seed);
    for (const bool sum : {true, false}) {
      DecoderOptions o = everything(sum);
      o.sentence_end = seed != 3;
      o.sentence_begin = seed < 2;
      DecoderKnowledge k;
      k.language_model = model;
      if (seed % 2 == 1) k.hot_words = {{"ab", 1.5}, {"a b", 2}, {"bb", 3}, {"b", -1}};
      if (seed == 2) k.hot_words = {{"a a", 1}, {"bb", 2}, {"a a", -0.5}, {"bb b", 1}};
      const Decoder decoder(vocabulary, o, k);
      CHECK(decoder.unit() == ModelUnit::words);
      Expected expected;
      for (const auto& [labels, p] : all_sequences(s, 0, sum)) {
        const std::string text = vocabulary.text(labels);
        const std::vector<std::string> words = split_words(text);
        expected.add(text, p, lm_score(model, words, o) + hot_score(k.hot_words, words), sum);
      }
      INFO("seed " << seed << " sum " << sum);
      compare(s, decoder, expected);
    }
  }
}

// The model says the same of them, and their score is added.
TEST_CASE("words of the model that are not in the list of known ones count as unknown",
          "[decoder]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  const std::set<std::string> known = {"a", "ba"};
  const std::string around_a = "\xe2\x96\x81";
  const std::vector<Vocabulary> vocabularies = {
      Vocabulary(spaced, {}, "", "test"),
      Vocabulary({"<blank>", around_a, around_a + "a", "a", "b"}, {}, "", "test"),
      Vocabulary({"<blank>", "a", "b"}, {}, "none", "test")};
  for (const Vocabulary& vocabulary : vocabularies) {
    const bool has_borders = vocabulary.border() != WordBorder::none;
    const Scores s = random_scores(4, vocabulary.classes(), 3);
    const DecoderOptions o = everything(true);
    DecoderKnowledge k;
    k.language_model = model;
    // A word that the model lacks, and one that nothing spells, change nothing.
    k.known_words = {"a", "ba", "bb", "\xc3\xa9"};
    Expected expected;
    for (const auto& [labels, p] : all_sequences(s, 0, true)) {
      const std::string text = vocabulary.text(labels);
      if (has_borders) {
        expected.add(text, p, lm_score(model, split_words(text), o, known), true);
        continue;
      }
      // In any division into words of the model.
      std::vector<std::string> words;
      const std::function<void(size_t)> divide = [&](size_t at) {
        if (at == text.size()) expected.add(text, p, lm_score(model, words, o, known), true);
        for (const size_t n : {1, 2}) {
          if (at + n > text.size()) break;
          words.push_back(text.substr(at, n));
          if (model.word(words.back()) != LanguageModel::unknown) divide(at + n);
          words.pop_back();
        }
      };
      divide(0);
    }
    INFO("classes " << vocabulary.classes());
    const Decoder decoder(vocabulary, o, k);
    CHECK(decoder.warnings().empty());
    compare(s, decoder, expected);
    const std::vector<HotWord> none;
    compare(s, decoder.with_hot_words(none), expected);
  }
}

TEST_CASE("a list of known words that does not fit the model is told", "[decoder]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Scores s = random_scores(4, 4, 6);
  const DecoderOptions o = everything(true);
  DecoderKnowledge k;
  k.language_model = LanguageModel::parse(word_model, "test");
  const auto texts_with = [&](std::vector<std::string> words) {
    k.known_words = std::move(words);
    const Decoder decoder(vocabulary, o, k);
    return std::pair(decoder.decode(s.values.data(), s.frames), decoder.warnings());
  };
  const auto [all, no_warnings] = texts_with({});
  CHECK(no_warnings.empty());
  const auto [none, warnings] = texts_with({"A\x1b[2J" + std::string(1 << 20, 'A'), "B"});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].starts_with("the language model has 0 of the 2 known words, and not 'A\\x1b["));
  CHECK(warnings[0].size() < 250);
  REQUIRE(none.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK(none[i].score == all[i].score);
  CHECK_THAT(texts_with({"B", "C", "a"}).second.at(0), Catch::Contains("has 1 of the 3"));
  // A lexicon says which words there are.
  k.lexicon = {{"a", {2}}, {"b", {3}}};
  CHECK(texts_with({"a"}).first.front().score == texts_with({"B"}).first.front().score);
  CHECK(texts_with({"B"}).second.empty());
  k.lexicon.clear();
  DecoderOptions of_tokens = o;
  of_tokens.unit = ModelUnit::tokens;
  CHECK_THAT(Decoder(vocabulary, of_tokens, k).warnings().at(0), Catch::Contains("is of tokens"));
}

TEST_CASE("what a text is made of is told", "[decoder]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Scores s = random_scores(5, 4, 9);
  const DecoderOptions o = everything(true);
  DecoderKnowledge k;
  k.language_model = model;
  const auto sequences = all_sequences(s, 0, true);
  std::map<std::string, double> by_text;
  for (const auto& [labels, p] : sequences) by_text[vocabulary.text(labels)] += p;
  for (const DecodedText& t : Decoder(vocabulary, o, k).decode(s.values.data(), s.frames)) {
    INFO("'" << t.text << "'");
    CHECK(t.log_probability == Approx(std::log(by_text.at(t.text))).epsilon(1e-9));
    CHECK(vocabulary.text(t.labels) == t.text);
    std::vector<std::string> words;
    for (const SpelledWord& w : t.words) {
      words.push_back(w.text);
      const auto labels = std::span(t.labels).subspan(
          static_cast<size_t>(w.first_label), static_cast<size_t>(w.end_label - w.first_label));
      CHECK(vocabulary.text(labels) == w.text);
    }
    CHECK(words == split_words(t.text));
    LanguageModel::State state = model.begin_sentence();
    double log10 = 0;
    for (const std::string& w : words) log10 += model.score(state, model.word(w), state);
    CHECK(t.lm_log10 == Approx(log10 + model.end_score(state)).epsilon(1e-9));
  }
}

TEST_CASE("a lexicon lets its words alone be found, by any of their spellings", "[decoder]") {
  // Phonemes: "one" has two pronunciations, "won" sounds like one of them, "i" begins "in".
  const Vocabulary vocabulary({"W", "<eps>", "N", "I"}, {}, "every", "test");
  // A line that is there twice is one; "inn" has a label twice in a row.
  const std::vector<Spelling> lexicon = {{"one", {0, 2}}, {"one", {0, 3, 2}}, {"won", {0, 2}},
                                         {"i", {3}},      {"in", {3, 2}},     {"inn", {3, 2, 2}}};
  DecoderOptions o = everything(true);
  const LanguageModel model = LanguageModel::parse(R"(\data\
ngram 1=6
ngram 2=2

\1-grams:
-2.0	<unk>
-99	<s>	-0.3
-0.9	</s>
-0.7	one	-0.2
-0.9	won
-0.8	i	-0.25

\2-grams:
-0.3	<s> i
-0.5	i won

\end\
)",
                                                   "test");
  for (unsigned seed = 0; seed < 4; ++seed) {
    const Scores s = random_scores(5, 4, seed, 1);
    for (const bool sum : {true, false}) {
      o.sum = sum;
      DecoderKnowledge k;
      k.lexicon = lexicon;
      k.lexicon.push_back({"won", {0, 2}});
      if (seed % 2 == 0) k.language_model = model;
      if (seed >= 2) k.hot_words = {{"won", 1}, {"i one", 2}, {"in", -0.5}};
      if (seed == 3) k.hot_words = {{"i i", 3}, {"inn", 1}, {"i i", 1.5}, {"i", 0}};
      Expected expected;
      for (const auto& [labels, p] : all_sequences(s, 1, sum)) {
        std::vector<std::string> words;
        // Every way to divide the labels into words.
        const std::function<void(size_t)> divide = [&](size_t at) {
          if (at == labels.size()) {
            double worth = hot_score(k.hot_words, words);
            worth += k.language_model ? lm_score(model, words, o)
                                      : o.word_score * static_cast<double>(words.size());
            expected.add(joined(words), p, worth, sum);
            return;
          }
          for (const Spelling& w : lexicon) {
            if (at + w.labels.size() > labels.size() ||
                !std::equal(w.labels.begin(), w.labels.end(),
                            labels.begin() + static_cast<ptrdiff_t>(at)))
              continue;
            words.push_back(w.word);
            divide(at + w.labels.size());
            words.pop_back();
          }
        };
        divide(0);
      }
      INFO("seed " << seed << " sum " << sum);
      compare(s, Decoder(vocabulary, o, k), expected);
    }
  }
}

TEST_CASE("silence may stand between the words of a lexicon, and need not", "[decoder]") {
  const Vocabulary vocabulary({"<eps>", "SIL", "A", "B"}, {}, "every", "test");
  DecoderKnowledge k;
  k.lexicon = {{"a", {2}}, {"ab", {2, 3}}, {"b", {3}}};
  k.silence = 1;
  const Scores s = random_scores(5, 4, 3, 1);
  const DecoderOptions o = everything(true);
  Expected expected;
  for (const auto& [labels, p] : all_sequences(s, 0, true)) {
    std::vector<std::string> words;
    const std::function<void(size_t)> divide = [&](size_t at) {
      if (at == labels.size()) {
        expected.add(joined(words), p, o.word_score * static_cast<double>(words.size()), true);
        return;
      }
      if (labels[at] == k.silence) {
        divide(at + 1);
        return;
      }
      for (const Spelling& w : k.lexicon) {
        if (at + w.labels.size() > labels.size() ||
            !std::equal(w.labels.begin(), w.labels.end(),
                        labels.begin() + static_cast<ptrdiff_t>(at)))
          continue;
        words.push_back(w.word);
        divide(at + w.labels.size());
        words.pop_back();
      }
    };
    divide(0);
  }
  const Decoder decoder(vocabulary, o, k);
  compare(s, decoder, expected);
  for (const DecodedText& t : decoder.decode(s.values.data(), s.frames))
    for (const SpelledWord& w : t.words)
      for (int32_t i = w.first_label; i < w.end_label; ++i)
        CHECK(t.labels[static_cast<size_t>(i)] != k.silence);
  k.lexicon.push_back({"pause", {2, 1}});
  CHECK_THROWS_WITH(Decoder(vocabulary, o, k), Catch::Contains("'pause' of the lexicon has 'SIL'"));
}

TEST_CASE("words may be divided into pieces in any way", "[decoder]") {
  const Vocabulary vocabulary({"\xe2\x96\x81",
                               "\xe2\x96\x81"
                               "a",
                               "a", "b", "<blank>"},
                              {}, "", "test");
  REQUIRE(vocabulary.border() == WordBorder::prefix);
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  for (unsigned seed = 0; seed < 3; ++seed) {
    const Scores s = random_scores(4, 5, seed);
    const DecoderOptions o = everything(true);
    DecoderKnowledge k;
    k.language_model = model;
    if (seed > 0) k.hot_words = {{"ab a", 2}, {"b", 1}};
    Expected expected;
    for (const auto& [labels, p] : all_sequences(s, 4, true)) {
      const std::string text = vocabulary.text(labels);
      const auto words = split_words(text);
      expected.add(text, p, lm_score(model, words, o) + hot_score(k.hot_words, words), true);
    }
    INFO("seed " << seed);
    compare(s, Decoder(vocabulary, o, k), expected);
  }
}

TEST_CASE("a language model of characters scores each token", "[decoder]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const LanguageModel model = LanguageModel::parse(R"(\data\
ngram 1=6
ngram 2=3

\1-grams:
-2.0	<unk>
-99	<s>	-0.3
-0.9	</s>
-0.7	a	-0.2
-0.9	b	-0.1
-1.2	<space>	-0.4

\2-grams:
-0.3	<s> a
-0.2	a b
-0.5	b <space>

\end\
)",
                                                   "test");
  // Of the text, which has one space between words and none at its ends, however many are spelled.
  const Scores s = random_scores(6, 4, 5);
  DecoderKnowledge k;
  k.language_model = model;
  for (const double token_score : {0.7, -0.4}) {
    DecoderOptions o = everything(true);
    o.word_score = token_score;
    const Decoder decoder(vocabulary, o, k);
    CHECK(decoder.unit() == ModelUnit::tokens);
    Expected expected;
    std::map<std::string, double> log10;
    for (const auto& [labels, p] : all_sequences(s, 0, true)) {
      const std::string text = vocabulary.text(labels);
      std::vector<std::string> tokens;
      for (const char c : text) tokens.push_back(c == ' ' ? "<space>" : std::string(1, c));
      expected.add(text, p, lm_score(model, tokens, o), true);
      const double words = o.word_score * static_cast<double>(tokens.size());
      log10[text] = (lm_score(model, tokens, o) - words) / (o.lm_weight * ln10);
    }
    compare(s, decoder, expected);
    for (const DecodedText& t : decoder.decode(s.values.data(), s.frames))
      CHECK(t.lm_log10 == Approx(log10.at(t.text)));
  }
}

TEST_CASE("a language model of pieces scores them as a text has them", "[decoder]") {
  const std::vector<std::string> names = {"<blank>", "\u2581", "\u2581a", "a", "b"};
  const Vocabulary vocabulary(names, {}, "", "test");
  REQUIRE(vocabulary.border() == WordBorder::prefix);
  const LanguageModel model = LanguageModel::parse(
      "\\data\\\nngram 1=7\nngram 2=4\n\\1-grams:\n"
      "-2\t<unk>\n-99\t<s>\t-0.3\n-0.9\t</s>\n"
      "-1.2\t\u2581\t-0.4\n-0.7\t\u2581a\t-0.2\n"
      "-0.9\ta\n-0.8\tb\t-0.1\n"
      "\\2-grams:\n-0.3\t<s> \u2581\n-0.2\t\u2581 b\n"
      "-0.5\tb \u2581\n-0.4\t\u2581a </s>\n\\end\\\n",
      "test");
  const Scores s = random_scores(5, 5, 17);
  const DecoderOptions o = everything(true);
  DecoderKnowledge k;
  k.language_model = model;
  const Decoder decoder(vocabulary, o, k);
  REQUIRE(decoder.unit() == ModelUnit::tokens);
  Expected expected;
  for (const auto& [labels, p] : all_sequences(s, 0, true)) {
    // A mark by itself counts where a piece that has none follows.
    std::vector<std::string> tokens;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool counts = labels[i] != 1 || (i + 1 < labels.size() && labels[i + 1] > 2);
      if (counts) tokens.push_back(names[static_cast<size_t>(labels[i])]);
    }
    expected.add(vocabulary.text(labels), p, lm_score(model, tokens, o), true);
  }
  compare(s, decoder, expected);
}

TEST_CASE("a stream of any pieces ends with the bits of the whole, and what was stable stays",
          "[decoder]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Scores s = random_scores(300, 4, 21, 4);
  DecoderOptions o;
  o.beam = 20;
  o.nbest = 5;
  DecoderKnowledge k;
  k.language_model = model;
  k.hot_words = {{"ab a", 1}};
  const Decoder decoder(vocabulary, o, k);
  const auto whole = decoder.decode(s.values.data(), s.frames);
  for (const int32_t piece : {1, 7, 299}) {
    DecoderStream stream(decoder);
    std::string stable;
    for (int32_t t = 0; t < s.frames; t += piece) {
      stream.accept(s.values.data() + t * s.classes, std::min(piece, s.frames - t));
      const DecoderStream::Partial p = stream.partial();
      CHECK(p.stable.starts_with(stable));
      CHECK(p.text.starts_with(p.stable));
      stable = p.stable;
    }
    const auto texts = stream.finish();
    REQUIRE(texts.size() == whole.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      CHECK(texts[i].text == whole[i].text);
      CHECK(texts[i].score == whole[i].score);
    }
    CHECK(texts[0].text.starts_with(stable));
    CHECK(!stable.empty());
    // As new.
    stream.accept(s.values.data(), s.frames);
    CHECK(stream.finish()[0].score == whole[0].score);
  }
}

TEST_CASE("a long search throws away what it does not need", "[decoder]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Scores s = random_scores(20000, 4, 22, 8);
  DecoderOptions o;
  o.beam = 16;
  const auto found = Decoder(vocabulary, o).decode(s.values.data(), s.frames);
  // The last part by itself, since what was there is far behind.
  const auto end = Decoder(vocabulary, o).decode(s.values.data() + 19000 * 4, 1000);
  CHECK(found[0].text.ends_with(end[0].text.substr(end[0].text.size() - 50)));
}

TEST_CASE("a text that only zero probabilities lead to", "[decoder]") {
  const float none = -std::numeric_limits<float>::infinity();
  const Vocabulary vocabulary(spaced, {}, "", "test");
  DecoderKnowledge k;
  k.lexicon = {{"ab", {2, 3}}};
  // Nothing but "b" is possible, and no word is that.
  const float row[] = {none, none, none, 0};
  const auto found = Decoder(vocabulary, {}, k).decode(row, 1);
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.empty());
  CHECK(found[0].score == none);
  // A word that is not over is left out where no other is.
  const float begun[] = {none, none, 0, none};
  const auto half = Decoder(vocabulary, {}, k).decode(begun, 1);
  CHECK(half[0].text.empty());
  CHECK(half[0].score > -10);
}

TEST_CASE("a list of known words has each once, as it is written", "[lexicon]") {
  const std::string huge(1 << 20, 'h');
  CHECK(parse_known_words("\xef\xbb\xbf"
                          "b\r\n\r\n a b\t\nb\n" +
                              huge + "\ne\xcc\x81",
                          "u") == std::vector<std::string>{"a b", "b", "e\xcc\x81", huge});
  CHECK(parse_known_words("", "u").empty());
  CHECK(parse_known_words("\r\n \n", "u").empty());
  CHECK_THROWS_WITH(parse_known_words("a\n\xff" + huge, "u"),
                    Catch::Equals("u:2: is not valid UTF-8"));
}

TEST_CASE("lexicons and hot words that are wrong name the line", "[lexicon]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const auto lexicon = parse_lexicon("ab\ta b\nab a a b  \n\nb\nba b a\r\n", vocabulary, "l");
  CHECK(lexicon ==
        std::vector<Spelling>{{"ab", {2, 3}}, {"ab", {2, 2, 3}}, {"b", {3}}, {"ba", {3, 2}}});
  using Catch::Contains;
  CHECK_THROWS_WITH(parse_lexicon("a a\nac a c\n", vocabulary, "l"),
                    Contains("l:2: the model has no token 'c'"));
  CHECK_THROWS_WITH(parse_lexicon("abc\n", vocabulary, "l"), Contains("l:1: 'abc' has no tokens"));
  CHECK_THROWS_WITH(parse_lexicon("\n\n", vocabulary, "l"), Contains("l: holds no words"));
  CHECK_THROWS_WITH(parse_lexicon("\v a\n", vocabulary, "l"), Contains("l:1: "));
  CHECK_THROWS_WITH(parse_lexicon("b\xc2\xa0"
                                  "a a\n",
                                  vocabulary, "l"),
                    Contains("is no word"));
  CHECK_THROWS_WITH(parse_lexicon("\xff a\n", vocabulary, "l"), Contains("l:1: "));
  // What separates words is in none, though it is a token.
  const Vocabulary bars({"<blank>", "|", "a", "b"}, {}, "", "test");
  CHECK(bars.spell("ab") == std::vector<int32_t>{2, 3});
  for (const char* word : {"|", "a|", "|a", "a|b"}) CHECK_FALSE(bars.spell(word));
  CHECK_THROWS_WITH(parse_lexicon("a\na|b\n", bars, "l"), Contains("l:2: 'a|b' has no tokens"));
  CHECK_THROWS_WITH(parse_lexicon("a a | b\n", bars, "l"), Contains("'|' separates words"));
  CHECK(parse_lexicon("a a |\na\ta b | \n", bars, "l") ==
        std::vector<Spelling>{{"a", {2}}, {"a", {2, 3}}});
  // CMUdict's comments, and its numbers of other ways to say a word; Kaldi's probabilities.
  CHECK(parse_lexicon(";;; a b\nab  a b # b\nab(1)  b b\nab(x) b\n", vocabulary, "l") ==
        std::vector<Spelling>{{"ab", {2, 3}}, {"ab", {3, 3}}, {"ab(x)", {3}}});
  CHECK(parse_lexicon("a(1)\n(1) a\n()2 b\n",
                      Vocabulary({"<blank>", " ", "a", "b", "(", "1", ")"}, {}, "", "test"), "l") ==
        std::vector<Spelling>{{"a(1)", {2, 4, 5, 6}}, {"(1)", {2}}, {"()2", {3}}});
  CHECK_THROWS_WITH(parse_lexicon("ab 0.5 a b\n", vocabulary, "l"),
                    Contains("l:1: the model has no token '0.5'; probabilities, as Kaldi's"));
  const auto hot = parse_hot_words("new york\nab\t-2.5\n", 7, "h");
  CHECK(hot == std::vector<HotWord>{{"new york", 7}, {"ab", -2.5}});
  // A weight is that of its line; empty lines, lines twice and several spaces.
  CHECK(parse_hot_words("ab\t-2.5\n\n \nnew  york \r\nab\t 0 \nab\nab", 7, "h") ==
        std::vector<HotWord>{{"ab", -2.5}, {"new york", 7}, {"ab", 0}, {"ab", 7}, {"ab", 7}});
  CHECK_THROWS_WITH(parse_hot_words("a\nab\tx\n", 1, "h"), Contains("h:2: the weight is 'x'"));
  CHECK_THROWS_WITH(parse_hot_words("\t3\n", 1, "h"), Contains("h:1: has a weight and no word"));
  CHECK_THROWS_WITH(parse_hot_words("ab\tnan\n", 1, "h"), Contains("the weight is 'nan'"));

  DecoderOptions o;
  o.lm_weight = -1;
  CHECK_THROWS_AS(Decoder(vocabulary, o), Error);
}

TEST_CASE("a language model whose words the tokens cannot spell is warned of", "[decoder]") {
  DecoderKnowledge k;
  k.language_model = LanguageModel::parse(word_model, "test");
  const Vocabulary upper({"<blank>", " ", "A", "B"}, {}, "", "test");
  CHECK(Decoder(upper, {}, k).warnings().size() == 1);
  const Vocabulary lower(spaced, {}, "", "test");
  CHECK(Decoder(lower, {}, k).warnings().empty());
  k.hot_words = {{"ab", 1}, {"a Ba", 1}, {"c", 1}};
  const auto warnings = Decoder(lower, {}, k).warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "the model's tokens cannot spell 2 of 3 hot words: 'a Ba', 'c'");
}

TEST_CASE("tuning finds weights that make fewer errors, and the middle of equally good ones",
          "[tuning]") {
  // "b" is what is said and the outputs prefer "ab" a little: a weight is needed, not too small.
  const Scores s{2, 4, {-9, -9, 1.3F, 1, -9, -9, -9, 3}};
  const std::vector<KnownOutputs> data = {{s.values, "b"}, {s.values, "b"}};
  const Vocabulary vocabulary({"<blank>", " ", "a", "b"}, {}, "", "test");
  DecoderKnowledge k;
  k.language_model = LanguageModel::parse(word_model, "test");
  DecoderOptions o;
  o.unknown_score = 0;
  ThreadPool threads(2);
  TuningOptions tuning;
  tuning.lm_weights = {0, 0.1, 1, 2};
  tuning.word_scores = {-1, 0, 1};
  int tried = 0;
  const TriedWeights best =
      tune_weights(data, vocabulary, o, k, tuning, threads, [&](const TriedWeights&) { ++tried; });
  CHECK(tried == 12);
  CHECK(best.errors.words().errors() == 0);
  CHECK(best.lm_weight >= 1);
  CHECK(best.word_score == 0);
  const Decoder without(vocabulary, o);
  CHECK(errors_of(data, vocabulary, &without, threads).words().errors() == 2);
  CHECK(errors_of(data, vocabulary, nullptr, threads).words().errors() == 2);
  const std::vector<KnownOutputs> unknown = {{s.values, ""}};
  CHECK_THROWS_WITH(tune_weights(unknown, vocabulary, o, k, tuning, threads, {}),
                    Catch::Contains("none of the 1 utterances has a text"));
}
