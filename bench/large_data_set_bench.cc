// What comes before training on a large data set, one JSON line per step:
//   ninja -C build bench/large_data_set_bench && build/bench/large_data_set_bench [UTTERANCES]
// A folder of links to one recording of 4 s and a manifest of as many lines (a million) are made in
// the folder for temporary files, and removed. Steps: reading the manifest; opening every
// recording; looking the lengths up that the step before has kept; dividing an epoch into batches.
// wall_s and cpu_s are of one pass, as at the start of a training run; bytes_per_utterance is what
// the step has added to the resident memory.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/audio/audio.h"
#include "engine/data/dataset.h"
#include "engine/data/features/files.h"
#include "engine/data/length_cache.h"
#include "engine/data/sampler.h"
#include "engine/text/alphabet.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/cpu/resident_memory.h"
#include "kernels/base/error.h"

using namespace rondo;
namespace fs = std::filesystem;

namespace {

constexpr int per_folder = 1000;

struct Corpus {
  std::string folder = (fs::temp_directory_path() / "rondo_bench_XXXXXX").string();
  std::string manifest;

  explicit Corpus(int64_t utterances) {
    if (!mkdtemp(folder.data())) fail_input(folder, ": cannot be made");
    manifest = folder + "/train.jsonl";
    const std::string recording = folder + "/recording.wav";
    write_wav(recording, {8000, std::vector<float>(4 * 8000, 0.1f)});
    std::string lines;
    for (int64_t i = 0; i < utterances; ++i) {
      // A file can have only so many links.
      const std::string sub = str(folder, "/", i / per_folder);
      if (i % per_folder == 0) {
        fs::create_directory(sub);
        fs::copy_file(recording, sub + "/0.wav");
      } else {
        fs::create_hard_link(sub + "/0.wav", str(sub, "/", i % per_folder, ".wav"));
      }
      lines += str("{\"audio_filepath\": \"", i / per_folder, "/", i % per_folder,
                   ".wav\", \"duration\": 4.0, \"text\": \"the words of an utterance ", i % 7,
                   "\", \"speaker\": \"s", i % 5000, "\"}\n");
    }
    data::write_whole_file(manifest, lines);
  }
  ~Corpus() { fs::remove_all(folder); }
};

double processor_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class Step>
void time_step(const char* name, int64_t utterances, const Step& step) {
  const double memory = static_cast<double>(resident_memory().bytes);
  const double cpu = processor_seconds();
  const auto begin = std::chrono::steady_clock::now();
  step();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const auto n = static_cast<double>(utterances);
  std::printf(
      "{\"step\": \"%s\", \"utterances\": %lld, \"threads\": %d, \"wall_s\": %.3f, "
      "\"cpu_s\": %.3f, \"utterances_per_s\": %.0f, \"bytes_per_utterance\": %.0f}\n",
      name, static_cast<long long>(utterances), usable_cpus(), wall.count(),
      processor_seconds() - cpu, n / wall.count(),
      (static_cast<double>(resident_memory().bytes) - memory) / n);
  std::fflush(stdout);
}

void run(int64_t n) {
  const Corpus corpus(n);
  const SndfileReader reader;
  const Alphabet alphabet({" ", "0", "1", "2", "3", "4", "5", "6", "a", "c", "d",
                           "e", "f", "h", "n", "o", "r", "s", "t", "u", "w"});
  DatasetOptions options;
  options.features.rate = 8000;
  options.threads = usable_cpus();
  for (const char* name : {"open every recording", "look lengths up"}) {
    std::optional<Manifest> manifest;
    time_step("read the manifest", n, [&] { manifest = read_manifest(corpus.manifest); });
    const LengthCache lengths(corpus.manifest + ".lengths", reader);
    const MediaReaders readers(&reader, nullptr, &lengths);
    std::optional<ManifestDataset> data;
    time_step(name, n, [&] { data.emplace(std::move(*manifest), options, readers, &alphabet); });
    manifest.reset();
    lengths.save();
    time_step("divide an epoch into batches", n, [&] {
      Sampler sampler(data->size(), [&](int64_t i, uint64_t e) { return data->frames(i, e); }, {});
      sampler.next();
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t utterances = argc > 1 ? std::atoll(argv[1]) : 1'000'000;
  if (utterances < 1) {
    std::fprintf(stderr, "usage: large_data_set_bench [UTTERANCES]\n");
    return 2;
  }
  run(utterances);
}
