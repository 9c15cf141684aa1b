// The lengths of recordings, which ranks find together: each opens the headers of a part.
//
//   SharedLengths lengths(reader);
//   lengths.look_at(manifest, ranks, threads);  // each rank by itself; of several manifests, too
//   lengths.exchange(ranks);                    // all ranks together
//
// Then info() answers for all, with the error where a rank found one; what nobody has looked at,
// the reader is asked for. So ranks whose manifests differ get what theirs list.
//
// Thread safety: const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/data/audio/waveform.h"
#include "engine/data/manifest.h"
#include "engine/reduce/ranks.h"

namespace rondo {

class SharedLengths final : public AudioReader {
 public:
  // Borrows the reader.
  explicit SharedLengths(const AudioReader& reader) : reader_(reader) {}

  // Opens the headers of this rank's part of the recordings, in so many threads.
  void look_at(const Manifest& manifest, const Ranks& ranks, int threads);
  // Throws CommError.
  void exchange(const Ranks& ranks);

  AudioInfo info(const FilePart& file) const override;
  Waveform read(const FilePart& file, int32_t sample_rate,
                AudioSegment segment = {}) const override {
    return reader_.read(file, sample_rate, segment);
  }

 private:
  struct Found {
    AudioInfo info;
    std::string error;  // empty: it could be read
  };

  const AudioReader& reader_;
  std::map<std::string, uint64_t> keys_;  // of files here, by name: the same on all machines
  std::map<uint64_t, Found> found_;       // by key
};

}  // namespace rondo
