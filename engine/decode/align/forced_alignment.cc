#include "engine/decode/align/forced_alignment.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/decode/align/alignment_sweep.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr double never = AlignmentFront::never;
constexpr int64_t tile = ScoreTable::most_frames;

// A state of the path.
struct Place {
  int32_t strip = 0, lane = 0;  // of the strip's pairs
  bool label = false;
};

class Aligner {
 public:
  Aligner(const AlignmentGraph& graph, ScoreTable& table, const AlignmentOptions& options)
      : graph_(graph),
        table_(table),
        options_(options),
        frames_(table.frames()),
        strips_(static_cast<int32_t>(graph.strips.size())),
        sweep_(graph, table) {}

  // False: no path has a probability above 0.
  bool run() {
    const double pairs = static_cast<double>(graph_.groups) * alignment_group;
    constexpr double worth_a_bound = 1e7;
    if (options_.prune && static_cast<double>(frames_) * pairs > worth_a_bound) set_least();
    choose_blocks(pairs);
    return block_ == frames_ ? run_at_once() : run_in_blocks();
  }

  UnitAlignment take(size_t units);

 private:
  // A front whose strips without paths take no memory.
  struct Checkpoint {
    std::vector<uint8_t> alive;
    std::vector<double> scores;
  };

  void set_least();
  double beam(double width);
  void choose_blocks(double pairs);
  bool run_at_once();
  bool run_in_blocks();

  Checkpoint store(const AlignmentFront& front) const;
  void restore(const Checkpoint& from, int32_t first_strip, int32_t end_strip,
               AlignmentFront& front) const;
  void advance(AlignmentFront& front, int64_t first, int64_t end, int32_t first_strip,
               int32_t end_strip, AlignmentSteps* steps);
  std::optional<Place> best_end(const AlignmentFront& front, double* score) const;
  int32_t first_strip_within(int32_t strip, int64_t frames) const;
  Place trace(AlignmentSteps& steps, int64_t first, int64_t end, Place place);
  Place before(AlignmentSteps& steps, int64_t frame, const Place& place);
  Place label_before(AlignmentSteps& steps, int64_t frame, const Place& place, bool over_blank);
  size_t pair(const Place& p) const {
    return static_cast<size_t>(
        graph_.strips[static_cast<size_t>(p.strip)].first_group * alignment_group + p.lane);
  }
  double score(const AlignmentFront& front, const Place& p) const {
    return (p.label ? front.labels : front.blanks)[pair(p)];
  }
  Place last_label(int32_t segment) const {
    const AlignmentSegment& s = graph_.segments[static_cast<size_t>(segment)];
    const int32_t strip = s.first_strip + s.strips - 1;
    const AlignmentStripPlace& p = graph_.strips[static_cast<size_t>(strip)];
    return {strip, (p.groups - 1) * alignment_group + p.last_lane, true};
  }

  const AlignmentGraph& graph_;
  ScoreTable& table_;
  const AlignmentOptions& options_;
  const int64_t frames_;
  const int32_t strips_;
  AlignmentSweep sweep_;
  double least_ = never, score_ = never;
  int64_t block_ = 0;
  std::vector<std::pair<size_t, TimedLabel>> found_;  // pairs, from the last to the first
};

// Any alignment's score is a bound, so the search for a good one may be narrow. What it leaves out
// matters for time alone.
void Aligner::set_least() {
  const int64_t before = sweep_.states_visited();
  const double dense = static_cast<double>(frames_) * static_cast<double>(graph_.states);
  for (const double width : {200.0, 2000.0}) {
    const double found = beam(width);
    if (found > least_) least_ = found;
    const auto visited = static_cast<double>(sweep_.states_visited() - before);
    if (visited > dense / 50) break;
  }
  if (least_ > never) least_ -= table_.rounding(least_);
}

// The score of the best path that is never worse, with its bound, than the best by more than
// `width`; -inf: there is none.
double Aligner::beam(double width) {
  AlignmentFront front(graph_);
  double least = never;
  for (int64_t t = 0; t < frames_; t += tile) {
    sweep_.advance(front, t, std::min(t + tile, frames_), least, 0, strips_, nullptr);
    if (sweep_.best() == never) return never;
    least = sweep_.best() - width;
  }
  double score = never;
  best_end(front, &score);
  return score;
}

// Checkpoints take frames / block * pairs * 16 bytes, the steps of a block block^2 bytes.
void Aligner::choose_blocks(double pairs) {
  constexpr double small = 1 << 24;
  block_ = options_.block_frames;
  if (block_ == 0) {
    const double balanced = std::cbrt(8 * static_cast<double>(frames_) * pairs);
    block_ = static_cast<double>(frames_) * pairs <= small ? frames_
                                                           : static_cast<int64_t>(balanced / 1.5);
  }
  block_ = std::clamp<int64_t>(block_, 1, frames_);
}

void Aligner::advance(AlignmentFront& front, int64_t first, int64_t end, int32_t first_strip,
                      int32_t end_strip, AlignmentSteps* steps) {
  for (int64_t t = first; t < end; t += tile) {
    sweep_.advance(front, t, std::min(t + tile, end), least_, first_strip, end_strip, steps);
  }
}

// The last labels first: of equal scores the path ends in a label.
std::optional<Place> Aligner::best_end(const AlignmentFront& front, double* best) const {
  std::optional<Place> found;
  const auto look = [&](const Place& place) {
    if (!(score(front, place) > *best)) return;
    *best = score(front, place);
    found = place;
  };
  for (const int32_t b : graph_.segments.back().before) {
    if (b != AlignmentSegment::start) look(last_label(b));
  }
  look({strips_ - 1, 0, false});
  return found;
}

bool Aligner::run_at_once() {
  AlignmentFront front(graph_);
  AlignmentSteps steps(graph_, 0, frames_, 0, strips_);
  advance(front, 0, frames_, 0, strips_, &steps);
  const auto end = best_end(front, &score_);
  if (end) trace(steps, 0, frames_, *end);
  return end.has_value();
}

bool Aligner::run_in_blocks() {
  AlignmentFront front(graph_);
  std::vector<Checkpoint> checkpoints;
  for (int64_t t = 0; t < frames_; t += block_) {
    checkpoints.push_back(store(front));
    advance(front, t, std::min(t + block_, frames_), 0, strips_, nullptr);
  }
  auto place = best_end(front, &score_);
  if (!place) return false;
  for (int64_t t = (frames_ - 1) / block_ * block_; t >= 0; t -= block_) {
    const int64_t end = std::min(t + block_, frames_);
    const int32_t first_strip = first_strip_within(place->strip, end - t);
    restore(checkpoints.back(), first_strip, place->strip + 1, front);
    checkpoints.pop_back();
    AlignmentSteps steps(graph_, t, end - t, first_strip, place->strip + 1);
    advance(front, t, end, first_strip, place->strip + 1, &steps);
    place = trace(steps, t, end, *place);
  }
  return true;
}

Aligner::Checkpoint Aligner::store(const AlignmentFront& front) const {
  Checkpoint c{front.alive, {}};
  for (int32_t i = 0; i < strips_; ++i) {
    if (!front.alive[static_cast<size_t>(i)]) continue;
    const AlignmentStripPlace& s = graph_.strips[static_cast<size_t>(i)];
    const int64_t first = int64_t{s.first_group} * alignment_group;
    const int64_t end = first + int64_t{s.groups} * alignment_group;
    c.scores.insert(c.scores.end(), front.blanks.begin() + first, front.blanks.begin() + end);
    c.scores.insert(c.scores.end(), front.labels.begin() + first, front.labels.begin() + end);
  }
  return c;
}

void Aligner::restore(const Checkpoint& from, int32_t first_strip, int32_t end_strip,
                      AlignmentFront& front) const {
  std::fill(front.blanks.begin(), front.blanks.end(), never);
  std::fill(front.labels.begin(), front.labels.end(), never);
  std::fill(front.alive.begin(), front.alive.end(), uint8_t{0});
  const double* scores = from.scores.data();
  for (int32_t i = 0; i < end_strip; ++i) {
    if (!from.alive[static_cast<size_t>(i)]) continue;
    const AlignmentStripPlace& s = graph_.strips[static_cast<size_t>(i)];
    const int64_t pairs = int64_t{s.groups} * alignment_group;
    const int64_t first = int64_t{s.first_group} * alignment_group;
    if (i >= first_strip) {
      std::copy_n(scores, pairs, front.blanks.begin() + first);
      std::copy_n(scores + pairs, pairs, front.labels.begin() + first);
      front.alive[static_cast<size_t>(i)] = 1;
    }
    scores += 2 * pairs;
  }
}

// The lowest strip from which a path reaches `strip` in so many frames: each takes it on by a label
// at most.
int32_t Aligner::first_strip_within(int32_t strip, int64_t frames) const {
  constexpr int64_t strip_labels = int64_t{alignment_strip_groups} * alignment_group;
  const int32_t last = graph_.strips[static_cast<size_t>(strip)].segment;
  // Fewest frames from the last label of a segment to the strip; from the strip's own segment on.
  std::vector<int64_t> least(static_cast<size_t>(last) + 1, frames);
  int32_t lowest = strip;
  for (int32_t n = last; n >= 0; --n) {
    const AlignmentSegment& s = graph_.segments[static_cast<size_t>(n)];
    const int64_t left = frames - (n == last ? 0 : least[static_cast<size_t>(n)]);
    if (left <= 0) continue;
    const int32_t from = n == last ? strip : s.first_strip + s.strips - 1;
    // The strip of the start itself counts with none of its labels, as may be.
    const int64_t back =
        std::min<int64_t>((left + strip_labels - 1) / strip_labels, from - s.first_strip);
    lowest = std::min(lowest, from - static_cast<int32_t>(back));
    const int64_t whole = n == last ? int64_t{from - s.first_strip} * strip_labels : s.labels;
    for (const int32_t b : s.before) {
      if (b == AlignmentSegment::start) continue;
      int64_t& own = least[static_cast<size_t>(b)];
      own = std::min(own, frames - left + whole);
    }
  }
  return lowest;
}

Place Aligner::label_before(AlignmentSteps& steps, int64_t frame, const Place& place,
                            bool over_blank) {
  const int32_t number = graph_.strips[static_cast<size_t>(place.strip)].segment;
  const AlignmentSegment& s = graph_.segments[static_cast<size_t>(number)];
  if (place.lane > 0) return {place.strip, place.lane - 1, true};
  if (place.strip > s.first_strip) {
    return {place.strip - 1, alignment_strip_groups * alignment_group - 1, true};
  }
  size_t which = 0;
  if (s.before.size() > 1) {
    which = over_blank ? steps.label_from(number, frame) : steps.blank_from(number, frame);
  }
  const int32_t b = s.before[which];
  // The path begins here, at the first frame; what is before it does not matter.
  return b == AlignmentSegment::start ? place : last_label(b);
}

// Where the path was at the frame before.
Place Aligner::before(AlignmentSteps& steps, int64_t frame, const Place& place) {
  const AlignmentStripPlace& strip = graph_.strips[static_cast<size_t>(place.strip)];
  const uint8_t step = steps.at(frame, strip.first_group)[place.lane];
  if (!place.label) {
    return step & blank_from_label ? label_before(steps, frame, place, false) : place;
  }
  if (step & label_from_label) return label_before(steps, frame, place, true);
  return step & label_from_blank ? Place{place.strip, place.lane, false} : place;
}

// Goes back from frame `end` - 1 to the frame before `first`.
Place Aligner::trace(AlignmentSteps& steps, int64_t first, int64_t end, Place place) {
  for (int64_t t = end - 1; t >= first; --t) {
    if (place.label) {
      const auto frame = static_cast<int32_t>(t);
      if (found_.empty() || found_.back().first != pair(place)) {
        found_.push_back({pair(place), {graph_.label[pair(place)], frame, frame + 1}});
      }
      found_.back().second.first_frame = frame;
    }
    place = before(steps, t, place);
  }
  return place;
}

UnitAlignment Aligner::take(size_t units) {
  UnitAlignment a;
  a.spelling.assign(units, -1);
  for (size_t i = found_.size(); i-- > 0;) {
    const auto& [at, label] = found_[i];
    a.labels.push_back(label);
    a.unit_of.push_back(graph_.unit[at]);
    a.spelling[static_cast<size_t>(graph_.unit[at])] = graph_.spelling[at];
  }
  a.score = score_;
  a.states_visited = sweep_.states_visited();
  a.states_dense = graph_.states * frames_;
  return a;
}

[[noreturn]] void fail_no_path(int64_t frames, std::span<const AlignmentUnit> units) {
  size_t labels = 0;
  for (const AlignmentUnit& u : units) {
    const auto fewest =
        std::min_element(u.spellings.begin(), u.spellings.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    labels += fewest->size();
  }
  fail_input(frames, " frames have no alignment with ", labels,
             " labels (too few frames, or a probability of 0)");
}

}  // namespace

UnitAlignment align_units(const float* scores, int64_t frames, int32_t classes,
                          std::span<const AlignmentUnit> units, const AlignmentOptions& options) {
  RONDO_CHECK(frames >= 0 && frames < (int64_t{1} << 31) && classes >= 1, frames, " frames of ",
              classes, " classes");
  RONDO_CHECK(options.blank >= 0 && options.blank < classes, "blank ", options.blank, " of ",
              classes, " classes");
  RONDO_CHECK(options.bias.empty() || options.bias.size() == static_cast<size_t>(classes),
              "a bias of ", options.bias.size(), " classes, expected ", classes);
  const AlignmentGraph graph(units, classes, options.blank);
  UnitAlignment aligned;
  if (frames == 0) {
    const auto& before = graph.segments.back().before;
    if (before.front() != AlignmentSegment::start) fail_no_path(0, units);
    aligned.spelling.assign(units.size(), -1);
  } else {
    ScoreTable table(scores, frames, classes, graph, options);
    Aligner aligner(graph, table, options);
    if (!aligner.run()) fail_no_path(frames, units);
    aligned = aligner.take(units.size());
  }
  for (size_t u = 0; u < units.size(); ++u) {
    if (aligned.spelling[u] >= 0) continue;
    const auto& all = units[u].spellings;
    const auto empty =
        std::find_if(all.begin(), all.end(), [](const auto& s) { return s.empty(); });
    aligned.spelling[u] = static_cast<int32_t>(empty - all.begin());
  }
  return aligned;
}

std::vector<TimedLabel> forced_alignment(const float* scores, int32_t frames, int32_t classes,
                                         std::span<const int32_t> labels, int32_t blank) {
  AlignmentUnit text;
  text.spellings.emplace_back(labels.begin(), labels.end());
  AlignmentOptions options;
  options.blank = blank;
  return align_units(scores, frames, classes, {&text, 1}, options).labels;
}

}  // namespace rondo
