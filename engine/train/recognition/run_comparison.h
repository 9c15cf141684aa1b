// What two models wrote for the same data, beside each other.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/report/evaluation_report.h"
#include "engine/train/recognition/error_analysis.h"

namespace rondo {

// The result does not depend on the order in which utterances are added. One thread at a time.
class RunComparison {
 public:
  void add(const EvaluatedUtterance& utterance, const AlignedTranscripts& first,
           const AlignedTranscripts& second);

  int64_t utterances() const { return static_cast<int64_t>(utterances_.size()); }
  // WER and CER, those of lines (images) the other way around, then WER without punctuation where
  // there is some; each with bootstrap_difference().
  std::vector<report::Comparison::Rate> rates() const;
  int64_t wrong_first() const;
  int64_t wrong_second() const;

  // At most 10 utterances of which the second model wrote more, or fewer, errors: the greatest
  // change in words first (of lines: in characters), of these in characters, of these the first.
  struct Change {
    int64_t index = 0;  // of the dataset
    report::Comparison::Change texts;
  };
  const std::vector<Change>& worse() const { return worse_; }
  const std::vector<Change>& better() const { return better_; }

 private:
  struct Counted {
    EditCounts words, characters, bare_words;
  };
  struct Pair {
    EvaluatedUtterance utterance;
    Counted first, second;
  };

  std::map<int64_t, Pair> utterances_;  // by index
  bool has_punctuation_ = false;
  std::vector<Change> worse_, better_;
};

}  // namespace rondo
