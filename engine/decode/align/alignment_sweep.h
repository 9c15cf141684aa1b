// Forced alignment's way through the frames, some of them at a time.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/decode/align/alignment_graph.h"
#include "engine/decode/align/alignment_kernel.h"

namespace rondo {

// What each frame scores the labels of a text with. Throws Error for NaN and +infinity.
class ScoreTable {
 public:
  static constexpr int32_t most_frames = 128;  // of a tile, which then lies in the first cache

  ScoreTable(const float* scores, int64_t frames, int32_t classes, const AlignmentGraph& graph,
             const AlignmentOptions& options);

  int64_t frames() const { return frames_; }
  int64_t row() const { return row_; }
  // [end - first, row()], until the next call.
  const float* tile(int64_t first, int64_t end);
  // At most what any path scores in the frames from t on: the sum of the best scores.
  double bound(int64_t t) const { return bounds_[static_cast<size_t>(t)]; }
  // By how much rounding may change sums along a path that scores `score` or more.
  double rounding(double score) const;

 private:
  void make_row(int64_t frame, float* row) const;

  const float* scores_;
  int64_t frames_;
  int32_t classes_, blank_;
  double wildcard_cost_, opening_cost_;
  const AlignmentGraph& graph_;
  std::vector<float> bias_;
  int64_t row_;
  std::vector<float> tile_;
  std::vector<double> bounds_;
  double magnitude_ = 0;  // sum of the best scores' magnitudes
};

// The best scores of all states at a frame.
struct AlignmentFront {
  explicit AlignmentFront(const AlignmentGraph& graph)
      : blanks(static_cast<size_t>(graph.groups * alignment_group), never),
        labels(blanks),
        alive(graph.strips.size(), 0) {}

  static constexpr double never = -std::numeric_limits<double>::infinity();
  std::vector<double> blanks, labels;  // by pair
  std::vector<uint8_t> alive;          // of each strip; where not, all its scores are `never`
};

// Where the paths of some frames come from, for some strips; what finds one back.
class AlignmentSteps {
 public:
  AlignmentSteps(const AlignmentGraph& graph, int64_t first_frame, int64_t frames,
                 int32_t first_strip, int32_t end_strip);

  uint8_t* at(int64_t frame, int32_t group) {
    return steps_.data() + (frame - first_frame_) * row_ + (group - first_group_) * alignment_group;
  }
  int64_t row() const { return row_; }
  // Where the first pair of a segment came from at a frame: a place in AlignmentSegment::before,
  // for its blank and for its label over the blank.
  uint16_t& blank_from(int32_t segment, int64_t frame) { return entry(segment, frame, 0); }
  uint16_t& label_from(int32_t segment, int64_t frame) { return entry(segment, frame, 1); }

 private:
  uint16_t& entry(int32_t segment, int64_t frame, int which) {
    auto& all = entries_[static_cast<size_t>(segment - first_segment_)];
    return all[static_cast<size_t>(2 * (frame - first_frame_) + which)];
  }

  int64_t first_frame_, row_;
  int32_t first_group_, first_segment_;
  std::vector<uint8_t> steps_;
  std::vector<std::vector<uint16_t>> entries_;  // of segments that follow several
};

class AlignmentSweep {
 public:
  AlignmentSweep(const AlignmentGraph& graph, ScoreTable& table);

  // Takes the front from before frame `first` to frame `end` - 1. At most ScoreTable::most_frames.
  // Strips in which no path can score `least` any more, by the bound, are given up, and so are
  // those that too few frames are left for. Only strips [first_strip, end_strip) take part.
  void advance(AlignmentFront& front, int64_t first, int64_t end, double least, int32_t first_strip,
               int32_t end_strip, AlignmentSteps* steps);

  // The highest score, with its bound, of what advance() left alive.
  double best() const { return best_; }
  int64_t states_visited() const { return states_visited_; }

 private:
  // What a segment's last label, or what comes before a strip, scored in the frame before each.
  struct Column {
    std::vector<double> values;
    bool alive = false;
  };
  struct Entry {
    const double* blank = nullptr;
    const double* label = nullptr;
    bool alive = false;
  };
  Entry enter(const AlignmentSegment& segment, int32_t number, AlignmentSteps* steps);
  void run_strip(AlignmentFront& front, const AlignmentStripPlace& strip, const Entry& entry,
                 int64_t stride, double* last, AlignmentSteps* steps);
  bool is_alive(const double* values, int64_t stride) const;
  bool keep(AlignmentFront& front, const AlignmentStripPlace& strip);

  const AlignmentGraph& graph_;
  ScoreTable& table_;
  AlignmentKernel kernel_;
  std::vector<Column> columns_;  // of each segment
  Column start_, blank_entry_, label_entry_;
  std::vector<double> never_, last_[2];
  // Of the call under way:
  int64_t first_ = 0, end_ = 0;
  const float* scores_ = nullptr;
  double least_ = 0, best_ = 0;
  int64_t states_visited_ = 0;
};

}  // namespace rondo
