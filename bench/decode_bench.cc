// Times decoders on outputs in files; bench/decode_bench makes the files and runs this beside other
// programs.
//
//   decode_bench VOCABULARY FOLDER REPEATS [lm=F] [lexicon=F] [hot=F] [lm_weight=X] [word_score=X]
//                [unknown_score=X] [beam=N] [floor=P] [range=X]
//
// One JSON object: processor milliseconds of each repeat, per utterance, and the texts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/data/features/feature_file.h"
#include "engine/decode/decoder.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"

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
  for (int repeat = 0; repeat < std::stoi(argv[3]); ++repeat) {
    const double begin = processor_seconds();
    for (const Matrix& m : outputs) {
      const auto found = decoder.decode(m.data.data(), static_cast<int32_t>(m.frames));
      if (repeat == 0) texts.push_back(found.front().text);
    }
    times.push_back(1e3 * (processor_seconds() - begin) / static_cast<double>(outputs.size()));
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
