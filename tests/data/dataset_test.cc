// engine/data/dataset.h: what a manifest becomes, and what is found before training.
#include "engine/data/dataset.h"

#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/data/features/feature_file.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/small_corpus.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;
using Kind = DatasetProblem::Kind;

TEST_CASE("a manifest of recordings becomes examples", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 1.0);
  c.recording("b.wav", 2.0, 8000);
  const Manifest m =
      c.manifest(Corpus::line("a.wav", "ab c") +
                 R"({"audio_filepath": "b.wav", "offset": 0.5, "duration": 0.75, "text": "c"})");
  const ManifestDataset d(m, small_options(), &c.reader, &c.alphabet);
  REQUIRE(d.size() == 2);
  CHECK(d.feature_dim() == 20);
  CHECK(d.frames(0, 0) == 98);
  CHECK(d.frames(1, 0) == 73);
  CHECK(d.seconds(0) == 1);
  CHECK(d.seconds(1) == 0.75);
  CHECK(d.total_seconds() == Approx(1.75));
  CHECK(d.rates() == std::map<int32_t, int64_t>{{8000, 1}, {16000, 1}});
  for (int64_t i : {0, 1}) {
    const Example e = d.load(i, 0);
    CHECK(e.features.frames == d.frames(i, 0));
    CHECK(e.features.dim == 20);
    CHECK(e.features == d.raw_features(i));
  }
  CHECK(d.load(0, 0).labels == std::vector<int32_t>{2, 3, 1, 4});
  CHECK(d.name(1) == m.path + ":2");
  CHECK(d.key(0) != d.key(1));
  CHECK(d.problems().empty());
}

TEST_CASE("a recording that ends long before its duration is refused", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 2.0, 8000);
  const auto with = [&](const char* fields) {
    const Manifest m = c.manifest(str(R"({"audio_filepath": "a.wav", "text": "a", )", fields, "}"));
    return ManifestDataset(m, small_options(), &c.reader, &c.alphabet);
  };
  for (const char* fields : {R"("duration": 99)", R"("offset": 1, "duration": 1.2)"}) {
    CHECK_THROWS_WITH(with(fields), Catch::Contains("a.wav: ends after 2 s"));
  }
  CHECK_THROWS_WITH(with(R"("offset": 1, "duration": 1.13)"), Catch::Contains("it has 2.13 s"));
  // Rounded, or of another encoding: up to a hundredth and a tenth of a second.
  for (const char* fields : {R"("duration": 2.05)", R"("offset": 1.5, "duration": 0.6)",
                             R"("offset": 1, "duration": 1.11)"}) {
    CHECK(with(fields).size() == 1);
  }
}

TEST_CASE("every augmented epoch has the frames that were announced", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.7313, 44100);
  c.recording("b.wav", 0.5, 8000);
  DatasetOptions o = small_options();
  o.augment.speed = {0.85, 1.0, 1.17};
  o.augment.noise = 0.5;
  o.augment.spec_augment = true;
  o.cmvn = CmvnMode::mean_variance;
  for (FrameEdges edges : {FrameEdges::complete, FrameEdges::centered}) {
    o.features.edges = edges;
    const ManifestDataset d(c.manifest(Corpus::line("a.wav", "a") + Corpus::line("b.wav", "b")), o,
                            &c.reader, &c.alphabet);
    std::map<int32_t, int> lengths;
    for (uint64_t epoch = 0; epoch < 12; ++epoch)
      for (int64_t i : {0, 1}) {
        const Example e = d.load(i, epoch);
        REQUIRE(e.features.frames == d.frames(i, epoch));
        ++lengths[d.frames(0, epoch)];
      }
    CHECK(lengths.size() == 3);
    CHECK(d.load(0, 3).features == d.load(0, 3).features);
  }
}

TEST_CASE("everything that cannot be trained on is found at once", "[dataset]") {
  Corpus c;
  c.recording("ok.wav", 0.5);
  c.recording("short.wav", 0.1);    // 8 frames
  c.recording("repeat.wav", 0.06);  // 4 frames
  c.recording("tiny.wav", 0.01);    // none
  c.recording("long.wav", 3.0);
  c.folder.write("noise.wav", "no audio");
  const Manifest m = c.manifest(
      Corpus::line("ok.wav", "abc") + Corpus::line("gone.wav", "a") +
      Corpus::line("noise.wav", "a") + Corpus::line("ok.wav", "axya") +
      Corpus::line("short.wav", "abcabcabc") + Corpus::line("repeat.wav", "aabb") +
      Corpus::line("tiny.wav", "") + Corpus::line("long.wav", "a") +
      R"({"audio_filepath": "ok.wav"})"
      "\n" +
      R"({"audio_filepath": "ok.wav", "offset": 7, "text": "a"})"
      "\n" +
      Corpus::line("ok.wav", "cba") + Corpus::line("gone.wav", "a") + Corpus::line("ok.wav", "b"));
  DatasetOptions o = small_options();
  o.max_frames = 200;
  o.bad = BadUtterances::skip;
  const ManifestDataset d(m, o, &c.reader, &c.alphabet);
  // What stays keeps its order, its text and its line.
  REQUIRE(d.size() == 3);
  const std::vector<std::pair<int, std::vector<int32_t>>> stays = {
      {1, {2, 3, 4}}, {11, {4, 3, 2}}, {13, {3}}};
  for (size_t i = 0; i < stays.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    CHECK(d.name(at) == m.path + ":" + std::to_string(stays[i].first));
    CHECK(d.load(at, 0).labels == stays[i].second);
  }
  const std::vector<std::tuple<int, Kind, std::string>> wanted = {
      {2, Kind::unreadable, "gone.wav: cannot be opened"},
      {3, Kind::unreadable, "noise.wav: is not audio"},
      {4, Kind::text, "'x' (U+0078), 'y' (U+0079)"},
      {5, Kind::too_short, "need 9 frames of the network's output, the recording gives 8"},
      {6, Kind::too_short, "need 6 frames of the network's output, the recording gives 4"},
      {7, Kind::too_short, "is shorter than a single frame"},
      {8, Kind::too_long, "has 298 frames, at most 200"},
      {9, Kind::target, "has no \"text\""},
      {10, Kind::unreadable, "offset 7 s"},
      {12, Kind::unreadable, "gone.wav: cannot be opened"},
  };
  REQUIRE(d.problems().size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [line, kind, what] = wanted[i];
    CHECK(d.problems()[i].where == m.path + ":" + std::to_string(line));
    CHECK(d.problems()[i].kind == kind);
    CHECK_THAT(d.problems()[i].what, Contains(what));
  }
  o.bad = BadUtterances::error;
  CHECK_THROWS_WITH(ManifestDataset(m, o, &c.reader, &c.alphabet),
                    Contains("10 of 13 utterances cannot be used: 4 unreadable, 1 with text "
                             "outside the alphabet, 3 with fewer frames than the labels need, 1 "
                             "too long, 1 without a usable target\n") &&
                        Contains("gone.wav") && Contains("repeat.wav"));
  const std::string brief = summarize(d.problems(), 13, "line", "m", 2);
  CHECK_THAT(brief, Contains("m: 10 of 13 lines cannot be used") && Contains("and 8 more"));
}

TEST_CASE("lengths and labels at their limits", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.06);                     // 4 frames
  c.recording("odd.wav", 1543 / 44100.0, 44100);  // 559.8 samples at 16000 Hz
  DatasetOptions o = small_options();
  const auto open = [&](const std::string& line) {
    return ManifestDataset(c.manifest(line), o, &c.reader, &c.alphabet);
  };
  CHECK(open(Corpus::line("odd.wav", "a")).frames(0, 0) == 2);  // of 560
  // A blank between neighbours that are the same, the first two as well.
  CHECK(open(Corpus::line("a.wav", "abca")).size() == 1);
  for (const char* text : {"aabc", "abbc", "abcc"})
    CHECK_THROWS_WITH(open(Corpus::line("a.wav", text)), Contains("need 5 frames"));
  CHECK(open(R"({"audio_filepath": "a.wav", "labels": [4]})").size() == 1);
  CHECK_THROWS_WITH(open(R"({"audio_filepath": "a.wav", "labels": [1, 5]})"),
                    Contains("has label 5, the network has classes 1 to 4"));
  o.max_frames = 4;
  CHECK(open(Corpus::line("a.wav", "a")).size() == 1);
  o.max_frames = 3;
  CHECK_THROWS_WITH(open(Corpus::line("a.wav", "a")), Contains("has 4 frames, at most 3"));
  // The slowest speed is what must not be too long, wherever it stands.
  o.max_frames = 5;
  for (const std::vector<double>& speeds : {std::vector<double>{0.5, 1.0}, {1.0, 0.5, 1.1}}) {
    o.augment.speed = speeds;
    CHECK_THROWS_WITH(open(Corpus::line("a.wav", "a")), Contains("has 10 frames, at most 5"));
  }
}

TEST_CASE("noise that is added to samples is another one in each epoch", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.3);
  DatasetOptions o = small_options();
  o.features.dither = 1;
  const ManifestDataset d(c.manifest(Corpus::line("a.wav", "a")), o, &c.reader, &c.alphabet);
  CHECK(d.load(0, 1).features == d.load(0, 1).features);
  CHECK(d.load(0, 1).features != d.load(0, 2).features);
  o.noises = {{o.features.rate, {}}};
  CHECK_THROWS_WITH(
      ManifestDataset(c.manifest(Corpus::line("a.wav", "a")), o, &c.reader, &c.alphabet),
      Contains("a recording of noise holds no samples"));
}

TEST_CASE("an utterance's hash is of all that it is and is to become", "[dataset]") {
  Corpus c;
  c.features("a.npy", 2, 3);
  c.features("b.npy", 2, 3);
  c.features("long.npy", 4, 3);
  c.recording("a.wav", 1);
  std::map<TargetKind, std::set<uint64_t>> hashes;
  std::map<TargetKind, size_t> lines;
  const auto add = [&](TargetKind kind, const std::string& fields) {
    DatasetOptions o = small_options();
    o.target = kind;
    const ManifestDataset alone(c.manifest("{" + fields + "}"), o, &c.reader, &c.alphabet);
    hashes[kind].insert(alone.content_hash(0));
    ++lines[kind];
  };
  const std::string a = R"("features_filepath": "a.npy", )";
  add(TargetKind::sequence, a + R"("text": "ab")");
  add(TargetKind::sequence, a + R"("text": "ba")");
  add(TargetKind::sequence, a + R"("labels": [1])");
  add(TargetKind::sequence, a + R"("labels": [1, 2])");
  add(TargetKind::sequence, R"("features_filepath": "b.npy", "text": "ab")");
  add(TargetKind::sequence, R"("features_filepath": "long.npy", "text": "ab")");
  for (const char* part : {R"("offset": 0)", R"("offset": 0.5)", R"("duration": 0.5)",
                           R"("offset": 0.5, "duration": 0.25)"})
    add(TargetKind::sequence, str(R"("audio_filepath": "a.wav", "text": "ab", )", part));
  add(TargetKind::utterance_class, a + R"("label": 0)");
  add(TargetKind::utterance_class, a + R"("label": 1)");
  add(TargetKind::frame_class, a + R"("frame_labels": [0, 1])");
  add(TargetKind::frame_class, a + R"("frame_labels": [1, 0])");
  add(TargetKind::regression, a + R"("target": [1, 2])");
  add(TargetKind::regression, a + R"("target": [1, 3])");
  add(TargetKind::regression, a + R"("target": [2])");
  for (const auto& [kind, found] : hashes) CHECK(found.size() == lines.at(kind));
}

TEST_CASE("a manifest of which nothing is left is named", "[dataset]") {
  Corpus c;
  const Manifest m = c.manifest(Corpus::line("gone.wav", "a"));
  DatasetOptions o = small_options();
  o.bad = BadUtterances::skip;
  CHECK_THROWS_WITH(ManifestDataset(m, o, &c.reader, &c.alphabet),
                    Catch::Matchers::StartsWith(m.path + ": 1 of 1 utterances cannot be used") &&
                        Contains("; leaving them out leaves none\n") &&
                        Contains("gone.wav: cannot be opened"));
}

TEST_CASE("subsampling counts when transcripts are checked", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.1);  // 8 frames
  const Manifest m = c.manifest(Corpus::line("a.wav", "abc"));
  DatasetOptions o = small_options();
  o.output_frames = [](int64_t t) { return t / 3; };
  CHECK_THROWS_WITH(ManifestDataset(m, o, &c.reader, &c.alphabet), Contains("need 3 frames"));
  o.output_frames = [](int64_t t) { return (t + 2) / 3; };
  CHECK_NOTHROW(ManifestDataset(m, o, &c.reader, &c.alphabet));
  // The fastest speed is what must be long enough.
  o.augment.speed = {1.0, 1.3};
  CHECK_THROWS_WITH(ManifestDataset(m, o, &c.reader, &c.alphabet), Contains("need 3 frames"));
}

TEST_CASE("unknown characters can be skipped", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.5);
  DatasetOptions o = small_options();
  o.unknown = UnknownCharacters::skip;
  const ManifestDataset d(c.manifest(Corpus::line("a.wav", "axb")), o, &c.reader, &c.alphabet);
  CHECK(d.load(0, 0).labels == std::vector<int32_t>{2, 3});
}

TEST_CASE("all agree with the first that can be used", "[dataset]") {
  Corpus c;
  c.features("wide.npy", 2, 4);
  c.features("a.npy", 5, 3);
  const std::string files[] = {"gone", "a", "wide", "a"};
  std::string lines;
  for (size_t i = 0; i < 4; ++i)
    lines += str(R"({"features_filepath": ")", files[i], R"(.npy", "target": [)",
                 i == 0   ? "1"
                 : i == 3 ? "1, 2, 3"
                          : "1, 2",
                 "]}\n");
  DatasetOptions o;
  o.target = TargetKind::regression;
  o.bad = BadUtterances::skip;
  const ManifestDataset d(c.manifest(lines), o, nullptr, nullptr);
  CHECK((d.size() == 1 && d.feature_dim() == 3 && d.target_dim() == 2));
  REQUIRE(d.problems().size() == 3);
  CHECK_THAT(d.problems()[0].what, Contains("gone.npy: cannot be opened"));
  CHECK_THAT(d.problems()[1].what, Contains("has 4 features per frame, the others have 3"));
  CHECK_THAT(d.problems()[2].what, Contains("has 3 target numbers, the others have 2"));
}

TEST_CASE("ready features that change or are not finite stop the batch, by name", "[dataset]") {
  Corpus c;
  c.features("a.npy", 5, 3);
  DatasetOptions o;
  o.target = TargetKind::none;
  const ManifestDataset d(c.manifest(R"({"features_filepath": "a.npy"})"), o, nullptr, nullptr);
  c.features("a.npy", 4, 3);
  CHECK_THROWS_WITH(d.load(0, 0), Contains("m.jsonl:1: ") && Contains("has changed"));
  Matrix m(5, 3);
  m.data[7] = NAN;
  write_feature_file(c.folder.path("a.npy"), m);
  CHECK_THROWS_WITH(d.load(0, 0), Contains("frame 2 column 1 is not a finite number"));
}

TEST_CASE("lengths can be taken from the manifest", "[dataset]") {
  Corpus c;
  DatasetOptions o = small_options();
  o.trust_durations = true;
  const ManifestDataset d(
      c.manifest(R"({"audio_filepath": "gone.wav", "duration": 1.0, "text": "a"})"), o, &c.reader,
      &c.alphabet);
  CHECK(d.frames(0, 0) == 98);
  CHECK(d.rates().empty());
  CHECK_THROWS_WITH(d.load(0, 0), Contains("m.jsonl:1") && Contains("gone.wav: cannot be opened"));
  // Of a part it is the part's; without a duration the file is asked.
  c.recording("a.wav", 0.5);
  const std::string part =
      R"({"audio_filepath": "gone.wav", "offset": 3, "duration": 1.0, "text": "a"})"
      "\n" +
      Corpus::line("a.wav", "a");
  const ManifestDataset parts(c.manifest(part), o, &c.reader, &c.alphabet);
  CHECK(parts.frames(0, 0) == 98);
  CHECK(parts.frames(1, 0) == 48);
}

TEST_CASE("global statistics are of every utterance once, however many there are", "[dataset]") {
  Corpus c;
  c.features("zeros.npy", 1, 2);
  Matrix m(2, 2);
  m.data = {10, -1, 20, -3};
  write_feature_file(c.folder.path("other.npy"), m);
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += str(R"({"features_filepath": ")", i < 280 ? "zeros" : "other", ".npy\"}\n");
  DatasetOptions o;
  o.target = TargetKind::none;
  const ManifestDataset d(c.manifest(lines), o, nullptr, nullptr);
  // zeros.npy: 0 and 1; so 280 frames of those and 20 of each of the others.
  const auto expected = [](double common, double first, double second, double n, double each) {
    const double all = n + 2 * each, mean = (n * common + each * (first + second)) / all;
    const double variance =
        (n * (common - mean) * (common - mean) +
         each * ((first - mean) * (first - mean) + (second - mean) * (second - mean))) /
        all;
    return std::pair(mean, 1 / std::sqrt(variance));
  };
  const GlobalCmvn all = global_cmvn(d, 0, 2);
  for (size_t i = 0; i < 2; ++i) {
    const auto [mean, scale] = i == 0 ? expected(0, 10, 20, 280, 20) : expected(1, -1, -3, 280, 20);
    CHECK(all.mean[i] == Approx(mean));
    CHECK(all.scale[i] == Approx(scale));
  }
  const GlobalCmvn some = global_cmvn(d, 281, 1);
  CHECK(some.mean[0] == Approx(expected(0, 10, 20, 280, 1).first));
  CHECK(global_cmvn(d, 1000, 1) == all);
}

TEST_CASE("global statistics do not depend on the number of threads", "[dataset]") {
  Corpus c;
  std::string lines;
  for (int i = 0; i < 5; ++i) {
    const std::string name = str("r", i, ".wav");
    c.recording(name, 0.2 + 0.1 * i);
    lines += Corpus::line(name, "a");
  }
  DatasetOptions o = small_options();
  o.cmvn = CmvnMode::global;
  ManifestDataset d(c.manifest(lines), o, &c.reader, &c.alphabet);
  const GlobalCmvn one = global_cmvn(d, 0, 1), three = global_cmvn(d, 0, 3);
  CHECK(one == three);
  CHECK_FALSE(global_cmvn(d, 2, 1) == one);
  d.set_global_cmvn(one);
  CmvnStats after;
  for (int64_t i = 0; i < d.size(); ++i) after.add(d.load(i, 0).features);
  for (float m : after.finish().mean) CHECK(std::abs(m) <= 1e-3f);
  for (float s : after.finish().scale) CHECK(s == Approx(1).margin(1e-3));
}
