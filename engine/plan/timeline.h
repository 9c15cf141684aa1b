// A discrete-event simulation of work on resources: what happens when, if every piece takes as long
// as it is said to.
//
// A resource (a rank's compute, one direction of a link) does one task at a time, either in the
// order in which its tasks were added, as an action list is executed, or whichever of those that
// could start comes first by priority. A task starts when its resource is free and all it waits for
// has ended, and its latency passed. The result is exact for the given durations, and the same in
// every run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::plan {

enum class Order : uint8_t {
  listed,    // as added
  priority,  // the lowest Task::priority of those that could start; ties as added
};

struct Task {
  int resource = 0;
  double seconds = 0;
  std::vector<int> after = {};  // tasks that have to end first
  int64_t priority = 0;         // Order::priority only
  // What it is, for pictures: a kind (timeline colours) and two numbers that tell it from others.
  int kind = 0, stage = -1, micro_batch = -1;
  // Between its end, when its resource is free, and when what waits for it may start.
  double latency = 0;
};

struct Interval {
  double start = 0, end = 0;
};

class Work {
 public:
  int add_resource(Order order);
  // Returns the task's number. `after` may name tasks that are added later.
  int add(Task task);
  void wait_for(int task, int earlier) {
    tasks_.at(static_cast<size_t>(task)).after.push_back(earlier);
  }

  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Order>& resources() const { return resources_; }

 private:
  std::vector<Task> tasks_;
  std::vector<Order> resources_;
};

struct Timeline {
  std::vector<Interval> intervals;  // by task
  std::vector<double> busy;         // by resource: seconds at work
  double end = 0;                   // of the last task, with its latency
};

// Throws Error when tasks wait for each other in a circle, or behind one that waits for them on
// their own resource; it names the first that could not start.
Timeline simulate(const Work& work);

}  // namespace rondo::plan
