#include "engine/train/recognition/recognizer.h"

#include <algorithm>
#include <cmath>

#include "engine/text/unicode.h"
#include "engine/train/model/open_data.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Probability of class `label` in a row of logits.
double probability(const float* row, int64_t classes, int32_t label) {
  float largest = row[0];
  for (int64_t c = 1; c < classes; ++c) largest = std::max(largest, row[c]);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c] - largest));
  return std::exp(static_cast<double>(row[label] - largest)) / sum;
}

std::vector<Transcript::Token> words_of(const std::vector<Transcript::Token>& characters) {
  std::vector<Transcript::Token> words;
  Transcript::Token word;
  int count = 0;
  const auto flush = [&] {
    if (count == 0) return;
    word.probability /= count;
    words.push_back(word);
    word = {};
    count = 0;
  };
  for (const Transcript::Token& c : characters) {
    const bool ends = c.text.back() == ' ';  // a space, or a number of an alphabet of numbers
    const std::string text = ends ? c.text.substr(0, c.text.size() - 1) : c.text;
    if (!text.empty()) {
      if (count == 0) word.begin = c.begin;
      word.text += text;
      word.end = c.end;
      word.probability += c.probability;
      ++count;
    }
    if (ends) flush();
  }
  flush();
  return words;
}

}  // namespace

Recognizer::Recognizer(const std::string& path, DeviceId device, int threads) {
  const SafetensorsFile file = open_model(path, &warnings_);
  file_ = file.name();
  description_ = ModelDescription::from_metadata(file.metadata(), file_);
  alphabet_ = Alphabet(description_.alphabet);
  if (description_.config.task == Task::ctc && alphabet_.classes() != description_.sizes.outputs) {
    fail_input(file_, ": an alphabet of ", alphabet_.symbols().size(), " symbols for ",
               description_.sizes.outputs, " outputs");
  }
  require_finite(file);
  SessionOptions o = session_options(description_.config, device);
  o.threads = threads;
  o.training = false;
  session_ = std::make_unique<Session>(
      build_model(description_.config.model, description_.config.task, description_.sizes), o);
  session_->load(file);
}

double Recognizer::frame_seconds() const {
  return description_.config.features.hop_ms / 1000.0 *
         static_cast<double>(session_->subsampling());
}

Matrix Recognizer::features(const Waveform& audio) const {
  const FeaturesConfig& f = description_.config.features;
  if (f.type == FeatureType::ready) {
    fail_input(file_, ": was trained on ready features, not on recordings");
  }
  RONDO_CHECK(audio.sample_rate == f.rate, "audio at ", audio.sample_rate, " Hz, the model reads ",
              f.rate);
  return FeatureExtractor(feature_config(f)).compute(audio.samples);
}

Transcript Recognizer::transcribe(const Waveform& audio) {
  Matrix x = features(audio);
  // Normalised by itself, digital silence is what the mean of speech is, and gets text.
  const std::vector<float>& s = audio.samples;
  const bool silent = std::all_of(s.begin(), s.end(), [&](float v) { return v == s.front(); });
  if (silent && description_.config.features.cmvn == Cmvn::utterance) x = Matrix();
  return transcribe(std::move(x));
}

Transcript Recognizer::transcribe(Matrix x) {
  if (description_.config.task != Task::ctc) {
    fail_input(file_, ": is not a ctc model: it writes no text");
  }
  if (x.frames == 0) return decode({});
  RONDO_CHECK(x.dim == description_.sizes.features, "features of ", x.dim,
              " columns, the model reads ", description_.sizes.features);
  normalize_utterance(x, cmvn_mode_of(description_.config.features.cmvn));
  if (!description_.mean.empty()) apply({description_.mean, description_.inverse_std}, x);
  const int32_t lengths[] = {static_cast<int32_t>(x.frames)};
  const PackedHost layout = build_packed(lengths);
  const BatchView::Input input{features_input, x.data.data(), x.data.size() * sizeof(float)};
  BatchView view;
  view.layout = &layout;
  view.inputs = {&input, 1};
  return decode(session_->predict(view));
}

Transcript Recognizer::decode(std::vector<float> logits) const {
  Transcript t;
  t.classes = description_.sizes.outputs;
  t.logits = std::move(logits);
  t.frames = static_cast<int64_t>(t.logits.size()) / t.classes;
  const std::vector<TimedLabel> labels =
      greedy_ctc(t.logits.data(), static_cast<int32_t>(t.frames), static_cast<int32_t>(t.classes));
  t.text = alphabet_.decode(labels_of(labels));
  for (const TimedLabel& l : labels) {
    Transcript::Token c;
    c.text = alphabet_.symbols().at(static_cast<size_t>(l.label) - 1);
    c.begin = l.first_frame * frame_seconds();
    c.end = l.end_frame * frame_seconds();
    for (int32_t f = l.first_frame; f < l.end_frame; ++f) {
      c.probability +=
          probability(&t.logits[static_cast<size_t>(f * t.classes)], t.classes, l.label);
    }
    c.probability /= l.end_frame - l.first_frame;
    t.characters.push_back(std::move(c));
  }
  t.words = words_of(t.characters);
  return t;
}

std::unique_ptr<ManifestDataset> Recognizer::open(const std::string& manifest,
                                                  const AudioReader* audio, bool references) const {
  const TextEncoder* text = description_.config.task == Task::ctc ? &alphabet_ : nullptr;
  auto data = open_dataset(description_.config, manifest,
                           references ? DataUse::evaluation : DataUse::inference, audio, text);
  if (!description_.mean.empty()) {
    data->set_global_cmvn({description_.mean, description_.inverse_std});
  }
  if (references) require_fit(*data, manifest, description_.config.task, description_.sizes, file_);
  return data;
}

}  // namespace rondo
