#include "engine/decode/align/alignment_graph.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/decode/align/alignment_kernel.h"
#include "kernels/base/error.h"

namespace rondo {

namespace {

bool is_wildcard(int32_t label) { return label == wildcard_label || label == opening_label; }

}  // namespace

AlignmentGraph::AlignmentGraph(std::span<const AlignmentUnit> units, int32_t classes, int32_t blank)
    : score_of_class_(static_cast<size_t>(classes), -1) {
  std::vector<int32_t> frontier = {AlignmentSegment::start};
  std::vector<Piece> run;  // of units without a choice
  const auto close_run = [&] {
    if (!run.empty()) frontier = {add_segment(run, frontier)};
    run.clear();
  };
  for (size_t u = 0; u < units.size(); ++u) {
    const auto& spellings = units[u].spellings;
    RONDO_CHECK(!spellings.empty(), "unit ", u, " has no spelling");
    const bool choice = spellings.size() > 1;
    if (choice) close_run();
    std::vector<int32_t> next;
    for (size_t n = 0; n < spellings.size(); ++n) {
      std::vector<Piece> pieces;
      for (const int32_t wanted : spellings[n]) {
        RONDO_CHECK((wanted >= 0 && wanted < classes && wanted != blank) || is_wildcard(wanted),
                    "label ", wanted, " of ", classes, " classes, blank ", blank);
        pieces.push_back({wanted, static_cast<int32_t>(u), static_cast<int32_t>(n)});
      }
      if (!choice) {
        run.insert(run.end(), pieces.begin(), pieces.end());
      } else if (pieces.empty()) {
        next.insert(next.end(), frontier.begin(), frontier.end());
      } else {
        next.push_back(add_segment(pieces, frontier));
      }
    }
    if (!choice) continue;
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    frontier = std::move(next);
  }
  close_run();
  add_segment({}, frontier);
  for (size_t i = 0; i < label.size(); ++i) {
    if (is_wildcard(label[i])) score_of[i] = wildcard_score() + (label[i] == opening_label);
  }
  // The kernel reads a group more.
  score_of.resize(score_of.size() + alignment_group, blank_score);
  set_labels_behind();
}

int32_t AlignmentGraph::add_segment(const std::vector<Piece>& pieces, std::vector<int32_t> before) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  constexpr int32_t strip_labels = alignment_strip_groups * alignment_group;
  AlignmentSegment segment;
  // Which of them a path came from is kept in two bytes.
  if (before.size() > UINT16_MAX)
    fail_input("more than ", UINT16_MAX, " spellings may stand before one place of the text");
  segment.before = std::move(before);
  segment.first_strip = static_cast<int32_t>(strips.size());
  segment.labels = static_cast<int32_t>(pieces.size());
  states += 2 * segment.labels + (pieces.empty() ? 1 : 0);
  if (!pieces.empty()) {
    segment.first_label = pieces.front().label;
    segment.last_label = pieces.back().label;
  }
  const int32_t width = std::max(segment.labels, 1);
  for (int32_t first = 0; first < width; first += strip_labels) {
    const int32_t count = std::min(strip_labels, width - first);
    AlignmentStripPlace strip;
    strip.segment = static_cast<int32_t>(segments.size());
    strip.first_group = groups;
    strip.groups = (count + alignment_group - 1) / alignment_group;
    strip.last_lane = (count - 1) % alignment_group;
    groups += strip.groups;
    strips.push_back(strip);
    for (int32_t i = first; i < first + strip.groups * alignment_group; ++i) {
      const bool there = i < segment.labels;
      const Piece piece = there ? pieces[static_cast<size_t>(i)] : Piece{none, 0, 0};
      const bool repeats =
          there && i > 0 && pieces[static_cast<size_t>(i - 1)].label == piece.label;
      label.push_back(piece.label);
      unit.push_back(piece.unit);
      spelling.push_back(piece.spelling);
      skip.push_back(repeats ? never : 0);
      int32_t score = blank_score;
      if (is_wildcard(piece.label)) {
        has_wildcard = true;  // scores of these come after all classes'
      } else if (there) {
        int32_t& own = score_of_class_[static_cast<size_t>(piece.label)];
        if (own < 0) {
          own = first_class + static_cast<int32_t>(classes_used.size());
          classes_used.push_back(piece.label);
        }
        score = own;
      }
      score_of.push_back(score);
    }
  }
  segment.strips = static_cast<int32_t>(strips.size()) - segment.first_strip;
  segments.push_back(std::move(segment));
  return static_cast<int32_t>(segments.size()) - 1;
}

void AlignmentGraph::set_labels_behind() {
  constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
  for (AlignmentSegment& s : segments) s.labels_behind = unknown;
  segments.back().labels_behind = 0;
  for (size_t n = segments.size(); n-- > 0;) {
    const AlignmentSegment& s = segments[n];
    for (const int32_t b : s.before) {
      if (b == AlignmentSegment::start) continue;
      int64_t& behind = segments[static_cast<size_t>(b)].labels_behind;
      behind = std::min(behind, s.labels + s.labels_behind);
    }
    for (int32_t i = 0; i < s.strips; ++i) {
      constexpr int32_t strip_labels = alignment_strip_groups * alignment_group;
      const int32_t through = std::min(s.labels, (i + 1) * strip_labels);
      strips[static_cast<size_t>(s.first_strip + i)].labels_behind =
          s.labels - through + s.labels_behind;
    }
  }
}

}  // namespace rondo
