// Real recordings through the whole chain: manifest, dataset, sampler, threads, batches.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "engine/data/audio/audio.h"
#include "engine/data/batch.h"
#include "engine/text/alphabet.h"
#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;

namespace {

std::string shared_folder() {
  const char* given = std::getenv("RONDO_SHARED");
  return given ? given : RONDO_DEFAULT_SHARED;
}

// Exits as skipped when the recordings are not there.
std::string require_recordings() {
  const std::string folder = shared_folder() + "/data/fsdd";
  if (std::filesystem::exists(folder + "/0_george_0.wav")) return folder;
  std::printf("skipped: no recordings at %s (set RONDO_SHARED)\n", folder.c_str());
  std::exit(77);
}

}  // namespace

TEST_CASE("spoken digits become batches", "[.][fsdd]") {
  const std::string folder = require_recordings();
  std::string lines;
  const std::set<std::string> speakers = {"george", "jackson", "nicolas", "theo", "yweweler"};
  for (const std::string& speaker : speakers)
    for (int digit = 0; digit < 10; ++digit)
      for (int take = 0; take < 3; ++take)
        lines += str(R"({"audio_filepath": ")", digit, "_", speaker, "_", take,
                     R"(.wav", "speaker": ")", speaker, R"(", "text": ")", digit, "\"}\n");
  const Manifest manifest = parse_manifest(lines, folder + "/made_up.jsonl");
  const SndfileReader reader;
  const Alphabet alphabet = Alphabet::from_transcripts(manifest.transcripts());
  CHECK(alphabet.classes() == 11);
  DatasetOptions o;
  o.features.rate = 8000;
  o.features.bins = 40;
  o.cmvn = CmvnMode::mean_variance;
  o.augment.speed = {0.9, 1.0, 1.1};
  o.threads = 2;
  const ManifestDataset d(manifest, o, &reader, &alphabet);
  REQUIRE(d.size() == 150);
  CHECK(d.total_seconds() > 40);
  CHECK(d.total_seconds() < 150);

  SamplerConfig sampling;
  sampling.batch_frames = 1000;
  Sampler sampler(
      d.size(), [&](int64_t i, uint64_t e) { return d.frames(i, e); }, sampling);
  const int64_t steps = sampler.steps(0);
  Prefetcher prefetcher(d, [&] { return std::optional(sampler.next()); }, {2, 3});
  std::multiset<int64_t> seen;
  for (int64_t s = 0; s < steps; ++s) {
    HostBatch b;
    REQUIRE(prefetcher.next(b));
    CHECK(b.epoch == 0);
    CHECK(b.rows() <= 1000);
    seen.insert(b.utterances.begin(), b.utterances.end());
    double sum = 0, squares = 0;
    for (float v : b.features) {
      REQUIRE(std::isfinite(v));
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const auto n = static_cast<double>(b.features.size());
    CHECK(std::abs(sum / n) <= 1e-3);
    CHECK(squares / n == Approx(1).margin(0.01));
    for (size_t i = 0; i < b.utterances.size(); ++i) {
      const std::vector<int32_t> labels(b.labels.begin() + b.label_offsets[i],
                                        b.labels.begin() + b.label_offsets[i + 1]);
      CHECK(alphabet.decode(labels) == d.entry(b.utterances[i]).text);
    }
  }
  CHECK(seen.size() == 150);
  CHECK(std::set<int64_t>(seen.begin(), seen.end()).size() == 150);
}
