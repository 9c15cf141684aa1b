// The search on a device beside the decoder on the CPU: the same texts and scores.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "engine/decode/batch_decoder.h"
#include "engine/text/greedy.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

struct Batch {
  std::vector<std::vector<float>> scores;
  std::vector<BatchDecoder::Utterance> utterances;
};

// `holes`: of so many scores, one is -inf.
Batch random_batch(std::mt19937& random, int32_t classes, const std::vector<int32_t>& frames,
                   float spread, unsigned holes = 0) {
  std::normal_distribution<float> normal(0, spread);
  Batch b;
  for (const int32_t length : frames) {
    std::vector<float>& values = b.scores.emplace_back();
    for (int32_t i = 0; i < length * classes; ++i) {
      const bool is_hole = holes > 0 && i % classes != 0 && random() % holes == 0;
      values.push_back(is_hole ? -infinite : normal(random));
    }
  }
  for (size_t i = 0; i < frames.size(); ++i)
    b.utterances.push_back({b.scores[i].data(), frames[i]});
  return b;
}

std::vector<int32_t> random_lengths(std::mt19937& random, int32_t most) {
  std::vector<int32_t> frames(1 + random() % 6);
  for (int32_t& f : frames) f = static_cast<int32_t>(random() % static_cast<unsigned>(most + 1));
  return frames;
}

void check_same(double got, double want, double tolerance) {
  if (want == got) return;  // infinities among them
  CHECK(std::abs(got - want) <= tolerance);
}

// Everything but `labels` where two label sequences of a text are as probable.
void check_like_cpu(const Decoder& decoder, const Batch& b) {
  BatchDecoder device(decoder, require_device(DeviceKind::sim), 1);
  const auto all = device.decode(b.utterances);
  REQUIRE(all.size() == b.utterances.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const BatchDecoder::Utterance& u = b.utterances[i];
    const auto want = decoder.decode(u.scores, u.frames);
    REQUIRE(all[i].size() == want.size());
    // Of each frame's softmax V terms and two exponentials are rounded.
    const double tolerance = (u.frames + 1) * (decoder.vocabulary().classes() + 8) * 0x1p-52;
    for (size_t k = 0; k < want.size(); ++k) {
      CHECK(all[i][k].text == want[k].text);
      CHECK(all[i][k].labels == want[k].labels);
      CHECK(all[i][k].words == want[k].words);
      check_same(all[i][k].score, want[k].score, tolerance * (1 + std::abs(want[k].score)));
      check_same(all[i][k].log_probability, want[k].log_probability,
                 tolerance * (1 + std::abs(want[k].log_probability) + std::abs(want[k].score)));
      CHECK(all[i][k].lm_log10 == want[k].lm_log10);
      REQUIRE(all[i][k].word_posteriors.size() == want[k].word_posteriors.size());
      for (size_t w = 0; w < want[k].word_posteriors.size(); ++w)
        check_same(all[i][k].word_posteriors[w], want[k].word_posteriors[w], 1e-11);
    }
  }
}

Vocabulary letters(int32_t classes) {
  std::vector<std::string> tokens = {"<blank>", " "};
  while (static_cast<int32_t>(tokens.size()) < classes)
    tokens.push_back(std::string(1, static_cast<char>('a' + tokens.size() - 2)));
  return Vocabulary(tokens, {}, "", "letters");
}

// Trigrams of letters.
const char* const letter_model = R"(\data\
ngram 1=6
ngram 2=6
ngram 3=3

\1-grams:
-1.2	<unk>	0
-99	<s>	-0.4
-0.9	</s>
-0.5	a	-0.3
-0.7	b	-0.2
-0.6	<space>	-0.5

\2-grams:
-0.2	<s> a	-0.1
-0.4	a b	-0.3
-0.9	b a
-0.3	b <space>	-0.2
-0.8	<space> a
-0.5	b </s>

\3-grams:
-0.1	<s> a b
-0.25	a b <space>
-0.6	a b a

\end\
)";

// Bigrams of words.
const char* const word_model = R"(\data\
ngram 1=6
ngram 2=4

\1-grams:
-2	<unk>	0
-99	<s>	-0.4
-0.9	</s>
-0.8	ab	-0.3
-0.7	ba	-0.2
-1.1	c	-0.5

\2-grams:
-0.2	<s> ab
-0.4	ab ba
-0.9	ba ab
-0.5	c </s>

\end\
)";

}  // namespace

TEST_CASE("a device's search says what the CPU's does, over random scores", "[slow]") {
  std::mt19937 random(1);
  for (int round = 0; round < 120; ++round) {
    const int32_t classes = 2 + static_cast<int32_t>(random() % 8);
    DecoderOptions o;
    o.beam = std::vector<int32_t>{1, 2, 5, 20, 33, 100, 128}[random() % 7];
    o.nbest = 1 + static_cast<int32_t>(random() % 5);
    o.sum = random() % 4 != 0;
    o.posteriors = random() % 3 == 0;
    if (random() % 4 == 0) o.token_floor = std::log(0.05);
    if (random() % 4 == 0) o.score_range = 4;
    INFO("round " << round << ": " << classes << " classes, beam " << o.beam);
    const float spread = random() % 2 == 0 ? 2.0f : 6.0f;
    const Batch b = random_batch(random, classes, random_lengths(random, 40), spread,
                                 random() % 3 == 0 ? 3 : 0);
    check_like_cpu(Decoder(letters(classes), o), b);
  }
}

TEST_CASE("a device's search adds up all alignments, where the beam holds all prefixes") {
  constexpr int32_t classes = 3, frames = 5;
  const Vocabulary v({"<blank>", "a", "b"}, {}, "none", "two letters");
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    const Batch b = random_batch(random, classes, {frames}, 2);
    const auto log_probability = [&](int32_t t, int32_t c) {
      const float* row = &b.scores[0][static_cast<size_t>(t * classes)];
      double sum = 0;
      for (int32_t k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(row[k]));
      return row[c] - std::log(sum);
    };
    std::map<std::vector<int32_t>, double> wanted;
    for (int32_t path = 0; path < 243; ++path) {
      std::vector<int32_t> labels;
      double log = 0;
      for (int32_t t = 0, rest = path; t < frames; ++t, rest /= classes) {
        labels.push_back(rest % classes);
        log += log_probability(t, labels.back());
      }
      wanted[labels_of(collapse_ctc(labels, 0))] += std::exp(log);
    }
    BatchDecoder device(Decoder(v, {.beam = 128, .nbest = 128}), require_device(DeviceKind::sim),
                        1);
    const auto found = device.decode(b.utterances).front();
    REQUIRE(found.size() == wanted.size());
    for (const DecodedText& t : found)
      CHECK(t.score == Approx(std::log(wanted.at(t.labels))).epsilon(1e-13));
  }
}

TEST_CASE("a device's search of few frames and many, of none, of nothing but blanks", "[slow]") {
  const Decoder decoder(letters(5), {.beam = 50, .nbest = 3});
  std::mt19937 random(2);
  check_like_cpu(decoder, {});
  check_like_cpu(decoder, random_batch(random, 5, {0}, 2));
  check_like_cpu(decoder, random_batch(random, 5, {0, 1, 0, 1}, 2));
  check_like_cpu(decoder, random_batch(random, 5, {3, 400, 0, 77}, 3));
  Batch blank = random_batch(random, 5, {9, 4}, 1);
  for (auto& scores : blank.scores)
    for (size_t i = 0; i < scores.size(); ++i)
      if (i % 5 != 0) scores[i] = -infinite;
  check_like_cpu(decoder, blank);
}

TEST_CASE("a device's search goes by the best of equal texts, and their sums are the CPU's") {
  // All classes alike: many texts are as probable, and which is first is not told.
  const Decoder decoder(letters(4), {.beam = 100, .nbest = 100});
  const std::vector<float> even(4 * 4, 0.5f);
  const BatchDecoder::Utterance u{even.data(), 4};
  BatchDecoder device(decoder, require_device(DeviceKind::sim), 1);
  const auto got = device.decode({&u, 1}).front(), want = decoder.decode(even.data(), 4);
  REQUIRE(got.size() == want.size());
  for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].score == Approx(want[k].score));
}

TEST_CASE("a device's search knows what the decoder knows", "[slow]") {
  std::mt19937 random(3);
  const auto check = [&](const DecoderOptions& o, const DecoderKnowledge& k, int32_t classes = 5) {
    for (int round = 0; round < 8; ++round) {
      INFO("round " << round);
      const Batch b = random_batch(random, classes, random_lengths(random, 30), 2.5f);
      check_like_cpu(Decoder(letters(classes), o, k), b);
    }
  };
  for (const int32_t beam : {7, 60}) {
    INFO("beam " << beam);
    DecoderOptions o{.beam = beam, .nbest = 4};
    DecoderKnowledge tokens;
    tokens.language_model = LanguageModel::parse(letter_model, "letters.arpa");
    check(o, tokens);
    o.sentence_end = false;
    o.lm_weight = 1.3;
    check(o, tokens);
    DecoderKnowledge hot;
    hot.hot_words = {{"ab", 3}, {"c a", -2}, {"abc", 4}};
    check(o, hot);
    hot.language_model = tokens.language_model;
    check(o, hot);
    DecoderKnowledge words;
    words.language_model = LanguageModel::parse(word_model, "words.arpa");
    check(o, words);
    words.lexicon = {{"ab", {2, 3}}, {"ba", {3, 2}}, {"c", {4}}, {"abc", {2, 3, 4}}};
    check(o, words);
    words.hot_words = {{"abc", 2}};
    check(o, words);
  }
}

TEST_CASE("a device's search stands scores that are far apart, as the CPU's does", "[slow]") {
  std::mt19937 random(6);
  DecoderKnowledge k;
  k.lexicon = {{"ab", {2, 3}}, {"c", {4}}};
  for (const float spread : {30.0f, 150.0f, 300.0f, 1e4f}) {
    for (int round = 0; round < 6; ++round) {
      INFO("spread " << spread << ", round " << round);
      const Batch b = random_batch(random, 5, random_lengths(random, 25), spread);
      check_like_cpu(Decoder(letters(5), {.beam = 30, .nbest = 3}), b);
      check_like_cpu(Decoder(letters(5), {.beam = 30, .nbest = 3}, k), b);
    }
  }
}

TEST_CASE("a device's search may be used again, with any size, and of scores in its memory") {
  Device& sim = require_device(DeviceKind::sim);
  const Decoder decoder(letters(6), {.beam = 20, .nbest = 2});
  BatchDecoder device(decoder, sim, 2);
  std::mt19937 random(4);
  for (const auto& frames : {std::vector<int32_t>{5, 3}, {40, 2, 17}, {1}, {12, 12}}) {
    const Batch b = random_batch(random, 6, frames, 2);
    const auto got = device.decode(b.utterances);
    for (size_t i = 0; i < frames.size(); ++i)
      CHECK(got[i][0].text == decoder.decode(b.scores[i].data(), frames[i])[0].text);
  }
  // Packed: frame 0 of both, frame 1 of both, frame 2 of the first.
  const Batch b = random_batch(random, 6, {3, 2}, 2);
  const PackedHost layout = build_packed(std::vector<int32_t>{3, 2});
  std::vector<float> rows;
  for (const auto& [n, t] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}})
    for (int c = 0; c < 6; ++c)
      rows.push_back(b.scores[static_cast<size_t>(n)][static_cast<size_t>(t * 6 + c)]);
  Stream stream = sim.make_stream();
  const Buffer scores(sim, rows.size() * sizeof(float), "scores");
  sim.copy(stream, scores.data(), rows.data(), scores.bytes());
  const auto got = device.decode(stream, layout, scores.as<float>());
  for (size_t i = 0; i < 2; ++i) {
    const auto want = decoder.decode(b.scores[i].data(), b.utterances[i].frames);
    CHECK(got[i][0].text == want[0].text);
    CHECK(got[i][0].score == Approx(want[0].score).epsilon(1e-13));
  }
}

TEST_CASE("what a device's search does not take is told") {
  using Catch::Matchers::Contains;
  Device& sim = require_device(DeviceKind::sim);
  const auto make = [&](const Vocabulary& v, const DecoderOptions& o,
                        const DecoderKnowledge& k = {}) {
    BatchDecoder device(Decoder(v, o, k), sim, 1);
  };
  CHECK_THROWS_WITH(make(letters(4), {.beam = 129}), Contains("takes 128 at most"));
  std::vector<std::string> many = {"<blank>"};
  for (int i = 0; i < 1024; ++i) many.push_back(str("t", i));
  CHECK_THROWS_WITH(make(Vocabulary(many, {}, "", "many"), {}), Contains("1025 tokens"));
  DecoderKnowledge homophones;
  homophones.lexicon = {{"to", {2}}, {"two", {2}}};
  CHECK_THROWS_WITH(make(letters(4), {}, homophones), Contains("two words are spelled alike"));
  CHECK_THROWS_AS(BatchDecoder(Decoder(letters(4), {}), cpu_device()), Error);

  const Decoder decoder(letters(4), {.beam = 9});
  BatchDecoder device(decoder, sim, 1);
  std::vector<float> scores(5 * 4, 0);
  scores[2 * 4 + 3] = std::nanf("");
  const std::vector<float> good(9 * 4, 0);
  const BatchDecoder::Utterance u[] = {{good.data(), 9}, {scores.data(), 5}};
  CHECK_THROWS_WITH(device.decode(u), Contains("utterance 1: frame 2 holds a NaN score"));
  scores[2 * 4 + 3] = infinite;
  CHECK_THROWS_WITH(device.decode(u), Contains("no finite largest"));
  scores[2 * 4 + 3] = 0;
  CHECK(device.decode(u).size() == 2);
}
