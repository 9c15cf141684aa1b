#include "engine/train/recognition/recognizer.h"

#include <algorithm>
#include <cmath>

#include "engine/data/batch.h"
#include "engine/data/image/line_shape.h"
#include "engine/text/unicode.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/agreement.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// The softmax of a row of logits.
std::vector<double> softmax(std::span<const float> row) {
  const float largest = *std::max_element(row.begin(), row.end());
  std::vector<double> p;
  double sum = 0;
  for (float v : row) sum += p.emplace_back(std::exp(static_cast<double>(v - largest)));
  for (double& v : p) v /= sum;
  return p;
}

std::vector<LoadedModel> load_models(const std::string& path, std::span<const std::string> others,
                                     DeviceId device, int threads,
                                     std::vector<std::string>* warnings) {
  std::vector<LoadedModel> models;
  models.push_back(load_model(path, device, threads, warnings));
  for (const std::string& other : others)
    models.push_back(load_model(other, device, threads, warnings));
  return models;
}

}  // namespace

Recognizer::Recognizer(const std::string& path, DeviceId device, int threads,
                       std::span<const std::string> others)
    : device_(device),
      threads_(threads),
      models_(load_models(path, others, device, threads, &warnings_)),
      ensemble_(models_),
      alphabet_(as_read(description().config.features, Alphabet(description().alphabet))),
      vocabulary_(Vocabulary::of(alphabet_)) {}

double Recognizer::frame_seconds() const {
  const FeaturesConfig& f = description().config.features;
  const double step = f.type == FeatureType::image ? 1 : f.hop_ms / 1000.0;
  return step * static_cast<double>(models_.front().session->subsampling());
}

void Recognizer::require_trained_on(InputKind wanted, const char* inputs) const {
  const InputKind kind = input_kind(description().config.features.type);
  if (kind == wanted) return;
  const char* own = kind == InputKind::features ? "ready features"
                    : kind == InputKind::image  ? "images"
                                                : "recordings";
  fail_input(file(), ": was trained on ", own, ", not on ", inputs);
}

Matrix Recognizer::features(const GreyImage& image, const std::string& name) const {
  require_trained_on(InputKind::image, "images");
  if (is_blank(image)) return {};
  const LineConfig& line = description().config.features;
  const GreyImage level = shaped(line, image);
  line.require_line(level.info(), name);
  return line_features(line, level, line.scaled_width(level.info()));
}

Matrix Recognizer::features(const Waveform& audio) const {
  const FeaturesConfig& f = description().config.features;
  require_trained_on(InputKind::recording, "recordings");
  RONDO_CHECK(audio.sample_rate == f.rate, "audio at ", audio.sample_rate, " Hz, the model reads ",
              f.rate);
  if (description().config.task == Task::ctc && audio.is_digital_silence()) return {};
  return FeatureExtractor(f).compute(audio.samples);
}

Transcript Recognizer::transcribe(const Waveform& audio) { return transcribe(features(audio)); }

Transcript Recognizer::transcribe(Matrix x) {
  if (description().config.task != Task::ctc) {
    fail_input(file(), ": is not a ctc model: it writes no text");
  }
  std::vector<Matrix> one;
  one.push_back(std::move(x));
  return predict(std::move(one)).front().transcript;
}

std::vector<Prediction> Recognizer::predict(std::vector<Matrix> features) {
  std::vector<Prediction> all;
  std::vector<std::optional<std::vector<int32_t>>> texts;
  std::vector<std::vector<float>> outputs = this->outputs(std::move(features), &texts);
  if (on_device_ && description().config.task == Task::ctc) {
    for (Transcript& t : search(std::move(outputs))) all.emplace_back().transcript = std::move(t);
    return all;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (texts[i]) {
      all.emplace_back().transcript = with_text(std::move(outputs[i]), *texts[i]);
    } else {
      all.push_back(interpret(std::move(outputs[i])));
    }
  }
  return all;
}

void Recognizer::set_decoder(std::optional<Decoder> decoder, bool on_device) {
  on_device_.reset();
  decoder_ = std::move(decoder);
  if (!decoder_ || !on_device) return;
  if (device_.kind == DeviceKind::cpu)
    fail_input("the search cannot run on the model's device, which is the CPU");
  on_device_ = std::make_unique<BatchDecoder>(
      *decoder_, require_device(device_.kind, device_.index), threads_);
}

std::vector<Transcript> Recognizer::search(std::vector<std::vector<float>> outputs) const {
  std::vector<BatchDecoder::Utterance> utterances;
  for (const std::vector<float>& values : outputs)
    utterances.push_back({values.data(), static_cast<int32_t>(static_cast<int64_t>(values.size()) /
                                                              vocabulary_.classes())});
  const auto texts = on_device_->decode(utterances);
  std::vector<Transcript> all;
  for (size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(
        transcript_of(std::move(outputs[i]), vocabulary_, texts[i], frame_seconds(), confidence_));
    if (alphabet_.reads_leftwards()) turn_leftwards(all.back());
  }
  return all;
}

std::vector<std::vector<float>> Recognizer::outputs(
    std::vector<Matrix> features, std::vector<std::optional<std::vector<int32_t>>>* texts) {
  std::vector<std::vector<float>> all(features.size());
  texts->resize(features.size());
  BatchRequest request;
  std::vector<Example> examples;
  for (size_t i = 0; i < features.size(); ++i) {
    Matrix& x = features[i];
    if (x.frames == 0) continue;
    if (x.dim != description().sizes.features) {
      fail_input("features of ", x.dim, " columns, expected the ", description().sizes.features,
                 " that ", file(), " reads");
    }
    normalize_utterance(x, cmvn_mode_of(description().config.features));
    if (!description().mean.empty()) apply({description().mean, description().inverse_std}, x);
    request.utterances.push_back(static_cast<int64_t>(i));
    examples.emplace_back().features = std::move(x);
  }
  if (examples.empty()) return all;
  HostBatch batch;
  pack_batch(request, examples, std::vector<uint64_t>(examples.size()),
             static_cast<int32_t>(description().sizes.features), batch);
  const BatchView::Input input{features_input, batch.features.data(),
                               batch.features.size() * sizeof(float)};
  BatchView view;
  view.layout = &batch.layout;
  view.inputs = {&input, 1};
  const std::vector<float>& packed = ensemble_.predict(view);
  const int64_t cols = description().sizes.outputs;
  const std::vector<int32_t> lengths = output_lengths(ensemble_, batch.layout);
  for (size_t n = 0; n < batch.utterances.size(); ++n) {
    std::vector<float>& values = all[static_cast<size_t>(batch.utterances[n])];
    const auto pooled = packed.begin() + static_cast<int64_t>(n) * cols;
    values = description().config.task == Task::ctc ? unpack(packed, lengths, n, cols)
                                                    : std::vector<float>(pooled, pooled + cols);
    if (std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) {
      fail_input(file(),
                 ": its output is not a number; its weights have grown out of range, or the "
                 "features are too large");
    }
    if (ensemble_.each().empty() || searches_mean()) continue;
    (*texts)[static_cast<size_t>(batch.utterances[n])] =
        agreed_labels(ensemble_.each(), lengths, n, static_cast<int32_t>(cols), decoder());
  }
  return all;
}

Prediction Recognizer::interpret(std::vector<float> outputs) const {
  Prediction p;
  if (description().config.task == Task::ctc) {
    p.transcript = decode(std::move(outputs));
    return p;
  }
  if (outputs.empty()) fail_input("there is no frame to predict from");
  if (description().config.task == Task::classify) {
    p.class_index =
        static_cast<int32_t>(std::max_element(outputs.begin(), outputs.end()) - outputs.begin());
    p.classes = description().classes;
    p.probabilities = softmax(outputs);
  }
  p.values = std::move(outputs);
  return p;
}

// A search on a device knows the mean alone, and what a search tells of its own texts, other ones
// and posteriors, is of one search.
bool Recognizer::searches_mean() const {
  if (on_device_) return true;
  return decoder_ && (decoder_->options().nbest > 1 || decoder_->options().posteriors);
}

// Of the models' mean are the times and the confidences.
Transcript Recognizer::with_text(std::vector<float> outputs,
                                 const std::vector<int32_t>& labels) const {
  DecodedText found;
  found.labels = labels;
  found.text = vocabulary_.text(labels);
  found.words = vocabulary_.words(labels);
  Transcript t =
      transcript_of(std::move(outputs), vocabulary_, {found}, frame_seconds(), confidence_);
  t.alternatives.clear();
  if (alphabet_.reads_leftwards()) turn_leftwards(t);
  return t;
}

Transcript Recognizer::decode(std::vector<float> logits) const {
  if (on_device_) {
    std::vector<std::vector<float>> one;
    one.push_back(std::move(logits));
    return std::move(search(std::move(one)).front());
  }
  Transcript t =
      transcript_of(std::move(logits), vocabulary_, decoder(), frame_seconds(), confidence_);
  if (alphabet_.reads_leftwards()) turn_leftwards(t);
  return t;
}

std::unique_ptr<ManifestDataset> Recognizer::open(const std::string& manifest,
                                                  const MediaReaders& readers,
                                                  bool references) const {
  const TextEncoder* text = description().config.task == Task::ctc ? &alphabet_ : nullptr;
  auto data = open_dataset(description().config, manifest,
                           references ? DataUse::evaluation : DataUse::inference, readers,
                           {text, description().classes});
  if (!description().mean.empty()) {
    data->set_global_cmvn({description().mean, description().inverse_std});
  }
  if (references)
    require_fit(*data, manifest, description().config.task, description().sizes, file());
  return data;
}

}  // namespace rondo
