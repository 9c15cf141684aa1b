// Times forced alignment on made-up outputs of a CTC model, a JSON line per way:
//   ninja -C build bench/alignment_bench
//   build/bench/alignment_bench            # four hours of speech: 825,011 frames, 40,000 labels
//   build/bench/alignment_bench --frames 20000 --labels 2000 --classes 32 --errors 0.1
//   build/bench/alignment_bench --dense    # the whole trellis too, and that the paths are equal
//   build/bench/alignment_bench --save F   # F/scores.npy, labels.npy, path.npy for other programs
// In a frame the wanted class has 6 more than the normally distributed others; of `errors` of the
// labels the model wrote another one or none. thread_s is processor time of the one thread,
// peak_bytes what the process had in memory at most, scores_bytes of that the scores themselves.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "bench/clock.h"
#include "engine/data/features/npy.h"
#include "engine/decode/align/forced_alignment.h"
#include "engine/io/file.h"
#include "kernels/base/cpu/resident_memory.h"
#include "kernels/base/error.h"

using namespace rondo;

namespace {

struct Shape {
  int64_t frames = 825011, labels = 40000;
  int32_t classes = 32;
  double errors = 0.1;
};

struct Example {
  std::vector<float> scores;
  std::vector<int32_t> labels;
};

Example make(const Shape& shape) {
  std::mt19937 random(7);
  std::normal_distribution<float> noise;
  std::uniform_int_distribution<int32_t> label(1, shape.classes - 1);
  std::uniform_real_distribution<double> share;
  Example e;
  std::vector<int32_t> said(static_cast<size_t>(shape.frames), 0);
  for (int64_t n = 0; n < shape.labels; ++n) {
    e.labels.push_back(label(random));
    if (n > 0 && e.labels[static_cast<size_t>(n)] == e.labels[static_cast<size_t>(n - 1)]) {
      e.labels.back() = e.labels.back() % (shape.classes - 1) + 1;
    }
    const double wrong = share(random) / shape.errors;
    const int32_t written = wrong < 0.5 ? label(random) : wrong < 1 ? 0 : e.labels.back();
    const auto middle = (2 * n + 1) * shape.frames / (2 * shape.labels);
    const auto length = 1 + static_cast<int64_t>(share(random) * 3);
    for (int64_t t = middle; t < std::min(middle + length, shape.frames); ++t) {
      said[static_cast<size_t>(t)] = written;
    }
  }
  e.scores.resize(static_cast<size_t>(shape.frames * shape.classes));
  for (float& v : e.scores) v = noise(random);
  for (int64_t t = 0; t < shape.frames; ++t) {
    e.scores[static_cast<size_t>(t * shape.classes + said[static_cast<size_t>(t)])] += 6;
  }
  return e;
}

UnitAlignment time_one(const Shape& shape, const Example& e, bool prune) {
  AlignmentUnit text;
  text.spellings.push_back(e.labels);
  AlignmentOptions options;
  options.prune = prune;
  const double wall = wall_seconds(), thread = thread_seconds();
  UnitAlignment a = align_units(e.scores.data(), shape.frames, shape.classes, {&text, 1}, options);
  std::printf(
      "{\"op\": \"align\", \"way\": \"%s\", \"frames\": %lld, \"labels\": %lld, \"classes\": %d, "
      "\"errors\": %g, \"wall_s\": %.3f, \"thread_s\": %.3f, \"states\": %.4g, \"dense_states\": "
      "%.4g, \"scores_bytes\": %zu, \"peak_bytes\": %zu}\n",
      prune ? "pruned" : "dense", static_cast<long long>(shape.frames),
      static_cast<long long>(shape.labels), shape.classes, shape.errors, wall_seconds() - wall,
      thread_seconds() - thread, static_cast<double>(a.states_visited),
      static_cast<double>(a.states_dense), e.scores.size() * sizeof(float), resident_memory().peak);
  std::fflush(stdout);
  return a;
}

void save(const std::string& folder, const Shape& shape, const Example& e, const UnitAlignment& a) {
  std::filesystem::create_directories(folder);
  const int64_t scores[] = {shape.frames, shape.classes}, labels[] = {shape.labels},
                path[] = {shape.frames};
  replace_text_file(folder + "/scores.npy", data::make_npy(scores, e.scores));
  const std::vector<float> as_floats(e.labels.begin(), e.labels.end());
  replace_text_file(folder + "/labels.npy", data::make_npy(labels, as_floats));
  std::vector<float> classes(static_cast<size_t>(shape.frames), 0);
  for (const TimedLabel& l : a.labels) {
    std::fill(classes.begin() + l.first_frame, classes.begin() + l.end_frame,
              static_cast<float>(l.label));
  }
  replace_text_file(folder + "/path.npy", data::make_npy(path, classes));
}

}  // namespace

int main(int argc, char** argv) {
  Shape shape;
  bool dense = false;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--dense") {
      dense = true;
      continue;
    }
    ++i;
    if (word == "--frames") {
      shape.frames = std::stoll(value);
    } else if (word == "--labels") {
      shape.labels = std::stoll(value);
    } else if (word == "--classes") {
      shape.classes = std::stoi(value);
    } else if (word == "--errors") {
      shape.errors = std::stod(value);
    } else if (word == "--save") {
      folder = value;
    } else {
      std::fprintf(stderr, "alignment_bench: unknown option %s\n", word.c_str());
      return 2;
    }
  }
  const Example e = make(shape);
  const UnitAlignment pruned = time_one(shape, e, true);
  if (!folder.empty()) save(folder, shape, e, pruned);
  if (dense && time_one(shape, e, false).labels != pruned.labels) {
    std::printf("the paths differ\n");
    return 1;
  }
  return 0;
}
