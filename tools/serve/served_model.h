// A model that is served: opened once, shared by all who compute with it.
//
// Errors: InputError for what cannot be opened or does not write text. Thread safety: immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/decode/decoder.h"
#include "engine/decode/transcript/transcript_stream.h"
#include "engine/train/recognition/recognizer.h"

namespace rondo::serve {

struct ServedModelOptions {
  std::string name;  // what clients call it
  EndpointOptions endpoint;
  double hot_word_weight = 5;  // of phrases in requests
  double piece = 30;           // seconds of a long recording at a time
  double chunk_seconds = 0.1;  // of a stream
  double most_seconds = 3600;  // that a recording may be long
};

class ServedModel {
 public:
  // `others`: whose probabilities are averaged with its. `decoder`: none writes the best class of
  // each frame; `hot_word_decoder` is for requests with hot words of their own.
  ServedModel(ServedModelOptions options, Model model, std::vector<Model> others,
              std::optional<Decoder> decoder, Decoder hot_word_decoder);

  const std::string& name() const { return options_.name; }
  int64_t created() const { return created_; }  // seconds since 1970
  const ServedModelOptions& options() const { return options_; }
  const Model& model() const { return model_; }
  const FeaturesConfig& features() const { return model_.description().config.features; }
  InputKind reads() const;
  // Empty: it can.
  const std::string& why_no_stream() const { return why_no_stream_; }

  // To compute with, in one thread.
  std::unique_ptr<Recognizer> recognizer() const;
  // For a request with these hot words, in place of those of the decoder.
  std::optional<Decoder> decoder_for(const std::vector<std::string>& hot_words) const;

 private:
  ServedModelOptions options_;
  Model model_;
  std::vector<Model> others_;
  std::optional<Decoder> decoder_;
  Decoder hot_word_decoder_;
  int64_t created_ = 0;
  std::string why_no_stream_;
};

}  // namespace rondo::serve
