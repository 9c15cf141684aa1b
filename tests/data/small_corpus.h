// A few recordings, feature files and manifests, as tests of data sets want them.
#pragma once

#include <cmath>
#include <string>

#include "engine/data/audio/audio.h"
#include "engine/data/dataset.h"
#include "engine/data/features/feature_file.h"
#include "engine/text/alphabet.h"
#include "tests/data/temporary_folder.h"

namespace rondo::test {

// A folder with recordings, feature files and manifests.
class Corpus {
 public:
  void recording(const std::string& name, double seconds, int rate = 16000) {
    Waveform w{rate, {}};
    const auto n = static_cast<size_t>(seconds * rate);
    for (size_t i = 0; i < n; ++i)
      w.samples.push_back(0.3f * std::sin(static_cast<float>(i % 1000) * 0.2f));
    write_wav(folder.path(name), w);
  }
  void features(const std::string& name, int64_t frames, int32_t dim) {
    Matrix m(frames, dim);
    for (size_t i = 0; i < m.data.size(); ++i) m.data[i] = static_cast<float>(i);
    write_feature_file(folder.path(name), m);
  }
  Manifest manifest(const std::string& lines) {
    return read_manifest(folder.write("m.jsonl", lines));
  }
  static std::string line(const std::string& file, const std::string& text) {
    return R"({"audio_filepath": ")" + file + R"(", "text": ")" + text + "\"}\n";
  }

  TemporaryFolder folder;
  SndfileReader reader;
  Alphabet alphabet{{" ", "a", "b", "c"}};
};

inline DatasetOptions small_options() {
  DatasetOptions o;
  o.features.bins = 20;
  o.threads = 2;
  return o;
}

}  // namespace rondo::test
