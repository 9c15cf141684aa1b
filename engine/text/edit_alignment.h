// Which word of a hypothesis stands for which word of the reference, and the same of characters.
//
// The alignment is a cheapest one (Levenshtein); among equally cheap ones it has the most
// substitutions, so its counts are those of edit_counts(). Where several of these remain, the one
// is taken that a walk from the texts' ends finds when it prefers, at each step, a pair (equal or
// substituted) to a deletion, and a deletion to an insertion.
//
// Cost for lengths n and m with d errors: time O(n d), at most O(n m); memory O(sqrt(n) d), at most
// O(sqrt(n) (n + m)) numbers. The table is never whole: only a band of it that holds every cheapest
// path is computed (Ukkonen, "Algorithms for approximate string matching", 1985; the band is
// doubled until it does), of that every sqrt(8 n)-th row is kept, and the rows between are computed
// a second time for the walk.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/error_rate.h"

namespace rondo {

enum class Edit : char { equal = '=', substitution = 's', insertion = 'i', deletion = 'd' };

// From first to last: each edit takes an element of the reference (all but insertions) and one of
// the hypothesis (all but deletions).
std::vector<Edit> align_edits(std::span<const char32_t> reference,
                              std::span<const char32_t> hypothesis);
std::vector<Edit> align_edits(std::span<const std::string> reference,
                              std::span<const std::string> hypothesis);

EditCounts counts_of(std::span<const Edit> edits);

// An edit with what it is about. The text that it has not is empty: `reference` of an insertion,
// `hypothesis` of a deletion.
struct TextEdit {
  Edit edit = Edit::equal;
  std::string reference, hypothesis;
};

// Two transcripts after normalize_transcript(), as ErrorRate compares them. Of characters each text
// is one code point.
struct AlignedTranscripts {
  std::vector<TextEdit> words, characters;
  EditCounts word_counts, character_counts;
};

// Throws InputError when a text is not valid UTF-8.
AlignedTranscripts align_transcripts(std::string_view reference, std::string_view hypothesis);

}  // namespace rondo
