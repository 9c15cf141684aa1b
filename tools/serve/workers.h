// Threads that compute, each with a recognizer of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/train/recognition/recognizer.h"
#include "tools/serve/served_model.h"

namespace rondo::serve {

// So many may be in the server at a time, and no more. Thread-safe.
class Places {
 public:
  explicit Places(int count) : taken_(std::make_shared<std::atomic<int>>(0)), count_(count) {}

  // Held for as long as a copy lives; nullptr: none is free.
  std::shared_ptr<void> take();

 private:
  std::shared_ptr<std::atomic<int>> taken_;
  const int count_;
};

// Jobs run in the order in which they were added, one in each thread. Their number is bounded by
// the Places of those who add them. Thread-safe, but for its beginning and end.
class Workers {
 public:
  using Job = std::function<void(Recognizer&)>;  // throws nothing

  Workers(int threads, const ServedModel& model);
  // Does the jobs that are left.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void add(Job job);

 private:
  void work(Recognizer& recognizer);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::vector<std::unique_ptr<Recognizer>> recognizers_;
  std::vector<std::thread> threads_;
};

}  // namespace rondo::serve
