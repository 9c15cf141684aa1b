// Manifests for data that are there already: measured, checked, divided. The recordings stay where
// they are.
//
// Errors, threads and what becomes of `out` are as for every corpus (corpus.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/text/text_rules.h"
#include "tools/corpus/corpus.h"
#include "tools/corpus/examination/text_findings.h"
#include "tools/corpus/lists/findings.h"
#include "tools/corpus/lists/layouts.h"

namespace rondo {

// Of recordings: the first 20,000 that are drawn by the seed are decoded, and of others the headers
// are read; or all headers alone.
enum class Examine : uint8_t { all, headers };

struct PrepareListOptions {
  std::string kind;    // of the corpus: "folder", "csv", ...
  std::string source;  // the folder that the list was read from; empty: none
  std::string out;
  // Shares of the utterances to validate and to test with, where the list does not say. Speakers,
  // and the folders of images, are kept apart when there are four or more and all are known; pages,
  // where that is not so; otherwise utterances are drawn. Lines on the image of one page are in one
  // part in any case, whatever files describe it.
  double dev = 0.05, test = 0.05;
  uint64_t seed = 1;
  TextRules text;
  double least_seconds = 0.1;
  // Of images; none: as most letters of the texts are written.
  std::optional<LineDirection> direction;
  bool cut = false;     // lines of pages become images of their own, OUT/lines/000001.png
  bool strict = false;  // an utterance that cannot be used is an error, once all were looked at
  Examine examine = Examine::all;
  // Of recordings with several, where the list does not say it; negative: the mean of all.
  int32_t channel = -1;
  bool salvage = false;    // of a recording that is cut off, what there is becomes OUT/wav/...
  bool overwrite = false;  // manifests that were edited are replaced, and kept beside
  int threads = 0;         // 0: as many as there are CPUs
  CorpusProgress progress = {};
};

struct DataSummary {
  struct Part {
    std::string name;  // train, dev, test
    int64_t utterances = 0, words = 0, characters = 0;
    int64_t groups = 0;  // speakers, or the folders of images
    // Seconds; of images, columns once they are scaled to the usual height.
    double length = 0, shortest = 0, median = 0, longest = 0;
  };
  std::vector<Part> parts;
  std::string division;                       // how the parts were made: "by speaker", ...
  std::map<std::string, int64_t> characters;  // of all texts, UTF-8
  std::map<std::string, int64_t> classes;     // utterances of each
  corpus::Findings findings;
  std::vector<TextReplacement> never_found;  // those of the rules that no text has a use for
  TextFindings texts;
  LineDirection direction = LineDirection::rightwards;  // of images
  int64_t light = 0;                 // lines in light ink on darker paper, of those that are used
  int64_t listed = 0, decoded = 0;   // entries; how many of them at most were decoded
  std::map<int32_t, int64_t> rates;  // of the recordings that are used, Hz
  int32_t fitting_rate = 0;          // for features.rate: what nearly all of them reach
};

// Writes OUT/train.jsonl, dev.jsonl, test.jsonl, corpus.json, train.toml, the settings that fit,
// and lengths.svg, a histogram, and with `cut` OUT/lines. Paths are relative to OUT where the
// recordings lie in it or in the folder around it, otherwise absolute. Throws InputError where
// nothing is left. `findings`: what was found while the list was made.
DataSummary prepare_list(std::vector<corpus::ListedUtterance> list, const MediaReaders& readers,
                         const PrepareListOptions& options, corpus::Findings findings = {});

}  // namespace rondo
