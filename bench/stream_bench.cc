// Times streams of sound through a model that can stream: one by one, and heard at once.
//
//   stream_bench MODEL [threads=1] [chunk=0.08] [streams=1,8,64] [seconds=10] [repeats=5]
//
// Every stream gets a chunk of noise at a time. One JSON object: for each number of streams, for
// each way, how many streams the threads keep up with (seconds of sound per second), and how long a
// round takes from the chunks' arrival to all texts (milliseconds: median, 95 of 100).
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "engine/io/json.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/error.h"

using namespace rondo;

namespace {

struct Way {
  std::vector<double> rounds;  // seconds
  double total = 0;
};

Way time_streams(Recognizer& model, size_t count, bool together, double chunk, double seconds) {
  const int rate = model.description().config.features.rate;
  const auto samples = static_cast<size_t>(chunk * rate);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> sound(samples * 64);
  for (float& x : sound) x = normal(random);
  std::vector<std::unique_ptr<RecognizerStream>> streams;
  for (size_t i = 0; i < count; ++i)
    streams.push_back(std::make_unique<RecognizerStream>(model, chunk));
  Way way;
  const auto rounds = static_cast<size_t>(seconds / chunk);
  for (size_t r = 0; r < rounds; ++r) {
    std::vector<RecognizerStream::Sound> heard;
    for (size_t i = 0; i < count; ++i) {
      heard.push_back({streams[i].get(),
                       std::span<const float>(sound).subspan((r + i) % 64 * samples, samples)});
    }
    const double begin = wall_seconds();
    if (together) {
      RecognizerStream::accept(heard);
    } else {
      for (const auto& h : heard) h.stream->accept(h.samples);
    }
    const double took = wall_seconds() - begin;
    if (r < 5) continue;  // memory is laid out, features begin
    way.rounds.push_back(took);
    way.total += took;
  }
  return way;
}

int run(int argc, char** argv) {
  if (argc < 2) fail_input("expected MODEL [key=value ...]");
  std::map<std::string, std::string> given = {{"threads", "1"},
                                              {"chunk", "0.08"},
                                              {"streams", "1,8,64"},
                                              {"seconds", "10"},
                                              {"repeats", "5"}};
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos || !given.contains(word.substr(0, equals)))
      fail_input("'", word, "', expected threads=, chunk=, streams=, seconds= or repeats=");
    given[word.substr(0, equals)] = word.substr(equals + 1);
  }
  const double chunk = std::stod(given["chunk"]), seconds = std::stod(given["seconds"]);
  Recognizer model(argv[1], DeviceId{}, std::stoi(given["threads"]));
  Json rows = Json::array();
  std::istringstream counts(given["streams"]);
  for (std::string word; std::getline(counts, word, ',');) {
    const size_t count = std::stoul(word);
    // The ways take turns, so that what else the machine does meets both.
    std::map<bool, Way> ways;
    std::map<bool, std::vector<double>> rates;
    for (int repeat = 0; repeat < std::stoi(given["repeats"]); ++repeat) {
      for (bool together : {false, true}) {
        Way way = time_streams(model, count, together, chunk, seconds);
        rates[together].push_back(static_cast<double>(way.rounds.size() * count) * chunk /
                                  way.total);
        auto& all = ways[together].rounds;
        all.insert(all.end(), way.rounds.begin(), way.rounds.end());
      }
    }
    for (bool together : {false, true}) {
      auto &rounds = ways[together].rounds, &rate = rates[together];
      std::sort(rounds.begin(), rounds.end());
      std::sort(rate.begin(), rate.end());
      rows.push_back(Json::object({{"streams", static_cast<int64_t>(count)},
                                   {"together", together},
                                   {"in_real_time", rate[rate.size() / 2]},
                                   {"median_ms", 1e3 * rounds[rounds.size() / 2]},
                                   {"p95_ms", 1e3 * rounds[rounds.size() * 95 / 100]}}));
    }
  }
  std::printf("%s\n", Json::object({{"chunk_seconds", chunk}, {"rows", rows}}).dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "stream_bench: %s\n", e.what());
    return 1;
  }
}
