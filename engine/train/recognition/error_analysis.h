// What an evaluation's errors are: which words and characters are confused, in which utterances.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/manifest.h"
#include "engine/report/evaluation_report.h"
#include "engine/text/bootstrap.h"
#include "engine/text/edit_alignment.h"
#include "engine/text/error_rate.h"

namespace rondo {

// Whose text was evaluated.
struct EvaluatedUtterance {
  int64_t index = 0;  // of the dataset; no two have the same
  std::string name;
  std::string path;     // of its recording or features, as the manifest has it
  std::string speaker;  // may be empty
  InputKind kind = InputKind::recording;
  double length = 0;  // seconds of a recording, frames of features, columns of an image
};

// The result does not depend on the order in which utterances are added. The counts of each are
// kept, the alignments of the worst alone. One thread at a time.
class ErrorAnalysis {
 public:
  void add(const EvaluatedUtterance& utterance, const AlignedTranscripts& aligned);

  // The most frequent of each kind, at most so many; ties in the order of their text. Of words, or
  // of characters: there the blank is "␣", and what cannot be printed alone "U+0301".
  report::Confusions confused_words(size_t most) const;
  report::Confusions confused_characters(size_t most) const;

  // At most 20 utterances with errors: the most errors in words first, of these the most in
  // characters, of these the first in the dataset. Of lines (images) characters come before words.
  const std::vector<report::AlignedUtterance>& worst() const { return worst_; }
  // Which of the dataset these are.
  const std::vector<int64_t>& worst_indices() const { return worst_indices_; }

  // See bootstrap_interval().
  std::optional<RateInterval> wer_interval() const;
  std::optional<RateInterval> cer_interval() const;

  // Of words without their punctuation (TextRules::strip_punctuation); none where no text has any.
  std::optional<EditCounts> words_without_punctuation() const;
  std::optional<RateInterval> interval_without_punctuation() const;

  // Rows in the order of names; none unless two speakers are known.
  report::RateTable by_speaker() const;
  // Up to five parts of about as many utterances, of like length each, the shortest first; none
  // when there are too few.
  report::RateTable by_length() const;

 private:
  struct Counted {
    EvaluatedUtterance utterance;
    EditCounts words, characters, bare_words;
  };
  using Confused = std::map<std::pair<std::string, std::string>, int64_t>;

  void keep_if_bad(const EvaluatedUtterance& utterance, const AlignedTranscripts& aligned);

  std::map<int64_t, Counted> utterances_;  // by index
  bool has_punctuation_ = false;
  Confused words_, characters_;
  std::vector<report::AlignedUtterance> worst_;
  std::vector<int64_t> worst_indices_;  // of worst_
};

// Words without their punctuation (TextRules::strip_punctuation).
struct BareWords {
  EditCounts counts;
  bool differ = false;  // from the words as they are
};
BareWords without_punctuation(const AlignedTranscripts& aligned);

report::AlignedUtterance aligned_utterance(const EvaluatedUtterance& utterance,
                                           const AlignedTranscripts& aligned);
report::Counts counts_for_report(const EditCounts& counts);
report::Rates rates_for_report(std::string name, const ErrorRate& rates);

}  // namespace rondo
