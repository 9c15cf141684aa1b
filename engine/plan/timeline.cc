#include "engine/plan/timeline.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

// The tasks of one resource that have not started.
struct Queue {
  Order order = Order::listed;
  std::vector<int> listed;                  // listed: in order
  size_t next = 0;                          // listed: the first that has not started
  std::set<std::pair<int64_t, int>> ready;  // priority: those that could start
  bool busy = false;
};

class Simulation {
 public:
  explicit Simulation(const Work& work) : work_(work), queues_(work.resources().size()) {
    const size_t n = work.tasks().size();
    waiting_.resize(n);
    followers_.resize(n);
    timeline_.intervals.resize(n);
    timeline_.busy.resize(queues_.size());
    for (size_t r = 0; r < queues_.size(); ++r) queues_[r].order = work.resources()[r];
    for (size_t i = 0; i < n; ++i) {
      const Task& task = work.tasks()[i];
      waiting_[i] = static_cast<int>(task.after.size());
      for (int earlier : task.after) {
        RONDO_CHECK(earlier >= 0 && static_cast<size_t>(earlier) < n, "task ", i,
                    " waits for task ", earlier, " of ", n);
        followers_[static_cast<size_t>(earlier)].push_back(static_cast<int>(i));
      }
      queue_of(task).listed.push_back(static_cast<int>(i));
      if (waiting_[i] == 0) queue_of(task).ready.insert({task.priority, static_cast<int>(i)});
    }
  }

  Timeline run() {
    for (Queue& q : queues_) start_next(q);
    size_t ended = 0;
    while (!running_.empty()) {
      const auto [time, id, arrives] = running_.top();
      running_.pop();
      now_ = time;
      if (!arrives) ++ended;
      arrives ? release(id) : finish(id);
      // At the same moment others may still end: a free resource chooses when all have.
      if (!running_.empty() && std::get<double>(running_.top()) <= now_) continue;
      for (int r : touched_) start_next(queues_[static_cast<size_t>(r)]);
      touched_.clear();
    }
    if (ended < work_.tasks().size()) throw_stuck();
    timeline_.end = now_;
    return std::move(timeline_);
  }

 private:
  const Task& task(int id) const { return work_.tasks()[static_cast<size_t>(id)]; }
  Queue& queue_of(const Task& t) { return queues_.at(static_cast<size_t>(t.resource)); }

  void start_next(Queue& q) {
    if (q.busy) return;
    int id = -1;
    if (q.order == Order::listed) {
      if (q.next == q.listed.size() || waiting_[static_cast<size_t>(q.listed[q.next])] > 0) return;
      id = q.listed[q.next++];
    } else {
      if (q.ready.empty()) return;
      id = q.ready.begin()->second;
      q.ready.erase(q.ready.begin());
    }
    q.busy = true;
    const double end = now_ + task(id).seconds;
    timeline_.intervals[static_cast<size_t>(id)] = {now_, end};
    timeline_.busy[static_cast<size_t>(task(id).resource)] += task(id).seconds;
    running_.push({end, id, false});
  }

  void finish(int id) {
    queue_of(task(id)).busy = false;
    touched_.push_back(task(id).resource);
    if (task(id).latency > 0) {
      running_.push({now_ + task(id).latency, id, true});
    } else {
      release(id);
    }
  }

  // What waits for a task.
  void release(int id) {
    for (int follower : followers_[static_cast<size_t>(id)]) {
      if (--waiting_[static_cast<size_t>(follower)] > 0) continue;
      queue_of(task(follower)).ready.insert({task(follower).priority, follower});
      touched_.push_back(task(follower).resource);
    }
  }

  [[noreturn]] void throw_stuck() const {
    for (const Queue& q : queues_) {
      for (int id : q.listed) {
        const auto i = static_cast<size_t>(id);
        if (waiting_[i] == 0) continue;
        RONDO_CHECK(false, "task ", id, " (resource ", task(id).resource, ", stage ",
                    task(id).stage, ", micro-batch ", task(id).micro_batch,
                    ") never starts: it waits for ", waiting_[i], " tasks that never end");
      }
    }
    RONDO_CHECK(false, "tasks wait behind each other on their resources");
  }

  const Work& work_;
  std::vector<Queue> queues_;
  std::vector<int> waiting_;                     // by task: what it waits for and has not ended
  std::vector<std::vector<int>> followers_;      // by task
  std::vector<int> touched_;                     // resources
  using Ending = std::tuple<double, int, bool>;  // when, of which task; of its latency
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> running_;
  Timeline timeline_;
  double now_ = 0;
};

}  // namespace

int Work::add_resource(Order order) {
  resources_.push_back(order);
  return static_cast<int>(resources_.size()) - 1;
}

int Work::add(Task task) {
  RONDO_CHECK(task.resource >= 0 && static_cast<size_t>(task.resource) < resources_.size(),
              "a task of resource ", task.resource, " of ", resources_.size());
  RONDO_CHECK(task.seconds >= 0, "a task of ", task.seconds, " s");
  tasks_.push_back(std::move(task));
  return static_cast<int>(tasks_.size()) - 1;
}

Timeline simulate(const Work& work) { return Simulation(work).run(); }

}  // namespace rondo::plan
