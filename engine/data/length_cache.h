// The lengths of recordings, kept in a file from one run to the next: a million headers take
// minutes to open, and a second to look up.
//
// What is kept of a recording counts while its size and time of modification are what they were.
// The file: "rondo lengths 1\n", the number of records (u64), records of 40 bytes sorted by their
// key, a CRC-32C of all that (u32); little-endian. One that is damaged, or of another version,
// counts as empty.
//
// Thread safety: const members may be called from several threads at once.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/data/audio/waveform.h"

namespace rondo {

class LengthCache final : public AudioReader {
 public:
  // Reads `file`, if there is one; borrows the reader.
  LengthCache(std::string file, const AudioReader& reader);

  // As the reader's, which is asked for what is not kept, or has changed.
  AudioInfo info(const FilePart& file) const override;
  Waveform read(const FilePart& file, int32_t sample_rate,
                AudioSegment segment = {}) const override {
    return reader_.read(file, sample_rate, segment);
  }

  // How many recordings the reader was asked for.
  int64_t asked() const;
  // Writes the file anew, whole or not at all, with what the reader was asked for beside what was
  // kept. Throws InputError.
  void save() const;

 private:
  struct Record {
    uint64_t key = 0;  // a hash of the path and where the recording begins
    int64_t size = 0, modified_ns = 0;
    int64_t frames = 0;
    int32_t sample_rate = 0, channels = 0;
  };
  void load();

  const std::string file_;
  const AudioReader& reader_;
  std::vector<Record> kept_;  // sorted by key
  mutable std::mutex mutex_;
  mutable std::vector<Record> asked_;
};

}  // namespace rondo
