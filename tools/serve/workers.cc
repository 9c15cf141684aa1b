#include "tools/serve/workers.h"

#include <utility>

namespace rondo::serve {

std::shared_ptr<void> Places::take() {
  if (taken_->fetch_add(1) >= count_) {
    taken_->fetch_sub(1);
    return nullptr;
  }
  return {taken_.get(), [taken = taken_](void*) { taken->fetch_sub(1); }};
}

Workers::Workers(int threads, const ServedModel& model) {
  for (int i = 0; i < threads; ++i) recognizers_.push_back(model.recognizer());
  for (const auto& recognizer : recognizers_)
    threads_.emplace_back([this, r = recognizer.get()] { work(*r); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Workers::work(Recognizer& recognizer) {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job(recognizer);
  }
}

}  // namespace rondo::serve
