#include "engine/plan/split.h"

#include <algorithm>
#include <set>

#include "engine/cut/sequence_graph.h"
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
  return text + (s.divide_optimizer ? ", optimizer divided" : "");
}

Planner::Planner(Job job, Cluster cluster)
    : job_(std::move(job)), cluster_(std::move(cluster)), model_(job_.model, job_.compute) {
  RONDO_CHECK(!job_.batches.empty(), "a plan for no batches");
  // Workspaces follow from shapes alone. So there is no device here: a prediction for GPUs is the
  // same in every build, with and without CUDA and the simulator. (Of Backend::cuda it would depend
  // on the libraries of this machine.)
  context_.backend = cluster_.device.kind == DeviceKind::cpu ? Backend::cpu : Backend::sim;
  context_.pool = &pool_;
}

std::string Planner::objection(const Split& s) const {
  if (s.pipeline > layers()) {
    return str(s.pipeline, " stages of a model with ", layers(), " layers");
  }
  if (s.sequence > 1) {
    const std::string why = objection_to_cuts(model_.graph());
    if (!why.empty()) return why;
  }
  for (const WeightedShape& b : job_.batches) {
    if (b.shape.sequences < s.data * s.micro_batches * s.batches) {
      return str("batches of ", b.shape.sequences, " utterances for ", s.data, " replicas of ",
                 s.micro_batches * s.batches, " micro-batches");
    }
    const Graph& graph = model_.graph();
    if (b.shape.frames <
        static_cast<double>(s.sequence *
                            graph.total_factor(static_cast<int>(graph.levels.size()) - 1))) {
      return str("utterances of ", b.shape.frames, " frames for ", s.sequence, " shards");
    }
  }
  return "";
}

Prediction Planner::predict(const Split& s, double limit) const {
  const std::string why = objection(s);
  RONDO_CHECK(why.empty(), why);
  Prediction all;
  all.split = s;
  double weights = 0, frames = 0;
  double Prediction::*const means[] = {&Prediction::seconds,       &Prediction::bubble,
                                       &Prediction::computing,     &Prediction::input_delay,
                                       &Prediction::communication, &Prediction::exposed};
  std::vector<Cut> cuts;
  for (const WeightedShape& b : job_.batches) {
    cuts.push_back(cut(s, b.shape));
    const Prediction p = timed(s, b.shape, cuts.back());
    weights += b.weight;
    frames += b.weight * b.shape.rows();
    for (auto mean : means) all.*mean += b.weight * p.*mean;
  }
  for (auto mean : means) all.*mean /= weights;
  all.frames_per_second = frames / weights / all.seconds;
  if (all.seconds >= limit) return all;
  for (size_t i = 0; i < cuts.size(); ++i) {
    all.memory_bytes = std::max(all.memory_bytes, memory(s, job_.batches[i].shape, cuts[i]));
  }
  all.fits = all.memory_bytes <= usable_memory * cluster_.device.memory_bytes;
  return all;
}

namespace {

bool better(const Prediction& a, const Prediction& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory_bytes < b.memory_bytes;
  return a.seconds < b.seconds;
}

// Every choice of schedule and micro-batches for a split: powers of two, and so many times the
// stages.
std::vector<Split> candidates(Split s) {
  std::set<int> counts;
  for (int m = 1; m <= most_micro_batches; m *= 2) {
    counts.insert({m, std::min(most_micro_batches, m * s.pipeline)});
  }
  std::vector<Split> all;
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble}) {
    if (s.pipeline == 1 && kind != ScheduleKind::one_f_one_b) continue;
    s.schedule = kind;
    for (int count : counts) {
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
      Split split{n / (pipeline * sequence), pipeline, sequence};
      const auto whole = best_of(candidates(split));
      if (!whole) continue;
      ranking.push_back(*whole);
      if (split.owners() == 1) continue;
      split.divide_optimizer = true;
      const auto divided =
          best_of(candidates(split), whole->fits ? worthwhile * whole->seconds : never);
      if (divided && better(*divided, *whole)) ranking.back() = *divided;
    }
  }
  std::stable_sort(ranking.begin(), ranking.end(), better);
  return ranking;
}

std::optional<Prediction> Planner::best_of(const std::vector<Split>& splits, double limit) const {
  std::optional<Prediction> best;
  for (const Split& s : splits) {
    if (!objection(s).empty()) continue;
    const Prediction p = predict(s, limit);
    if (p.seconds >= limit) continue;
    if (!best || better(p, *best)) best = p;
    if (best->fits) limit = std::min(limit, best->seconds);
  }
  return best;
}

}  // namespace rondo::plan
