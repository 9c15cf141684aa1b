// A trained model at work: features, normalisation, outputs, text.
//
//   Recognizer model("run", DeviceKind::cpu);
//   std::cout << model.transcribe(waveform).text << "\n";
//
// Threads need one each, and may share a model.
// Several models that read and write the same may be one, which says the mean of their
// probabilities (engine/train/recognition/ensemble.h). The text is what they agree on
// (engine/train/recognition/agreement.h).
//
// Errors: those of Model (engine/train/recognition/model.h), and InputError for models that cannot
// be averaged. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/features/matrix.h"
#include "engine/data/image/grey_image.h"
#include "engine/decode/decoder.h"
#include "engine/decode/transcript/transcript.h"
#include "engine/text/alphabet.h"
#include "engine/train/recognition/model.h"

namespace rondo {

class EvaluatedModel;  // engine/train/recognition/evaluation.h
class Session;         // engine/session.h
struct SharedChunks;   // engine/train/recognition/streamed_chunks.h

// What a model says of one utterance.
struct Prediction {
  Transcript transcript;                 // ctc
  int32_t class_index = -1;              // classify: the most probable one
  std::span<const std::string> classes;  // classify: their names, the Recognizer's; empty: none
  std::vector<double> probabilities;     // classify, of each class
  std::vector<float> values;             // classify: logits; regress: the numbers
};

class Recognizer {
 public:
  // threads 0: all CPUs that may be used. `others`: whose probabilities are averaged with its.
  explicit Recognizer(const Model& model, int threads = 0, std::span<const Model> others = {});
  // The same of models that are opened here, each by its path.
  Recognizer(const std::string& path, DeviceId device, int threads = 0,
             std::span<const std::string> others = {});
  ~Recognizer();
  Recognizer(Recognizer&&) noexcept;  // not while a stream borrows it
  Recognizer& operator=(Recognizer&&) noexcept;

  // Gives back the memory that the longest inputs took, which otherwise stays for the next.
  void trim();
  // The first one, as session() is.
  const Model& model() const;
  const ModelDescription& description() const;
  const std::string& file() const;
  bool is_ensemble() const;
  const std::vector<std::string>& warnings() const;
  const Alphabet& alphabet() const;
  const Vocabulary& vocabulary() const;
  Session& session();

  // Transcribes by ctc models. The waveform must have the model's sample rate (Error) and finite
  // samples (InputError); one shorter than a frame gives empty text, and so does digital silence.
  Transcript transcribe(const Waveform& audio);
  // Takes features as the model was trained on, before normalisation.
  Transcript transcribe(Matrix features);
  // What the model says of each of these features, by whatever its task is. Several at once are
  // faster than one after the other and give the same bits. InputError for other columns than the
  // model reads, for outputs that are not numbers, and, unless the task is ctc, for no frames.
  std::vector<Prediction> predict(std::vector<Matrix> features);
  // Of a recording. None (0 frames) of digital silence for a ctc model, which has hardly met that.
  Matrix features(const Waveform& audio) const;
  // Of the image of a line, which `name` stands for in messages. None (0 frames) of a blank one,
  // which gets empty text.
  Matrix features(const GreyImage& image, const std::string& name = "the image") const;
  // Decodes the model's output [frames, classes]; Error for what is no whole frames.
  Transcript decode(std::vector<float> logits) const;
  // How decode() finds the text: by this decoder, made for vocabulary() (Error for one of other
  // classes), or, without one, by the best class of each frame. `on_device`: predict() and decode()
  // search on the model's device, for predict() all at once; throws what BatchDecoder does, and
  // InputError where that is the CPU.
  void set_decoder(std::optional<Decoder> decoder, bool on_device = false);
  // What the probabilities of characters and words are; see transcript_of().
  void set_confidence(Confidence confidence);
  Confidence confidence() const;
  const Decoder* decoder() const;
  // Seconds between two frames of the output; of images, pixels of the scaled line.
  double frame_seconds() const;

 private:
  friend EvaluatedModel& evaluated(Recognizer& model);
  friend SharedChunks& shared_chunks(Recognizer& model);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
