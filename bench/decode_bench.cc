// Times decoders on outputs in files; bench/decode_bench makes the files and runs this beside other
// programs.
//
//   decode_bench VOCABULARY FOLDER REPEATS [lm=F] [lexicon=F] [hot=F] [lm_weight=X] [word_score=X]
//                [unknown_score=X] [beam=N] [floor=P] [range=X] [device=cuda|sim]
//
// One JSON object: processor milliseconds of each repeat, per utterance, and the texts. With a
// device all utterances are searched at once there, and the milliseconds are of the clock; those of
// the simulated one say nothing about a GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "engine/data/features/feature_file.h"
#include "engine/decode/batch_decoder.h"
#include "engine/decode/decoder.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

using namespace rondo;

namespace {

double processor_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int run(int argc, char** argv) {
  if (argc < 4) fail_input("expected VOCABULARY FOLDER REPEATS [key=value ...]");
  std::map<std::string, std::string> given;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) fail_input("'", word, "' is not of the form key=value");
    given[word.substr(0, equals)] = word.substr(equals + 1);
  }
  const auto number = [&](const char* key, double otherwise) {
    return given.contains(key) ? std::stod(given.at(key)) : otherwise;
  };
  const Vocabulary vocabulary = Vocabulary::open(argv[1], {}, "");
  DecoderOptions options;
  options.beam = static_cast<int32_t>(number("beam", 100));
  options.lm_weight = number("lm_weight", options.lm_weight);
  options.word_score = number("word_score", options.word_score);
  options.unknown_score = number("unknown_score", options.unknown_score);
  options.token_floor = std::log(number("floor", 0));
  options.score_range = number("range", options.score_range);
  DecoderKnowledge knowledge;
  if (given.contains("lm")) knowledge.language_model = LanguageModel::open(given.at("lm"));
  if (given.contains("lexicon")) knowledge.lexicon = open_lexicon(given.at("lexicon"), vocabulary);
  if (given.contains("hot")) knowledge.hot_words = open_hot_words(given.at("hot"), 3);
  const double before = processor_seconds();
  const Decoder decoder(vocabulary, options, knowledge);
  const double build = processor_seconds() - before;

  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2]))
    if (entry.path().extension() == ".npy") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  std::vector<Matrix> outputs;
  for (const std::string& file : files) outputs.push_back(read_feature_file(file, ""));
  Json times = Json::array(), texts = Json::array();
  std::optional<BatchDecoder> device;
  std::vector<BatchDecoder::Utterance> utterances;
  if (given.contains("device")) {
    const auto id = device_named(given.at("device"));
    if (!id) fail_input("device=", given.at("device"), ", expected cuda or sim");
    device.emplace(decoder, require_device(id->kind, id->index), 1);
    for (const Matrix& m : outputs)
      utterances.push_back({m.data.data(), static_cast<int32_t>(m.frames)});
  }
  const auto clock = [&] { return device ? wall_seconds() : processor_seconds(); };
  for (int repeat = 0; repeat < std::stoi(argv[3]); ++repeat) {
    const double begin = clock();
    std::vector<std::vector<DecodedText>> found;
    if (device) found = device->decode(utterances);
    if (!device) {
      for (const Matrix& m : outputs)
        found.push_back(decoder.decode(m.data.data(), static_cast<int32_t>(m.frames)));
    }
    times.push_back(1e3 * (clock() - begin) / static_cast<double>(outputs.size()));
    if (repeat > 0) continue;
    for (const auto& f : found) texts.push_back(f.front().text);
  }
  std::printf(
      "%s\n",
      Json::object({{"ms", times}, {"texts", texts}, {"build_ms", 1e3 * build}}).dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "decode_bench: %s\n", e.what());
    return 1;
  }
}
