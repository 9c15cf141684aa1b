// Searches with hot words beside the scores of all texts that there are.
#include "tests/decode/all_texts.h"

using namespace rondo;

TEST_CASE("hot words without any list of words, and where there are no words", "[decoder]") {
  const Scores s = random_scores(5, 4, 11);
  DecoderKnowledge k;
  k.hot_words = {{"ab", 2}, {"b", 0.5}, {"a b", 1}, {"ba b", 1}};
  const DecoderOptions o = everything(true);
  const Vocabulary with_spaces(spaced, {}, "", "test");
  Expected expected;
  for (const auto& [labels, p] : all_sequences(s, 0, true)) {
    const std::string text = with_spaces.text(labels);
    expected.add(text, p, hot_score(k.hot_words, split_words(text)), true);
  }
  compare(s, Decoder(with_spaces, o, k), expected);

  // Anywhere, overlapping too.
  const Vocabulary without({"<blank>", "c", "a", "b"}, {}, "none", "test");
  k.hot_words = {{"ab", 2}, {"b", 0.5}, {"aba", 1}};
  Expected anywhere;
  for (const auto& [labels, p] : all_sequences(s, 0, true)) {
    const std::string text = without.text(labels);
    double worth = 0;
    for (const HotWord& h : k.hot_words)
      for (size_t at = 0; (at = text.find(h.phrase, at)) != std::string::npos; ++at)
        worth += h.weight;
    anywhere.add(text, p, worth, true);
  }
  compare(s, Decoder(without, o, k), anywhere);
}

TEST_CASE("a hot word that the lexicon does not have is no word", "[decoder]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Scores s = random_scores(5, 4, 3);
  DecoderKnowledge k;
  k.lexicon = {{"a", {2}}, {"ab", {2, 3}}};
  DecoderOptions o = everything(true);
  const auto without = Decoder(vocabulary, o, k).decode(s.values.data(), s.frames);
  k.hot_words = {{"ba", 9}, {"a ba", 9}, {"b\x1b", 1}};
  const Decoder decoder(vocabulary, o, k);
  REQUIRE(decoder.warnings().size() == 1);
  CHECK(decoder.warnings()[0] ==
        "the lexicon does not have 3 of 3 hot words, which will not be found: 'ba', 'a ba', "
        "'b\\x1b'");
  const auto found = decoder.decode(s.values.data(), s.frames);
  REQUIRE(found.size() == without.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].text == without[i].text);
    CHECK(found[i].score == Approx(without[i].score));
  }
}

TEST_CASE("a decoder with other hot words is as one that was made with them", "[decoder]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  const Vocabulary joined_up({"<blank>", "c", "a", "b"}, {}, "none", "test");
  const Scores s = random_scores(30, 4, 3);
  const std::vector<HotWord> hot[] = {{{"ab", 2}, {"b a", 1}}, {}, {{"bb", 5}, {"a", -3}}};
  DecoderKnowledge nothing, words, lexicon;
  words.language_model = LanguageModel::parse(word_model, "test");
  lexicon.lexicon = {{"a", {2}}, {"ab", {2, 3}}, {"b", {3}}};
  for (const Vocabulary* v : {&vocabulary, &joined_up}) {
    for (DecoderKnowledge k : {nothing, words, lexicon}) {
      DecoderOptions o;
      o.beam = 5;
      o.nbest = 5;
      o.unit = ModelUnit::words;
      k.hot_words = hot[0];
      const Decoder first(*v, o, k);
      for (const auto& other : hot) {
        k.hot_words = other;
        const Decoder made(*v, o, k), changed = first.with_hot_words(other);
        CHECK(changed.warnings() == made.warnings());
        const auto expected = made.decode(s.values.data(), s.frames);
        DecoderStream stream(changed);
        stream.accept(s.values.data(), s.frames);
        const auto found = stream.finish();
        REQUIRE(found.size() == expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK(found[i].text == expected[i].text);
          CHECK(found[i].score == expected[i].score);
        }
      }
      // The first is what it was.
      k.hot_words = hot[0];
      CHECK(first.decode(s.values.data(), s.frames)[0].score ==
            Decoder(*v, o, k).decode(s.values.data(), s.frames)[0].score);
    }
  }
}
