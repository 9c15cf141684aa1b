// That each key of [features] and [augment] does what it says, to the training data alone
// (docs/data.md, docs/training.md).
#include <random>

#include "engine/data/image/line_shape.h"
#include "engine/data/line_distortion.h"
#include "engine/train/model/open_data.h"
#include "tests/catch.h"
#include "tests/train/observed_run.h"

using namespace rondo;
using namespace rondo::test;

namespace {

constexpr double seconds = 1;

// Recordings of noise whose loudness changes, as many samples as their rate asks for.
class NoiseReader final : public AudioReader {
 public:
  AudioInfo info(const FilePart&) const override { return {16000, 1, 16000}; }
  Waveform read(const FilePart& file, int32_t rate, AudioSegment) const override {
    std::mt19937 random(static_cast<unsigned>(file.path.size()));
    std::normal_distribution<float> normal(0, 0.1f);
    Waveform w{rate, {}};
    for (int i = 0; i < static_cast<int>(seconds * rate); ++i) {
      w.samples.push_back(normal(random) * (1.1f + std::sin(static_cast<float>(i) * 0.002f)));
    }
    return w;
  }
};
const NoiseReader reader;

struct Recordings {
  TemporaryFolder folder;
  std::string manifest = folder.write("data.jsonl", R"({"audio_filepath": "a.wav", "target": 1})"
                                                    "\n"
                                                    R"({"audio_filepath": "bb.wav", "target": 2})"
                                                    "\n");

  static Config config() {
    Config c;
    c.task = Task::regress;
    c.features.cmvn = Cmvn::none;
    c.training.threads = 1;
    return c;
  }
  std::unique_ptr<ManifestDataset> open(const Config& c, DataUse use = DataUse::training) const {
    return open_dataset(c, manifest, use, &reader, nullptr);
  }
};

// Columns, or rows, that hold one value only, which features of noise never do.
struct Masked {
  int64_t frames = 0, bins = 0;
};
Masked masked(const Matrix& m) {
  Masked n;
  for (int64_t t = 0; t < m.frames; ++t) {
    n.frames += std::all_of(m.row(t), m.row(t) + m.dim, [&](float v) { return v == m.row(t)[0]; });
  }
  for (int32_t i = 0; i < m.dim; ++i) {
    bool same = true;
    for (int64_t t = 1; t < m.frames; ++t) same &= m.row(t)[i] == m.row(0)[i];
    n.bins += same;
  }
  return n;
}
Masked most_masked(const Recordings& r, const Config& c) {
  const auto data = r.open(c);
  Masked most;
  for (uint64_t epoch = 0; epoch < 150; ++epoch) {
    const Masked m = masked(data->load(0, epoch).features);
    most = {std::max(most.frames, m.frames), std::max(most.bins, m.bins)};
  }
  return most;
}

double distance(const Matrix& a, const Matrix& b) { return rondo::test::distance(a.data, b.data); }

// A linear model that never learns, so that every loss is of the same weights.
Config still(const ColumnCorpus& corpus, const std::string& name) {
  Config c = corpus.with_dev(name);
  c.data.test = corpus.folder.path("test.jsonl");
  c.data.batch_frames = 1000;  // an epoch is a batch
  c.optimizer.learning_rate = 1e-30;
  return c;
}

std::vector<double> losses(const Config& c, const std::string& event) {
  return values_of(log_events(c.training.checkpoint_dir, event), "loss");
}

}  // namespace

TEST_CASE("each key of features reaches the features") {
  const Recordings r;
  using Set = std::function<void(SoundConfig&)>;
  const std::vector<std::pair<const char*, Set>> keys = {
      {"type", [](auto& f) { f.type = FeatureType::mfcc; }},
      {"bins", [](auto& f) { f.bins = 23; }},
      {"coefficients", [](auto& f) { f.type = FeatureType::mfcc, f.coefficients = 7; }},
      {"rate", [](auto& f) { f.rate = 8000; }},
      {"frame_ms", [](auto& f) { f.frame_ms = 20; }},
      {"hop_ms", [](auto& f) { f.hop_ms = 12.5; }},
      {"low_hz", [](auto& f) { f.low_hz = 100; }},
      {"high_hz", [](auto& f) { f.high_hz = 3000; }},
      {"preemphasis", [](auto& f) { f.preemphasis = 0.5; }}};
  const Matrix plain = r.open(Recordings::config())->raw_features(0);
  for (const auto& [key, set] : keys) {
    INFO("features." << key);
    Config c = Recordings::config();
    SoundConfig wanted;
    set(c.features);
    set(wanted);
    const Waveform audio = reader.read(r.folder.path("a.wav"), wanted.rate, {});
    const Matrix m = FeatureExtractor(wanted).compute(audio.samples);
    for (DataUse use : {DataUse::training, DataUse::evaluation, DataUse::inference}) {
      CHECK(r.open(c, use)->load(0, 0).features == m);
    }
    CHECK_FALSE(m == plain);
  }
  Config c = Recordings::config();
  c.features.dither = 3;
  const Matrix dithered = r.open(c)->load(0, 1).features;
  CHECK_FALSE(dithered == plain);
  CHECK(dithered == r.open(c)->load(0, 1).features);
  CHECK_FALSE(dithered == r.open(c)->load(0, 2).features);
}

namespace {

// A line of strokes, half of them high, that falls slowly over uneven grey.
class StrokesReader final : public ImageReader {
 public:
  ImageInfo info(const FilePart&) const override { return image_.info(); }
  GreyImage read(const FilePart&) const override { return image_; }

  StrokesReader() {
    for (int32_t y = 0; y < image_.height; ++y) {
      for (int32_t x = 0; x < image_.width; ++x) {
        const int32_t row = y - x / 30, top = x % 24 < 12 ? 8 : 14;
        const bool is_ink = x % 12 < 4 && row >= top && row < 24;
        image_.row(y)[x] = static_cast<uint8_t>(is_ink ? 40 + y % 3 : 190 + x % 5);
      }
    }
  }

 private:
  GreyImage image_{240, 40};
};
const StrokesReader strokes;

struct Line {
  TemporaryFolder folder;
  std::string manifest = folder.write("data.jsonl", R"({"image_filepath": "a.png", "target": 1})");

  static Config config() {
    Config c = Recordings::config();
    c.features.type = FeatureType::image;
    return c;
  }
  std::unique_ptr<ManifestDataset> open(const Config& c, DataUse use = DataUse::training) const {
    return open_dataset(c, manifest, use, {nullptr, &strokes}, nullptr);
  }
  // As the functions of engine/data/image and line_distortion.h make it.
  static Matrix wanted(const LineConfig& line, const DistortConfig& distort, AugmentKey key) {
    const GreyImage level = shaped(line, strokes.read({}));
    const int32_t permille = line_stretch(distort, key);
    Matrix m = line_features(line, level, line.scaled_width(level.info(), permille));
    if (distort != DistortConfig()) distort_line(distort, key, m);
    return m;
  }
};

}  // namespace

TEST_CASE("each key of an image's features reaches the line, in training and in use") {
  const Line l;
  using Set = std::function<void(LineConfig&)>;
  const std::vector<std::pair<const char*, Set>> keys = {
      {"height", [](auto& f) { f.height = 24; }},
      {"padding", [](auto& f) { f.padding = 3; }},
      {"ink", [](auto& f) { f.ink = Ink::light; }},
      {"contrast", [](auto& f) { f.contrast = false; }},
      {"scaling", [](auto& f) { f.scaling = LineScaling::tesseract; }},
      {"deskew", [](auto& f) { f.deskew = true; }},
      {"centre", [](auto& f) { f.centre = true; }},
      {"leftwards", [](auto& f) { f.direction = LineDirection::leftwards; }},
      {"downwards", [](auto& f) { f.direction = LineDirection::downwards; }}};
  const Matrix plain = l.open(Line::config())->raw_features(0);
  CHECK(plain == l.wanted({}, {}, {}));
  for (const auto& [key, set] : keys) {
    INFO("features." << key);
    Config c = Line::config();
    LineConfig wanted;
    set(c.features);
    set(wanted);
    for (const DataUse use : {DataUse::training, DataUse::evaluation, DataUse::inference})
      CHECK(l.open(c, use)->load(0, 3).features == l.wanted(wanted, {}, {}));
    CHECK_FALSE(l.wanted(wanted, {}, {}) == plain);
  }
}

TEST_CASE("each key of distort reaches the line, drawn by seed, epoch and line, in training alone",
          "[slow]") {
  const Line l;
  using Set = std::function<void(DistortConfig&)>;
  const std::vector<std::pair<const char*, Set>> keys = {
      {"strength", [](auto& d) { d.offset = 3, d.strength = 2.5; }},
      {"stretch", [](auto& d) { d.stretch = 0.25; }},
      {"slant", [](auto& d) { d.slant = 20; }},
      {"rotation", [](auto& d) { d.rotation = 3; }},
      {"size", [](auto& d) { d.size = 0.25; }},
      {"offset", [](auto& d) { d.offset = 6; }},
      {"elastic", [](auto& d) { d.elastic = 4; }},
      {"thickness", [](auto& d) { d.thickness = 2; }},
      {"blur", [](auto& d) { d.blur = 3; }},
      {"fade", [](auto& d) { d.fade = 0.5; }},
      {"background", [](auto& d) { d.background = 0.25; }},
      {"show_through", [](auto& d) { d.show_through = 0.75; }},
      {"noise", [](auto& d) { d.noise = 0.125; }},
      {"cutouts", [](auto& d) { d.cutouts = 2; }},
      {"cutout_size", [](auto& d) { d.cutouts = 2, d.cutout_size = 30; }},
      {"probability", [](auto& d) { d.offset = 6, d.probability = 0.25; }}};
  const Matrix plain = l.open(Line::config())->raw_features(0);
  std::set<std::set<std::vector<float>>> all;
  for (const auto& [key, set] : keys) {
    INFO("distort." << key);
    Config c = Line::config();
    DistortConfig& wanted = c.distort;
    wanted.probability = 1;
    set(wanted);
    const auto data = l.open(c);
    c.training.seed = 7;
    const auto other_seed = l.open(c);
    int same = 0;
    std::set<std::vector<float>> drawn;
    constexpr int epochs = 24;
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const Matrix m = data->load(0, epoch).features;
      CHECK(m == l.wanted({}, wanted, {1, epoch, data->key(0)}));
      CHECK(other_seed->load(0, epoch).features == l.wanted({}, wanted, {7, epoch, data->key(0)}));
      CHECK(m.frames == data->frames(0, epoch));
      same += m == plain;
      drawn.insert(m.data);
    }
    // Strengths differ from epoch to epoch, and no key does what another one does.
    CHECK(drawn.size() > (wanted.probability == 1 ? 20 : 2));
    CHECK((wanted.probability == 1 ? same <= 1 : same > 10 && same < epochs));
    CHECK(all.insert(std::move(drawn)).second);
    for (const DataUse use : {DataUse::evaluation, DataUse::inference})
      CHECK(l.open(c, use)->load(0, 1).features == plain);
  }
}

TEST_CASE("cmvn: none, of each utterance, or of the training set") {
  const Recordings r;
  Config c = Recordings::config();
  const Matrix raw = r.open(c)->raw_features(0);
  CHECK(r.open(c)->load(0, 0).features == raw);
  for (DataUse use : {DataUse::training, DataUse::evaluation, DataUse::inference}) {
    c.features.cmvn = Cmvn::utterance;
    Matrix normal = raw;
    normalize_utterance(normal, CmvnMode::mean_variance);
    CHECK(r.open(c, use)->load(0, 0).features == normal);
    c.features.cmvn = Cmvn::global;
    const auto data = r.open(c, use);
    GlobalCmvn cmvn{std::vector<float>(40, 3.0f), std::vector<float>(40, 0.5f)};
    data->set_global_cmvn(cmvn);
    normal = raw;
    for (float& v : normal.data) v = (v - 3) * 0.5f;
    CHECK(data->load(0, 0).features == normal);
  }
}

TEST_CASE("spec_augment: so many masks, of frames and bins, none wider than allowed", "[slow]") {
  const Recordings r;  // 98 frames of 40 bins
  Config c = Recordings::config();
  AugmentConfig& a = c.augment;
  a.frequency_width = 3;
  a.time_width = 7;
  CHECK(most_masked(r, c).bins == 0);  // not asked for
  CHECK(most_masked(r, c).frames == 0);
  a.spec_augment = true;
  a.frequency_masks = 1;
  a.time_masks = 0;
  CHECK(most_masked(r, c).bins == 3);
  CHECK(most_masked(r, c).frames == 0);
  a.frequency_masks = 3;
  CHECK(most_masked(r, c).bins > 6);
  CHECK(most_masked(r, c).bins <= 9);
  a.frequency_masks = 0;
  a.time_masks = 1;
  CHECK(most_masked(r, c).bins == 0);
  CHECK(most_masked(r, c).frames == 7);
  a.time_masks = 3;
  CHECK(most_masked(r, c).frames > 14);
  CHECK(most_masked(r, c).frames <= 21);
  a.time_masks = 1;
  a.time_width = 50;
  a.time_share = 0.1;
  CHECK(most_masked(r, c).frames == 9);
  // After normalisation, with the utterance's mean, which is then 0.
  c.features.cmvn = Cmvn::utterance;
  a.time_share = 0.5;
  const auto data = r.open(c);
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Matrix m = data->load(0, epoch).features;
    if (masked(m).frames == 0) continue;
    for (int64_t t = 0; t < m.frames; ++t) {
      if (m.row(t)[0] == m.row(t)[1]) CHECK(std::abs(m.row(t)[0]) < 1e-4f);
    }
  }
}

TEST_CASE("speed: one of the factors for each utterance and epoch") {
  const Recordings r;
  Config c = Recordings::config();
  c.augment.speed = {0.5, 2};
  const auto data = r.open(c);
  std::set<int64_t> frames;
  std::set<std::vector<int64_t>> together;
  for (uint64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<int64_t> both;
    for (int64_t i : {0, 1}) {
      CHECK(data->load(i, epoch).features.frames == data->frames(i, epoch));
      both.push_back(data->frames(i, epoch));
      frames.insert(both.back());
    }
    together.insert(both);
  }
  CHECK(frames == std::set<int64_t>{48, 198});
  CHECK(together.size() == 4);  // utterances apart from each other
}

TEST_CASE("noise: in that share of the draws, between the two ratios", "[slow]") {
  const Recordings r;
  Config c = Recordings::config();
  const Matrix clean = r.open(c)->load(0, 0).features;
  const auto distances = [&](double share, double low, double high) {
    c.augment.noise = share;
    c.augment.noise_snr_low = low;
    c.augment.noise_snr_high = high;
    const auto data = r.open(c);
    std::vector<double> all;
    for (uint64_t epoch = 0; epoch < 60; ++epoch) {
      all.push_back(distance(data->load(0, epoch).features, clean));
    }
    return all;
  };
  const auto some = distances(0.5, 10, 10);
  const auto untouched = std::count(some.begin(), some.end(), 0.0);
  CHECK(untouched > 15);
  CHECK(untouched < 45);
  const auto same = distances(1, 10, 10), wide = distances(1, -20, 60);
  const auto ratio = [](const std::vector<double>& d) {
    const auto [least, most] = std::minmax_element(d.begin(), d.end());
    return *most / *least;
  };
  CHECK(ratio(same) < 1.5);
  CHECK(ratio(wide) > 20);
  CHECK(*std::min_element(wide.begin(), wide.end()) < 0.2 * same[0]);
  CHECK(*std::max_element(wide.begin(), wide.end()) > 2 * same[0]);
  // Of recordings: those of the manifest.
  c.augment.noise_recordings = r.folder.write("noise.jsonl", R"({"audio_filepath": "noise.wav"})");
  const auto recorded = distances(1, 10, 10);
  CHECK(recorded[0] > 0);
  CHECK(recorded != same);
}

TEST_CASE("augmentation is drawn by seed, epoch and utterance; evaluation and use have none") {
  const Recordings r;
  Config c = Recordings::config();
  c.augment.spec_augment = true;
  c.augment.speed = {0.8, 1.25};
  c.augment.noise = 1;
  const auto features = [&](uint64_t seed, uint64_t epoch) {
    c.training.seed = seed;
    return r.open(c)->load(0, epoch).features;
  };
  CHECK(features(1, 1) == features(1, 1));
  CHECK_FALSE(features(1, 1) == features(1, 2));
  CHECK_FALSE(features(1, 1) == features(2, 1));
  const auto plain = r.open(Recordings::config());
  for (DataUse use : {DataUse::evaluation, DataUse::inference}) {
    const auto data = r.open(c, use);
    for (uint64_t epoch : {0u, 3u}) {
      CHECK(data->frames(0, epoch) == plain->frames(0, 0));
      CHECK(data->load(0, epoch).features == plain->raw_features(0));
    }
  }
}

TEST_CASE("masks and dropout are for training: validation and test have the whole model and data") {
  const ColumnCorpus corpus;
  Config c = still(corpus, "plain");
  require_success(train_on(1, c));
  const auto validations = losses(c, "validation"), tests = losses(c, "test");
  CHECK(tests.size() == 1);
  const LayerConfig dropout = LayerConfig("dropout").set("rate", 0.5);
  for (bool masks : {false, true}) {
    Config varied = still(corpus, masks ? "masked" : "dropped");
    varied.augment.spec_augment = masks;
    varied.augment.time_share = 0.9;
    if (!masks) {
      varied.model = {};  // a list of layers stands in place of the other settings
      varied.model.layer = {dropout};
    }
    require_success(train_on(1, varied));
    CHECK(losses(varied, "validation") == validations);
    CHECK(losses(varied, "test") == tests);
    // Training sees them, others in each epoch, the same in each run of a seed.
    const auto steps = losses(varied, "step");
    CHECK(std::set<double>(steps.begin(), steps.end()).size() == steps.size());
    for (double loss : steps) CHECK(std::abs(loss / losses(c, "step")[0] - 1) > 1e-4);
    Config again = varied;
    again.training.checkpoint_dir += "_again";
    require_success(train_on(1, again));
    CHECK(losses(again, "step") == steps);
    Config parts = varied;
    parts.training.checkpoint_dir += "_parts";
    parts.training.max_steps = 2;
    require_success(train_on(1, parts));
    parts.training.max_steps = 0;
    require_success(train_on(1, parts, StartFrom::checkpoint));
    CHECK(losses(parts, "step") == steps);
  }
}

TEST_CASE(
    "cmvn = global: of the training data without masks, kept with the model, used for dev and "
    "test") {
  const ColumnCorpus corpus;
  // The same columns at other lengths: statistics of their own would differ.
  std::vector<ColumnUtterance> dev = corpus.train, test = corpus.train;
  for (size_t i = 0; i < dev.size(); ++i) {
    dev[i].frames = 1 + static_cast<int>(i);
    test[i].frames = i == 3 ? 20 : 1;
  }
  corpus.write("dev", dev);
  corpus.write("test", test);
  Config c = still(corpus, "global");
  c.features.cmvn = Cmvn::global;
  c.augment.spec_augment = true;
  require_success(train_on(1, c));
  const SafetensorsFile file(c.training.checkpoint_dir + "/model.safetensors");
  const auto d = ModelDescription::from_metadata(file.metadata(), "model");
  REQUIRE(d.mean.size() == corpus.size());
  double all = 0;
  for (const ColumnUtterance& u : corpus.train) all += u.frames;
  const Weights w = best(c.training.checkpoint_dir);
  std::vector<double> constants;  // what a frame of zeros is answered with
  double zeros = 0;
  for (size_t i = 0; i < corpus.size(); ++i) {
    const double share = corpus.train[i].frames / all;
    const double scale = 1 / std::sqrt(share * (1 - share));
    CHECK(d.mean[i] == Approx(share).epsilon(1e-5));
    CHECK(d.inverse_std[i] == Approx(scale).epsilon(1e-5));
    zeros -= w[i] * share * scale;
    constants.push_back(w[i] * scale);
  }
  double sum = 0;
  for (size_t i = 0; i < dev.size(); ++i) {
    const double error = zeros + constants[i] + w.back() - dev[i].target;
    sum += error * error / static_cast<double>(dev.size());
  }
  for (double loss : losses(c, "validation")) CHECK(loss == Approx(sum).epsilon(1e-5));
  CHECK(losses(c, "test").at(0) == Approx(sum).epsilon(1e-5));
  // A run that goes on keeps them.
  c.training.epochs = 4;
  require_success(train_on(1, c, StartFrom::checkpoint));
  CHECK(losses(c, "validation").back() == Approx(sum).epsilon(1e-5));
}
