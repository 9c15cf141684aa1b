#include "engine/text/error_rate.h"

#include <cmath>
#include <limits>
#include <vector>

#include "engine/text/characters.h"
#include "engine/text/unicode.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

// The best way to reach a cell: fewest errors, then most substitutions (which fixes insertions and
// deletions as well, since their difference is known).
struct Cell {
  int64_t errors = 0;
  EditCounts counts;
};

bool better(const Cell& a, const Cell& b) {
  if (a.errors != b.errors) return a.errors < b.errors;
  return a.counts.substitutions > b.counts.substitutions;
}

template <class T>
EditCounts align(std::span<const T> reference, std::span<const T> hypothesis) {
  std::vector<Cell> row(hypothesis.size() + 1);
  for (size_t j = 1; j < row.size(); ++j) {
    row[j] = row[j - 1];
    ++row[j].errors;
    ++row[j].counts.insertions;
  }
  for (const T& wanted : reference) {
    Cell diagonal = row[0];
    ++row[0].errors;
    ++row[0].counts.deletions;
    for (size_t j = 1; j < row.size(); ++j) {
      Cell best = diagonal;
      if (!(wanted == hypothesis[j - 1])) {
        ++best.errors;
        ++best.counts.substitutions;
      }
      Cell deletion = row[j];
      ++deletion.errors;
      ++deletion.counts.deletions;
      Cell insertion = row[j - 1];
      ++insertion.errors;
      ++insertion.counts.insertions;
      if (better(deletion, best)) best = deletion;
      if (better(insertion, best)) best = insertion;
      diagonal = row[j];
      row[j] = best;
    }
  }
  EditCounts out = row.back().counts;
  out.reference = static_cast<int64_t>(reference.size());
  return out;
}

}  // namespace

std::string percent_text(double rate) {
  if (std::isinf(rate)) return "n/a (empty references)";
  return fixed_text(100 * rate, 2) + "%";
}

double EditCounts::rate() const {
  if (reference > 0) return static_cast<double>(errors()) / static_cast<double>(reference);
  return errors() == 0 ? 0.0 : std::numeric_limits<double>::infinity();
}

EditCounts& EditCounts::operator+=(const EditCounts& other) {
  substitutions += other.substitutions;
  insertions += other.insertions;
  deletions += other.deletions;
  reference += other.reference;
  return *this;
}

EditCounts edit_counts(std::span<const char32_t> reference, std::span<const char32_t> hypothesis) {
  return align(reference, hypothesis);
}

EditCounts edit_counts(std::span<const std::string> reference,
                       std::span<const std::string> hypothesis) {
  return align(reference, hypothesis);
}

void ErrorRate::add(std::string_view reference, std::string_view hypothesis) {
  const std::string wanted = normalize_transcript(reference);
  const std::string got = normalize_transcript(hypothesis);
  words_ += edit_counts(split_words(wanted), split_words(got));
  characters_ += edit_counts(code_points(wanted), code_points(got));
  ++utterances_;
  if (wanted != got) ++wrong_;
}

ErrorRate& ErrorRate::operator+=(const ErrorRate& other) {
  words_ += other.words_;
  characters_ += other.characters_;
  utterances_ += other.utterances_;
  wrong_ += other.wrong_;
  return *this;
}

void WordSpacing::add(std::string_view text) {
  const std::string plain = normalize_transcript(text);
  if (plain.empty()) return;
  ++texts_;
  words_ += static_cast<int64_t>(split_words(plain).size());
  for (const char32_t c : code_points(plain)) {
    ++characters_;
    if (!is_letter(c)) continue;
    ++letters_;
    if (is_of_unspaced_script(c)) ++unspaced_;
  }
}

}  // namespace rondo
