#include "engine/train/recognition/run_comparison.h"

#include <algorithm>
#include <tuple>

#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr size_t most_changes = 10;

// Greater is worse: by how much the second has more errors.
std::pair<int64_t, int64_t> change_of(const report::Comparison::Change& c, bool of_lines) {
  const int64_t words = c.second.words.errors() - c.first.words.errors(),
                characters = c.second.characters.errors() - c.first.characters.errors();
  return of_lines ? std::pair(characters, words) : std::pair(words, characters);
}

// `sign` 1: the worse first, -1: the better.
void keep(std::vector<RunComparison::Change>& kept, RunComparison::Change change, bool of_lines,
          int sign) {
  const auto key = [&](const RunComparison::Change& c) {
    const auto [first, second] = change_of(c.texts, of_lines);
    return std::tuple(-sign * first, -sign * second, c.index);
  };
  if (key(change) >= std::tuple(int64_t{0}, int64_t{0}, int64_t{0})) return;
  const auto at = std::partition_point(kept.begin(), kept.end(),
                                       [&](const auto& other) { return key(other) < key(change); });
  kept.insert(at, std::move(change));
  kept.resize(std::min(kept.size(), most_changes));
}

}  // namespace

void RunComparison::add(const EvaluatedUtterance& utterance, const AlignedTranscripts& first,
                        const AlignedTranscripts& second) {
  const BareWords bare_first = without_punctuation(first),
                  bare_second = without_punctuation(second);
  has_punctuation_ |= bare_first.differ || bare_second.differ;
  const bool is_new =
      utterances_
          .insert({utterance.index,
                   {utterance,
                    {first.word_counts, first.character_counts, bare_first.counts},
                    {second.word_counts, second.character_counts, bare_second.counts}}})
          .second;
  RONDO_CHECK(is_new, "utterance ", utterance.index, " was compared before");
  const bool of_lines = utterance.kind == InputKind::image;
  const Change change{utterance.index,
                      {aligned_utterance(utterance, first), aligned_utterance(utterance, second)}};
  keep(worse_, change, of_lines, 1);
  keep(better_, change, of_lines, -1);
}

std::vector<report::Comparison::Rate> RunComparison::rates() const {
  const auto rate_of = [&](const char* name, EditCounts Counted::*member) {
    std::vector<EditCounts> first, second;
    EditCounts first_sum, second_sum;
    for (const auto& [index, u] : utterances_) {
      first_sum += first.emplace_back(u.first.*member);
      second_sum += second.emplace_back(u.second.*member);
    }
    report::Comparison::Rate rate{
        name, counts_for_report(first_sum), counts_for_report(second_sum), {}};
    if (const auto interval = bootstrap_difference(first, second))
      rate.difference = report::Interval{interval->low, interval->high};
    return rate;
  };
  std::vector<report::Comparison::Rate> all = {rate_of("WER", &Counted::words),
                                               rate_of("CER", &Counted::characters)};
  const bool of_lines =
      !utterances_.empty() && utterances_.begin()->second.utterance.kind == InputKind::image;
  if (of_lines) std::swap(all[0], all[1]);
  if (has_punctuation_) all.push_back(rate_of("WER without punctuation", &Counted::bare_words));
  return all;
}

int64_t RunComparison::wrong_first() const {
  return std::count_if(utterances_.begin(), utterances_.end(),
                       [](const auto& u) { return u.second.first.characters.errors() > 0; });
}

int64_t RunComparison::wrong_second() const {
  return std::count_if(utterances_.begin(), utterances_.end(),
                       [](const auto& u) { return u.second.second.characters.errors() > 0; });
}

}  // namespace rondo
