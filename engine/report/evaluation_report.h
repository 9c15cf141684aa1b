// What `rondo eval --report` writes: the evaluation of a model as one HTML page.
//
// The page needs nothing from outside (no script, no font, no network), follows
// prefers-color-scheme, fits a phone and can be printed; what colours say is said by marks too. The
// same input gives the same bytes. All text is data, never markup (html.h).
//
// Plain data. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/report/charts.h"

namespace rondo::report {

struct Counts {
  int64_t reference = 0, substitutions = 0, insertions = 0, deletions = 0;

  int64_t errors() const { return substitutions + insertions + deletions; }
};

struct Interval {
  double low = 0, high = 0;
};

// The error rates of some of the utterances.
struct Rates {
  std::string name;
  int64_t utterances = 0;
  Counts words, characters;
};
// All parts of a table, such as all speakers.
struct RateTable {
  std::string title;
  std::string column;  // what the names are
  std::vector<Rates> rows;
};

// Text that was read as other text so many times. Empty `reference`: it was inserted; empty
// `hypothesis`: deleted.
struct Confusion {
  std::string reference, hypothesis;
  int64_t count = 0;
};
// The most frequent of each kind, and how many there are of it in all.
struct Confusions {
  std::vector<Confusion> substitutions, insertions, deletions;
  Counts all;
};

// '=' equal, 's' substituted, 'i' inserted, 'd' deleted.
struct EditMark {
  char edit = '=';
  std::string reference, hypothesis;
};

struct AlignedUtterance {
  std::string name;
  std::string note;  // who speaks, how long
  Counts words, characters;
  std::vector<EditMark> word_edits, character_edits;
  // What was read, a file of either format, embedded in the page; empty: there is none.
  std::string png = {}, wav = {};
};

// Of a ctc model.
struct Transcription {
  Rates all;
  int64_t wrong_utterances = 0;
  std::optional<Interval> wer_interval, cer_interval;
  std::optional<Counts> bare_words;  // without punctuation; none: there is none in the texts
  std::optional<Interval> bare_interval;
  bool characters_first = false;  // of lines of text; else words are
  std::string interval_method;    // a sentence
  std::vector<RateTable> tables;
  Confusions words, characters;
  std::vector<AlignedUtterance> worst;  // the worst first
};

// Of a classify model. matrix[reference][answer] counts utterances; it is square.
struct Classification {
  int64_t utterances = 0, wrong = 0;
  std::vector<std::vector<int64_t>> matrix;
  std::vector<std::string> classes = {};  // their names; empty: they have numbers
};

// Of a regress model.
struct Regression {
  struct Utterance {
    std::string name;
    double loss = 0;
    std::vector<float> target, answer;
  };
  int64_t utterances = 0;
  std::vector<Utterance> worst;      // the worst first
  double mae = 0, rmse = 0, r2 = 0;  // NaN: there is none
};

// Of what two ctc models wrote for the same data.
struct Comparison {
  struct Rate {
    std::string name;
    Counts first, second;
    std::optional<Interval> difference;  // of the second's rate less the first's
  };
  struct Change {
    AlignedUtterance first, second;  // sound and image: the first's
  };
  std::string first, second;  // names of the models
  bool characters_first = false;
  std::vector<Rate> rates;
  int64_t utterances = 0, wrong_first = 0, wrong_second = 0;
  std::string interval_method;        // a sentence
  std::vector<std::string> settings;  // "training.epochs: 50 -> 60", of those that differ
  std::optional<LearningCurve> first_curve, second_curve;
  std::vector<Change> worse, better;  // what changed most, by errors, first
};

struct EvaluationPage {
  std::string title;
  std::string noun = "utterance";  // what one of the data is called, "line", say
  std::vector<std::pair<std::string, std::string>> facts;  // name and value: the model, the data
  std::vector<std::string> remarks;                        // sentences
  double loss = 0;                                         // mean per utterance; NaN: there is none
  std::string settings = {};                               // of the run, TOML; empty: not known
  std::optional<LearningCurve> curve;
  // One of these.
  std::optional<Transcription> transcription;
  std::optional<Classification> classification;
  std::optional<Regression> regression;
  std::optional<Comparison> comparison;
};

std::string evaluation_html(const EvaluationPage& page);

}  // namespace rondo::report
