// Corpora that the program makes by itself, for demonstrations and trials. A corpus is a folder:
//
//   corpus.json                          what it is and how it was made
//   train.jsonl  dev.jsonl  test.jsonl   manifests (engine/data/manifest.h), relative paths
//   wav/*.wav                            mono, 16 bit
//
// It is written into a temporary folder beside `out` and renamed, so `out` is never half a corpus.
// An earlier corpus of the same kind is replaced, unless somebody has edited its manifests or put
// something there; any other folder that is not empty is left alone and refused.
//
// Random choices are a pure function of the seed and of what is chosen for: neither the number of
// threads nor the order of work shows in the result.
//
// Errors: InputError that names the file, option or program at fault.
// Thread safety: calls with different `out` may run at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rondo {

// Called now and then with the utterances made so far; never by two threads at once. What it throws
// ends the work and reaches the caller; nothing is left behind.
using CorpusProgress = std::function<void(int64_t done, int64_t total)>;

struct SplitReport {
  std::string name;  // train, dev, test
  int64_t utterances = 0;
  double seconds = 0;
};

struct CorpusReport {
  std::string path;  // `out` as it was given
  std::vector<SplitReport> splits;
};

// Strings of 3 to 7 spoken digits out of the recordings of the Free Spoken Digit Dataset, each of
// one speaker with random gaps; text "3 1 4". 8 kHz.
struct PrepareFsddOptions {
  std::string recordings;  // folder of {digit}_{speaker}_{take}.wav, or the one above recordings/
  std::string out;
  // This speaker in test only, the others in train and dev only. Empty: everybody everywhere.
  std::string hold_out;
  // Numbers of strings. Every recording of a split is used equally often, give or take one per
  // digit and speaker. Test has takes 0-4, dev the last five, train what is between (to the end
  // when dev is 0).
  int64_t train = 2000;
  int64_t dev = 200;
  int64_t test = 300;
  uint64_t seed = 1;
  bool overwrite = false;  // manifests that were edited are replaced, and kept beside
  CorpusProgress progress;
};
CorpusReport prepare_fsdd(const PrepareFsddOptions& options);

// Spoken digit strings ("three one four") and short commands ("turn on the kitchen light") by
// espeak-ng: several voices and accents at varied rate and pitch, with noise and silence around.
// Manifest lines have "voice", "seen" (whether the voice is in train) and "snr_db". Two voices are
// in test only, and no transcript is in two splits.
struct PrepareSpeechDemoOptions {
  std::string out;
  int64_t train = 1500;
  int64_t dev = 120;
  int64_t test = 400;
  int32_t sample_rate = 16000;  // or 8000
  uint64_t seed = 1;
  int threads = 0;  // 0: as many as there are CPUs
  std::string program = "espeak-ng";
  bool overwrite = false;  // manifests that were edited are replaced, and kept beside
  CorpusProgress progress;
};
CorpusReport prepare_speech_demo(const PrepareSpeechDemoOptions& options);

}  // namespace rondo
