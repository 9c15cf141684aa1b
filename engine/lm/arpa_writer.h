// Writes ARPA files, compressed by gzip if their name ends in .gz.
//
// Errors: InputError when the file cannot be written. Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "engine/io/file.h"
#include "engine/lm/arpa.h"

namespace rondo::lm {

class ArpaWriter : public NgramSink {
 public:
  // `vocabulary` and `file`, which stays open, must outlive the writer.
  ArpaWriter(const Vocabulary& vocabulary, FileWriter& file, bool compressed);
  ~ArpaWriter() override;

  void begin(std::span<const uint64_t> counts) override;
  [[nodiscard]] bool add(std::span<const Word> words, float probability, float backoff) override;
  // After the last n-gram.
  void end();

 private:
  struct Deflater;
  void header(size_t order);
  void flush();

  const Vocabulary& vocabulary_;
  FileWriter& file_;
  std::unique_ptr<Deflater> deflater_;  // none: nothing is compressed
  std::string text_;                    // what was not written yet
  size_t orders_ = 0, open_ = 0;
};

}  // namespace rondo::lm
