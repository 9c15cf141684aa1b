// What is drawn of a predicted update is what its prediction says, action by action.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "comm/schedule.h"
#include "engine/plan/cluster_links.h"
#include "engine/plan/model_layers.h"
#include "tests/catch.h"
#include "tests/plan/simple_job.h"

using namespace rondo;
using namespace rondo::plan;
using namespace rondo::test;

namespace {

constexpr int recurrent = 4;  // layers of the model, behind which there is a linear one
constexpr double byte_seconds = 1e-9;

const LinkModel slow{"link", false, 1e-4, 1e7};

Cluster cluster_of(const Split& s, double optimizer_byte) {
  Cluster c = simple_cluster(s.devices(), slow);
  c.device.rates["optimizer/f32"].byte = optimizer_byte;
  return c;
}

// Counts, votes and the gradient's norm: they follow what is drawn.
double small_sums(const Split& s, const Cluster& c) {
  if (s.devices() == 1) return 0;
  const int sums = s.staged() ? 4 : s.sequence > 1 ? 3 : 1;
  return sums * doubling_seconds(c, s.devices(), 8.0 * (10 + s.devices()));
}

Split with_batches(int batches, Split s) {
  s.batches = batches;
  return s;
}

const std::vector<Split> replicated = {{}, {4}, {4, 1, 1, 3}};
const std::vector<Split> sharded = {{1, 1, 4}, {1, 1, 2, 4}, with_batches(2, {2, 1, 2, 3})};
const std::vector<Split> staged = {
    {1, 4, 1, 8}, {2, 3, 1, 4, ScheduleKind::zero_bubble}, with_batches(3, {2, 2, 1, 4}),
    {1, 2, 2, 2}, {1, 3, 2, 4, ScheduleKind::zero_bubble}, with_batches(2, {2, 2, 2, 3})};

// By rank, kind, stage, micro-batch and peer: the first part of each.
using Key = std::tuple<size_t, ActionKind, int, int, int>;
std::map<Key, TimedAction> actions_of(const PipelineTimeline& timeline) {
  std::map<Key, TimedAction> all;
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    for (const TimedAction& t : timeline.ranks[r]) {
      const Action& a = t.action;
      all.emplace(Key{r, a.kind, a.stage, a.micro_batch, a.peer}, t);
    }
  }
  return all;
}

void check_ends(const std::vector<Split>& splits, const Job& job, double optimizer_byte) {
  for (const Split& s : splits) {
    INFO(describe(s));
    const Cluster c = cluster_of(s, optimizer_byte);
    const Planner planner(job, c);
    REQUIRE(planner.objection(s).empty());
    const Prediction p = planner.predict(s);
    const PipelineTimeline timeline = planner.timeline(s);
    CHECK(static_cast<int>(timeline.ranks.size()) == s.pipeline * s.sequence);
    const double update =
        update_arrays(job.optimizer) * 4 * static_cast<double>(planner.weights()) * optimizer_byte;
    CHECK(timeline.duration() + update + small_sums(s, c) == Approx(p.seconds).epsilon(1e-9));
    if (optimizer_byte > 0) continue;  // copies to and from buckets are computing as well
    double busy = 0;
    for (int r = 0; r < static_cast<int>(timeline.ranks.size()); ++r) busy += timeline.busy(r);
    CHECK(busy / (s.pipeline * s.sequence) == Approx(p.computing).epsilon(1e-9));
  }
}

void check_one_at_a_time(const PipelineTimeline& timeline) {
  for (const auto& rank : timeline.ranks) {
    std::vector<std::pair<double, double>> work;
    for (const TimedAction& t : rank) {
      CHECK(t.end >= t.start);
      if (computes(t.action.kind)) work.emplace_back(t.start, t.end);
    }
    std::sort(work.begin(), work.end());
    for (size_t i = 1; i < work.size(); ++i) CHECK(work[i].first >= work[i - 1].second - 1e-12);
  }
}

// Each message is there after it was sent, and what a stage does with it begins when it is there.
void check_messages(const PipelineTimeline& timeline, int stride, bool stages) {
  const auto actions = actions_of(timeline);
  int computations = 0;
  for (const auto& [key, sent] : actions) {
    const auto [rank, kind, stage, micro_batch, peer] = key;
    if (!is_send(kind)) continue;
    const bool up = kind == ActionKind::send_activation;
    const int next = up ? stage + 1 : stage - 1, from = static_cast<int>(rank) / stride;
    const size_t to = rank % static_cast<size_t>(stride) + static_cast<size_t>(peer * stride);
    INFO(describe(sent.action) << " of rank " << rank);
    const auto received =
        actions.find({to, up ? ActionKind::recv_activation : ActionKind::recv_gradient, next,
                      micro_batch, from});
    REQUIRE(received != actions.end());
    CHECK(received->second.end >= sent.end);
    if (!stages) continue;
    for (ActionKind reader :
         {ActionKind::forward, ActionKind::backward, ActionKind::input_backward}) {
      if ((reader == ActionKind::forward) != up) continue;
      const auto reads = actions.find({to, reader, next, micro_batch, -1});
      if (reads == actions.end()) continue;
      ++computations;
      CHECK(reads->second.start >= received->second.end - 1e-12);
    }
  }
  CHECK((computations > 0) == stages);
}

}  // namespace

TEST_CASE("a drawn update ends when its prediction says: with the gradients' sums") {
  const Job job = lstm_job(recurrent, true);
  for (double byte : {0.0, byte_seconds}) {
    check_ends(replicated, job, byte);
    check_ends(sharded, job, byte);
  }
  check_ends(staged, job, 0);  // updates of stages differ by their weights
}

TEST_CASE("a divided optimiser's sums are drawn, its weights' way back is not") {
  const Job job = lstm_job(recurrent);
  for (Split s : {Split{4}, Split{1, 1, 4, 2}, Split{2, 2, 1, 2}}) {
    s.divide_optimizer = true;
    INFO(describe(s));
    const Cluster c = cluster_of(s, 0);
    const Planner planner(job, c);
    const double end = planner.timeline(s).duration(), seconds = planner.predict(s).seconds;
    const double behind = seconds - end;
    CHECK(behind > 0);
    if (s.pipeline > 1) continue;
    const auto weights = static_cast<double>(planner.weights());
    const int owners = s.owners();
    const double part = std::ceil(weights / 256 / owners) * 256;
    const double sums = (s.staged()       ? 4
                         : s.sequence > 1 ? 3
                                          : 2) *
                        doubling_seconds(c, owners, 8.0 * 14);
    CHECK(behind == Approx(sums + half_ring_seconds(ring_link(c, s), owners, 4 * part * owners)));
  }
}

TEST_CASE(
    "stages are drawn with every action of every shard, computations in the schedule's order") {
  const Job job = lstm_job(recurrent, true);
  for (const Split& s : staged) {
    INFO(describe(s));
    const PipelineTimeline timeline = Planner(job, cluster_of(s, 0)).timeline(s);
    const PipelineSchedule schedule = make_schedule(s.schedule, s.pipeline, s.micro_batches);
    for (size_t r = 0; r < timeline.ranks.size(); ++r) {
      std::vector<Action> drawn, listed;
      for (const TimedAction& t : timeline.ranks[r]) {
        // Parts of one computation, with gaps between them where a shard waits, count once.
        const auto found = std::find(drawn.begin(), drawn.end(), t.action);
        if (s.sequence == 1 || found == drawn.end()) drawn.push_back(t.action);
      }
      const auto computed = [](std::vector<Action> all) {
        std::erase_if(all, [](const Action& a) { return !computes(a.kind); });
        return all;
      };
      for (int batch = 0; batch < s.batches; ++batch) {
        for (Action a : schedule.actions[r / static_cast<size_t>(s.sequence)]) {
          if (a.kind == ActionKind::reduce && batch + 1 < s.batches) continue;
          if (a.micro_batch >= 0) a.micro_batch += batch * s.micro_batches;
          listed.push_back(a);
        }
      }
      CHECK((computed(drawn) == computed(listed)));
      CHECK((drawn.size() == listed.size() &&
             std::is_permutation(drawn.begin(), drawn.end(), listed.begin())));
    }
    check_one_at_a_time(timeline);
    check_messages(timeline, s.sequence, true);
  }
}

TEST_CASE("shards are drawn with every layer, micro-batch, state that goes on, and their sum") {
  const Job job = lstm_job(recurrent, true);
  for (const Split& s : sharded) {
    INFO(describe(s));
    Cluster c = cluster_of(s, 0);
    c.device.rates["ctc/f32"].launch = 1e-3;
    const PipelineTimeline timeline = Planner(job, c).timeline(s);
    const auto drawn = actions_of(timeline);
    const int last = s.sequence - 1, all = s.micro_batches * s.batches;
    for (int r = 0; r < s.sequence; ++r) {
      const auto is_there = [&](ActionKind kind, int stage, int m, int peer = -1) {
        return drawn.count({static_cast<size_t>(r), kind, stage, m, peer}) == 1;
      };
      for (int m = 0; m < all; ++m) {
        INFO("rank " << r << ", micro-batch " << m);
        CHECK(is_there(ActionKind::weight_backward, 0, m));
        for (ActionKind kind : {ActionKind::forward, ActionKind::input_backward}) {
          CHECK(is_there(kind, recurrent + 1, m));  // the loss, behind the linear layer
        }
        for (int layer = 0; layer < recurrent; ++layer) {
          INFO("layer " << layer);
          CHECK(is_there(ActionKind::forward, layer, m));
          CHECK(is_there(ActionKind::input_backward, layer, m));
          for (ActionKind kind : {ActionKind::send_activation, ActionKind::send_gradient}) {
            CHECK(is_there(kind, layer, m, r + 1) == (r < last));
            CHECK(is_there(kind, layer, m, r - 1) == (r > 0));
          }
        }
      }
      CHECK(is_there(ActionKind::reduce, 0, -1));
    }
    check_one_at_a_time(timeline);
    check_messages(timeline, 1, false);
  }
}

TEST_CASE("of several shapes of batches the one nearest to the mean is drawn") {
  Job job = lstm_job(2);
  job.batches = {{{64, 10, 2}, 1}, {{64, 100, 20}, 1}, {{64, 220, 20}, 1}};
  const Planner planner(job, simple_cluster(1));
  Job middle = job;
  middle.batches = {job.batches[1]};
  CHECK(planner.timeline({}).duration() ==
        Approx(Planner(middle, simple_cluster(1)).predict({}).seconds).epsilon(1e-9));
}
