// What a trained model is used for: times and probabilities of words, error rates of a manifest
// (docs/using_a_model.md).
#include <limits>
#include <random>
#include <span>
#include <thread>

#include "engine/text/error_rate.h"
#include "engine/train/model/build_model.h"
#include "engine/train/recognition/evaluation.h"
#include "engine/train/recognition/recognizer.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "tests/catch.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;

namespace {

// Noise, as long as the name of the file says in hundredths of a second.
class NoiseReader final : public AudioReader {
 public:
  static int64_t samples(const std::string& path) {
    return 80 * std::stol(std::filesystem::path(path).stem().string());
  }
  AudioInfo info(const FilePart& file) const override { return {8000, 1, samples(file.path)}; }
  Waveform read(const FilePart& file, int32_t rate, AudioSegment) const override {
    std::mt19937 random(static_cast<unsigned>(samples(file.path)));
    std::normal_distribution<float> normal(0, 0.1f);
    Waveform w{rate, {}};
    for (int64_t i = 0; i < samples(file.path); ++i) {
      w.samples.push_back(normal(random) * (1.1f + std::sin(static_cast<float>(i) * 0.002f)));
    }
    return w;
  }
};

Config config_of(Cmvn cmvn) {
  Config c;
  c.features.rate = 8000;
  c.features.bins = 16;
  c.features.hop_ms = 12;
  c.features.cmvn = cmvn;
  c.model.hidden = 16;
  c.model.layers = 1;
  c.model.subsample = 3;
  c.augment.spec_augment = true;  // which using a model has nothing to do with
  c.augment.time_share = 0.5;
  c.training.threads = 1;
  return c;
}

std::string write_model(const TemporaryFolder& folder, const Config& config) {
  ModelDescription d;
  d.config = config;
  d.alphabet = {" ", "a", "b", "c", "d"};
  d.sizes = {config.features.bins, 6};
  if (config.features.cmvn == Cmvn::global) {
    for (int i = 0; i < config.features.bins; ++i) {
      d.mean.push_back(15.0f + 0.1f * static_cast<float>(i));
      d.inverse_std.push_back(0.25f);
    }
  }
  Session session(build_model(config.model, config.task, d.sizes),
                  session_options(config, DeviceId{}));
  const TensorView w = session.parameters().weight("output.weight");
  for (int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= 12;
  save_model(folder.path("model.safetensors"), session, d);
  return folder.path("model.safetensors");
}

}  // namespace

TEST_CASE("what a recogniser is given has to fit its model", "[recognizer]") {
  const TemporaryFolder folder;
  Config config = config_of(Cmvn::none);
  config.model.bidirectional = false;
  Recognizer model(write_model(folder, config), DeviceId{});
  const Vocabulary many({"<blank>", "a", "b", "c", "d", "e", "f"}, {}, "", "test");
  const Vocabulary few({"<blank>", "a"}, {}, "", "test");
  for (const Vocabulary& v : {many, few}) {
    const std::string wrong =
        str("a decoder for ", v.classes(), " classes with the blank 0, and outputs of 6");
    const Decoder decoder(v, {});
    CHECK_THROWS_WITH(model.set_decoder(decoder), Catch::Contains(wrong));
    CHECK_THROWS_WITH(transcript_of(std::vector<float>(12), model.vocabulary(), &decoder, 1),
                      Catch::Contains(wrong));
  }
  const Vocabulary last({"<pad>", " ", "a", "b", "c", "d"}, 5, "", "test");
  CHECK_THROWS_WITH(model.set_decoder(Decoder(last, {})), Catch::Contains("with the blank 5"));
  CHECK(model.decoder() == nullptr);
  for (const bool searches : {false, true}) {
    if (searches) model.set_decoder(Decoder(model.vocabulary(), {}));
    CHECK_THROWS_WITH(model.decode(std::vector<float>(17)),
                      Catch::Contains("outputs of 17 numbers, expected rows of 6 classes"));
    CHECK(model.decode(std::vector<float>(18)).frames == 3);
    CHECK(model.decode({}).frames == 0);
  }
  Waveform w = NoiseReader().read(FilePart{"100.wav"}, 8000, {});
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e20F}) {
    w.samples[4000] = wrong;
    CHECK_THROWS_WITH(model.transcribe(w), Catch::Contains("sample 4000 (0.5 s) is "));
    model.set_decoder({});
    RecognizerStream stream(model, 0.1);
    CHECK_THROWS_WITH(stream.accept(w.samples), Catch::Contains("sample 4000 (0.5 s) is "));
  }
}

TEST_CASE("recognisers of one model share its weights, each in a thread of its own",
          "[recognizer]") {
  const TemporaryFolder folder;
  const std::string path = write_model(folder, config_of(Cmvn::none));
  const Waveform audio = NoiseReader().read(FilePart{"500.wav"}, 8000, {});
  const Transcript alone = Recognizer(path, DeviceId{}, 1).transcribe(audio);
  REQUIRE(alone.frames > 100);

  const Model model(path);
  std::vector<Recognizer> all;
  for (int i = 0; i < 4; ++i) all.emplace_back(model, i < 2 ? 1 : 2);  // they move as it grows
  for (Recognizer& r : all)
    CHECK(r.session().parameters().weights().data == model.weights()->weights().data);
  std::vector<Transcript> found(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 10; ++repeat) found[i] = all[i].transcribe(audio);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Transcript& t : found) CHECK(t.logits == alone.logits);
  // The weights are packed once for all of them.
  const size_t packed = model.weights()->packed_bytes();
  CHECK(packed > 0);
  all.emplace_back(model, 1).transcribe(audio);
  CHECK(model.weights()->packed_bytes() == packed);

  all[0].trim();
  CHECK(all[0].transcribe(audio).logits == alone.logits);
  const std::string file = read_text_file(path);
  const Model other(std::as_bytes(std::span(file)), "bytes");
  CHECK(other.file() == "bytes");
  CHECK(Recognizer(other, 1).transcribe(audio).logits == alone.logits);
}

TEST_CASE("weights are shared by sessions of the same model alone, and never trained",
          "[recognizer]") {
  const auto model = [](int32_t hidden) {
    return [hidden](Graph& g) {
      const ValueId x = layers::input_frames(g, "features", 4);
      const ValueId y = layers::linear(g, layers::lstm(g, x, "l", {.hidden = hidden}), "out", 3);
      return Outputs{layers::ctc_loss(g, y), y};
    };
  };
  SessionOptions o;
  o.threads = 1;
  const Session trains(model(8), o);
  o.training = false;
  const Session first(model(8), o);
  o.weights = first.weights();
  Session second(model(8), o);
  CHECK(second.parameters().weights().data == first.parameters().weights().data);
  CHECK_THROWS_WITH(second.load("nothing"), Catch::Contains("nothing"));
  CHECK_THROWS_WITH(Session(model(9), o), Catch::Contains("of another model"));
  o.weights = trains.weights();
  CHECK_THROWS_WITH(Session(model(8), o), Catch::Contains("of a session that trains"));
  o.weights = first.weights();
  o.training = true;
  CHECK_THROWS_WITH(Session(model(8), o), Catch::Contains("for inference"));
}

TEST_CASE("times are seconds of the recording: frames of the output times hop and subsampling") {
  const TemporaryFolder folder;
  const Recognizer model(write_model(folder, config_of(Cmvn::none)), DeviceId{});
  const double frame = 3 * 0.012;
  CHECK(model.frame_seconds() == Approx(frame));
  // Blank, a twice, b, blank, b, space, c twice, d: "abb cd".
  const std::vector<size_t> path = {0, 2, 2, 3, 0, 3, 1, 4, 4, 5};
  std::vector<float> logits;
  std::vector<double> probabilities;
  for (size_t t = 0; t < path.size(); ++t) {
    double sum = 0;
    for (size_t c = 0; c < 6; ++c) {
      const float x =
          c == path[t] ? 1 + 0.25f * static_cast<float>(t) : 0.1f * static_cast<float>(c);
      logits.push_back(x);
      sum += std::exp(static_cast<double>(x));
    }
    probabilities.push_back(std::exp(1 + 0.25 * static_cast<double>(t)) / sum);
  }
  const Transcript t = model.decode(logits);
  CHECK(t.text == "abb cd");
  CHECK(t.frames == 10);
  CHECK(t.classes == 6);
  struct Wanted {
    std::string text;
    int begin, end;
    double probability;
  };
  const auto& p = probabilities;
  const auto check_tokens = [&](const std::vector<Transcript::Token>& tokens,
                                const std::vector<Wanted>& wanted) {
    REQUIRE(tokens.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      CHECK(tokens[i].text == wanted[i].text);
      CHECK(tokens[i].begin == Approx(wanted[i].begin * frame));
      CHECK(tokens[i].end == Approx(wanted[i].end * frame));
      CHECK(tokens[i].probability == Approx(wanted[i].probability).epsilon(1e-5));
    }
  };
  const double a = (p[1] + p[2]) / 2, c = (p[7] + p[8]) / 2;
  check_tokens(t.characters, {{"a", 1, 3, a},
                              {"b", 3, 4, p[3]},
                              {"b", 5, 6, p[5]},
                              {" ", 6, 7, p[6]},
                              {"c", 7, 9, c},
                              {"d", 9, 10, p[9]}});
  check_tokens(t.words, {{"abb", 1, 6, (a + p[3] + p[5]) / 3}, {"cd", 7, 10, (c + p[9]) / 2}});
}

TEST_CASE(
    "a manifest's hypotheses are the transcripts of its recordings, whatever batch they are in") {
  const TemporaryFolder folder;
  const NoiseReader reader;
  std::string manifest;
  const std::vector<std::string> names = {"31.wav",  "150.wav", "77.wav",
                                          "149.wav", "52.wav",  "9.wav"};
  const std::vector<std::string> texts = {
      "a", "b cd", "", "dd aa b", "c", "abcd abcd abcd abcd"};  // more than its frames can spell
  for (size_t i = 0; i < names.size(); ++i) {
    manifest += R"({"audio_filepath": ")" + names[i] + R"(", "text": ")" + texts[i] + "\"}\n";
  }
  folder.write("data.jsonl", manifest);
  for (Cmvn cmvn : {Cmvn::none, Cmvn::utterance, Cmvn::global}) {
    Recognizer model(write_model(folder, config_of(cmvn)), DeviceId{});
    std::vector<std::string> wanted;
    ErrorRate errors;
    for (size_t i = 0; i < names.size(); ++i) {
      const Transcript t = model.transcribe(reader.read(names[i], 8000, {}));
      wanted.push_back(t.text);
      errors.add(texts[i], t.text);
    }
    // So many that a transcript of another recording would be noticed.
    CHECK(std::set<std::string>(wanted.begin(), wanted.end()).size() >= 4);
    const auto data = open_dataset(model, folder.path("data.jsonl"), &reader, true);
    for (int64_t batch_frames : {int64_t{200}, int64_t{100000}}) {
      EvaluationOptions o;
      o.batch_frames = batch_frames;
      std::vector<std::string> found(names.size());
      double losses = 0;
      const Evaluation e =
          evaluate(model.session(), *data, &model.alphabet(), o, [&](const Hypothesis& h) {
            found.at(static_cast<size_t>(h.utterance)) = h.text;
            if (std::isfinite(h.loss)) losses += h.loss;
          });
      CHECK(found == wanted);
      CHECK(e.utterances == 6);
      CHECK(e.infeasible == 1);
      CHECK(e.counted == 5);
      CHECK(e.loss == Approx(losses / 5));
      CHECK(e.errors.words() == errors.words());
      CHECK(e.errors.characters() == errors.characters());
      // All errors over all words: not the mean of the utterances' rates.
      CHECK(e.value(Metric::wer) == Approx(static_cast<double>(errors.words().errors()) / 11));
    }
  }
}

TEST_CASE(
    "a classifier's error is the share of wrong utterances; of equal scores the first counts") {
  auto utterances = ColumnCorpus::utterances(9);
  for (size_t i = 0; i < utterances.size(); ++i) {
    utterances[i].more = "\"label\": " + std::to_string(i * 7 % 3);
  }
  const ColumnCorpus corpus(utterances);
  Config c = corpus.with_dev("run");
  c.data.test = corpus.folder.path("train.jsonl");
  c.task = Task::classify;
  c.optimizer.learning_rate = 0.5;
  const ObservedRun run = observe(c, ModelSizes{9, 3});
  bool some = false;
  for (const test::Json& v : log_events(run.directory, "validation")) {
    const Weights& w = run.weights.at(v.at("step").get<size_t>());
    double wrong = 0, loss = 0;
    for (size_t i = 0; i < 9; ++i) {
      std::vector<double> scores;
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) {
        scores.push_back(static_cast<double>(w[k * 9 + i]) + w[27 + k]);
        sum += std::exp(scores.back());
      }
      const auto found = std::max_element(scores.begin(), scores.end()) - scores.begin();
      wrong += found != static_cast<std::ptrdiff_t>(i * 7 % 3);
      loss += std::log(sum) - scores[i * 7 % 3];
    }
    CHECK(v.at("error") == Approx(wrong / 9));
    CHECK(v.at("loss") == Approx(loss / 9).epsilon(1e-5));
    some |= wrong > 0;
  }
  CHECK(some);
  CHECK(log_events(run.directory, "test").at(0).contains("error"));
}

TEST_CASE("several inputs at once are what each is alone, bit for bit") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, config_of(Cmvn::global)), DeviceId{});
  const NoiseReader reader;
  std::vector<Matrix> features;
  for (const char* name : {"90.wav", "40.wav", "150.wav", "40.wav", "7.wav"}) {
    features.push_back(model.features(reader.read(name, 8000, {})));
  }
  features.emplace_back();  // an empty recording
  const std::vector<Prediction> all = model.predict(features);
  REQUIRE(all.size() == features.size());
  for (size_t i = 0; i < features.size(); ++i) {
    const Transcript alone = model.transcribe(features[i]);
    INFO(i);
    CHECK(all[i].transcript.text == alone.text);
    CHECK(all[i].transcript.logits == alone.logits);
    CHECK(all[i].transcript.frames == (features[i].frames + 2) / 3);
  }
  CHECK_FALSE(all[2].transcript.text.empty());
  CHECK(all[5].transcript.text.empty());
  CHECK(model.predict({}).empty());
  CHECK_THROWS_WITH(model.predict({Matrix(5, 7)}), Catch::Contains("features of 7 columns"));
}

TEST_CASE("a model of classes says the most probable one") {
  const TemporaryFolder folder;
  Config config = config_of(Cmvn::none);
  config.task = Task::classify;
  Recognizer model(write_model(folder, config), DeviceId{});
  const NoiseReader reader;
  const auto all = model.predict({model.features(reader.read("90.wav", 8000, {})),
                                  model.features(reader.read("30.wav", 8000, {}))});
  for (const Prediction& p : all) {
    REQUIRE(p.values.size() == 6);
    REQUIRE(p.probabilities.size() == 6);
    double sum = 0;
    for (size_t c = 0; c < 6; ++c) {
      sum += p.probabilities[c];
      CHECK(p.values[c] <= p.values[static_cast<size_t>(p.class_index)]);
      CHECK(std::log(p.probabilities[c] / p.probabilities[0]) ==
            Approx(p.values[c] - p.values[0]).margin(1e-5));
    }
    CHECK(sum == Approx(1));
  }
  CHECK(all[0].values != all[1].values);
  CHECK_THROWS_WITH(model.transcribe(Matrix(5, 16)), Catch::Contains("is not a ctc model"));
  CHECK_THROWS_WITH(model.predict({Matrix()}), Catch::Contains("no frame"));
}
