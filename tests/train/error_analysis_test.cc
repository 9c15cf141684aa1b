// Which words are confused, and where: engine/train/recognition/error_analysis.h.
#include "engine/train/recognition/error_analysis.h"

#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

struct Said {
  std::string reference, hypothesis, speaker = {};
  double length = 1;
  InputKind kind = InputKind::recording;
};

ErrorAnalysis analysis_of(const std::vector<Said>& all, bool backwards = false) {
  ErrorAnalysis analysis;
  for (size_t k = 0; k < all.size(); ++k) {
    const size_t i = backwards ? all.size() - 1 - k : k;
    analysis.add({static_cast<int64_t>(i), str("m.jsonl:", i + 1), "r.wav", all[i].speaker,
                  all[i].kind, all[i].length},
                 align_transcripts(all[i].reference, all[i].hypothesis));
  }
  return analysis;
}

std::string text_of(const std::vector<report::Confusion>& list) {
  std::string s;
  for (const report::Confusion& c : list)
    s += str(c.reference, ">", c.hypothesis, ":", c.count, " ");
  return s;
}

}  // namespace

TEST_CASE("lengths are in what the data are measured in", "[analysis]") {
  const auto table_of = [](InputKind kind) {
    std::vector<Said> all;
    for (int i = 0; i < 8; ++i) all.push_back({"a", "b", "", i < 4 ? 10. : 20., kind});
    return analysis_of(all).by_length();
  };
  const report::RateTable sound = table_of(InputKind::recording),
                          ready = table_of(InputKind::features), lines = table_of(InputKind::image);
  REQUIRE((sound.rows.size() == 2 && ready.rows.size() == 2 && lines.rows.size() == 2));
  CHECK(sound.rows[1].name == "20.00 s");
  CHECK(ready.rows[1].name == "20 frames");
  CHECK(lines.rows[1].name == "20 columns");
  CHECK(sound.title == "By length of the recording");
  CHECK(lines.title == "By width of the line");
}

TEST_CASE("confusions are counted, the most frequent first", "[analysis]") {
  const ErrorAnalysis analysis = analysis_of({{"three one", "tree one"},
                                              {"three two", "tree two"},
                                              {"five", "nine"},
                                              {"five", "a"},
                                              {"one two", "one uh two"},
                                              {"one two", "two"},
                                              {"e\u0301b q\u0301", "e\u0301 q"}});
  const report::Confusions words = analysis.confused_words(3);
  CHECK(text_of(words.substitutions) == "three>tree:2 five>a:1 five>nine:1 ");
  CHECK(words.all.substitutions == 6);
  CHECK(text_of(words.insertions) == ">uh:1 ");
  CHECK(text_of(words.deletions) == "one>:1 ");
  const report::Confusions characters = analysis.confused_characters(20);
  // Blanks and marks that cannot stand alone have names.
  CHECK_THAT(text_of(characters.insertions), Catch::Contains(">␣:1 "));
  CHECK_THAT(text_of(characters.deletions),
             Catch::Contains("U+0301>:1 ") && Catch::Contains("h>:2 "));
}

TEST_CASE("the worst utterances have the most errors, and ties the dataset's order", "[analysis]") {
  std::vector<Said> all;
  for (int i = 0; i < 60; ++i) {
    std::string hypothesis = i % 3 == 0 ? "a b c" : i % 3 == 1 ? "x b c" : "x y c";
    if (i == 40) hypothesis = "x bcd c";        // no more words, but characters
    if (i == 43) hypothesis = "abcdefghi b c";  // many characters, but one word
    all.push_back({"a b c", hypothesis, "", 1.0 + i});
  }
  for (const bool backwards : {false, true}) {
    const ErrorAnalysis analysis = analysis_of(all, backwards);
    REQUIRE(analysis.worst().size() == 20);
    CHECK(analysis.worst()[0].name == "m.jsonl:41");
    CHECK(analysis.worst()[1].name == "m.jsonl:3");
    CHECK(analysis.worst()[2].name == "m.jsonl:6");
    CHECK(analysis.worst()[19].name == "m.jsonl:57");
    CHECK(analysis.worst()[1].note == "r.wav, 3.00 s");
    CHECK(analysis.worst()[1].words.errors() == 2);
    CHECK(analysis.worst()[1].word_edits[1].hypothesis == "y");
  }
  CHECK(analysis_of({{"a", "a"}}).worst().empty());
}

TEST_CASE("of lines the worst have the most errors in characters", "[analysis]") {
  // Two short words are wrong in the first, many letters of one word in the second.
  for (const InputKind kind : {InputKind::recording, InputKind::image}) {
    const ErrorAnalysis analysis =
        analysis_of({{"a b c", "x y c", "", 1, kind}, {"abcdef b c", "uvwxyz b c", "", 1, kind}});
    REQUIRE(analysis.worst().size() == 2);
    CHECK(analysis.worst()[0].name == (kind == InputKind::image ? "m.jsonl:2" : "m.jsonl:1"));
  }
}

TEST_CASE("words are counted apart from their punctuation", "[analysis]") {
  CHECK_FALSE(analysis_of({{"a b", "a c"}}).words_without_punctuation());
  // A comma alone, a dash that is a word of its own, and a word that is wrong with it and without.
  const ErrorAnalysis analysis = analysis_of({{"so, we don't go.", "so we don't go,"},
                                              {"yes \u2014 no", "yes no"},
                                              {"(three)", "tree)"},
                                              {"plain", "plane"}});
  const auto bare = analysis.words_without_punctuation();
  REQUIRE(bare);
  CHECK(bare->reference == 8);
  CHECK(bare->errors() == 2);
  CHECK(bare->substitutions == 2);
  const auto interval = analysis.interval_without_punctuation();
  REQUIRE(interval);
  CHECK(interval->high > bare->rate());
  CHECK(interval->high < analysis.wer_interval()->high + 1e-9);
  // What the model writes besides counts, too.
  CHECK(analysis_of({{"a", "a!"}}).words_without_punctuation()->errors() == 0);
}

TEST_CASE("rates by speaker and by length add up", "[analysis]") {
  std::vector<Said> all;
  for (int i = 0; i < 23; ++i) {
    all.push_back({"a b", i % 5 ? "a b" : "a", i % 2 ? "zoe" : "ann", i < 10 ? 2.0 : 3.0 + i});
  }
  all[22].speaker = "";
  const ErrorAnalysis analysis = analysis_of(all);
  const report::RateTable speakers = analysis.by_speaker();
  REQUIRE(speakers.rows.size() == 3);
  CHECK(speakers.rows[0].name == "unknown");
  CHECK(speakers.rows[1].name == "ann");
  CHECK(speakers.rows[1].utterances == 11);
  CHECK(speakers.rows[1].words.deletions == 3);  // 0, 10, 20
  CHECK(speakers.rows[2].words.reference == 22);
  const report::RateTable lengths = analysis.by_length();
  // Ten are of one length, more than two of the five parts.
  REQUIRE(lengths.rows.size() == 4);
  CHECK(lengths.rows[0].name == "2.00 s");
  CHECK(lengths.rows[0].utterances == 10);
  CHECK(lengths.rows[1].name == "13.00 s to 15.00 s");
  CHECK(lengths.rows[3].name == "21.00 s to 25.00 s");
  int64_t utterances = 0, errors = 0;
  for (const report::Rates& row : lengths.rows) {
    utterances += row.utterances;
    errors += row.words.errors();
  }
  CHECK(utterances == 23);
  CHECK(errors == 5);
  CHECK(analysis_of({{"a", "b", "ann"}, {"a", "a", "ann"}}).by_speaker().rows.empty());
  CHECK(analysis_of({{"a", "b"}, {"a", "a"}}).by_length().rows.empty());
  CHECK(analysis_of(std::vector<Said>(30, {"a", "b"})).by_length().rows.empty());
}

TEST_CASE("intervals do not depend on the order of evaluation", "[analysis]") {
  std::vector<Said> all;
  for (int i = 0; i < 40; ++i) all.push_back({"a b c", i % 4 ? "a b c" : "a x", ""});
  const auto forwards = analysis_of(all).wer_interval(),
             backwards = analysis_of(all, true).wer_interval();
  REQUIRE(forwards);
  CHECK(forwards->low == backwards->low);
  CHECK(forwards->high == backwards->high);
  CHECK(forwards->low < 2.0 / 3 / 4);
  CHECK(forwards->high > 2.0 / 3 / 4);
  CHECK(analysis_of(all).cer_interval()->high < 1);
  ErrorAnalysis twice = analysis_of({{"a", "b"}});
  CHECK_THROWS_AS(twice.add({0, "again", "", ""}, align_transcripts("", "")), Error);
}
