#include "engine/plan/split.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/cut/sequence_graph.h"
#include "engine/plan/step_model.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr double usable_memory = 0.95;  // of the device's: the rest is for libraries and contexts
// A divided optimiser has to be so much faster to be chosen where it is not needed.
constexpr double worthwhile = 0.98;
// The search's bounds: beyond them nothing gains, and waves have too many tasks to try them all.
constexpr int most_micro_batches = 64, most_shards = 64, most_parts = 256;

}  // namespace

std::string describe(const Split& s) {
  std::string text = str("data ", s.data, " x pipeline ", s.pipeline, " x sequence ", s.sequence);
  if (s.staged()) text += str(", ", name_of(s.schedule));
  text += str(", ", s.micro_batches, s.micro_batches == 1 ? " micro-batch" : " micro-batches");
  if (s.batches > 1) text += str(" in each of ", s.batches, " batches");
  if (s.nccl_blocks > 0) text += str(", at most ", s.nccl_blocks, " blocks of NCCL's");
  return text + (s.shard_optimizer ? ", optimizer divided" : "");
}

Planner::Planner(Job job, Cluster cluster) : job_(std::move(job)), cluster_(std::move(cluster)) {
  RONDO_CHECK(!job_.batches.empty(), "a plan for no batches");
  model_ = std::make_unique<StepModel>(job_, cluster_);
}

Planner::~Planner() = default;

int Planner::layers() const { return static_cast<int>(model_->layers().layers().size()); }
int64_t Planner::weights() const { return model_->layers().weights(); }

std::string Planner::objection(const Split& s) const {
  if (s.pipeline > layers()) {
    return str(s.pipeline, " stages of a model with ", layers(), " layers");
  }
  if (s.sequence > 1) {
    const std::string why = objection_to_cuts(model_->layers().graph());
    if (!why.empty()) return why;
  }
  for (const WeightedShape& b : job_.batches) {
    if (b.shape.sequences < s.data * s.micro_batches * s.batches) {
      return str("batches of ", b.shape.sequences, " utterances for ", s.data, " replicas of ",
                 s.micro_batches * s.batches, " micro-batches");
    }
    if (b.shape.frames <
        s.sequence * static_cast<double>(model_->layers().graph().total_factor(
                         static_cast<int>(model_->layers().graph().levels.size()) - 1))) {
      return str("utterances of ", b.shape.frames, " frames for ", s.sequence, " shards");
    }
  }
  return "";
}

Prediction Planner::predict(const Split& s) const {
  const std::string why = objection(s);
  RONDO_CHECK(why.empty(), why);
  Prediction p;
  p.split = s;
  double weights = 0, frames = 0, exposed = 0;
  for (const WeightedShape& b : job_.batches) {
    const StepTime t = model_->time(s, b.shape);
    weights += b.weight;
    frames += b.weight * b.shape.rows();
    p.seconds += b.weight * t.seconds;
    p.bubble += b.weight * t.bubble;
    p.communication += b.weight * t.communication;
    p.computing += b.weight * t.computing;
    p.input_delay += b.weight * t.input_delay;
    exposed += b.weight * t.exposed;
    p.memory_bytes = std::max(p.memory_bytes, model_->memory(s, b.shape));
  }
  p.frames_per_second = frames / p.seconds;
  p.hidden = p.communication > 0 ? 1 - exposed / p.communication : 0;
  p.seconds /= weights;
  p.bubble /= weights;
  for (double* mean : {&p.communication, &p.computing, &p.input_delay}) *mean /= weights;
  p.fits = p.memory_bytes <= usable_memory * cluster_.device.memory_bytes;
  return p;
}

int Planner::held_multiprocessors(const Split& s) const {
  int most = 0;
  for (const WeightedShape& b : job_.batches)
    most = std::max(most, model_->held_multiprocessors(s, b.shape));
  return most;
}

int Planner::blocks_beside_loops(const Split& s) const {
  const DeviceModel& device = cluster_.device;
  const int held = held_multiprocessors(s), left = device.multiprocessors - held;
  return s.owners() > 1 && held > 0 && left < device.sum_blocks ? std::max(0, left) : 0;
}

PipelineTimeline Planner::timeline(const Split& s) const {
  const double mean = predict(s).seconds;
  const auto distance = [&](const WeightedShape& b) {
    return std::abs(model_->time(s, b.shape).seconds - mean);
  };
  const WeightedShape* nearest = &job_.batches.front();
  for (const WeightedShape& b : job_.batches) {
    if (distance(b) < distance(*nearest)) nearest = &b;
  }
  return model_->timeline(s, nearest->shape);
}

namespace {

bool better(const Prediction& a, const Prediction& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory_bytes < b.memory_bytes;
  return a.seconds < b.seconds;
}

std::vector<ScheduleKind> schedules_for(const Split& s) {
  if (s.pipeline == 1) return {ScheduleKind::one_f_one_b};
  return {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble};
}

// Powers of two, and multiples of the ranks, which some schedules need.
std::set<int> micro_batch_counts(int pipeline) {
  std::set<int> counts;
  for (int m = 1; m <= most_micro_batches; m *= 2)
    counts.insert({m, std::min(most_micro_batches, m * pipeline)});
  return counts;
}

// Every choice of schedule and micro-batches for a split.
std::vector<Split> candidates(Split s) {
  std::vector<Split> all;
  for (const ScheduleKind kind : schedules_for(s)) {
    s.schedule = kind;
    for (int count : micro_batch_counts(s.pipeline)) {
      s.micro_batches = count;
      s.batches = 1;
      if (s.sequence == 1 || s.sequence * count <= most_parts) all.push_back(s);
      // A wave stores all of its micro-batches; one after the other they take less memory.
      if (s.sequence == 1 || s.staged() || count == 1) continue;
      std::swap(s.micro_batches, s.batches);
      all.push_back(s);
    }
  }
  return all;
}

}  // namespace

std::vector<Prediction> Planner::rank() const {
  std::vector<Prediction> ranking;
  const int n = cluster_.devices;
  for (int pipeline = 1; pipeline <= std::min(n, layers()); ++pipeline) {
    for (int sequence = 1; sequence * pipeline <= n && sequence <= most_shards; ++sequence) {
      if (n % (pipeline * sequence) != 0) continue;
      const Split split{n / (pipeline * sequence), pipeline, sequence};
      const auto whole = best_of(candidates(split));
      if (!whole) continue;
      ranking.push_back(*whole);
      if (split.owners() == 1) continue;
      // Dividing the optimiser does not change what is computed and sent until the update, but for
      // shards without stages, which then run a schedule.
      std::vector<Split> divided{whole->split};
      divided.front().shard_optimizer = true;
      if (!whole->fits || divided.front().staged() != whole->split.staged()) {
        divided.front() = split;
        divided.front().shard_optimizer = true;
        divided = candidates(divided.front());
      }
      const auto other = best_of(divided);
      if (other && better(*other, *whole) &&
          (!whole->fits || other->seconds < worthwhile * whole->seconds)) {
        ranking.back() = *other;
      }
    }
  }
  std::stable_sort(ranking.begin(), ranking.end(), better);
  return ranking;
}

double Planner::least_seconds(const Split& s) const {
  double weights = 0, seconds = 0;
  for (const WeightedShape& b : job_.batches) {
    weights += b.weight;
    seconds += b.weight * model_->least_seconds(s, b.shape);
  }
  return seconds / weights;
}

std::optional<Prediction> Planner::best_of(const std::vector<Split>& splits) const {
  std::optional<Prediction> best;
  for (const Split& s : splits) {
    if (!objection(s).empty()) continue;
    if (best && best->fits && least_seconds(s) >= best->seconds) continue;
    const Prediction p = predict(s);
    if (!best || better(p, *best)) best = p;
  }
  if (!best) return best;
  Split capped = best->split;
  capped.nccl_blocks = blocks_beside_loops(capped);
  if (capped.nccl_blocks == 0) return best;
  const Prediction p = predict(capped);
  return better(p, *best) ? p : best;
}

}  // namespace rondo::plan
