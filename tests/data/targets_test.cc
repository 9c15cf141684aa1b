// What utterances of a manifest are to become: labels, classes, numbers.
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/small_corpus.h"

using namespace rondo;
using namespace rondo::test;
using Catch::Matchers::Contains;

TEST_CASE("names of classes become their numbers", "[dataset]") {
  Corpus c;
  c.features("a.npy", 5, 3);
  DatasetOptions o;
  o.target = TargetKind::utterance_class;
  o.advice[DatasetProblem::Kind::target] = "what may be done";
  o.advice[DatasetProblem::Kind::unreadable] = "what another kind needs";
  const auto open = [&](const std::vector<std::string>& labels) {
    std::string lines;
    for (const std::string& label : labels)
      lines += R"({"features_filepath": "a.npy", "label": )" + label + "}\n";
    return ManifestDataset(c.manifest(lines), o, nullptr, nullptr);
  };
  // As they are in the list, sorted or not, each by itself.
  o.classes = {"one", "eight", "1", "null"};
  const ManifestDataset d =
      open({R"("eight")", R"("one")", R"("1")", R"("null")", R"("\u006fne")"});
  const std::vector<int32_t> expected = {1, 0, 2, 3, 0};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(d.load(static_cast<int64_t>(i), 0).class_index == expected[i]);
    CHECK(d.entry(static_cast<int64_t>(i)).label == expected[i]);
  }
  CHECK(d.classes() == 4);
  CHECK_THROWS_WITH(open({R"("one")", R"("One")"}),
                    Contains("1 of 2 utterances") && Contains("; what may be done\n") &&
                        !Contains("another kind") && Contains(".jsonl:2: ") &&
                        Contains("its \"label\" is \"One\", no class of the model; expected "
                                 "\"one\", \"eight\", \"1\" or \"null\""));
  CHECK_THROWS_WITH(open({"1"}), Contains("its \"label\" is 1, no class of the model"));
  for (int i = 0; i < 30; ++i) o.classes.push_back(str("c", i));
  CHECK_THROWS_WITH(open({R"("c")"}), Contains("\"c7\" or one of 22 more"));
  o.classes.clear();
  CHECK_THROWS_WITH(open({"3", R"("one")"}), Contains("is the name \"one\", expected a number"));
  CHECK(open({"3"}).load(0, 0).class_index == 3);
}

TEST_CASE("ready features come with every kind of target", "[dataset]") {
  Corpus c;
  c.features("a.npy", 5, 3);
  c.features("b.npy", 2, 3);
  c.features("wide.npy", 2, 4);
  const Manifest m = c.manifest(
      R"({"features_filepath": "a.npy", "label": 4, "labels": [2, 1], "target": [1, 2], "frame_labels": [0, 1, 2, 1, 0]})"
      "\n"
      R"({"features_filepath": "b.npy", "label": 0, "labels": [], "target": [3, 4], "frame_labels": [6, 3]})"
      "\n");
  DatasetOptions o;
  const auto load = [&](TargetKind kind) {
    o.target = kind;
    ManifestDataset d(m, o, nullptr, nullptr);
    CHECK(d.feature_dim() == 3);
    CHECK(d.frames(0, 0) == 5);
    return std::tuple(d.load(0, 0), d.classes(), d.target_dim());
  };
  CHECK(std::get<0>(load(TargetKind::sequence)).labels == std::vector<int32_t>{2, 1});
  CHECK(std::get<0>(load(TargetKind::utterance_class)).class_index == 4);
  CHECK(std::get<1>(load(TargetKind::utterance_class)) == 5);
  CHECK(std::get<0>(load(TargetKind::regression)).target == std::vector<float>{1, 2});
  CHECK(std::get<2>(load(TargetKind::regression)) == 2);
  CHECK(std::get<0>(load(TargetKind::frame_class)).frame_labels.size() == 5);
  CHECK(std::get<1>(load(TargetKind::frame_class)) == 7);
  CHECK(std::get<0>(load(TargetKind::none)).features.row(1)[0] == 3);

  const auto refuses = [&](const std::string& lines, TargetKind kind, const std::string& why) {
    o.target = kind;
    CHECK_THROWS_WITH(ManifestDataset(c.manifest(lines), o, nullptr, nullptr), Contains(why));
  };
  const std::string a = R"({"features_filepath": "a.npy"})", nl = "\n";
  refuses(a, TargetKind::utterance_class, "has no \"label\"");
  refuses(a, TargetKind::regression, "has no \"target\"");
  refuses(a, TargetKind::frame_class, "has no \"frame_labels\"");
  const auto with = [](const std::string& field) {
    return R"({"features_filepath": "a.npy", )" + field + "}";
  };
  // What another task would want may be anything; what this one wants is named.
  refuses(with(R"("label": 1.5)"), TargetKind::utterance_class,
          "\"label\" is 1.5, expected a class: an integer from 0 to 16777215, or a name");
  refuses(with(R"("text": 5)"), TargetKind::sequence, "\"text\" is 5, expected a string");
  refuses(with(R"("labels": [0])"), TargetKind::sequence, "\"labels\" is 0, expected a list");
  refuses(with(R"("target": "far")"), TargetKind::regression, "\"target\" is \"far\"");
  refuses(with(R"("frame_labels": 3)"), TargetKind::frame_class, "\"frame_labels\" is 3");
  o.target = TargetKind::sequence;
  const std::string nemo = with(R"("labels": [1, 2], "label": "infer", "target": "none")");
  CHECK(ManifestDataset(c.manifest(nemo), o, nullptr, nullptr).label_count(0) == 2);
  const std::string both = with(R"("text": "x", "labels": [1, 2], "label": 3)");
  refuses(both, TargetKind::sequence, "has both \"text\" and \"labels\", expected one");
  for (const TargetKind other : {TargetKind::utterance_class, TargetKind::none}) {
    o.target = other;
    CHECK(ManifestDataset(c.manifest(both), o, nullptr, nullptr).size() == 1);
  }
  refuses(a + nl + R"({"features_filepath": "wide.npy"})", TargetKind::none,
          "has 4 features per frame, the others have 3");
  refuses(R"({"features_filepath": "a.npy", "frame_labels": [1]})", TargetKind::frame_class,
          "has 1 frame_labels for 5 frames");
  refuses(R"({"features_filepath": "a.npy", "frame_labels": [1, 1, 1, 1, 1, 1]})",
          TargetKind::frame_class, "has 6 frame_labels for 5 frames");
  refuses(R"({"features_filepath": "a.npy", "target": 1})" + nl +
              R"({"features_filepath": "b.npy", "target": [1, 2]})",
          TargetKind::regression, "has 2 target numbers, the others have 1");
  refuses(R"({"audio_filepath": "a.wav", "text": ""})", TargetKind::sequence,
          "cannot read recordings");
  refuses(R"({"features_filepath": "a.npy", "text": "x"})", TargetKind::sequence, "no alphabet");
}

TEST_CASE("classes of frames are of the frames that a speed leaves", "[dataset]") {
  Corpus c;
  c.recording("a.wav", 0.35);  // 33 frames; at half the speed 68, at twice 16
  DatasetOptions o = small_options();
  o.target = TargetKind::frame_class;
  const auto open = [&](size_t labels, std::vector<double> speeds) {
    o.augment.speed = std::move(speeds);
    std::string list = "0";
    for (size_t i = 1; i < labels; ++i) list += str(", ", i);
    return ManifestDataset(
        c.manifest(str(R"({"audio_filepath": "a.wav", "frame_labels": [)", list, "]}")), o,
        &c.reader, nullptr);
  };
  for (const auto& [labels, speeds] :
       {std::pair<size_t, std::vector<double>>{33, {}}, {33, {1, 1}}, {68, {0.5}}, {16, {2}}}) {
    const ManifestDataset d = open(labels, speeds);
    const Example e = d.load(0, 3);
    CHECK(e.features.frames == static_cast<int64_t>(labels));
    REQUIRE(e.frame_labels.size() == labels);
    CHECK(e.frame_labels.back() == static_cast<int32_t>(labels) - 1);
    CHECK(d.classes() == static_cast<int32_t>(labels));
  }
  const auto refuses = [&](size_t labels, const std::vector<double>& speeds,
                           const std::string& why) {
    CHECK_THROWS_WITH(open(labels, speeds), Contains(why));
  };
  refuses(32, {}, "has 32 frame_labels for 33 frames");
  refuses(33, {0.5}, "has 33 frame_labels for 68 frames");
  refuses(33, {1, 0.5}, "has 33 frame_labels for 33 to 68 frames, by augment.speed");
  refuses(68, {0.5, 1}, "has 68 frame_labels for 33 to 68 frames, by augment.speed");
  refuses(33, {2, 1, 2}, "has 33 frame_labels for 16 to 33 frames, by augment.speed");
}
