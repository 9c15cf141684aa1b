// The states of a text, laid out for the kernel of forced alignment.
//
// A label and the blank before it are a pair. Segments are runs of labels that follow each other
// without a choice; where spellings differ, each is a segment of its own, with its own copy of the
// blank before it (the copies have equal scores). The last segment is the blank at the end.
// Segments stand in the order of the text: one comes after all that it may follow.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/align/forced_alignment.h"

namespace rondo {

struct AlignmentSegment {
  static constexpr int32_t start = -1;
  std::vector<int32_t> before;  // segments, or `start`
  int32_t first_strip = 0, strips = 0;
  int32_t labels = 0;  // of the blank at the end: 0
  int32_t first_label = 0, last_label = 0;
  int64_t labels_behind = 0;  // at least so many have to follow
};

// Up to alignment_strip_groups groups of pairs.
struct AlignmentStripPlace {
  int32_t segment = 0;
  int32_t first_group = 0, groups = 0;
  int32_t last_lane = 0;      // of its last label in its last group
  int64_t labels_behind = 0;  // at least so many have to follow
};

class AlignmentGraph {
 public:
  AlignmentGraph(std::span<const AlignmentUnit> units, int32_t classes, int32_t blank);

  std::vector<AlignmentSegment> segments;
  std::vector<AlignmentStripPlace> strips;
  int32_t groups = 0;
  int64_t states = 0;  // of the trellis, without those that fill up groups

  // Of each pair, by group and lane:
  std::vector<int32_t> score_of;  // which of the scores of a frame, below
  std::vector<double> skip;       // AlignmentStrip::skips
  std::vector<int32_t> label;     // its label; none: the pair is the blank at the end, or fills up
  std::vector<int32_t> unit, spelling;

  static constexpr int32_t none = -2;
  // The scores of a frame that are needed: the blank's, those of classes_used, and where there are
  // wildcards theirs and that of an opening. Pairs that fill up groups score what the blank does;
  // nothing follows them.
  static constexpr int32_t blank_score = 0, first_class = 1;
  std::vector<int32_t> classes_used;
  bool has_wildcard = false;
  int32_t wildcard_score() const { return first_class + static_cast<int32_t>(classes_used.size()); }
  int32_t scores() const { return wildcard_score() + (has_wildcard ? 2 : 0); }

 private:
  struct Piece {
    int32_t label, unit, spelling;
  };
  int32_t add_segment(const std::vector<Piece>& pieces, std::vector<int32_t> before);
  void set_labels_behind();

  std::vector<int32_t> score_of_class_;
};

}  // namespace rondo
