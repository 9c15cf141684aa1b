#include "engine/train/recognition/error_analysis.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/text/text_rules.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

constexpr size_t most_worst = 20;
constexpr size_t most_parts = 5;
constexpr size_t fewest_per_part = 4;

std::string length_text(const EvaluatedUtterance& u) {
  if (u.kind == InputKind::recording) return fixed_text(u.length, 2) + " s";
  return fixed_text(u.length, 0) + (u.kind == InputKind::features ? " frames" : " columns");
}

std::vector<report::EditMark> marks_of(const std::vector<TextEdit>& edits) {
  std::vector<report::EditMark> marks;
  marks.reserve(edits.size());
  for (const TextEdit& e : edits) {
    marks.push_back({static_cast<char>(e.edit), e.reference, e.hypothesis});
  }
  return marks;
}

std::string note_of(const EvaluatedUtterance& u) {
  std::string note;
  for (const std::string& part :
       {u.path, u.speaker, u.length > 0 ? length_text(u) : std::string()}) {
    if (!part.empty()) note += (note.empty() ? "" : ", ") + part;
  }
  return note;
}

// The words of one side, with spaces between them.
std::string text_of(const std::vector<TextEdit>& words, std::string TextEdit::*side) {
  std::string text;
  for (const TextEdit& e : words) {
    if ((e.*side).empty()) continue;
    text += (text.empty() ? "" : " ") + e.*side;
  }
  return text;
}

}  // namespace

BareWords without_punctuation(const AlignedTranscripts& aligned) {
  TextRules rules;
  rules.strip_punctuation = true;
  const std::string reference = text_of(aligned.words, &TextEdit::reference),
                    hypothesis = text_of(aligned.words, &TextEdit::hypothesis);
  const std::string bare_reference = apply_rules(rules, reference),
                    bare_hypothesis = apply_rules(rules, hypothesis);
  if (bare_reference == reference && bare_hypothesis == hypothesis)
    return {aligned.word_counts, false};
  return {edit_counts(split_words(bare_reference), split_words(bare_hypothesis)), true};
}

namespace {

// A character that stands alone, as it can be seen.
std::string visible(const std::string& character) {
  if (character.empty()) return {};
  if (character == " ") return "␣";
  const std::string described = describe(code_points(character).front());
  return described.starts_with("U+") ? described : character;
}

void add_row(report::Rates& row, const EditCounts& words, const EditCounts& characters) {
  const auto add = [](report::Counts& sum, const EditCounts& c) {
    sum.reference += c.reference;
    sum.substitutions += c.substitutions;
    sum.insertions += c.insertions;
    sum.deletions += c.deletions;
  };
  ++row.utterances;
  add(row.words, words);
  add(row.characters, characters);
}

report::Confusions most_frequent(
    const std::map<std::pair<std::string, std::string>, int64_t>& confused, size_t most) {
  report::Confusions out;
  for (const auto& [texts, count] : confused) {
    const auto& [reference, hypothesis] = texts;
    const bool inserted = reference.empty(), deleted = hypothesis.empty();
    (inserted  ? out.insertions
     : deleted ? out.deletions
               : out.substitutions)
        .push_back({reference, hypothesis, count});
    (inserted ? out.all.insertions : deleted ? out.all.deletions : out.all.substitutions) += count;
  }
  for (auto* list : {&out.substitutions, &out.insertions, &out.deletions}) {
    std::stable_sort(list->begin(), list->end(),
                     [](const auto& a, const auto& b) { return a.count > b.count; });
    list->resize(std::min(list->size(), most));
  }
  return out;
}

}  // namespace

report::AlignedUtterance aligned_utterance(const EvaluatedUtterance& utterance,
                                           const AlignedTranscripts& aligned) {
  return {utterance.name,
          note_of(utterance),
          counts_for_report(aligned.word_counts),
          counts_for_report(aligned.character_counts),
          marks_of(aligned.words),
          marks_of(aligned.characters)};
}

report::Counts counts_for_report(const EditCounts& counts) {
  return {counts.reference, counts.substitutions, counts.insertions, counts.deletions};
}

report::Rates rates_for_report(std::string name, const ErrorRate& rates) {
  return {std::move(name), rates.utterances(), counts_for_report(rates.words()),
          counts_for_report(rates.characters())};
}

void ErrorAnalysis::add(const EvaluatedUtterance& utterance, const AlignedTranscripts& aligned) {
  const BareWords bare = without_punctuation(aligned);
  has_punctuation_ |= bare.differ;
  const bool is_new =
      utterances_
          .insert({utterance.index,
                   {utterance, aligned.word_counts, aligned.character_counts, bare.counts}})
          .second;
  RONDO_CHECK(is_new, "utterance ", utterance.index, " was analysed before");
  for (const TextEdit& e : aligned.words) {
    if (e.edit != Edit::equal) ++words_[{e.reference, e.hypothesis}];
  }
  for (const TextEdit& e : aligned.characters) {
    if (e.edit != Edit::equal) ++characters_[{visible(e.reference), visible(e.hypothesis)}];
  }
  // With the same characters in the same places, words are the same.
  if (aligned.character_counts.errors() > 0) keep_if_bad(utterance, aligned);
}

void ErrorAnalysis::keep_if_bad(const EvaluatedUtterance& utterance,
                                const AlignedTranscripts& aligned) {
  const auto badness = [&](int64_t index) {
    const Counted& c = utterances_.at(index);
    const int64_t words = -c.words.errors(), characters = -c.characters.errors();
    return c.utterance.kind == InputKind::image ? std::tuple(characters, words, index)
                                                : std::tuple(words, characters, index);
  };
  const auto at = std::partition_point(
      worst_indices_.begin(), worst_indices_.end(),
      [&](int64_t other) { return badness(other) < badness(utterance.index); });
  const auto place = at - worst_indices_.begin();
  if (static_cast<size_t>(place) == most_worst) return;
  worst_indices_.insert(at, utterance.index);
  worst_.insert(worst_.begin() + place, aligned_utterance(utterance, aligned));
  worst_indices_.resize(std::min(worst_indices_.size(), most_worst));
  worst_.resize(worst_indices_.size());
}

report::Confusions ErrorAnalysis::confused_words(size_t most) const {
  return most_frequent(words_, most);
}

report::Confusions ErrorAnalysis::confused_characters(size_t most) const {
  return most_frequent(characters_, most);
}

std::optional<RateInterval> ErrorAnalysis::wer_interval() const {
  std::vector<EditCounts> counts;
  for (const auto& [index, u] : utterances_) counts.push_back(u.words);
  return bootstrap_interval(counts);
}

std::optional<RateInterval> ErrorAnalysis::cer_interval() const {
  std::vector<EditCounts> counts;
  for (const auto& [index, u] : utterances_) counts.push_back(u.characters);
  return bootstrap_interval(counts);
}

std::optional<EditCounts> ErrorAnalysis::words_without_punctuation() const {
  if (!has_punctuation_) return std::nullopt;
  EditCounts sum;
  for (const auto& [index, u] : utterances_) sum += u.bare_words;
  return sum;
}

std::optional<RateInterval> ErrorAnalysis::interval_without_punctuation() const {
  std::vector<EditCounts> counts;
  for (const auto& [index, u] : utterances_) counts.push_back(u.bare_words);
  return bootstrap_interval(counts);
}

report::RateTable ErrorAnalysis::by_speaker() const {
  report::RateTable table{"By speaker", "speaker", {}};
  std::map<std::string, report::Rates> rows;
  for (const auto& [index, u] : utterances_) {
    const std::string& speaker = u.utterance.speaker;
    report::Rates& row = rows[speaker];
    row.name = speaker.empty() ? "unknown" : speaker;
    add_row(row, u.words, u.characters);
  }
  if (rows.size() < 2) return table;
  for (auto& [speaker, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

report::RateTable ErrorAnalysis::by_length() const {
  std::vector<const Counted*> sorted;
  for (const auto& [index, u] : utterances_) sorted.push_back(&u);
  const bool is_of_lines = !sorted.empty() && sorted.front()->utterance.kind == InputKind::image;
  report::RateTable table{"By length of the recording", "length", {}};
  if (is_of_lines) table = {"By width of the line", "width", {}};
  const size_t parts = std::min(most_parts, sorted.size() / fewest_per_part);
  if (parts < 2) return table;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Counted* a, const Counted* b) {
    return a->utterance.length < b->utterance.length;
  });
  size_t begin = 0;
  for (size_t part = 1; part <= parts; ++part) {
    size_t end = sorted.size() * part / parts;
    // Those of one length stay together.
    while (end > 0 && end < sorted.size() &&
           sorted[end]->utterance.length == sorted[end - 1]->utterance.length) {
      ++end;
    }
    if (end <= begin) continue;
    const EvaluatedUtterance &first = sorted[begin]->utterance, &last = sorted[end - 1]->utterance;
    report::Rates row;
    row.name = length_text(first);
    if (last.length > first.length) row.name += " to " + length_text(last);
    for (; begin < end; ++begin) add_row(row, sorted[begin]->words, sorted[begin]->characters);
    table.rows.push_back(std::move(row));
  }
  if (table.rows.size() < 2) table.rows.clear();
  return table;
}

}  // namespace rondo
