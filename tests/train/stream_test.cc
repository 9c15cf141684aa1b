// Streaming gives what transcribing the whole recording gives, and so do the pieces of a long one.
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/config/layer_types.h"
#include "engine/io/safetensors.h"
#include "engine/session.h"
#include "engine/train/model/build_model.h"
#include "engine/train/model/model_file.h"
#include "engine/train/recognition/long_recording.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/conv/conv.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

namespace rondo {
namespace {

Config streaming_config() {
  Config c;
  c.features.rate = 8000;
  c.features.bins = 16;
  c.features.cmvn = Cmvn::global;
  c.model.hidden = 24;
  c.model.layers = 2;
  c.model.bidirectional = false;
  c.model.subsample = 3;
  c.model.layer_norm = true;
  c.training.seed = 5;
  c.training.threads = 2;
  return c;
}

LayerConfig conv_layer(int kernel, int stride, int dilation, ConvContext context) {
  return LayerConfig("conv")
      .set("channels", 20)
      .set("kernel", kernel)
      .set("stride", stride)
      .set("dilation", dilation)
      .set("context", context);
}

Config convolutional_config() {
  Config c = streaming_config();
  const auto lstm = LayerConfig("lstm").set("hidden", 24).set("bidirectional", false);
  c.model.layer = {conv_layer(5, 1, 1, ConvContext::past), conv_layer(4, 3, 1, ConvContext::past),
                   lstm, conv_layer(3, 1, 2, ConvContext::past)};
  return c;
}

// A model with random weights, in a file. `sharp`: so that it writes text, not blanks alone.
std::string write_model(const TemporaryFolder& folder, const Config& config) {
  ModelDescription d;
  d.config = config;
  d.alphabet = {" ", "a", "b", "c", "d"};
  d.sizes = {config.features.bins, 6};
  if (config.features.cmvn == Cmvn::global) {
    for (int i = 0; i < config.features.bins; ++i) {
      d.mean.push_back(10.0f + 0.1f * static_cast<float>(i));
      d.inverse_std.push_back(0.25f);
    }
  }
  Session session(build_model(config.model, config.task, d.sizes),
                  session_options(config, DeviceId{}));
  const TensorView w = session.parameters().weight("output.weight");
  for (int64_t i = 0; i < w.numel(); ++i) w.as<float>()[i] *= 8;
  save_model(folder.path("model.safetensors"), session, d);
  return folder.path("model.safetensors");
}

Waveform noise(double seconds, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  Waveform w;
  w.sample_rate = 8000;
  const auto samples = static_cast<size_t>(seconds * 8000);
  for (size_t i = 0; i < samples; ++i) {
    w.samples.push_back(normal(random) * (1 + std::sin(static_cast<float>(i) * 0.002f)));
  }
  return w;
}

constexpr EndpointOptions whole{0, 0};  // one utterance

// In pieces of random sizes; `text`: what was told on the way.
Transcript stream_all(RecognizerStream& stream, const Waveform& audio, uint32_t seed,
                      std::string& text) {
  std::mt19937 random(seed);
  text.clear();
  for (size_t at = 0; at < audio.samples.size();) {
    const size_t n = std::min<size_t>(random() % 900, audio.samples.size() - at);
    text += stream.accept(std::span(audio.samples).subspan(at, n));
    at += n;
  }
  return stream.finish();
}

size_t used_memory() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

}  // namespace

TEST_CASE("a stream gives the logits and text of the whole recording, bit for bit") {
  const TemporaryFolder folder;
  const Config config = GENERATE(streaming_config(), convolutional_config());
  Recognizer model(write_model(folder, config), DeviceId{});
  for (double chunk_seconds : {0.01, 0.1, 0.37, 60.0}) {
    RecognizerStream stream(model, chunk_seconds, {whole, {}});
    // A stream may be used again; the last recordings are shorter than a frame, and empty.
    for (double seconds : {1.7, 0.8, 0.01, 0.0}) {
      CAPTURE(chunk_seconds, seconds);
      const Waveform audio = noise(seconds, 3);
      const Transcript whole = model.transcribe(audio);
      std::string told;
      const Transcript streamed = stream_all(stream, audio, 7, told);
      CHECK(streamed.logits == whole.logits);
      CHECK(streamed.text == whole.text);
      CHECK(streamed.frames == whole.frames);
      CHECK(streamed.characters.size() == whole.characters.size());
      CHECK(whole.text.starts_with(told));
      if (seconds > 1) CHECK(whole.text.size() >= 4);
      // All of it was told but what the last chunk and a held back space hold.
      if (seconds > 1 && chunk_seconds < 0.2) CHECK(told.size() + 6 > whole.text.size());
    }
  }
}

TEST_CASE("streams that are heard at once have the bits that each has alone") {
  const TemporaryFolder folder;
  const Config config = GENERATE(streaming_config(), convolutional_config());
  Recognizer model(write_model(folder, config), DeviceId{});
  // More than are computed together, of two kinds of chunks; of three sounds one begins silent.
  constexpr size_t count = 90;
  std::vector<Waveform> sounds;
  for (uint32_t kind = 0; kind < 3; ++kind) {
    sounds.push_back(noise(0.7 + 0.1 * kind, kind));
    if (kind == 2) std::fill_n(sounds.back().samples.begin(), 2000, 0.0f);
  }
  std::vector<std::unique_ptr<RecognizerStream>> streams;
  for (size_t i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<RecognizerStream>(model, i % 5 == 0 ? 0.02 : 0.1,
                                                         StreamOptions{whole, {}}));
  }
  std::mt19937 random(3);
  std::vector<std::string> told(count);
  std::vector<size_t> at(count);
  // They do not begin together, and do not end together.
  for (int round = 0; round < 100; ++round) {
    std::vector<RecognizerStream::Sound> heard;
    std::vector<size_t> who;
    for (size_t i = 0; i < count; ++i) {
      if (static_cast<size_t>(round) < i % 7 || random() % 4 == 0) continue;
      const std::span<const float> samples(sounds[i % 3].samples);
      const size_t n = std::min<size_t>(random() % 900, samples.size() - at[i]);
      heard.push_back({streams[i].get(), samples.subspan(at[i], n)});
      at[i] += n;
      who.push_back(i);
    }
    const std::vector<std::string> texts = RecognizerStream::accept(heard);
    REQUIRE(texts.size() == heard.size());
    for (size_t i = 0; i < who.size(); ++i) told[who[i]] += texts[i];
  }
  for (size_t i = 0; i < count; ++i) {
    CAPTURE(i);
    REQUIRE(at[i] == sounds[i % 3].samples.size());
    const Transcript want = model.transcribe(sounds[i % 3]);
    const StreamedTranscript got = streams[i]->finish();
    REQUIRE(got.logits == want.logits);
    REQUIRE(got.text == want.text);
    REQUIRE(got.text.starts_with(told[i]));
  }
}

TEST_CASE("what is wrong with one of several streams changes none") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  RecognizerStream a(model, 0.1, {whole, {}}), b(model, 0.1, {whole, {}});
  const Waveform sound = noise(0.5, 1);
  const std::vector<float> bad(100, std::nanf(""));
  using Sound = RecognizerStream::Sound;
  const Sound twice[] = {{&a, sound.samples}, {&b, sound.samples}, {&a, sound.samples}};
  CHECK_THROWS_WITH(RecognizerStream::accept(twice), Catch::Contains("twice"));
  const Sound not_finite[] = {{&a, sound.samples}, {&b, bad}};
  CHECK_THROWS_AS(RecognizerStream::accept(not_finite), InputError);
  CHECK(RecognizerStream::accept(std::span<const Sound>()).empty());
  const Sound good[] = {{&a, sound.samples}, {&b, sound.samples}};
  RecognizerStream::accept(good);
  CHECK(a.finish().logits == model.transcribe(sound).logits);
}

TEST_CASE("a stream used again writes a label that the recording before ended with") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  RecognizerStream stream(model, 0.1, {whole, {}});
  const auto label = [](const Transcript& t, int64_t frame) {
    const auto row = t.logits.begin() + frame * t.classes;
    return std::max_element(row, row + t.classes) - row;
  };
  std::ptrdiff_t before = 0;
  int again = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Waveform audio = noise(0.25, seed);
    const Transcript whole = model.transcribe(audio);
    std::string told;
    stream_all(stream, audio, 7, told);
    CHECK(whole.text.starts_with(told));
    again += !told.empty() && before > 1 && label(whole, 0) == before ? 1 : 0;
    before = label(whole, whole.frames - 1);
  }
  CHECK(again > 0);
}

TEST_CASE("digital silence alone streams as nothing, and before sound as what it is") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  RecognizerStream stream(model, 0.1, {whole, {}});
  const Waveform sound = noise(0.8, 3);
  for (const size_t before : {size_t{1}, size_t{4000}, size_t{150000}}) {
    Waveform audio{8000, std::vector<float>(before, 0.25F)};
    std::string told;
    const Transcript silent = stream_all(stream, audio, 7, told);
    CHECK(silent.text.empty());
    CHECK(silent.frames == 0);
    CHECK(told.empty());
    CHECK(model.transcribe(audio).frames == 0);
    audio.samples.insert(audio.samples.end(), sound.samples.begin(), sound.samples.end());
    const Transcript whole = model.transcribe(audio);
    CHECK(whole.frames > 0);
    CHECK(stream_all(stream, audio, 7, told).logits == whole.logits);
  }
}

TEST_CASE("a stream with a decoder writes what that makes of the whole, each time it is used") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  const std::string greedy = model.transcribe(noise(1.7, 3)).text;
  DecoderKnowledge knowledge;
  knowledge.hot_words = {{"dab", 9.0}};
  DecoderOptions options;
  options.beam = 3;  // so few that their beginnings are soon the same
  model.set_decoder(Decoder(model.vocabulary(), options, knowledge));
  RecognizerStream stream(model, 0.1, {whole, {}});
  for (const double seconds : {1.7, 0.8, 1.7}) {
    const Waveform audio = noise(seconds, 3);
    const Transcript whole = model.transcribe(audio);
    std::string told;
    const Transcript streamed = stream_all(stream, audio, 7, told);
    CHECK(streamed.text == whole.text);
    CHECK(streamed.logits == whole.logits);
    CHECK(whole.text.starts_with(told));
    if (seconds < 1) continue;
    CHECK(!told.empty());
    CHECK(whole.text != greedy);
  }
}

TEST_CASE("a stream's utterances are the whole's outputs, cut up, whatever the chunks") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  const Waveform audio = noise(6, 3);
  const std::vector<float> outputs = model.transcribe(audio).logits;
  const StreamOptions often{{0.3, 0.8}, {}};
  std::string first_told;
  for (const double chunk_seconds : {0.05, 0.4, 60.0}) {
    CAPTURE(chunk_seconds);
    RecognizerStream stream(model, chunk_seconds, often);
    std::vector<StreamedTranscript> all;
    std::string told;
    for (size_t at = 0; at < audio.samples.size(); at += 333) {
      const size_t n = std::min<size_t>(333, audio.samples.size() - at);
      told += stream.accept(std::span(audio.samples).subspan(at, n));
      for (const StreamedTranscript& t : stream.ended()) all.push_back(t);
    }
    StreamedTranscript last = stream.finish();
    for (const StreamedTranscript& t : stream.ended()) {
      told += t.text.substr(t.told) + "\n";
      all.push_back(t);
    }
    told += last.text.substr(last.told);
    all.push_back(std::move(last));
    CHECK(all.size() >= 4);
    std::vector<float> joined;
    std::string lines;
    for (const StreamedTranscript& t : all) {
      CHECK(t.begin == Approx(static_cast<double>(joined.size() / 6) * model.frame_seconds()));
      joined.insert(joined.end(), t.logits.begin(), t.logits.end());
      lines += (lines.empty() ? "" : "\n") + t.text;
      CHECK(model.decode(t.logits).text == t.text);
    }
    CHECK(joined == outputs);
    CHECK(told == lines);
    if (first_told.empty()) first_told = told;
    CHECK(told == first_told);
  }
}

TEST_CASE("digital silence before a stream of utterances counts for ten seconds, and their times") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  const Waveform sound = noise(0.8, 3);
  RecognizerStream stream(model, 0.1, {{0, 30}, {}});
  for (int use = 0; use < 2; ++use) {
    static_cast<void>(stream.accept(std::vector<float>(100 * 8000, 0)));
    static_cast<void>(stream.accept(sound.samples));
    const StreamedTranscript t = stream.finish();
    CHECK(t.begin == Approx(90).margin(0.1));
    CHECK(t.end == Approx(100.8).margin(0.1));
    Waveform ten{8000, std::vector<float>(static_cast<size_t>((100 - t.begin) * 8000 + 0.5), 0)};
    ten.samples.insert(ten.samples.end(), sound.samples.begin(), sound.samples.end());
    CHECK(t.logits == model.transcribe(ten).logits);
  }
}

TEST_CASE("streams of one model have hot words of their own") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  DecoderOptions options;
  options.beam = 10;
  model.set_decoder(Decoder(model.vocabulary(), options));
  const std::vector<HotWord> hot = {{"dab", 30.0}};
  const Decoder other = model.decoder()->with_hot_words(hot);
  const Waveform audio = noise(1.7, 3);
  RecognizerStream plain(model, 0.1, {whole, {}}), own(model, 0.1, {whole, other});
  std::string told;
  CHECK(stream_all(plain, audio, 7, told).text == model.transcribe(audio).text);
  const std::string text = stream_all(own, audio, 7, told).text;
  CHECK(text != model.transcribe(audio).text);
  model.set_decoder(other);
  CHECK(text == model.transcribe(audio).text);
}

// Six hours; the first of them is there so that everything is as large as it becomes.
TEST_CASE("a stream of sound keeps its memory for hours", "[.hours]") {
  const TemporaryFolder folder;
  Recognizer model(write_model(folder, streaming_config()), DeviceId{});
  RecognizerStream stream(model, 0.5);
  const Waveform minute = noise(60, 3);
  size_t after_one = 0, utterances = 0;
  for (int m = 0; m < 6 * 60; ++m) {
    for (size_t at = 0; at < minute.samples.size(); at += 4000) {
      static_cast<void>(stream.accept(std::span(minute.samples).subspan(at, 4000)));
      utterances += stream.ended().size();
    }
    if (m == 59) after_one = used_memory();
    if (m >= 59) REQUIRE(used_memory() < after_one + 200000);
  }
  CHECK(utterances > 6 * 60);
}

TEST_CASE("the outputs of a long recording are those of the whole, however it is cut") {
  const TemporaryFolder folder;
  Config streams = streaming_config(), looks_ahead = convolutional_config();
  for (LayerConfig& layer : looks_ahead.model.layer)
    if (layer.type().name == "conv") layer.set("context", ConvContext::both);
  std::erase_if(looks_ahead.model.layer, [](const auto& l) { return l.type().name == "lstm"; });
  // 3.07 s are cut after each second; the last piece is short, and shorter than its context.
  const Waveform audio = noise(3.07, 3);
  for (const Config& config : {streams, looks_ahead}) {
    Recognizer model(write_model(folder, config), DeviceId{});
    const std::vector<float> whole = model.transcribe(audio).logits;
    for (const PieceOptions& o : {PieceOptions{1, 0.25}, PieceOptions{0.5, 0.4}})
      CHECK(long_outputs(model, audio, o) == whole);
  }
}

TEST_CASE("of a long recording digital silence is blank, and what is between stands by itself") {
  const TemporaryFolder folder;
  Config config = convolutional_config();
  config.features.cmvn = Cmvn::utterance;
  Recognizer model(write_model(folder, config), DeviceId{});
  // Silences of 0.3 s, which is too short to be one, of 1 s, and at the end.
  Waveform audio{8000, {}};
  const auto append = [&](const std::vector<float>& samples) {
    audio.samples.insert(audio.samples.end(), samples.begin(), samples.end());
  };
  append(noise(0.7, 3).samples);
  append(std::vector<float>(2400));
  append(noise(0.5, 4).samples);
  append(std::vector<float>(8000));
  append(noise(1.2, 5).samples);
  append(std::vector<float>(8100));  // the last block of frames is not whole
  const std::vector<float> found = long_outputs(model, audio, {2, 0.3});
  // By what the features say: blocks of three frames that all equal their first one are silent.
  const Matrix features = model.features(audio);
  const auto silent = [&](int64_t first) {
    for (int64_t t = first; t < std::min(first + 3, features.frames); ++t)
      if (!std::equal(features.row(t), features.row(t) + 16, features.row(first))) return false;
    return true;
  };
  REQUIRE(features.frames % 3 == 1);
  const int64_t blocks = (features.frames + 2) / 3;
  REQUIRE(found.size() == static_cast<size_t>(blocks) * 6);
  std::vector<float> wanted;
  int stretches = 0;
  for (int64_t begin = 0, end = 0; begin < blocks; begin = end) {
    const auto is_pause = [&](int64_t block) {  // that lasts half a second
      int64_t from = block, to = block;
      while (from > 0 && silent(3 * from - 3)) --from;
      while (to < blocks && silent(3 * to)) ++to;
      return silent(3 * block) && to - from >= 17;
    };
    const bool pause = is_pause(begin);
    for (end = begin; end < blocks && is_pause(end) == pause;) ++end;
    ++stretches;
    if (pause) {
      for (int64_t b = begin; b < end; ++b) wanted.insert(wanted.end(), {20, 0, 0, 0, 0, 0});
      continue;
    }
    const int64_t rows = std::min(3 * end, features.frames) - 3 * begin;
    Matrix part(rows, 16);
    std::copy_n(features.row(3 * begin), rows * 16, part.data.begin());
    const Transcript t = model.transcribe(std::move(part));
    wanted.insert(wanted.end(), t.logits.begin(), t.logits.end());
  }
  CHECK(stretches == 4);
  CHECK(found == wanted);
}

TEST_CASE("models that need the end of a recording do not stream, and say why") {
  const TemporaryFolder folder;
  const auto refused = [&](const Config& config, const std::string& why) {
    Recognizer model(write_model(folder, config), DeviceId{});
    CHECK_THROWS_WITH(RecognizerStream(model, 0.5),
                      Catch::Contains("model.safetensors: ") && Catch::Contains(why));
  };
  Config c = streaming_config();
  c.model.bidirectional = true;
  refused(c, "has bidirectional layers");
  for (ConvContext context : {ConvContext::both, ConvContext::future}) {
    c = convolutional_config();
    c.model.layer.push_back(conv_layer(2, 1, 2, context));
    refused(c, "has a convolution that looks ahead, conv4: only a conv with context = \"past\"");
  }
  c = streaming_config();
  c.features.cmvn = Cmvn::utterance;
  refused(c, "normalises each recording by its own mean");
  c = streaming_config();
  c.features.type = FeatureType::image;
  c.features.cmvn = Cmvn::none;
  refused(c, "was trained on images of lines");
  c.features.type = FeatureType::ready;
  refused(c, "was trained on ready features");
}

TEST_CASE("weights of convolutions have PyTorch's shape in files, and come back") {
  const TemporaryFolder folder;
  const std::string path = write_model(folder, convolutional_config());
  const SafetensorsFile file(path);
  CHECK(file.at("conv0.weight").shape == std::vector<int64_t>{20, 16, 5});
  CHECK(file.at("conv3.weight").shape == std::vector<int64_t>{20, 24, 3});
  CHECK(file.at("conv3.bias").shape == std::vector<int64_t>{1, 20});
  Recognizer model(path, DeviceId{});
  const TensorView w = model.session().parameters().weight("conv0.weight");
  CHECK(std::memcmp(w.data, file.at("conv0.weight").bytes.data(), w.bytes()) == 0);
}

}  // namespace rondo
