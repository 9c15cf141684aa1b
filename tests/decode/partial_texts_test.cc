// What a stream says before its end, beside all label sequences that its outputs so far may be.
#include <span>

#include "tests/decode/all_texts.h"

using namespace rondo;

namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

// Scores of which some classes are impossible, so that all sequences begin alike.
Scores sparse_scores(int32_t frames, int32_t classes, unsigned seed) {
  Scores s = random_scores(frames, classes, seed);
  std::mt19937 random(seed + 1000);
  for (int32_t t = 0; t < frames; ++t) {
    float* row = &s.values[static_cast<size_t>(t * classes)];
    const auto kept = static_cast<int32_t>(random() % static_cast<unsigned>(classes));
    for (int32_t c = 0; c < classes; ++c)
      if (c != kept && random() % 4 != 0) row[c] = never;
  }
  return s;
}

// Frames that are sure of a class each.
Scores sure_of(const std::vector<int32_t>& said, int32_t classes) {
  Scores s{static_cast<int32_t>(said.size()), classes, {}};
  for (const int32_t c : said)
    for (int32_t k = 0; k < classes; ++k) s.values.push_back(k == c ? 0 : never);
  return s;
}

struct Kind {
  const char* name;
  Vocabulary vocabulary;
  std::vector<std::string> tokens;
  // How many labels at the beginning of a sequence are of words that are over.
  std::function<size_t(const std::vector<int32_t>& labels)> over;
};

std::vector<Kind> kinds() {
  const std::vector<std::string> pieces = {"<blank>", "\u2581a", "b", "\u2581"};
  const std::vector<std::string> marked = {"<blank>", "a", "##b", "c"};
  const auto until_last = [](std::vector<int32_t> opening) {
    return [opening](const std::vector<int32_t>& labels) {
      size_t at = 0;
      for (size_t i = 0; i < labels.size(); ++i)
        if (std::count(opening.begin(), opening.end(), labels[i]) > 0) at = i;
      return at;
    };
  };
  const auto behind_separator = [](const std::vector<int32_t>& labels) {
    size_t at = labels.size();
    while (at > 0 && labels[at - 1] != 1) --at;
    return at;
  };
  const auto all = [](const std::vector<int32_t>& labels) { return labels.size(); };
  return {
      {"separator", Vocabulary(spaced, {}, "", "t"), spaced, behind_separator},
      {"prefix", Vocabulary(pieces, {}, "", "t"), pieces, until_last({1, 3})},
      {"marked", Vocabulary(marked, {}, "", "t"), marked, until_last({1, 3})},
      {"every", Vocabulary({"<blank>", "one", "two", "three"}, {}, "", "t"), {}, all},
      {"none", Vocabulary({"<blank>", "a", "b", "c"}, {}, "", "t"), {}, all},
  };
}

std::vector<int32_t> first(const std::vector<int32_t>& labels, size_t count) {
  return {labels.begin(), labels.begin() + static_cast<ptrdiff_t>(count)};
}

}  // namespace

TEST_CASE("a partial text is the best so far, and its stable part what all others have",
          "[slow][stream]") {
  constexpr int32_t frames = 6, classes = 4;
  DecoderOptions o = everything(true);
  o.word_score = 0;
  size_t in_words = 0;
  for (const Kind& kind : kinds()) {
    DecoderStream stream(Decoder(kind.vocabulary, o));
    for (unsigned seed = 0; seed < 12; ++seed) {
      Scores s = sparse_scores(frames, classes, seed);
      CHECK(stream.partial().text.empty());  // also behind another utterance
      CHECK(stream.partial().stable.empty());
      CHECK(stream.partial().blank_frames == 0);
      for (int32_t t = 0; t < frames; ++t) {
        INFO(kind.name << ", seed " << seed << ", frame " << t);
        stream.accept(s.values.data() + t * classes, 1);
        Scores so_far{t + 1, classes, s.values};
        std::vector<int32_t> best, common;
        double most = 0;
        for (const auto& [labels, p] : all_sequences(so_far, 0, true)) {
          if (p == 0) continue;
          if (most == 0) common = labels;
          const auto at = std::mismatch(common.begin(), common.end(), labels.begin(), labels.end());
          common.erase(at.first, common.end());
          if (p > most) most = p, best = labels;
        }
        const DecoderStream::Partial p = stream.partial();
        CHECK(p.text == kind.vocabulary.text(best));
        const size_t over = kind.over(common);
        CHECK(p.stable == kind.vocabulary.text(first(common, over)));
        in_words += over < common.size();
      }
      // Nothing more changes it.
      const DecoderStream::Partial before = stream.partial();
      stream.accept(nullptr, 0);
      CHECK(stream.partial().text == before.text);
      CHECK(stream.partial().stable == before.stable);
      stream.finish();
    }
  }
  CHECK(in_words > 20);
}

TEST_CASE("the stable part of a text has no word that may still grow", "[stream]") {
  struct Case {
    std::vector<int32_t> said;
    std::vector<std::string> stable, text;  // behind each frame
  };
  const Vocabulary with_spaces(spaced, {}, "", "t");
  DecoderKnowledge listed;
  listed.lexicon = {{"A", {2}}, {"Ab", {2, 3}}, {"B", {3}}, {"B", {3, 3}}};
  const auto check = [](const Decoder& decoder, const Case& c) {
    const int32_t classes = decoder.vocabulary().classes();
    const Scores s = sure_of(c.said, classes);
    DecoderStream stream(decoder);
    for (int again = 0; again < 2; ++again) {
      for (size_t t = 0; t < c.said.size(); ++t) {
        INFO("frame " << t << ", time " << again);
        stream.accept(s.values.data() + t * static_cast<size_t>(classes), 1);
        CHECK(stream.partial().stable == c.stable[t]);
        CHECK(stream.partial().text == c.text[t]);
      }
      CHECK(stream.finish().front().text == c.text.back());
      CHECK(stream.partial().text.empty());
    }
  };
  check(Decoder(with_spaces, {}),
        {{1, 2, 2, 0, 2, 1, 1, 3, 0, 1, 2},
         {"", "", "", "", "", "aa", "aa", "aa", "aa", "aa b", "aa b"},
         {"", "a", "a", "a", "aa", "aa", "aa", "aa b", "aa b", "aa b", "aa b a"}});
  // Of a lexicon, words show when they are over.
  check(Decoder(with_spaces, {}, listed),
        {{2, 3, 1, 2, 1, 3, 0, 3, 1},
         {"", "", "Ab", "Ab", "Ab A", "Ab A", "Ab A", "Ab A", "Ab A B"},
         {"", "", "Ab", "Ab", "Ab A", "Ab A", "Ab A", "Ab A", "Ab A B"}});
  // A character of bytes shows when no byte may follow.
  const Vocabulary bytes({"<blank>", "a", "<0xC3>", "<0xA9>"}, {}, "none", "t");
  check(Decoder(bytes, {}), {{1, 2, 3, 0, 1, 2},
                             {"a", "a", "a", "a", "a\u00e9a", "a\u00e9a"},
                             {"a", "a\ufffd", "a\u00e9", "a\u00e9", "a\u00e9a", "a\u00e9a\ufffd"}});
}

TEST_CASE("frames of blanks are counted to the end, and from the last other one", "[stream]") {
  const Vocabulary vocabulary(spaced, {}, "", "t");
  DecoderStream stream{Decoder(vocabulary, {})};
  const auto say = [&](float blank) {  // its probability; the rest is another's
    const float row[] = {std::log(blank), never, std::log(1 - blank), never};
    stream.accept(row, 1);
    return stream.partial().blank_frames;
  };
  for (int again = 0; again < 2; ++again) {
    CHECK(say(0.999F) == 1);
    CHECK(say(0.9999F) == 2);
    CHECK(say(0.98F) == 0);
    CHECK(say(0) == 0);
    CHECK(say(1) == 1);
    CHECK(say(0.995F) == 2);
    stream.finish();
    CHECK(stream.partial().blank_frames == 0);
  }
}
