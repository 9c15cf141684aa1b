// Searches with hot words beside the scores of all texts that there are.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "engine/decode/phrase_matcher.h"
#include "tests/decode/all_texts.h"

using namespace rondo;

namespace {

// Among them phrases that are listed twice, begin like others, overlap themselves, weigh nothing or
// less, and hold more spaces than they need.
const std::vector<std::vector<HotWord>> phrases = {
    {{"ab", 2}, {"b", 0.5}, {"a b", 1}, {"ba b", 1}},
    {{"ab", 4}, {"a  b ", 3}, {"ab", -1}, {"a b", 1.5}},
    {{"a a", 1}, {"a", 0}, {"aa", 0.75}, {"a a a", -2}},
    {{"b", -0.5}, {"b b", 1.25}, {"b", -0.25}, {"bb", 3}, {"bb", 0}},
};

}  // namespace

TEST_CASE("hot words without any list of words, and where there are no words", "[decoder]") {
  const Scores s = random_scores(5, 4, 11);
  DecoderKnowledge k;
  const DecoderOptions o = everything(true);
  const Vocabulary with_spaces(spaced, {}, "", "test");
  for (const auto& hot : phrases) {
    k.hot_words = hot;
    Expected expected;
    for (const auto& [labels, p] : all_sequences(s, 0, true)) {
      const std::string text = with_spaces.text(labels);
      expected.add(text, p, hot_score(hot, split_words(text)), true);
    }
    compare(s, Decoder(with_spaces, o, k), expected);
  }

  // Anywhere, overlapping too.
  const Vocabulary without({"<blank>", "c", "a", "b"}, {}, "none", "test");
  for (const std::vector<HotWord>& hot : {std::vector<HotWord>{{"ab", 2}, {"b", 0.5}, {"aba", 1}},
                                          {{"aa", 1}, {"a", 0.25}, {"aaa", -1}, {"aa", 0.5}}}) {
    k.hot_words = hot;
    std::map<std::string, double> weights;
    for (const HotWord& h : hot) weights[h.phrase] = h.weight;
    Expected anywhere;
    for (const auto& [labels, p] : all_sequences(s, 0, true)) {
      const std::string text = without.text(labels);
      double worth = 0;
      for (const auto& [phrase, weight] : weights)
        for (size_t at = 0; (at = text.find(phrase, at)) != std::string::npos; ++at)
          worth += weight;
      anywhere.add(text, p, worth, true);
    }
    compare(s, Decoder(without, o, k), anywhere);
  }
}

TEST_CASE("a phrase that is listed twice is as if its last line stood alone", "[decoder]") {
  // Also in a narrow beam, which what has begun of a phrase decides about.
  const Vocabulary with_spaces(spaced, {}, "", "test");
  const Vocabulary without({"<blank>", "c", "a", "b"}, {}, "none", "test");
  DecoderKnowledge nothing, model, lexicon;
  model.language_model = LanguageModel::parse(word_model, "test");
  lexicon.lexicon = {{"a", {2}}, {"ab", {2, 3}}, {"b", {3}}, {"aab", {2, 2, 3}}};
  const std::vector<HotWord> twice = {
      {"aab", 20}, {"a ab", 9}, {"b", 1}, {"aab", 0.5}, {"a ab", -1}};
  const std::vector<HotWord> once = {{"b", 1}, {"aab", 0.5}, {"a ab", -1}};
  for (const DecoderKnowledge& k : {nothing, model, lexicon}) {
    for (const int32_t beam : {2, 5}) {
      DecoderOptions o;
      o.beam = beam;
      const Decoder decoder(with_spaces, o, k);
      for (unsigned seed = 0; seed < 10; ++seed) {
        const Scores s = random_scores(40, 4, seed);
        const auto found = decoder.with_hot_words(twice).decode(s.values.data(), s.frames);
        const auto expected = decoder.with_hot_words(once).decode(s.values.data(), s.frames);
        CHECK(found[0].text == expected[0].text);
        CHECK(found[0].score == expected[0].score);
      }
    }
  }
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

TEST_CASE("what phrases are worth is counted as defined, after each symbol", "[decoder]") {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    std::map<std::vector<int32_t>, double> worth;
    const size_t count = 1 + random() % 5;
    while (worth.size() < count) {
      std::vector<int32_t> symbols(1 + random() % 4);
      for (int32_t& s : symbols) s = static_cast<int32_t>(random() % 2);
      worth[symbols] = 0.25 * static_cast<double>(1 + random() % 20);
    }
    std::vector<decode::PhraseMatcher::Phrase> listed;
    for (const auto& [symbols, weight] : worth) listed.push_back({symbols, weight});
    const decode::PhraseMatcher matcher(listed);
    std::vector<int32_t> seen;
    int32_t state = 0;
    double gain = 1, whole = 0;
    for (int n = 0; n < 12; ++n) {
      seen.push_back(static_cast<int32_t>(random() % 2));
      state = matcher.step(state, seen.back(), gain);
      double begun = 0;
      for (const auto& [symbols, weight] : worth) {
        const size_t length = symbols.size();
        for (size_t k = 1; k <= std::min(length, seen.size()); ++k) {
          if (!std::equal(symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(k),
                          seen.end() - static_cast<ptrdiff_t>(k)))
            continue;
          if (k == length) whole += weight;
          if (k < length)
            begun = std::max(begun, weight * static_cast<double>(k) / static_cast<double>(length));
        }
      }
      CHECK(std::log(gain) == Approx(whole + begun).margin(1e-9));
    }
  }
}
