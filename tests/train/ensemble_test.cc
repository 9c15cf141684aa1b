// Several models as one: what they say together, and which do not fit together.
#include <algorithm>
#include <cmath>
#include <random>

#include "engine/session.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/recognition/agreement.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/recognizer.h"
#include "kernels/base/packed_host.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

struct Made {
  Config config;
  std::vector<std::string> alphabet = {" ", "a", "b"}, classes = {};
  int columns = 6, outputs = 4;
  float sharpness = 12;                            // of what it is sure of
  std::vector<float> mean = {}, inverse_std = {};  // with Cmvn::global

  Made() {
    config.features.type = FeatureType::ready;
    config.features.cmvn = Cmvn::none;
    config.model.hidden = 8;
    config.model.layers = 1;
    config.model.subsample = 2;
    config.training.threads = 1;
  }

  std::string write(const std::string& path) const {
    ModelDescription d;
    d.config = config;
    const bool is_text = config.task == Task::ctc;
    if (is_text) d.alphabet = alphabet;
    d.classes = classes;
    d.sizes = {columns, is_text ? static_cast<int64_t>(alphabet.size()) + 1 : outputs};
    d.mean = mean;
    d.inverse_std = inverse_std;
    Session session(build_model(config.model, config.task, d.sizes),
                    session_options(config, DeviceId{}));
    const TensorView w = session.parameters().weight("output.weight");
    for (int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= sharpness;
    save_model(path, session, d);
    return path;
  }
};

Made seeded(uint64_t seed) {
  Made m;
  m.config.training.seed = seed;
  return m;
}

Matrix noise(int64_t frames) {
  std::mt19937 random(static_cast<unsigned>(frames));
  std::normal_distribution<float> normal(0, 1);
  Matrix m(frames, Made().columns);
  for (float& v : m.data) v = normal(random);
  return m;
}

std::vector<double> softmax(const float* row, int32_t classes) {
  std::vector<double> p;
  double sum = 0;
  for (int32_t c = 0; c < classes; ++c) sum += p.emplace_back(std::exp(double{row[c]}));
  for (double& v : p) v /= sum;
  return p;
}

// Compares with the mean of the softmax of what each says alone; the longest difference.
double furthest(const Transcript& together, const std::vector<Transcript>& alone) {
  double most = 0;
  for (int32_t t = 0; t < together.frames; ++t) {
    const size_t row = static_cast<size_t>(t) * static_cast<size_t>(together.classes);
    const auto found = softmax(&together.logits[row], together.classes);
    std::vector<double> mean(found.size());
    for (const Transcript& a : alone) {
      const auto p = softmax(&a.logits.at(row), together.classes);
      for (size_t c = 0; c < mean.size(); ++c) mean[c] += p[c] / static_cast<double>(alone.size());
    }
    for (size_t c = 0; c < mean.size(); ++c) {
      const double d = std::abs(found[c] - mean[c]);
      most = d <= most ? most : d;  // NaN is the most
    }
  }
  return most;
}

}  // namespace

TEST_CASE("models together say the mean of their probabilities") {
  const TemporaryFolder folder;
  // Of their training data, in which the models may differ, columns from each other too.
  const bool statistics = GENERATE(false, true);
  const bool own_means = statistics && GENERATE(false, true);
  const bool own_deviations = statistics && GENERATE(false, true);
  CAPTURE(statistics, own_means, own_deviations);
  std::vector<std::string> paths;
  for (uint64_t seed : {1, 2, 3}) {
    Made m = seeded(seed);
    const auto n = static_cast<float>(seed);
    if (statistics) m.config.features.cmvn = Cmvn::global;
    for (int i = 0; statistics && i < m.columns; ++i) {
      const auto column = static_cast<float>(i);
      m.mean.push_back(0.2f * column + (own_means ? 0.3f * n : 0));
      m.inverse_std.push_back(0.5f + 0.1f * column + (own_deviations ? 0.25f * n : 0));
    }
    paths.push_back(m.write(folder.path("model" + std::to_string(seed))));
  }
  std::vector<Transcript> alone;
  for (const std::string& path : paths)
    alone.push_back(Recognizer(path, DeviceId{}, 1).transcribe(noise(31)));
  Recognizer all(paths[0], DeviceId{}, 1, std::span(paths).subspan(1));
  CHECK(all.is_ensemble());
  all.transcribe(noise(44));  // of which nothing stays
  const Transcript together = all.transcribe(noise(31));
  REQUIRE(together.frames == 16);
  CHECK(furthest(together, alone) < 1e-6);
  CHECK(furthest(together, {alone[0]}) > 0.05);  // the models do differ
}

TEST_CASE("what no model thinks possible is still a number") {
  const TemporaryFolder folder;
  Made sure = seeded(1);
  sure.sharpness = 1e5f;
  const std::string path = sure.write(folder.path("sure"));
  Recognizer both(path, DeviceId{}, 1, std::vector<std::string>{path});
  const Transcript t = both.transcribe(noise(31));
  for (const float v : t.logits) CHECK(std::isfinite(v));
  CHECK(*std::min_element(t.logits.begin(), t.logits.end()) < -80);
}

// Logits [frames, 4] that are sure of a class by 5 nats, another in each frame.
std::vector<float> sure_of(const std::vector<int32_t>& classes) {
  std::vector<float> logits(classes.size() * 4, 0.0f);
  for (size_t t = 0; t < classes.size(); ++t) logits[t * 4 + static_cast<size_t>(classes[t])] = 5;
  return logits;
}

// All but one of three write 1 2 3 1, each in frames of its own, and each errs elsewhere.
TEST_CASE("models agree on a text that none of them writes, whatever their frames") {
  const std::vector<std::vector<float>> scores = {sure_of({1, 0, 2, 0, 3, 0, 0, 2, 0}),
                                                  sure_of({0, 1, 0, 3, 0, 3, 0, 0, 1}),
                                                  sure_of({0, 0, 2, 0, 0, 0, 3, 0, 1})};
  const std::vector<std::span<const float>> models(scores.begin(), scores.end());
  CHECK(agreed_labels(models, 4) == std::vector<int32_t>{1, 2, 3, 1});
  CHECK(agreed_labels(std::span(models).first(1), 4) == std::vector<int32_t>{1, 2, 3, 2});
  // Frames of another model's are its own.
  const std::vector<float> longer = sure_of({0, 1, 1, 0, 0, 0, 2, 2, 0, 0, 0, 3, 0, 1, 1, 0});
  const std::vector<std::span<const float>> mixed = {models[0], longer};
  const std::vector<int32_t> found = agreed_labels(mixed, 4);
  CHECK((found == std::vector<int32_t>{1, 2, 3, 1} || found == std::vector<int32_t>{1, 2, 3, 2}));
  const std::vector<std::span<const float>> none(2);
  CHECK(agreed_labels(none, 4).empty());
}

TEST_CASE("where no text is possible to all models the first one's stands") {
  std::vector<float> one(2 * 4, -INFINITY), other = one;
  for (const size_t t : {0, 1}) one[t * 4 + 1] = 0, other[t * 4 + 2] = 0;
  const std::vector<std::span<const float>> models = {one, other};
  CHECK(agreed_labels(models, 4) == std::vector<int32_t>{1});
}

// ln of the sum over all alignments, one by one.
double by_paths(const std::vector<float>& logits, const std::vector<int32_t>& text) {
  const size_t frames = logits.size() / 4;
  double sum = 0;
  for (size_t path = 0; path < size_t{1} << 2 * frames; ++path) {
    std::vector<int32_t> classes;
    double p = 1;
    for (size_t t = 0; t < frames; ++t) {
      classes.push_back(static_cast<int32_t>(path >> 2 * t & 3));
      p *= softmax(&logits[4 * t], 4)[static_cast<size_t>(classes.back())];
    }
    if (labels_of(collapse_ctc(classes)) == text) sum += p;
  }
  return std::log(sum);
}

TEST_CASE("what models agree on is no worse than what any of them writes", "[slow]") {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  int better = 0;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::vector<float>> scores(3, std::vector<float>(5 * 4));
    for (auto& model : scores)
      for (float& v : model) v = normal(random);
    const auto sum = [&](const std::vector<int32_t>& text) {
      double all = 0;
      for (const auto& model : scores) all += by_paths(model, text);
      return all;
    };
    const std::vector<std::span<const float>> models(scores.begin(), scores.end());
    const double found = sum(agreed_labels(models, 4));
    double most = -1e300;
    for (const auto& model : scores)
      most = std::max(most, sum(labels_of(greedy_ctc(model.data(), 5, 4))));
    CHECK(found >= most - 1e-5);
    better += found > most + 1e-5 ? 1 : 0;
  }
  CHECK(better > 0);
}

// What a decoder knows counts as for one model: three models read b for a by 2, 2 and 8 nats. With
// a hot word of 3 two of them write a, and together they still write b.
TEST_CASE("what models agree on heeds what a decoder knows") {
  const Vocabulary vocabulary = Vocabulary::of(Alphabet({" ", "a", "b"}));
  std::vector<std::vector<float>> scores(3, std::vector<float>(5 * 4, -9.0f));
  for (size_t m = 0; m < 3; ++m) {
    for (size_t t = 0; t < 5; ++t) scores[m][t * 4] = t == m + 1 ? -9.0f : 0.0f;
    scores[m][(m + 1) * 4 + 3] = 0;
    scores[m][(m + 1) * 4 + 2] = m == 2 ? -8.0f : -2.0f;
  }
  const std::vector<std::span<const float>> models(scores.begin(), scores.end());
  CHECK(vocabulary.text(agreed_labels(models, 4)) == "b");
  for (const double weight : {3.0, 5.0}) {
    DecoderKnowledge knowledge;
    knowledge.hot_words = {{"a", weight}};
    DecoderOptions options;
    options.word_score = 0;
    const Decoder decoder(vocabulary, options, knowledge);
    CHECK(vocabulary.text(agreed_labels(models, 4, &decoder)) == (weight > 4 ? "a" : "b"));
  }
  // A letter twice, which the first one writes once: a search can write it.
  const std::vector<std::vector<float>> doubled = {sure_of({2, 0, 0}), sure_of({2, 0, 2}),
                                                   sure_of({2, 0, 2})};
  const std::vector<std::span<const float>> twice(doubled.begin(), doubled.end());
  const Decoder plain(vocabulary, {});
  CHECK(vocabulary.text(agreed_labels(twice, 4, &plain)) == "aa");
}

TEST_CASE("models together write what they agree on, alone and in evaluation") {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  std::vector<std::vector<float>> scores;
  for (const uint64_t seed : {1, 2, 3}) {
    paths.push_back(seeded(seed).write(folder.path("model" + std::to_string(seed))));
    scores.push_back(Recognizer(paths.back(), DeviceId{}, 1).transcribe(noise(31)).logits);
  }
  Recognizer all(paths[0], DeviceId{}, 1, std::span(paths).subspan(1));
  const std::vector<std::span<const float>> models(scores.begin(), scores.end());
  const std::vector<int32_t> labels = agreed_labels(models, 4);
  REQUIRE(!labels.empty());
  const Transcript t = all.transcribe(noise(31));
  CHECK(t.text == all.vocabulary().text(labels));
  CHECK(t.characters.size() == labels.size());
  CHECK(t.alternatives.empty());
  CHECK(all.predict({noise(8), noise(31)}).back().transcript.text == t.text);
}

TEST_CASE("a search in several models that is to tell of other texts is one in their mean") {
  const TemporaryFolder folder;
  const std::vector<std::string> paths = {seeded(1).write(folder.path("a")),
                                          seeded(2).write(folder.path("b"))};
  Recognizer all(paths[0], DeviceId{}, 1, std::span(paths).subspan(1));
  DecoderOptions options;
  options.nbest = 3;
  options.posteriors = true;
  all.set_decoder(Decoder(all.vocabulary(), options));
  all.set_confidence(Confidence::posterior);
  const Transcript t = all.transcribe(noise(31));
  CHECK(t.alternatives.size() == 3);
  CHECK(t.text == all.decode(t.logits).text);
  CHECK(!t.characters.empty());
}

TEST_CASE("the loss of models together is that of their mean") {
  const TemporaryFolder folder;
  std::vector<std::string> paths = {seeded(1).write(folder.path("a")),
                                    seeded(2).write(folder.path("b"))};
  Recognizer all(paths[0], DeviceId{}, 1, std::span(paths).subspan(1));
  // Two frames of the output with an empty text, and one with the label 2.
  const std::vector<int32_t> lengths = {3, 2}, labels = {2}, offsets = {0, 0, 1};
  const PackedHost layout = build_packed(lengths);
  const Matrix x = noise(5);
  const BatchView::Input input{features_input, x.data.data(), x.data.size() * sizeof(float)};
  BatchView view;
  view.layout = &layout;
  view.inputs = {&input, 1};
  view.labels = labels;
  view.label_offsets = offsets;
  const std::vector<float> scores = evaluated(all).evaluate_and_predict(view);
  REQUIRE(scores.size() == 3 * 4);
  const StepResult& result = evaluated(all).last_result();
  REQUIRE(result.losses.size() == 2);
  // Rows: frame 0 of both, frame 1 of the first.
  CHECK(result.losses[0] ==
        Approx(-std::log(softmax(&scores[0], 4)[0]) - std::log(softmax(&scores[8], 4)[0])));
  CHECK(result.losses[1] == Approx(-std::log(softmax(&scores[4], 4)[2])));
}

TEST_CASE(
    "classifiers together say the mean of their probabilities, regressions of their numbers") {
  const TemporaryFolder folder;
  for (const Task task : {Task::classify, Task::regress}) {
    std::vector<std::string> paths;
    std::vector<Prediction> alone;
    for (uint64_t seed : {1, 2}) {
      Made m = seeded(seed);
      m.config.task = task;
      paths.push_back(m.write(folder.path("model" + std::to_string(seed))));
      alone.push_back(Recognizer(paths.back(), DeviceId{}, 1).predict({noise(9)}).front());
    }
    Recognizer all(paths[0], DeviceId{}, 1, std::span(paths).subspan(1));
    const Prediction p = all.predict({noise(9)}).front();
    for (size_t i = 0; i < 4; ++i) {
      if (task == Task::classify) {
        const double mean = (alone[0].probabilities[i] + alone[1].probabilities[i]) / 2;
        CHECK(p.probabilities.at(i) == Approx(mean).margin(1e-6));
      } else {
        CHECK(p.values.at(i) == Approx((alone[0].values[i] + alone[1].values[i]) / 2));
      }
    }
  }
}

TEST_CASE("models that do not fit together are refused by the names of both") {
  const TemporaryFolder folder;
  const std::string first = Made().write(folder.path("first"));
  const auto refused = [&](const Made& other, const std::string& why) {
    const std::vector<std::string> others = {other.write(folder.path("other"))};
    CHECK_THROWS_WITH(Recognizer(first, DeviceId{}, 1, others),
                      others[0] + ": cannot be averaged with " + first + ": " + why);
  };
  Made m;
  m.config.features.cmvn = Cmvn::utterance;
  refused(m, "it reads otherwise, features.cmvn: \"none\" -> \"utterance\"");
  m = {};
  m.config.model.subsample = 3;
  refused(m, "it makes a frame of the output of 3 of the input, not of 2");
  const std::string cure = "; training with the same data.alphabet gives all models the same";
  m = {};
  m.alphabet = {" ", "a", "c"};
  refused(m, "it lacks the character 'b'" + cure);
  m.alphabet = {" ", "a", "b", "c"};
  refused(m, "it has the character 'c' besides" + cure);
  m.alphabet = {"a", " ", "b"};
  refused(m, "its characters have other labels" + cure);
  m = {};
  m.config.task = Task::classify;
  refused(m, "it reads otherwise, task: \"ctc\" -> \"classify\"");
  m = {};
  m.columns = 5;
  refused(m, "it reads 5 columns, not 6");
  m = {};
  m.config.task = Task::classify;
  m.outputs = 3;
  m.classes = {"x", "y", "z"};
  m.write(folder.path("first"));
  m.classes = {"x", "z", "y"};
  refused(m, "its classes have other names");
  m.config.task = Task::regress;
  m.classes.clear();
  m.write(folder.path("first"));
  m.outputs = 2;
  refused(m, "it has 2 outputs, not 3");
  // Each is looked at, and not the second alone.
  Made().write(folder.path("first"));
  m = {};
  m.alphabet = {"a", " ", "b"};
  const std::vector<std::string> three = {seeded(2).write(folder.path("fits")),
                                          m.write(folder.path("other"))};
  CHECK_THROWS_WITH(Recognizer(first, DeviceId{}, 1, three),
                    Contains("its characters have other labels"));
  // Dither is of training alone, and how a model came about does not matter.
  m = seeded(4);
  m.config.features.dither = 1;
  m.config.model.hidden = 5;
  const std::vector<std::string> others = {m.write(folder.path("other"))};
  CHECK_NOTHROW(Recognizer(first, DeviceId{}, 1, others));
}
