// Runs a session over a dataset and compares what it writes with the references.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/data/batch.h"
#include "engine/data/dataset.h"
#include "engine/decode/decoder.h"
#include "engine/io/json.h"
#include "engine/io/score.h"
#include "engine/session.h"
#include "engine/text/alphabet.h"
#include "engine/text/error_rate.h"
#include "engine/text/greedy.h"
#include "engine/text/unwritable.h"

namespace rondo {

class Recognizer;  // engine/train/recognition/recognizer.h

// A batch of the data code as the engine takes it; borrows `batch` and `inputs`.
BatchView batch_view(const HostBatch& batch, Task task, std::vector<BatchView::Input>& inputs,
                     uint64_t step_seed = 0);

// The rows of sequence n, in time, of a packed prediction [rows, cols] with sequences of these
// lengths: [frames, cols].
std::vector<float> unpack(const std::vector<float>& packed, std::span<const int32_t> lengths,
                          size_t n, int64_t cols);

// The names of the first few, and how many there are besides.
std::string names_of(const ManifestDataset& data, std::span<const int64_t> utterances);

// What the model wrote for one utterance.
struct Hypothesis {
  int64_t utterance = 0;           // of the dataset
  int64_t batch = 0;               // that it was evaluated in
  std::string text;                // ctc
  std::vector<TimedLabel> labels;  // of each frame's best class
  int32_t output_frames = 0;
  int32_t class_index = -1;       // classify
  std::vector<float> values;      // regress
  std::span<const float> scores;  // [output_frames, classes] logits; valid during the callback
  double loss = 0;
};

// A class by its name or, where they have none (`classes` is empty), its number.
Json class_json(std::span<const std::string> classes, int64_t index);

// "0.1234"; "n/a" for NaN, which a loss over no utterances is.
std::string loss_text(double loss);

struct Evaluation {
  double loss = 0;                   // mean over those with a finite loss; NaN if there is none
  int64_t counted = 0;               // so many
  std::vector<double> batch_losses;  // sums, by batch; 0 for those of other parts
  ErrorRate errors;                  // ctc
  int64_t utterances = 0;
  int64_t wrong = 0;       // classify: utterances of the wrong class
  int64_t infeasible = 0;  // references longer than their frames allow
  bool stopped = false;    // options.stop said so (of any part): the figures are not of all data
  double seconds = 0;
  double audio_seconds = 0;
  // The number to make small: CER, WER, the share of wrong classes, or the loss (of nothing:
  // infinity).
  double value(Metric metric) const;
  Score score(Metric metric) const { return {value(metric), value(Metric::loss)}; }
  // Makes the whole of its parts, given what sums an array over them. Losses are summed in the
  // order of batches, so the result does not depend on the number of parts, bit for bit.
  void combine(const std::function<void(std::span<double>)>& sum);
};

// What an utterance should have been written as: its text, or its labels' symbols.
std::optional<std::string> reference_text(const ManifestEntry& entry, const Alphabet& alphabet);

// What the references of these data hold that the alphabet has no symbol for.
Unwritable unwritable_text(const ManifestDataset& data, const Alphabet& alphabet);

// How the references of these data set words apart.
WordSpacing word_spacing(const ManifestDataset& data, const Alphabet& alphabet);

// What evaluation needs of a model, wherever it runs.
class EvaluatedModel {
 public:
  virtual ~EvaluatedModel() = default;
  virtual Shape prediction_shape() const = 0;
  // Of a sequence of `length` frames.
  virtual int32_t output_frames(int32_t length) const = 0;
  // The prediction for a batch (packed order), as f32.
  virtual const std::vector<float>& predict(const BatchView& batch) = 0;
  // The same, with the losses in last_result().
  virtual const std::vector<float>& evaluate_and_predict(const BatchView& batch) = 0;
  virtual const StepResult& last_result() const = 0;
  // Of several models: what each says of the batch of the last prediction, packed as that is.
  // Empty: there is one.
  virtual std::span<const std::vector<float>> each() const { return {}; }
};

// How many frames of the prediction each sequence of such a batch has.
std::vector<int32_t> output_lengths(const EvaluatedModel& model, const PackedHost& layout);

// Borrows the model.
class SingleModel final : public EvaluatedModel {
 public:
  explicit SingleModel(RankModel& model) : model_(model) {}
  Shape prediction_shape() const override;
  int32_t output_frames(int32_t length) const override;
  const std::vector<float>& predict(const BatchView& batch) override;
  const std::vector<float>& evaluate_and_predict(const BatchView& batch) override;
  const StepResult& last_result() const override;

 private:
  RankModel& model_;
};

struct EvaluationOptions {
  Task task = Task::ctc;
  int64_t batch_frames = 16000;
  int prefetch_threads = 1;
  bool references = true;  // false: no targets; loss and errors stay 0
  // ctc: finds the texts, in as many threads; without it each frame's best class is written.
  const Decoder* decoder = nullptr;
  int decoder_threads = 1;
  // The batches whose number is `part` modulo `parts` are evaluated; Evaluation::combine() adds up.
  int part = 0, parts = 1;
  // Asked between batches; true: stop there. Empty: never.
  std::function<bool()> stop = {};
};

// `text` is nullptr unless the task is ctc. `each` sees every utterance, in
// batches of similar length, longest first. Throws InputError when an utterance cannot be read.
Evaluation evaluate(EvaluatedModel& model, const ManifestDataset& data, const Alphabet* text,
                    const EvaluationOptions& options,
                    const std::function<void(const Hypothesis&)>& each = {});
Evaluation evaluate(Session& session, const ManifestDataset& data, const Alphabet* text,
                    const EvaluationOptions& options,
                    const std::function<void(const Hypothesis&)>& each = {});

// What says what a recogniser says of a batch: all its models. It belongs to the recogniser.
EvaluatedModel& evaluated(Recognizer& model);

// A manifest with the features, the normalisation and the alphabet of a model, which it borrows.
std::unique_ptr<ManifestDataset> open_dataset(const Recognizer& model, const std::string& manifest,
                                              const MediaReaders& readers, bool references);

}  // namespace rondo
