// Utterances of outputs that go on: where they end, that what was told stays, and the memory.
#include <malloc.h>

#include <limits>
#include <random>

#include "engine/decode/transcript/transcript_stream.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/decode/all_texts.h"

using namespace rondo;

namespace {

// Outputs that say these classes, so surely.
std::vector<float> saying(const std::vector<int32_t>& path, int32_t classes, float sure = 9) {
  std::vector<float> rows;
  for (const int32_t label : path) {
    rows.resize(rows.size() + static_cast<size_t>(classes), 0);
    rows[rows.size() - static_cast<size_t>(classes - label)] = sure;
  }
  return rows;
}

// As a model's outputs are: labels of one or two frames between blanks, and pauses.
Scores speech(int32_t frames, int32_t classes, unsigned seed, float noise = 2) {
  std::mt19937 random(seed);
  Scores s = random_scores(frames, classes, seed, noise);
  std::vector<int32_t> path;
  while (static_cast<int32_t>(path.size()) < frames) {
    const auto label = static_cast<int32_t>(1 + random() % static_cast<unsigned>(classes - 1));
    path.insert(path.end(), 1 + random() % 2, label);
    path.insert(path.end(), random() % 12 == 0 ? random() % 40 : random() % 3, 0);
  }
  path.resize(static_cast<size_t>(frames));
  const std::vector<float> clear = saying(path, classes, 5);
  for (size_t i = 0; i < clear.size(); ++i) s.values[i] += clear[i];
  return s;
}

struct Heard {
  std::vector<StreamedTranscript> all;  // the last one too
  std::string told;                     // with what was missing of the last
};

// In pieces of so many frames, looking at what is final behind each.
Heard hear(TranscriptStream& stream, const Scores& s, int32_t piece) {
  Heard h;
  std::string stable;
  for (int32_t t = 0; t < s.frames; t += piece) {
    h.told += stream.accept(s.values.data() + t * s.classes, std::min(piece, s.frames - t));
    for (const StreamedTranscript& u : stream.ended()) {
      CHECK(u.text.starts_with(stable));
      stable.clear();
      h.all.push_back(u);
    }
    const TranscriptStream::Partial p = stream.partial();
    CHECK(p.stable.starts_with(stable));
    CHECK(p.text.starts_with(p.stable));
    stable = p.stable;
  }
  h.all.push_back(stream.finish());
  CHECK(h.all.back().text.starts_with(stable));
  h.told += h.all.back().text.substr(h.all.back().told);
  return h;
}

std::string lines(const std::vector<StreamedTranscript>& all) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) text += all[i].text + (i + 1 < all.size() ? "\n" : "");
  return text;
}

std::string ended_text(const Vocabulary& vocabulary, const EndpointOptions& o,
                       const std::vector<int32_t>& path) {
  TranscriptStream stream(vocabulary, nullptr, 0.1, Confidence::mean, o);
  const std::vector<float> rows = saying(path, vocabulary.classes());
  static_cast<void>(stream.accept(rows.data(), static_cast<int32_t>(path.size())));
  std::string text;
  for (const StreamedTranscript& u : stream.ended())
    text += str(u.text, " ", std::lround(u.begin * 10), "-", std::lround(u.end * 10), "; ");
  return text + stream.finish().text;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int32_t> times(size_t count, const std::vector<int32_t>& part) {
  std::vector<int32_t> all;
  for (size_t i = 0; i < count; ++i) all = all + part;
  return all;
}

}  // namespace

TEST_CASE("an utterance ends at a silence behind speech, sooner the longer it is", "[stream]") {
  const Vocabulary v(spaced, {}, "", "test");
  const std::vector<int32_t> blank{0}, a{2}, space{1};
  const auto silence = [&](size_t frames) { return times(frames, blank); };
  // A second of silence, separators among it; a frame less does not end it.
  const EndpointOptions usual{1, 30};
  CHECK(ended_text(v, usual, a + silence(9) + a) == "aa");
  CHECK(ended_text(v, usual, a + silence(10) + a) == "a 0-11; a");
  CHECK(ended_text(v, usual, a + silence(4) + space + silence(5) + a) == "a 0-11; a");
  // Silence before speech is of no utterance, and ends none.
  CHECK(ended_text(v, usual, silence(27) + a + silence(10)) == "a 20-38; ");
  CHECK(ended_text(v, {0, 0}, a + silence(5000) + a) == "aa");
  CHECK(ended_text(v, {0, 30}, a + silence(100) + a) == "aa");
  // With a longest of 20 seconds 0.59 are enough at 14.1, and 0.2 at the end.
  const std::vector<int32_t> speech = times(68, a + blank);
  const std::string said(68, 'a');
  CHECK(ended_text(v, {1, 20}, speech + silence(11) + a) == said + " 0-141; a");
  CHECK(ended_text(v, {1, 20}, times(72, a + blank) + silence(4) + a).find(';') ==
        std::string::npos);
  CHECK(ended_text(v, {1, 20}, times(74, a + blank) + silence(4) + a) ==
        std::string(74, 'a') + " 0-152; a");
  CHECK(ended_text(v, {1, 20}, times(98, a + blank) + silence(1) + a) ==
        std::string(98, 'a') + " 0-197; a");
  // Speech without a pause ends at a blank behind the longest, or, without one, at twice that.
  CHECK(ended_text(v, {1, 20}, times(120, a + blank)) ==
        std::string(100, 'a') + " 0-200; " + std::string(20, 'a'));
  CHECK(ended_text(v, {1, 2}, times(25, {2, 3})) ==
        "abababababababababababababababababababab 0-40; ababababab");
}

TEST_CASE("of a stream the whole is told, none of it changes, and texts are as by themselves",
          "[slow][stream]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  struct Case {
    std::vector<std::string> tokens;
    bool has_model;
    std::vector<std::string> lexicon, hot_words;
  };
  const std::vector<std::string> pieces = {"<blank>", "\u2581a", "b", "\u2581", "ab"};
  const std::vector<std::string> continued = {"[PAD]", "a", "##b", "b", "##a"};
  const std::vector<std::string> bytes = {"<blank>", " ", "a", "<0xC3>", "<0xA9>", "<0xE5>"};
  const Case cases[] = {
      {spaced, false, {}, {}},
      {spaced, true, {}, {"ab a"}},
      {spaced, true, {"a", "ab"}, {}},
      {pieces, false, {}, {}},
      {pieces, true, {}, {"ab", "b"}},
      {continued, true, {}, {}},
      {bytes, false, {}, {"\u00e9a"}},
      {{"-", "a", "b", "c"}, false, {}, {}},
      {{"<blank>", "aa", "ee"}, false, {}, {}},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    const Case& c = cases[i];
    const Vocabulary vocabulary(c.tokens, 0, "", "test");
    DecoderKnowledge k;
    if (c.has_model) k.language_model = model;
    for (const std::string& w : c.lexicon) k.lexicon.push_back({w, vocabulary.spell(w).value()});
    for (const std::string& w : c.hot_words) k.hot_words.push_back({w, 1});
    DecoderOptions o;
    o.beam = 8;
    o.nbest = 2;
    const Decoder decoder(vocabulary, o, k);
    const Scores s = speech(1500, vocabulary.classes(), static_cast<unsigned>(i), 1);
    for (const Decoder* by : {static_cast<const Decoder*>(nullptr), &decoder}) {
      CAPTURE(i, by != nullptr);
      TranscriptStream stream(vocabulary, by, 0.04, Confidence::mean, {0.6, 8});
      const Heard heard = hear(stream, s, 1);
      CHECK(heard.all.size() > 8);
      CHECK(heard.told == lines(heard.all));
      // The same in other pieces; the stream is as new.
      for (const int32_t piece : {7, 1500}) {
        const Heard again = hear(stream, s, piece);
        CHECK(again.told == heard.told);
        REQUIRE(again.all.size() == heard.all.size());
      }
      for (const StreamedTranscript& u : heard.all) {
        const auto first = std::lround(u.begin / 0.04), end = std::lround(u.end / 0.04);
        REQUIRE(u.frames == end - first);
        CHECK(u.frames <= 8 / 0.04 * 2);
        std::vector<float> own(s.values.begin() + first * s.classes,
                               s.values.begin() + end * s.classes);
        CHECK(u.logits == own);
        const Transcript t = transcript_of(own, vocabulary, by, 0.04);
        CHECK(u.text == t.text);
        REQUIRE(u.words.size() == t.words.size());
        for (size_t w = 0; w < t.words.size(); ++w) {
          CHECK(u.words[w].begin == Approx(t.words[w].begin + u.begin));
          CHECK(u.words[w].end == Approx(t.words[w].end + u.begin));
        }
        if (by && !t.words.empty())
          CHECK(u.alternatives[0].words[0].end == Approx(t.words[0].end + u.begin));
      }
    }
  }
}

TEST_CASE("a letter over which an utterance is cut is in the next one, too", "[stream]") {
  const Vocabulary v(spaced, {}, "", "test");
  DecoderOptions o;
  o.beam = 8;
  const Decoder decoder(v, o);
  const auto outputs = [&](const std::vector<int32_t>& path) {
    Scores s;
    s.frames = static_cast<int32_t>(path.size());
    s.classes = v.classes();
    s.values = saying(path, s.classes);
    return s;
  };
  std::string said;
  for (int i = 0; i < 19; ++i) said += "ab";
  // After 40 frames without a pause there is a cut, here within an a.
  const Scores cut = outputs(times(19, {2, 3}) + std::vector<int32_t>{2, 2, 2, 3, 0});
  const Scores held = outputs({0, 3, 2, 2}), held_on = outputs({2, 2, 3, 0});
  for (const Decoder* by : {static_cast<const Decoder*>(nullptr), &decoder}) {
    TranscriptStream stream(v, by, 0.1, Confidence::mean, {1, 2});
    for (const int32_t piece : {1, 7, 100}) {
      CAPTURE(by != nullptr, piece);
      const Heard heard = hear(stream, cut, piece);
      REQUIRE(heard.all.size() == 2);
      CHECK(heard.all[0].frames == 40);
      CHECK(heard.told == said + "a\nab");
      CHECK(heard.told == lines(heard.all));
      // So it is where one stream ends and another begins.
      CHECK(hear(stream, held, piece).told == "ba");
      CHECK(hear(stream, held_on, piece).told == "ab");
    }
  }
}

TEST_CASE("without ends a stream is what the whole is", "[stream]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  DecoderOptions o;
  o.beam = 8;
  const Decoder decoder(vocabulary, o);
  const Scores s = speech(1000, 4, 3);
  for (const Decoder* by : {static_cast<const Decoder*>(nullptr), &decoder}) {
    TranscriptStream stream(vocabulary, by, 0.04, Confidence::mean, {0, 0});
    const Heard heard = hear(stream, s, 10);
    REQUIRE(heard.all.size() == 1);
    CHECK(heard.all[0].text == transcript_of(s.values, vocabulary, by, 0.04).text);
    CHECK(heard.all[0].logits == s.values);
  }
}

TEST_CASE("what a stream is given is looked at", "[stream]") {
  const Vocabulary vocabulary(spaced, {}, "", "test");
  TranscriptStream stream(vocabulary, nullptr, 0.04);
  std::vector<float> rows = saying(times(40, {2, 0}), 4);
  rows.resize(rows.size() - 1);
  rows.push_back(std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_WITH(stream.accept(rows.data(), 80), Catch::Contains("frame 79 holds a NaN"));
  const Decoder other(Vocabulary({"<blank>", "a"}, {}, "", "test"), {});
  CHECK_THROWS_WITH(TranscriptStream(vocabulary, &other, 0.04),
                    Catch::Contains("a decoder for 2 classes with the blank 0, and outputs of 4"));
  CHECK_THROWS_WITH(TranscriptStream(vocabulary, nullptr, 0.04, Confidence::mean, {-1, 30}),
                    Catch::Contains("silence is -1"));
  // Seconds without outputs count.
  TranscriptStream late(vocabulary, nullptr, 0.1);
  late.skip(5);
  const std::vector<float> a = saying({0, 2}, 4);
  static_cast<void>(late.accept(a.data(), 2));
  CHECK(late.partial().text == "a");
  const StreamedTranscript t = late.finish();
  CHECK(t.begin == Approx(5));
  CHECK(t.characters.at(0).begin == Approx(5.1));
}

// Six hours; half of an hour first, so that everything is as large as it becomes.
TEST_CASE("a stream of hours keeps its memory", "[.hours]") {
  const LanguageModel model = LanguageModel::parse(word_model, "test");
  const Vocabulary vocabulary(spaced, {}, "", "test");
  DecoderOptions o;
  o.beam = 30;
  DecoderKnowledge k;
  k.language_model = model;
  k.hot_words = {{"ab a", 1}};
  const Decoder decoder(vocabulary, o, k);
  TranscriptStream stream(vocabulary, &decoder, 0.04);
  constexpr int32_t half_an_hour = 45000;
  const Scores s = speech(half_an_hour, 4, 3);
  size_t after_one = 0, utterances = 0, longest = 0;
  for (int part = 0; part < 12; ++part) {
    for (int32_t t = 0; t < half_an_hour; t += 25) {
      static_cast<void>(stream.accept(s.values.data() + t * 4, 25));
      for (const StreamedTranscript& u : stream.ended()) {
        ++utterances;
        longest = std::max(longest, static_cast<size_t>(u.frames));
      }
    }
    const size_t used = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (part == 0) after_one = used;
    CAPTURE(part);
    CHECK(used < after_one + 200000);
  }
  CHECK(utterances > 500);
  CHECK(longest <= 2 * 30 * 25);
}
