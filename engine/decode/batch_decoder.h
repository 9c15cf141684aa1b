// The search of a Decoder for many utterances at once, on a GPU or the simulated device
// (kernels/beam_search/beam_search.h).
//
//   BatchDecoder batch(decoder, require_device(DeviceKind::cuda));
//   const auto texts = batch.decode(utterances);   // texts[i]: what decoder.decode() says of it
//
// Texts are those of Decoder::decode() with the same options, and scores differ by about 1e-15 for
// each frame and class. What may differ more are texts that are as probable as each other to that
// precision, at the edge of the beam or among the best: of exactly equal ones another may come
// first. What the decoder knows of the language is made into a table of states and labels, of 12
// bytes for each two in device memory.
//
// Errors: InputError for what only the CPU takes: a beam above 128, more than 1024 classes,
// knowledge of more than 2^25 states times labels (a language model of tokens has a state for each
// context; one of words with a lexicon a state for each context and place in the tree of words),
// and a lexicon in which a word's end cannot be told from its spelling: homophones, or words that
// begin others where no separator is between them. Error for scores that are NaN, or a frame
// without a finite largest one, naming utterance and frame. OutOfMemory. Memory on the device for R
// frames in all: R (V + 3 beam / 2) 8 bytes and little more; it is kept for the next call. Thread
// safety: one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/decode/decoder.h"
#include "kernels/base/device.h"
#include "kernels/base/packed_host.h"

namespace rondo {

class BatchDecoder {
 public:
  // `device`: sim or cuda (Error for cpu), and borrowed. `threads`: of the CPU, that put the labels
  // into words; 0: one per CPU.
  BatchDecoder(const Decoder& decoder, Device& device, int threads = 0);
  ~BatchDecoder();
  BatchDecoder(BatchDecoder&&) noexcept;
  BatchDecoder& operator=(BatchDecoder&&) noexcept;

  const Decoder& decoder() const;

  // [frames, classes], logits or log-probabilities, in host memory.
  struct Utterance {
    const float* scores = nullptr;
    int32_t frames = 0;
  };
  std::vector<std::vector<DecodedText>> decode(std::span<const Utterance> utterances);
  // The same of a packed batch that is in device memory already (kernels/base/packed.h): f32
  // [rows, classes], the result of what is enqueued on `stream`, which is waited for. Texts are in
  // packed order. An utterance is named by its place in it.
  std::vector<std::vector<DecodedText>> decode(Stream& stream, const PackedHost& layout,
                                               const float* scores);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
