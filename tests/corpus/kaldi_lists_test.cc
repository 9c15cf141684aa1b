// Data directories of Kaldi, and manifests of NeMo.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/features/feature_file.h"
#include "tests/catch.h"
#include "tests/corpus/listed_data.h"
#include "tests/data/kaldi_golden.h"
#include "tools/corpus/lists/layouts.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using corpus::Finding;
using corpus::ListedUtterance;
using Data = test::ListedData;

}  // namespace

TEST_CASE("manifests of NeMo, where a bad line costs that line", "[lists]") {
  const Data d;
  d.text("train.json",
         "{\"audio_filepath\": \"a.wav\", \"text\": \"one\", \"duration\": 9}\n"
         "{\"audio_filepath\": \"b.wav\", \"text\": \"two\", \"offset\": 1.5, \"duration\": 2, "
         "\"speaker\": 7}\n\n"
         "{\"audio_filepath\": \"c.wav\"}\nno json\n[1]\n{\"text\": \"x\"}\n"
         "{\"audio_filepath\": \"d.wav\", \"offset\": -1}\n");
  const auto list = corpus::list_nemo({d.path("train.json")});
  REQUIRE(list.size() == 7);
  CHECK(list[0].file.path == d.path("a.wav"));
  CHECK(list[0].duration == 9);
  CHECK(list[2].duration == -1);
  CHECK(list[0].split == "train");
  CHECK(list[1].offset == 1.5);
  CHECK(list[1].duration == 2);
  CHECK(list[1].speaker == "7");
  CHECK_FALSE(list[2].has_text);
  CHECK(list[3].where == str(d.path("train.json"), ":5"));
  for (size_t i = 3; i < 7; ++i) CHECK(list[i].finding == Finding::bad_line);
  CHECK_THAT(list[3].problem, Contains("is not valid JSON"));
  CHECK_THAT(list[6].problem, Contains("\"offset\" is -1, expected a number of seconds"));
}

TEST_CASE("a data directory of Kaldi", "[lists]") {
  const Data d;
  d.text("k/wav.scp", "r1 /w/1.wav\nr2   /w/2.wav\n");
  d.text("k/text", "u1 one two\nu2 three\nr1 whole\n");
  d.text("k/utt2spk", "u1 anna\n");
  const auto whole = corpus::list_kaldi(d.path("k"));
  REQUIRE(whole.size() == 4);
  CHECK(whole[0].text == "whole");
  CHECK_FALSE(whole[1].has_text);
  CHECK(whole[2].finding == Finding::text_alone);
  CHECK_THAT(whole[2].problem, Contains("'u1' is not in wav.scp"));
  d.text("k/segments", "u1 r1 0.5 2.25\nu2 r2 1 -1\n");
  const auto parts = corpus::list_kaldi(d.path("k"));
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].file.path == "/w/1.wav");
  CHECK(parts[0].offset == 0.5);
  CHECK(parts[0].duration == 1.75);
  CHECK(parts[0].speaker == "anna");
  CHECK(parts[0].text == "one two");
  CHECK(parts[1].duration == -1);
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {"u1 r9 0 1", "recording 'r9' is not in wav.scp"},
           {"u1 r1 0", "expected UTTERANCE RECORDING BEGIN END"},
           {"u1 r1 x 1", "'x' is no time"},
           {"u1 r1 2 1", "ends at 1 s, which is not after 2 s"}}) {
    d.text("k/segments", line + "\nu2 r2 1 -1\n");
    const auto some = corpus::list_kaldi(d.path("k"));
    REQUIRE(some.size() >= 2);
    CHECK(some[0].where.ends_with("segments:1"));
    CHECK(some[0].finding == Finding::bad_line);
    CHECK_THAT(some[0].problem, Contains(says));
    CHECK(some[1].problem.empty());
  }
  fs::remove(d.path("k/segments"));
  d.text("k/wav.scp", "r1 sph2pipe -f wav x.sph |\nr2 /w/2.wav\nr2 /w/3.wav\nr4\n");
  d.text("k/text", "r2 two\nr2 three\nr9 nine\n");
  std::map<std::string, Finding> found;
  for (const ListedUtterance& u : corpus::list_kaldi(d.path("k")))
    if (!u.problem.empty()) found[u.where.substr(u.where.rfind('/') + 1)] = u.finding;
  CHECK(found == std::map<std::string, Finding>{{"wav.scp:1", Finding::command},
                                                {"wav.scp:3", Finding::doubled},
                                                {"wav.scp:4", Finding::names_nothing},
                                                {"text:2", Finding::doubled_otherwise},
                                                {"text:3", Finding::text_alone}});
}

TEST_CASE("features that Kaldi has made", "[lists]") {
  const Data d;
  std::string archive, index;
  for (const GoldenMatrix& m : golden_matrices) {
    archive += str(m.token, " ");
    index += str(m.token, " ", d.path("k/feats.ark"), ":", archive.size(), "\n");
    for (int b : m.bytes) archive += static_cast<char>(b);
  }
  d.text("k/feats.ark", archive);
  d.text("k/feats.scp", index);
  d.text("k/text", "FM one\nDM two\nCM three\nCM2 four\nCM3 five\n");
  d.text("k/utt2spk", "CM anna\n");
  d.text("k/frame_shift", "0.02\n");
  const auto list = corpus::list_kaldi(d.path("k"));
  REQUIRE(list.size() == 5);
  CHECK(list[0].kind == InputKind::features);
  CHECK(list[2].id == "CM");
  CHECK(list[2].speaker == "anna");
  PrepareListOptions o;
  o.dev = o.test = 0;
  const DataSummary s = d.prepare(list, o);
  CHECK(s.parts.at(0).length == Approx(5 * 9 * 0.02));
  const auto train = d.manifest("train");
  REQUIRE(train.size() == 5);
  for (size_t i = 0; i < train.size(); ++i) {
    const GoldenMatrix& golden = golden_matrices[i];
    CHECK(train[i].kind == InputKind::features);
    CHECK(train[i].byte_count == golden.bytes.size());
    CHECK(train[i].name() == golden.token);
    const Matrix read = read_feature_file(train[i].file(), train[i].features_key);
    CHECK(read.data.front() == Approx(golden.values.front()).margin(1e-4));
    CHECK(read.data.back() == Approx(golden.values.back()).margin(1e-4));
  }
  // Recordings come first where there are some.
  d.text("k/wav.scp", "FM /w/1.wav\n");
  CHECK(corpus::list_kaldi(d.path("k"))[0].kind == InputKind::recording);
  CHECK(corpus::list_kaldi(d.path("k"), true)[0].kind == InputKind::features);
  d.text("k/feats.scp", "FM /f.ark\n");
  CHECK_THAT(corpus::list_kaldi(d.path("k"), true).at(0).problem,
             Contains("'/f.ark' is no matrix in an archive"));
  d.text("k/feats.scp", "FM copy-feats ark:x ark:- |\n");
  CHECK_THAT(corpus::list_kaldi(d.path("k"), true).at(0).problem, Contains("output of a command"));
}

}  // namespace rondo
