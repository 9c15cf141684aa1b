#include "engine/text/edit_alignment.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Fewest errors first, then most substitutions, as one number that adds up along a path.
constexpr int64_t error_cost = int64_t{1} << 32;
constexpr int64_t substitution_cost = error_cost - 1;
constexpr int64_t out_of_band = std::numeric_limits<int64_t>::max() / 2;

int64_t errors_of(int64_t cost) { return (cost + error_cost - 1) / error_cost; }

// The cells (i, j) of the table of prefixes with -most_deletions <= j - i <= most_insertions. A row
// of the band is stored by j - i, so that a cell's neighbours are: (i-1, j-1) at the same place
// of the row above, (i-1, j) one to its right there, (i, j-1) one to the left in its own row.
class Band {
 public:
  Band(std::span<const int32_t> reference, std::span<const int32_t> hypothesis, int64_t most_errors)
      : reference_(reference), hypothesis_(hypothesis) {
    // Insertions less deletions is a given number, and their sum most_errors at most.
    const int64_t longer = columns() - rows();
    most_insertions_ =
        std::clamp((most_errors + longer) / 2, std::max<int64_t>(0, longer), columns());
    most_deletions_ = std::clamp((most_errors - longer) / 2, std::max<int64_t>(0, -longer), rows());
    block_ = std::max<int64_t>(1, std::llround(std::sqrt(8.0 * static_cast<double>(rows()))));
  }

  // The cost of the cheapest path in the band; rows are kept for path().
  int64_t cost() {
    std::vector<int64_t> row = first_row();
    kept_.clear();
    for (int64_t i = 0;; ++i) {
      if (i % block_ == 0) kept_.push_back(row);
      if (i == rows()) break;
      next_row(i + 1, row, {});
    }
    return row[place(rows(), columns())];
  }

  std::vector<Edit> path() const {
    std::vector<Edit> edits;
    const auto width = static_cast<size_t>(this->width());
    std::vector<Edit> steps(static_cast<size_t>(std::min(block_, rows())) * width);
    int64_t i = rows(), j = columns();
    while (i > 0) {
      const int64_t begin = (i - 1) / block_ * block_;
      std::vector<int64_t> row = kept_[static_cast<size_t>(begin / block_)];
      for (int64_t r = begin + 1; r <= i; ++r) {
        next_row(r, row,
                 std::span(steps).subspan(static_cast<size_t>(r - begin - 1) * width, width));
      }
      while (i > begin) {
        const Edit edit = steps[static_cast<size_t>(i - begin - 1) * width + place(i, j)];
        edits.push_back(edit);
        if (edit != Edit::insertion) --i;
        if (edit != Edit::deletion) --j;
      }
    }
    edits.insert(edits.end(), static_cast<size_t>(j), Edit::insertion);
    std::reverse(edits.begin(), edits.end());
    return edits;
  }

 private:
  int64_t rows() const { return static_cast<int64_t>(reference_.size()); }
  int64_t columns() const { return static_cast<int64_t>(hypothesis_.size()); }
  int64_t width() const { return most_deletions_ + 1 + most_insertions_; }
  size_t place(int64_t i, int64_t j) const { return static_cast<size_t>(j - i + most_deletions_); }

  std::vector<int64_t> first_row() const {
    std::vector<int64_t> row(static_cast<size_t>(width()), out_of_band);
    for (int64_t j = 0; j <= std::min(most_insertions_, columns()); ++j) {
      row[place(0, j)] = j * error_cost;
    }
    return row;
  }

  // Makes row i of row i - 1, in its memory. Each of `steps`, unless they are empty, becomes the
  // last edit of its cell's path. Places left of the first column and right of the last are never
  // read.
  void next_row(int64_t i, std::vector<int64_t>& row, std::span<Edit> steps) const {
    const int32_t wanted = reference_[static_cast<size_t>(i - 1)];
    const int64_t first = std::max<int64_t>(0, i - most_deletions_);
    const int64_t last = std::min(columns(), i + most_insertions_);
    int64_t left = out_of_band;
    for (int64_t j = first; j <= last; ++j) {
      const size_t at = place(i, j);
      const int64_t up = at + 1 < row.size() ? row[at + 1] + error_cost : out_of_band;
      int64_t best = out_of_band;
      Edit step = Edit::deletion;
      if (j > 0) {
        const bool equal = wanted == hypothesis_[static_cast<size_t>(j - 1)];
        step = equal ? Edit::equal : Edit::substitution;
        best = row[at] + (equal ? 0 : substitution_cost);
      }
      if (up < best) {
        best = up;
        step = Edit::deletion;
      }
      if (left + error_cost < best) {
        best = left + error_cost;
        step = Edit::insertion;
      }
      row[at] = left = best;
      if (!steps.empty()) steps[at] = step;
    }
  }

  std::span<const int32_t> reference_, hypothesis_;
  int64_t most_insertions_ = 0, most_deletions_ = 0;
  int64_t block_ = 1;                       // rows from one that is kept to the next
  std::vector<std::vector<int64_t>> kept_;  // rows 0, block_, 2 block_, ...
};

std::vector<Edit> align(std::span<const int32_t> reference, std::span<const int32_t> hypothesis) {
  const auto n = static_cast<int64_t>(reference.size()),
             m = static_cast<int64_t>(hypothesis.size());
  constexpr int64_t most = int64_t{1} << 30;
  RONDO_CHECK(n < most && m < most, "an alignment of ", n, " with ", m, " elements");
  for (int64_t most_errors = std::abs(n - m) + 16;; most_errors *= 2) {
    Band band(reference, hypothesis, most_errors);
    // Every path with so few errors lies in the band, so none outside is as cheap.
    if (errors_of(band.cost()) <= most_errors) return band.path();
  }
}

// The same number for the same element.
template <class T>
std::vector<Edit> align_numbered(std::span<const T> reference, std::span<const T> hypothesis) {
  std::map<T, int32_t> numbers;
  const auto numbered = [&](std::span<const T> elements) {
    std::vector<int32_t> out;
    out.reserve(elements.size());
    for (const T& e : elements) {
      out.push_back(numbers.try_emplace(e, static_cast<int32_t>(numbers.size())).first->second);
    }
    return out;
  };
  const std::vector<int32_t> a = numbered(reference), b = numbered(hypothesis);
  return align(a, b);
}

template <class T, class Text>
std::vector<TextEdit> with_texts(std::span<const Edit> edits, const std::vector<T>& reference,
                                 const std::vector<T>& hypothesis, const Text& text) {
  std::vector<TextEdit> out;
  out.reserve(edits.size());
  size_t i = 0, j = 0;
  for (const Edit edit : edits) {
    TextEdit t{edit, {}, {}};
    if (edit != Edit::insertion) t.reference = text(reference[i++]);
    if (edit != Edit::deletion) t.hypothesis = text(hypothesis[j++]);
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace

std::vector<Edit> align_edits(std::span<const char32_t> reference,
                              std::span<const char32_t> hypothesis) {
  return align_numbered(reference, hypothesis);
}

std::vector<Edit> align_edits(std::span<const std::string> reference,
                              std::span<const std::string> hypothesis) {
  return align_numbered(reference, hypothesis);
}

EditCounts counts_of(std::span<const Edit> edits) {
  EditCounts counts;
  for (const Edit edit : edits) {
    counts.substitutions += edit == Edit::substitution;
    counts.insertions += edit == Edit::insertion;
    counts.deletions += edit == Edit::deletion;
    counts.reference += edit != Edit::insertion;
  }
  return counts;
}

AlignedTranscripts align_transcripts(std::string_view reference, std::string_view hypothesis) {
  const std::string wanted = normalize_transcript(reference),
                    got = normalize_transcript(hypothesis);
  AlignedTranscripts out;
  const std::vector<std::string> words = split_words(wanted), got_words = split_words(got);
  const std::vector<Edit> word_edits = align_edits(words, got_words);
  out.words = with_texts(word_edits, words, got_words, [](const std::string& w) { return w; });
  out.word_counts = counts_of(word_edits);
  const std::vector<char32_t> characters = code_points(wanted), got_characters = code_points(got);
  const std::vector<Edit> character_edits = align_edits(characters, got_characters);
  out.characters = with_texts(character_edits, characters, got_characters, to_utf8);
  out.character_counts = counts_of(character_edits);
  return out;
}

}  // namespace rondo
