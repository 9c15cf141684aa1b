#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "engine/data/batch.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"

namespace rondo {

// A batch in the making. Guarded by State::mutex once it is among the slots, but for the packing:
// whoever finishes the last utterance packs.
struct Prefetcher::Slot {
  explicit Slot(BatchRequest request_)
      : request(std::move(request_)),
        loads(request.utterances.size()),
        left(request.utterances.size()) {}
  size_t size() const { return request.utterances.size(); }
  // Which utterance to load next, of those that nobody has begun.
  bool has_untaken() const { return taken < size(); }

  const BatchRequest request;
  std::vector<Load> loads;  // by utterance, so that what is reported is deterministic
  size_t taken = 0;
  size_t left;
  bool ready = false;
  std::exception_ptr failure;
  HostBatch batch;
};

struct Prefetcher::State {
  int depth = 1;
  std::mutex mutex;
  ConditionVariable work, ready;
  // In order; the front is delivered next. A thread that is late with an utterance may hold on to a
  // slot that was delivered without it.
  std::deque<std::shared_ptr<Slot>> slots;
  std::vector<HostBatch> spare;  // memory to use again
  bool opening = false;          // a thread asks the source
  bool ended = false;            // the source has no more
  std::exception_ptr source_failure;
  bool stop = false;
  std::vector<Thread> threads;
};

Prefetcher::Prefetcher(const Dataset& dataset, std::function<std::optional<BatchRequest>()> source,
                       const PrefetchOptions& options)
    : dataset_(dataset), source_(std::move(source)), state_(std::make_unique<State>()) {
  RONDO_CHECK(options.threads >= 0 && options.depth >= 1, "threads ", options.threads, ", depth ",
              options.depth);
  state_->depth = options.depth;
  state_->threads.reserve(static_cast<size_t>(options.threads));
  try {
    for (int i = 0; i < options.threads; ++i) {
      state_->threads.push_back(
          start_thread(str("thread ", i + 1, " of ", options.threads, " that read data"),
                       [this, background = options.background] {
                         if (background) step_back();
                         work();
                       }));
    }
  } catch (...) {
    end();
    throw;
  }
}

Prefetcher::~Prefetcher() { end(); }

void Prefetcher::end() {
  if (state_->threads.empty() || !state_->threads.front().joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  for (Thread& t : state_->threads) t.join();
}

Prefetcher::Load Prefetcher::load(int64_t utterance, uint64_t epoch) const {
  Load out;
  try {
    out.key = dataset_.key(utterance);
    out.example = dataset_.load(utterance, epoch);
  } catch (const InputError&) {
    out.failure = std::current_exception();
  } catch (const std::exception& e) {
    out.failure = std::make_exception_ptr(Error(str(dataset_.name(utterance), ": ", e.what())));
  } catch (...) {
    out.failure = std::current_exception();
  }
  out.done = true;
  return out;
}

void Prefetcher::pack(Slot& slot) {
  const auto failed = std::find_if(slot.loads.begin(), slot.loads.end(),
                                   [](const Load& l) { return l.failure != nullptr; });
  if (failed != slot.loads.end()) {
    slot.failure = failed->failure;
  } else {
    try {
      std::vector<Example> examples;
      std::vector<uint64_t> keys;
      for (Load& l : slot.loads) {
        examples.push_back(std::move(l.example));
        keys.push_back(l.key);
      }
      pack_batch(slot.request, examples, keys, dataset_.feature_dim(), slot.batch);
    } catch (...) {
      slot.failure = std::current_exception();
    }
  }
  for (Load& l : slot.loads) l.example = {};
}

// Loads utterance i, and packs the batch if it was the last; with the mutex held, but not
// meanwhile. Of two threads that load the same one, the first to finish counts.
void Prefetcher::advance(std::unique_lock<std::mutex>& lock, Slot& slot, size_t i) {
  lock.unlock();
  Load loaded = load(slot.request.utterances[i], slot.request.epoch);
  lock.lock();
  if (slot.loads[i].done) return;
  slot.loads[i] = std::move(loaded);
  if (--slot.left > 0) return;
  lock.unlock();
  pack(slot);
  lock.lock();
  slot.ready = true;
  state_->ready.notify_all();
}

// Starts the next batch; false if there is none to start now. With the mutex held, but not while
// the source works, which may take long at the start of an epoch.
bool Prefetcher::open_slot(std::unique_lock<std::mutex>& lock) {
  State& s = *state_;
  if (s.ended || s.opening || static_cast<int>(s.slots.size()) >= s.depth) return false;
  s.opening = true;
  lock.unlock();
  std::optional<BatchRequest> request;
  std::exception_ptr failure;
  try {
    request = source_();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  s.opening = false;
  s.work.notify_all();
  s.ready.notify_all();
  if (!request) {
    s.ended = true;
    s.source_failure = failure;
    return false;
  }
  auto slot = std::make_shared<Slot>(std::move(*request));
  if (!s.spare.empty()) {
    slot->batch = std::move(s.spare.back());
    s.spare.pop_back();
  }
  if (slot->size() == 0) {
    pack(*slot);
    slot->ready = true;
  }
  s.slots.push_back(std::move(slot));
  return true;
}

// The thread gets the lowest priority there is between threads that may run; one that cannot be
// lowered works all the same.
// 0: this thread, on Linux.
void Prefetcher::step_back() { ::setpriority(PRIO_PROCESS, 0, 19); }

void Prefetcher::work() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (!s.stop) {
    const auto open = std::find_if(s.slots.begin(), s.slots.end(),
                                   [](const auto& slot) { return slot->has_untaken(); });
    if (open == s.slots.end()) {
      if (!open_slot(lock)) s.work.wait(lock);
      continue;
    }
    const std::shared_ptr<Slot> slot = *open;
    advance(lock, *slot, slot->taken++);
  }
}

std::shared_ptr<Prefetcher::Slot> Prefetcher::make_now() {
  std::optional<BatchRequest> request = source_();
  if (!request) return nullptr;
  auto slot = std::make_shared<Slot>(std::move(*request));
  for (size_t i = 0; i < slot->size(); ++i) {
    slot->loads[i] = load(slot->request.utterances[i], slot->request.epoch);
  }
  pack(*slot);
  return slot;
}

// Waits by helping: with what nobody has begun, and then with what others have begun and not
// finished, because they may not be running.
void Prefetcher::finish(std::unique_lock<std::mutex>& lock, Slot& slot) {
  while (slot.has_untaken()) advance(lock, slot, slot.taken++);
  for (size_t i = 0; i < slot.size() && !slot.ready; ++i) {
    if (!slot.loads[i].done) advance(lock, slot, i);
  }
  state_->ready.wait(lock, [&] { return slot.ready; });  // it is being packed
}

std::shared_ptr<Prefetcher::Slot> Prefetcher::wait_for_front() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (s.slots.empty() && !s.ended) {
    if (!open_slot(lock)) s.ready.wait(lock, [&] { return !s.opening; });
  }
  if (s.slots.empty()) {
    if (s.source_failure) std::rethrow_exception(std::exchange(s.source_failure, nullptr));
    return nullptr;
  }
  const std::shared_ptr<Slot> slot = s.slots.front();
  if (!slot->ready) finish(lock, *slot);
  s.slots.pop_front();
  s.work.notify_all();
  return slot;
}

bool Prefetcher::next(HostBatch& out) {
  const auto begin = std::chrono::steady_clock::now();
  const std::shared_ptr<Slot> slot = state_->threads.empty() ? make_now() : wait_for_front();
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!slot) return false;
  if (slot->failure) std::rethrow_exception(slot->failure);
  std::swap(out, slot->batch);
  const std::lock_guard lock(state_->mutex);
  state_->spare.push_back(std::move(slot->batch));
  return true;
}

}  // namespace rondo
