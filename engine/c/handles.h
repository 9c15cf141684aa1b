// What the handles of the C interface (engine/c/c.h) are, and how exceptions become statuses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/c/c.h"
#include "engine/data/batch.h"
#include "engine/data/features/matrix.h"
#include "engine/decode/decoder.h"
#include "engine/decode/transcript/transcript_stream.h"
#include "engine/lm/language_model.h"
#include "engine/session.h"
#include "engine/text/text_rules.h"
#include "engine/train/model/model_description.h"
#include "engine/train/recognition/recognizer.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/error.h"

struct rondo_model {
  rondo::Model model;
};

struct rondo_state {
  rondo::Recognizer recognizer;
  rondo_progress progress = nullptr;
  void* progress_user = nullptr;
};

struct rondo_vocabulary {
  rondo::Vocabulary vocabulary;
  rondo::TextRules rules;  // that the texts of a model went through
  bool reads_leftwards = false;
};

struct rondo_language_model {
  rondo::LanguageModel model;
};

struct rondo_decoder {
  rondo::Decoder decoder;
};

struct rondo_result {
  std::string text;
  std::vector<rondo::TimedText::Token> words, characters;  // what the pieces point into
  std::vector<rondo_piece> word_pieces, character_pieces;
  std::vector<std::unique_ptr<rondo_result>> alternatives;
  std::vector<float> outputs;
  int64_t rows = 0, columns = 0;  // of the outputs
  double begin = 0, end = 0, score = 0;
  int32_t class_index = -1;
  double probability = 0;
};

struct rondo_stream {
  rondo_stream(rondo::Recognizer& model, double chunk_seconds, const rondo::StreamOptions& options)
      : stream(model, chunk_seconds, options), frame_seconds(model.frame_seconds()) {}

  rondo::RecognizerStream stream;
  double frame_seconds;
  std::string text;
  rondo::TranscriptStream::Partial partial;
  std::deque<std::unique_ptr<rondo_result>> ended;
};

struct rondo_session {
  rondo_session(const rondo::ModelFunction& model, const rondo::SessionOptions& options,
                rondo::ModelDescription what)
      : session(model, options), description(std::move(what)) {}

  rondo::Session session;
  rondo::ModelDescription description;
  rondo::HostBatch batch;
};

namespace rondo::c {

// The device of this name; NULL: the CPU. Throws InputError.
DeviceId device_of(const char* name);

// What a function of the caller's asked for.
struct Stopped {};

// Runs `work`; what it throws becomes the thread's message and a status.
rondo_status guarded(const std::function<void()>& work);

// The same of what makes a handle: *made is null until it is whole.
template <class Handle>
rondo_status making(Handle** made, const std::function<std::unique_ptr<Handle>()>& work) {
  return guarded([&] {
    if (made == nullptr) fail_input("no place for what is to be made (NULL)");
    *made = nullptr;
    *made = work().release();
  });
}

// Throws InputError: "path is NULL".
void require_given(const void* argument, const char* name);

// A structure of this version from one that begins with its own `size`. What a newer program has
// behind must be zero.
template <class Options>
Options read_options(const Options* given, const Options& usual, const char* name) {
  if (given == nullptr) return usual;
  if (given->size < sizeof(size_t)) {
    fail_input(name, ": its size is ", given->size, ", expected what ", name, "_init() has set");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(Options); i < given->size; ++i) {
    if (bytes[i] != 0) fail_input(name, ": has settings that this version of rondo does not know");
  }
  Options o = usual;
  std::memcpy(static_cast<void*>(&o), given, std::min(given->size, sizeof o));
  o.size = sizeof o;
  return o;
}

// The other way: what fits into a structure of a program's `size`.
template <class Options>
void write_options(Options* to, size_t size, Options usual) {
  if (to == nullptr || size < sizeof(size_t)) return;
  usual.size = size;
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &usual, std::min(size, sizeof usual));
}

constexpr int64_t most_columns = int64_t{1} << 30, most_numbers = int64_t{1} << 40;

// Rows of numbers without gaps. `name` begins messages.
Matrix matrix_of(const rondo_matrix& given, const char* name);

std::unique_ptr<rondo_result> result_of(Transcript&& transcript, double frame_seconds);
std::unique_ptr<rondo_result> result_of(Prediction&& prediction, double frame_seconds);

}  // namespace rondo::c
