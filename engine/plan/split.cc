#include "engine/plan/split.h"

#include <algorithm>
#include <set>

#include "engine/plan/step_model.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

constexpr double usable_memory = 0.95;  // of the device's: the rest is for libraries and contexts
// The search's bounds: beyond them nothing gains, and waves have too many tasks to try them all.
constexpr int most_micro_batches = 64, most_shards = 64, most_parts = 256;

}  // namespace

std::string describe(const Split& s) {
  std::string text = str("data ", s.data, " x pipeline ", s.pipeline, " x sequence ", s.sequence);
  const char* many = s.micro_batches == 1 ? " micro-batch" : " micro-batches";
  if (s.pipeline > 1 && s.sequence == 1) {
    text += str(", ", name_of(s.schedule));
    if (s.chunks > 1) text += str(" of ", s.chunks, " chunks");
  }
  return text + str(", ", s.micro_batches, many);
}

Planner::Planner(Job job, Cluster cluster) : job_(std::move(job)), cluster_(std::move(cluster)) {
  RONDO_CHECK(!job_.batches.empty(), "a plan for no batches");
  model_ = std::make_unique<StepModel>(job_, cluster_);
}

Planner::~Planner() = default;

int Planner::layers() const { return static_cast<int>(model_->layers().layers().size()); }
int64_t Planner::weights() const { return model_->layers().weights(); }

std::string Planner::objection(const Split& s) const {
  if (s.pipeline * s.chunks > layers()) {
    return str(s.pipeline * s.chunks, " stages of a model with ", layers(), " layers");
  }
  if (s.pipeline > 1 && s.sequence == 1) {
    const std::string why = schedule_objection(s.schedule, s.pipeline, s.micro_batches, s.chunks);
    if (!why.empty()) return why;
  }
  for (const WeightedShape& b : job_.batches) {
    if (b.shape.sequences < s.data * s.micro_batches) {
      return str("batches of ", b.shape.sequences, " utterances for ", s.data, " replicas of ",
                 s.micro_batches, " micro-batches");
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

namespace {

bool better(const Prediction& a, const Prediction& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory_bytes < b.memory_bytes;
  return a.seconds < b.seconds;
}

std::vector<std::pair<ScheduleKind, int>> schedules_for(const Split& s) {
  if (s.pipeline == 1 || s.sequence > 1) return {{ScheduleKind::gpipe, 1}};
  return {{ScheduleKind::gpipe, 1},
          {ScheduleKind::one_f_one_b, 1},
          {ScheduleKind::interleaved, 2},
          {ScheduleKind::zero_bubble, 1}};
}

std::vector<int> micro_batch_counts(int pipeline) {
  std::set<int> counts;
  for (int m = 1; m <= most_micro_batches; m *= 2)
    counts.insert({m, std::min(most_micro_batches, m * pipeline)});
  return {counts.begin(), counts.end()};
}

}  // namespace

std::vector<Prediction> Planner::rank() const {
  std::vector<Prediction> ranking;
  const int n = cluster_.devices;
  for (int pipeline = 1; pipeline <= std::min(n, layers()); ++pipeline) {
    for (int sequence = 1; sequence * pipeline <= n && sequence <= most_shards; ++sequence) {
      if (n % (pipeline * sequence) != 0) continue;
      Split s{n / (pipeline * sequence), pipeline, sequence};
      Prediction best;
      bool found = false;
      for (const auto& [kind, chunks] : schedules_for(s)) {
        s.schedule = kind;
        s.chunks = chunks;
        // Powers of two, and multiples of the ranks, which some schedules need.
        for (int count : micro_batch_counts(pipeline)) {
          s.micro_batches = count;
          if (sequence > 1 && sequence * count > most_parts) continue;
          if (!objection(s).empty()) continue;
          const Prediction p = predict(s);
          if (!found || better(p, best)) best = p;
          found = true;
        }
      }
      if (found) ranking.push_back(best);
    }
  }
  std::stable_sort(ranking.begin(), ranking.end(), better);
  return ranking;
}

}  // namespace rondo::plan
