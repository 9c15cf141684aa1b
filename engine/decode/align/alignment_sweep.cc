#include "engine/decode/align/alignment_sweep.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/cpu.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double never = AlignmentFront::never;

AlignmentKernel best_kernel() {
  const CpuFeatures& cpu = cpu_features();
  if (cpu.avx512) return isa_avx512::align_strip;
  if (cpu.avx2) return isa_avx2::align_strip;
  return isa_generic::align_strip;
}

}  // namespace

ScoreTable::ScoreTable(const float* scores, int64_t frames, int32_t classes,
                       const AlignmentGraph& graph, const AlignmentOptions& options)
    : scores_(scores),
      frames_(frames),
      classes_(classes),
      blank_(options.blank),
      wildcard_cost_(options.wildcard_cost),
      opening_cost_(options.opening_cost),
      graph_(graph),
      bias_(options.bias.begin(), options.bias.end()) {
  const int64_t used = graph.scores();
  row_ = used <= alignment_small_table ? alignment_small_table : (used + 15) / 16 * 16;
  tile_.assign(static_cast<size_t>(row_ * most_frames), static_cast<float>(never));
  bounds_.resize(static_cast<size_t>(frames) + 1);
  for (int64_t t = frames; t-- > 0;) {
    make_row(t, tile_.data());
    const float best = *std::max_element(tile_.begin(), tile_.begin() + used);
    bounds_[static_cast<size_t>(t)] = bounds_[static_cast<size_t>(t) + 1] + best;
    if (best > -std::numeric_limits<float>::infinity()) magnitude_ += std::abs(best);
  }
}

// A sum of so many rounds each time by half a unit of the partial sum. Such a sum is at most that
// of the best scores, and at least `score` less what is still to come.
double ScoreTable::rounding(double score) const {
  return 4 * static_cast<double>(frames_) * 0x1p-52 * (std::abs(score) + 2 * magnitude_ + 1);
}

void ScoreTable::make_row(int64_t frame, float* row) const {
  const float* scores = scores_ + frame * classes_;
  bool sound = true;
  const auto score = [&](int32_t c) {
    return bias_.empty() ? scores[c] : scores[c] + bias_[static_cast<size_t>(c)];
  };
  for (int32_t c = 0; c < classes_; ++c) {
    sound = sound && scores[c] < std::numeric_limits<float>::infinity();
  }
  RONDO_CHECK(sound, "frame ", frame, " holds a score that is NaN or infinite");
  row[AlignmentGraph::blank_score] = score(blank_);
  float* next = row + AlignmentGraph::first_class;
  for (const int32_t c : graph_.classes_used) *next++ = score(c);
  if (!graph_.has_wildcard) return;
  float best = static_cast<float>(never);
  for (int32_t c = 0; c < classes_; ++c) best = std::max(best, score(c));
  *next++ = static_cast<float>(best - wildcard_cost_);
  *next = static_cast<float>(best - wildcard_cost_ - opening_cost_);
}

const float* ScoreTable::tile(int64_t first, int64_t end) {
  for (int64_t t = first; t < end; ++t) make_row(t, tile_.data() + (t - first) * row_);
  return tile_.data();
}

AlignmentSteps::AlignmentSteps(const AlignmentGraph& graph, int64_t first_frame, int64_t frames,
                               int32_t first_strip, int32_t end_strip)
    : first_frame_(first_frame) {
  const AlignmentStripPlace& first = graph.strips[static_cast<size_t>(first_strip)];
  const AlignmentStripPlace& last = graph.strips[static_cast<size_t>(end_strip - 1)];
  first_group_ = first.first_group;
  first_segment_ = first.segment;
  row_ = int64_t{last.first_group + last.groups - first_group_} * alignment_group;
  steps_.resize(static_cast<size_t>(frames * row_));
  for (int32_t s = first.segment; s <= last.segment; ++s) {
    const bool several = graph.segments[static_cast<size_t>(s)].before.size() > 1;
    entries_.emplace_back(several ? static_cast<size_t>(2 * frames) : 0);
  }
}

AlignmentSweep::AlignmentSweep(const AlignmentGraph& graph, ScoreTable& table)
    : graph_(graph), table_(table), kernel_(best_kernel()), columns_(graph.segments.size()) {
  const auto frames = static_cast<size_t>(ScoreTable::most_frames);
  for (Column* c : {&start_, &blank_entry_, &label_entry_}) c->values.assign(frames, never);
  never_.assign(frames, never);
  for (auto& last : last_) last.resize(frames * alignment_group);
}

// `values[k * stride]`: of the frame before first_ + k.
bool AlignmentSweep::is_alive(const double* values, int64_t stride) const {
  for (int64_t k = 0; k < end_ - first_; ++k) {
    const double v = values[k * stride];
    if (v > never && v + table_.bound(first_ + k) >= least_) return true;
  }
  return false;
}

// What a segment is entered from. Of several, the best at each frame, the first of equal ones.
AlignmentSweep::Entry AlignmentSweep::enter(const AlignmentSegment& segment, int32_t number,
                                            AlignmentSteps* steps) {
  const auto column = [&](int32_t b) -> const Column& {
    return b == AlignmentSegment::start ? start_ : columns_[static_cast<size_t>(b)];
  };
  // Equal labels need a blank between.
  const auto skips = [&](int32_t b) {
    if (b == AlignmentSegment::start || segment.labels == 0) return true;
    return graph_.segments[static_cast<size_t>(b)].last_label != segment.first_label;
  };
  if (segment.before.size() == 1) {
    const int32_t b = segment.before.front();
    const Column& c = column(b);
    return {c.values.data(), skips(b) ? c.values.data() : never_.data(), c.alive};
  }
  const auto frames = static_cast<size_t>(end_ - first_);
  std::fill_n(blank_entry_.values.begin(), frames, never);
  std::fill_n(label_entry_.values.begin(), frames, never);
  bool alive = false;
  for (size_t n = 0; n < segment.before.size(); ++n) {
    const int32_t b = segment.before[n];
    const Column& c = column(b);
    if (!c.alive) continue;
    alive = true;
    for (const bool label : {false, true}) {
      if (label && !skips(b)) continue;
      std::vector<double>& best = label ? label_entry_.values : blank_entry_.values;
      for (size_t k = 0; k < frames; ++k) {
        if (!(c.values[k] > best[k])) continue;
        best[k] = c.values[k];
        if (!steps) continue;
        const int64_t frame = first_ + static_cast<int64_t>(k);
        (label ? steps->label_from(number, frame) : steps->blank_from(number, frame)) =
            static_cast<uint16_t>(n);
      }
    }
  }
  return {blank_entry_.values.data(), label_entry_.values.data(), alive};
}

void AlignmentSweep::run_strip(AlignmentFront& front, const AlignmentStripPlace& strip,
                               const Entry& entry, int64_t stride, double* last,
                               AlignmentSteps* steps) {
  const auto pair = static_cast<size_t>(strip.first_group * alignment_group);
  AlignmentStrip s{};
  s.table = scores_;
  s.row = table_.row();
  s.frames = static_cast<int32_t>(end_ - first_);
  s.groups = strip.groups;
  s.scores_of = &graph_.score_of[pair];
  s.skips = &graph_.skip[pair];
  s.from_label = entry.blank;
  s.from_skip = entry.label;
  s.stride = stride;
  s.blanks = &front.blanks[pair];
  s.labels = &front.labels[pair];
  s.last = last;
  s.steps = steps ? steps->at(first_, strip.first_group) : nullptr;
  s.steps_row = steps ? steps->row() : 0;
  kernel_(s);
  states_visited_ += 2 * int64_t{alignment_group} * strip.groups * s.frames;
}

bool AlignmentSweep::keep(AlignmentFront& front, const AlignmentStripPlace& strip) {
  const auto pair = static_cast<size_t>(strip.first_group * alignment_group);
  const auto pairs = static_cast<size_t>(strip.groups * alignment_group);
  double best = never;
  for (size_t i = pair; i < pair + pairs; ++i) {
    best = std::max({best, front.blanks[i], front.labels[i]});
  }
  best += table_.bound(end_);
  if (best > never && best >= least_ && table_.frames() - end_ >= strip.labels_behind) {
    best_ = std::max(best_, best);
    return true;
  }
  std::fill_n(front.blanks.begin() + static_cast<int64_t>(pair), pairs, never);
  std::fill_n(front.labels.begin() + static_cast<int64_t>(pair), pairs, never);
  return false;
}

void AlignmentSweep::advance(AlignmentFront& front, int64_t first, int64_t end, double least,
                             int32_t first_strip, int32_t end_strip, AlignmentSteps* steps) {
  first_ = first;
  end_ = end;
  least_ = least;
  best_ = never;
  scores_ = table_.tile(first, end);
  start_.values.front() = first == 0 ? 0 : never;
  start_.alive = first == 0;
  const int32_t first_segment = graph_.strips[static_cast<size_t>(first_strip)].segment;
  const int32_t last_segment = graph_.strips[static_cast<size_t>(end_strip - 1)].segment;
  for (int32_t number = 0; number < first_segment; ++number) {
    columns_[static_cast<size_t>(number)].alive = false;
  }
  for (int32_t number = first_segment; number <= last_segment; ++number) {
    const AlignmentSegment& segment = graph_.segments[static_cast<size_t>(number)];
    Entry entry = enter(segment, number, steps);
    int64_t stride = 1;
    const double* end_values = nullptr;  // of the segment's last label
    for (int32_t i = 0; i < segment.strips; ++i) {
      const auto at = static_cast<size_t>(segment.first_strip + i);
      const AlignmentStripPlace& strip = graph_.strips[at];
      const bool inside =
          segment.first_strip + i >= first_strip && segment.first_strip + i < end_strip;
      const bool reaches_end = table_.frames() - first - 1 >= strip.labels_behind;
      double* last = last_[i % 2].data();
      end_values = nullptr;
      if (!inside || !(front.alive[at] || (entry.alive && reaches_end))) {
        entry.alive = false;
      } else {
        if (!entry.alive) entry.blank = entry.label = never_.data(), stride = 1;
        run_strip(front, strip, entry, stride, last, steps);
        front.alive[at] = keep(front, strip);
        end_values = last + strip.last_lane;
        entry = {end_values, end_values, is_alive(end_values, alignment_group)};
        stride = alignment_group;
      }
    }
    Column& column = columns_[static_cast<size_t>(number)];
    column.alive = end_values != nullptr && entry.alive;
    if (!column.alive || number + 1 == static_cast<int32_t>(graph_.segments.size())) continue;
    column.values.resize(ScoreTable::most_frames, never);
    for (int64_t k = 0; k < end - first; ++k) {
      column.values[static_cast<size_t>(k)] = end_values[k * alignment_group];
    }
  }
}

}  // namespace rondo
