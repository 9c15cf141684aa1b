// The chunks of a Recognizer's streams, computed in batches: a step of a layer reads its weights
// once for all streams, and a stream costs no memory but what its next chunk begins with.
//
// The bits of a stream's outputs do not depend on which streams are computed beside it.
//
// Errors: InputError for a model that cannot stream, saying why. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/cut/chunk_runner.h"
#include "engine/cut/sequence_graph.h"

namespace rondo {

class Model;
class Recognizer;
class StreamedChunks;

// The graph of a chunk. Throws InputError.
ChunkGraph streaming_graph_of(const Model& model);

// Those that streams of a Recognizer share.
struct SharedChunks {
  std::map<double, std::weak_ptr<StreamedChunks>> by_seconds;
};
SharedChunks& shared_chunks(Recognizer& model);

class StreamedChunks {
 public:
  struct Stream {
    std::vector<float> waiting;  // features, normalised, that are not computed yet
    int64_t done_frames = 0;     // of features that are
    Border border;               // what comes next begins with
  };
  struct Part {
    Stream* stream;               // each in one part
    std::vector<float>* outputs;  // where they are appended, [frames, classes]
  };

  // Of chunks of so many seconds, rounded up to whole output frames. The streams of a Recognizer,
  // which is borrowed, share them.
  static std::shared_ptr<StreamedChunks> of(Recognizer& model, double seconds);

  StreamedChunks(Recognizer& model, ChunkGraph graph, int64_t frames);

  int64_t frames() const { return frames_; }
  int32_t block() const { return graph_.block; }  // frames of an output frame
  // The first `frames` that wait of each stream, at most a chunk.
  void run(std::span<const Part> parts, int64_t frames);

 private:
  void run_together(std::span<const Part> parts, int64_t frames);
  void hold(int32_t streams);

  Recognizer& model_;
  const ChunkGraph graph_;
  const int64_t frames_;
  int32_t held_ = 0;  // streams that the runner has memory for
  std::unique_ptr<ChunkRunner> runner_;
  std::vector<float> inputs_, outputs_;
};

}  // namespace rondo
