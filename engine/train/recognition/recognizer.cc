#include "engine/train/recognition/recognizer.h"

#include <algorithm>
#include <cmath>

#include "engine/data/batch.h"
#include "engine/data/features/acoustic_features.h"
#include "engine/data/image/line_shape.h"
#include "engine/decode/batch_decoder.h"
#include "engine/text/unicode.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/agreement.h"
#include "engine/train/recognition/ensemble.h"
#include "engine/train/recognition/streamed_chunks.h"
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

std::vector<RunningModel> running(const Model& model, std::span<const Model> others, int threads) {
  std::vector<RunningModel> models;
  models.emplace_back(model, threads);
  for (const Model& other : others) models.emplace_back(other, threads);
  return models;
}

std::vector<Model> open_models(std::span<const std::string> paths, DeviceId device) {
  std::vector<Model> models;
  for (const std::string& path : paths) models.emplace_back(path, device);
  return models;
}

}  // namespace

struct Recognizer::State {
  State(const Model& model, int threads_, std::span<const Model> others)
      : threads(threads_), models(running(model, others, threads)), ensemble(models) {
    for (const RunningModel& m : models)
      warnings.insert(warnings.end(), m.model.warnings().begin(), m.model.warnings().end());
  }

  const Model& model() const { return models.front().model; }
  const ModelDescription& description() const { return model().description(); }
  const std::string& file() const { return model().file(); }
  const Alphabet& alphabet() const { return model().alphabet(); }
  const Vocabulary& vocabulary() const { return model().vocabulary(); }
  double frame_seconds() const { return model().frame_seconds(); }
  const Decoder* found_by() const { return decoder ? &*decoder : nullptr; }
  void require_trained_on(InputKind kind, const char* inputs) const;
  // Of each utterance; where several models are to agree, *texts has the labels that they do on.
  std::vector<std::vector<float>> outputs(std::vector<Matrix> features,
                                          std::vector<std::optional<std::vector<int32_t>>>* texts);
  Prediction interpret(std::vector<float> outputs) const;
  // Several models, whose text is found by a search in their mean.
  bool searches_mean() const;
  Transcript with_text(std::vector<float> outputs, const std::vector<int32_t>& labels) const;
  // Searched for on the device.
  std::vector<Transcript> search(std::vector<std::vector<float>> outputs) const;
  Transcript decode(std::vector<float> logits) const;

  int threads = 0;
  std::optional<Decoder> decoder;
  std::unique_ptr<BatchDecoder> on_device;
  Confidence confidence = Confidence::mean;
  std::vector<std::string> warnings;
  std::vector<RunningModel> models;
  Ensemble ensemble;  // of these
  SharedChunks chunks;
};

void Recognizer::State::require_trained_on(InputKind wanted, const char* inputs) const {
  const InputKind kind = input_kind(description().config.features.type);
  if (kind == wanted) return;
  const char* own = kind == InputKind::features ? "ready features"
                    : kind == InputKind::image  ? "images"
                                                : "recordings";
  fail_input(file(), ": was trained on ", own, ", not on ", inputs);
}

Recognizer::Recognizer(const std::string& path, DeviceId device, int threads,
                       std::span<const std::string> others)
    : Recognizer(Model(path, device), threads, open_models(others, device)) {}
Recognizer::Recognizer(const Model& model, int threads, std::span<const Model> others)
    : state_(std::make_unique<State>(model, threads, others)) {}
Recognizer::~Recognizer() = default;
Recognizer::Recognizer(Recognizer&&) noexcept = default;
Recognizer& Recognizer::operator=(Recognizer&&) noexcept = default;

const ModelDescription& Recognizer::description() const { return state_->description(); }
const std::string& Recognizer::file() const { return state_->file(); }
bool Recognizer::is_ensemble() const { return state_->models.size() > 1; }
const std::vector<std::string>& Recognizer::warnings() const { return state_->warnings; }
const Alphabet& Recognizer::alphabet() const { return state_->alphabet(); }
const Vocabulary& Recognizer::vocabulary() const { return state_->vocabulary(); }
const Model& Recognizer::model() const { return state_->model(); }
void Recognizer::trim() {
  for (RunningModel& m : state_->models) m.session->trim();
}
Session& Recognizer::session() { return *state_->models.front().session; }
double Recognizer::frame_seconds() const { return state_->frame_seconds(); }
const Decoder* Recognizer::decoder() const { return state_->found_by(); }
void Recognizer::set_confidence(Confidence confidence) { state_->confidence = confidence; }
Confidence Recognizer::confidence() const { return state_->confidence; }
Transcript Recognizer::decode(std::vector<float> logits) const {
  return state_->decode(std::move(logits));
}

Matrix Recognizer::features(const GreyImage& image, const std::string& name) const {
  state_->require_trained_on(InputKind::image, "images");
  if (is_blank(image)) return {};
  const LineConfig& line = description().config.features;
  const GreyImage level = shaped(line, image);
  line.require_line(level.info(), name);
  return line_features(line, level, line.scaled_width(level.info()));
}

Matrix Recognizer::features(const Waveform& audio) const {
  const FeaturesConfig& f = description().config.features;
  state_->require_trained_on(InputKind::recording, "recordings");
  RONDO_CHECK(audio.sample_rate == f.rate, "audio at ", audio.sample_rate, " Hz, the model reads ",
              f.rate);
  if (description().config.task == Task::ctc && audio.is_digital_silence()) return {};
  require_samples(audio.samples, f.rate);
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
  std::vector<std::vector<float>> outputs = state_->outputs(std::move(features), &texts);
  if (state_->on_device && description().config.task == Task::ctc) {
    for (Transcript& t : state_->search(std::move(outputs)))
      all.emplace_back().transcript = std::move(t);
    return all;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (texts[i]) {
      all.emplace_back().transcript = state_->with_text(std::move(outputs[i]), *texts[i]);
    } else {
      all.push_back(state_->interpret(std::move(outputs[i])));
    }
  }
  return all;
}

void Recognizer::set_decoder(std::optional<Decoder> decoder, bool on_device) {
  if (decoder) require_fit(*decoder, vocabulary());
  state_->on_device.reset();
  state_->decoder = std::move(decoder);
  if (!state_->decoder || !on_device) return;
  const DeviceId device = state_->model().device();
  if (device.kind == DeviceKind::cpu)
    fail_input("the search cannot run on the model's device, which is the CPU");
  state_->on_device = std::make_unique<BatchDecoder>(
      *state_->decoder, require_device(device.kind, device.index), state_->threads);
}

std::vector<Transcript> Recognizer::State::search(std::vector<std::vector<float>> outputs) const {
  std::vector<BatchDecoder::Utterance> utterances;
  for (const std::vector<float>& values : outputs)
    utterances.push_back({values.data(), static_cast<int32_t>(static_cast<int64_t>(values.size()) /
                                                              vocabulary().classes())});
  const auto texts = on_device->decode(utterances);
  std::vector<Transcript> all;
  for (size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(
        transcript_of(std::move(outputs[i]), vocabulary(), texts[i], frame_seconds(), confidence));
    if (alphabet().reads_leftwards()) turn_leftwards(all.back());
  }
  return all;
}

std::vector<std::vector<float>> Recognizer::State::outputs(
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
  const std::vector<float>& packed = ensemble.predict(view);
  const int64_t cols = description().sizes.outputs;
  const std::vector<int32_t> lengths = output_lengths(ensemble, batch.layout);
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
    if (ensemble.each().empty() || searches_mean()) continue;
    (*texts)[static_cast<size_t>(batch.utterances[n])] =
        agreed_labels(ensemble.each(), lengths, n, static_cast<int32_t>(cols), found_by());
  }
  return all;
}

Prediction Recognizer::State::interpret(std::vector<float> outputs) const {
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
bool Recognizer::State::searches_mean() const {
  if (on_device) return true;
  return decoder && (decoder->options().nbest > 1 || decoder->options().posteriors);
}

// Of the models' mean are the times and the confidences.
Transcript Recognizer::State::with_text(std::vector<float> outputs,
                                        const std::vector<int32_t>& labels) const {
  DecodedText found;
  found.labels = labels;
  found.text = vocabulary().text(labels);
  found.words = vocabulary().words(labels);
  Transcript t =
      transcript_of(std::move(outputs), vocabulary(), {found}, frame_seconds(), confidence);
  t.alternatives.clear();
  if (alphabet().reads_leftwards()) turn_leftwards(t);
  return t;
}

Transcript Recognizer::State::decode(std::vector<float> logits) const {
  if (on_device) {
    std::vector<std::vector<float>> one;
    one.push_back(std::move(logits));
    return std::move(search(std::move(one)).front());
  }
  Transcript t =
      transcript_of(std::move(logits), vocabulary(), found_by(), frame_seconds(), confidence);
  if (alphabet().reads_leftwards()) turn_leftwards(t);
  return t;
}

SharedChunks& shared_chunks(Recognizer& model) { return model.state_->chunks; }
EvaluatedModel& evaluated(Recognizer& model) { return model.state_->ensemble; }

std::unique_ptr<ManifestDataset> open_dataset(const Recognizer& model, const std::string& manifest,
                                              const MediaReaders& readers, bool references) {
  const ModelDescription& d = model.description();
  const TextEncoder* text = d.config.task == Task::ctc ? &model.alphabet() : nullptr;
  auto data =
      open_dataset(d.config, manifest, references ? DataUse::evaluation : DataUse::inference,
                   readers, {text, d.classes});
  if (!d.mean.empty()) data->set_global_cmvn({d.mean, d.inverse_std});
  if (references) require_fit(*data, manifest, d.config.task, d.sizes, model.file());
  return data;
}

}  // namespace rondo
