// How sure words and labels are, beside values that are worked out by hand.
#include <cmath>
#include <limits>
#include <map>

#include "engine/decode/transcript/confidence.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/transcript.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> values;
  for (const double p : probabilities) values.push_back(static_cast<float>(std::log(p)));
  return values;
}

const Vocabulary& letters() {
  static const Vocabulary v({"<blank>", " ", "a", "b"}, {}, "", "letters");
  return v;
}
// blank, space, a, b. Greedily "a b".
const std::vector<float>& frames() {
  static const std::vector<float> values = logs({
      0.10, 0.10, 0.50, 0.30,         // a
      0.05, 0.05, 0.80, 0.10,         // a
      0.20, 0.60, 0.10, 0.10,         // space
      0.10, 0.10, 0.40, 0.40 + 1e-3,  // b
  });
  return values;
}

}  // namespace

TEST_CASE("confidence of a label from its frames, by hand") {
  const std::vector<float> rows = logs({0.1, 0.1, 0.5, 0.3, 0.05, 0.05, 0.8, 0.1});
  const auto of = [&](const char* name) {
    return label_confidence(confidence_of(name), rows, 4, 2);
  };
  CHECK(of("mean") == Approx(0.65));
  CHECK(of("geometric") == Approx(std::sqrt(0.4)));
  CHECK(of("min") == Approx(0.5));
  CHECK(of("product") == Approx(0.4));
  // A wildcard has each frame's best class.
  CHECK(label_confidence(Confidence::product, rows, 4, -1) == Approx(0.4));
  CHECK(label_confidence(Confidence::product, rows, 4, 3) == Approx(0.03));
  // Logits need not be normalised.
  std::vector<float> shifted = rows;
  for (float& v : shifted) v += 3;
  CHECK(label_confidence(Confidence::mean, shifted, 4, 2) == Approx(0.65));
}

TEST_CASE("confidence of a word from its labels, by hand") {
  const double labels[] = {0.9, 0.4, 0.6};
  const auto of = [&](const char* name) { return word_confidence(confidence_of(name), labels); };
  CHECK(of("mean") == Approx(1.9 / 3));
  CHECK(of("geometric") == Approx(std::cbrt(0.216)));
  CHECK(of("min") == Approx(0.4));
  CHECK(of("product") == Approx(0.216));
  CHECK(of("entropy") == Approx(1.9 / 3));
}

TEST_CASE("confidence by entropy is 0 for even classes, 1 for a sure one") {
  const auto of = [](const std::vector<double>& p) {
    return label_confidence(Confidence::entropy, logs(p), static_cast<int64_t>(p.size()), 0);
  };
  CHECK(of({0.25, 0.25, 0.25, 0.25}) == Approx(0).margin(1e-7));
  CHECK(of({1, 0, 0, 0}) == Approx(1));
  CHECK(of({1}) == 1);
  // H = (2^(-1/3) + 2 4^(-1/3) - 1) / (2/3), M = (3^(2/3) - 1) / (2/3).
  const double h = (0.7937005260 + 2 * 0.6299605249 - 1) * 1.5, m = (2.0800838231 - 1) * 1.5;
  CHECK(of({0.5, 0.25, 0.25}) == Approx((std::exp(-h) - std::exp(-m)) / (1 - std::exp(-m))));
  CHECK(of({0.25, 0.25, 0.5}) == Approx(of({0.5, 0.25, 0.25})));
}

TEST_CASE("a frame in which nothing is known has no confidence, and no NaN") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> nothing[] = {
      {-infinite, -infinite}, {infinite, 0}, {std::nanf(""), 0}, {0, std::nanf("")}};
  for (const auto& row : nothing) {
    for (const std::string& name : confidence_names()) {
      if (name == "posterior") continue;
      INFO(name);
      CHECK(label_confidence(confidence_of(name), row, 2, 0) == 0);
    }
  }
  // One of two frames.
  const std::vector<float> half = {-infinite, -infinite, 0, -infinite};
  CHECK(label_confidence(Confidence::mean, half, 2, 0) == 0.5);
  CHECK(label_confidence(Confidence::geometric, half, 2, 0) == 0);
  CHECK_THROWS_AS(label_confidence(Confidence::posterior, half, 2, 0), Error);
  CHECK_THROWS_AS(word_confidence(Confidence::posterior, std::vector<double>{1}), Error);
  CHECK_THROWS_AS(confidence_of("maen"), Error);
}

TEST_CASE("transcripts and alignments have the confidence that was chosen") {
  const auto check = [](Confidence c, const std::vector<double>& labels,
                        const std::vector<double>& words) {
    const Transcript greedy = transcript_of(frames(), letters(), nullptr, 1, c);
    REQUIRE(greedy.text == "a b");
    const Decoder decoder(letters(), {.beam = 100});
    const Transcript found = transcript_of(frames(), letters(), &decoder, 1, c);
    REQUIRE(found.text == "a b");
    const SpelledText text = TextSpeller(letters(), {}).spell("a b", "text");
    const Transcript given = align_text(frames(), letters(), text, {.confidence = c}, 1).transcript;
    for (const Transcript* t : {&greedy, &found, &given}) {
      REQUIRE(t->characters.size() == labels.size());
      for (size_t i = 0; i < labels.size(); ++i)
        CHECK(t->characters[i].probability == Approx(labels[i]));
      REQUIRE(t->words.size() == words.size());
      for (size_t i = 0; i < words.size(); ++i) CHECK(t->words[i].probability == Approx(words[i]));
    }
  };
  const double b = 0.401 / 1.001;
  check(Confidence::mean, {0.65, 0.6, b}, {0.65, b});
  check(Confidence::min, {0.5, 0.6, b}, {0.5, b});
  check(Confidence::product, {0.4, 0.6, b}, {0.4, b});
  check(Confidence::geometric, {std::sqrt(0.4), 0.6, b}, {std::sqrt(0.4), b});
}

// Every text of two frames, with its probability, worked out by hand.
TEST_CASE("posteriors are the shares of the beam's texts that agree") {
  // blank, space, a, b; no frame has a space.
  const std::vector<float> scores = logs({0.2, 0, 0.5, 0.3, 0.4, 0, 0.1, 0.5});
  // a: .5 .4 + .2 .1 + .5 .1 = .27; b: .3 .4 + .2 .5 + .3 .5 = .37; ab: .25; ba: .03; "": .08
  DecoderOptions o{.beam = 100, .posteriors = true};
  const Decoder decoder(letters(), o);
  const auto texts = decoder.decode(scores.data(), 2);
  REQUIRE(texts.size() == 1);
  REQUIRE(texts[0].text == "b");
  REQUIRE(texts[0].word_posteriors.size() == 1);
  CHECK(texts[0].word_posteriors[0] == Approx(0.37));
  // Of the labels, the b of "ab" and of "ba" are the same.
  REQUIRE(texts[0].label_posteriors.size() == 1);
  CHECK(texts[0].label_posteriors[0] == Approx(0.37 + 0.25 + 0.03));

  o.nbest = 3;
  const auto more = Decoder(letters(), o).decode(scores.data(), 2);
  REQUIRE(more.size() == 3);
  REQUIRE(more[2].text == "ab");
  CHECK(more[0].word_posteriors == texts[0].word_posteriors);
  // "ba" agrees in neither place: two substitutions are as cheap as an insertion and a deletion.
  CHECK(more[2].label_posteriors[0] == Approx(0.27 + 0.25));
  CHECK(more[2].label_posteriors[1] == Approx(0.37 + 0.25));

  // In a beam of two the rest does not count.
  o.nbest = 1, o.beam = 2;
  const auto narrow = Decoder(letters(), o).decode(scores.data(), 2);
  REQUIRE(narrow[0].word_posteriors.size() == 1);
  CHECK(narrow[0].word_posteriors[0] > 0.37 + 0.1);

  const Transcript t = transcript_of(scores, letters(), &decoder, 1, Confidence::posterior);
  CHECK(t.words[0].probability == texts[0].word_posteriors[0]);
  CHECK(t.characters[0].probability == texts[0].label_posteriors[0]);
  const Decoder without(letters(), {.beam = 100});
  CHECK(without.decode(scores.data(), 2)[0].word_posteriors.empty());
  CHECK_THROWS_AS(transcript_of(scores, letters(), &without, 1, Confidence::posterior), Error);
  CHECK_THROWS_AS(transcript_of(scores, letters(), nullptr, 1, Confidence::posterior), Error);
}

TEST_CASE("the posterior of a word counts what the lexicon and the words' weights say") {
  const std::vector<float> scores = logs({0.2, 0, 0.5, 0.3, 0.4, 0, 0.1, 0.5});
  DecoderOptions o{.beam = 100, .word_score = 0, .posteriors = true};
  DecoderKnowledge k;
  k.lexicon = {{"x", {2}}, {"y", {3}}, {"y", {2, 3}}};
  const auto texts = Decoder(letters(), o, k).decode(scores.data(), 2);
  // "y" is b and ab, "x" a, and there is the empty text.
  REQUIRE(texts[0].text == "y");
  CHECK(texts[0].word_posteriors[0] == Approx((0.37 + 0.25) / (0.37 + 0.25 + 0.27 + 0.08)));
  o.word_score = std::log(2);
  const auto doubled = Decoder(letters(), o, k).decode(scores.data(), 2);
  CHECK(doubled[0].word_posteriors[0] ==
        Approx(2 * (0.37 + 0.25) / (2 * (0.37 + 0.25 + 0.27) + 0.08)));
}
