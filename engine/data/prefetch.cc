#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "engine/data/batch.h"
#include "kernels/base/error.h"

namespace rondo {

// A batch in the making. Guarded by State::mutex, except that whoever took utterance i writes
// examples[i], keys[i] and failures[i] alone, and whoever finishes the last one packs.
struct Prefetcher::Slot {
  explicit Slot(BatchRequest request_)
      : request(std::move(request_)),
        examples(size()),
        keys(size()),
        failures(size()),
        left(size()) {}
  size_t size() const { return request.utterances.size(); }

  BatchRequest request;
  std::vector<Example> examples;
  std::vector<uint64_t> keys;
  std::vector<std::exception_ptr> failures;  // by utterance, so that the report is deterministic
  size_t taken = 0;
  size_t left;
  bool ready = false;
  std::exception_ptr failure;
  HostBatch batch;
};

struct Prefetcher::State {
  int depth = 1;
  std::mutex mutex;
  std::condition_variable work, ready;
  std::deque<std::unique_ptr<Slot>> slots;  // in order; the front is delivered next
  std::vector<HostBatch> spare;             // memory to use again
  bool ended = false;                       // the source has no more
  std::exception_ptr source_failure;
  bool stop = false;
  std::vector<std::thread> threads;
};

Prefetcher::Prefetcher(const Dataset& dataset, std::function<std::optional<BatchRequest>()> source,
                       const PrefetchOptions& options)
    : dataset_(dataset), source_(std::move(source)), state_(std::make_unique<State>()) {
  RONDO_CHECK(options.threads >= 0 && options.depth >= 1, "threads ", options.threads, ", depth ",
              options.depth);
  state_->depth = options.depth;
  for (int i = 0; i < options.threads; ++i) state_->threads.emplace_back([this] { work(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  for (std::thread& t : state_->threads) t.join();
}

void Prefetcher::load_one(Slot& slot, size_t i) {
  const int64_t utterance = slot.request.utterances[i];
  try {
    slot.keys[i] = dataset_.key(utterance);
    slot.examples[i] = dataset_.load(utterance, slot.request.epoch);
  } catch (const InputError&) {
    slot.failures[i] = std::current_exception();
  } catch (const std::exception& e) {
    slot.failures[i] =
        std::make_exception_ptr(Error(str(dataset_.name(utterance), ": ", e.what())));
  } catch (...) {
    slot.failures[i] = std::current_exception();
  }
}

void Prefetcher::pack(Slot& slot) {
  const auto failed = std::find_if(slot.failures.begin(), slot.failures.end(),
                                   [](const std::exception_ptr& f) { return f != nullptr; });
  if (failed != slot.failures.end()) {
    slot.failure = *failed;
  } else {
    try {
      pack_batch(slot.request, slot.examples, slot.keys, dataset_.feature_dim(), slot.batch);
    } catch (...) {
      slot.failure = std::current_exception();
    }
  }
  slot.examples.clear();
}

// Starts the next batch, with the mutex held; false if there is none to start now.
bool Prefetcher::open_slot() {
  State& s = *state_;
  if (s.ended || static_cast<int>(s.slots.size()) >= s.depth) return false;
  std::optional<BatchRequest> request;
  try {
    request = source_();
  } catch (...) {
    s.source_failure = std::current_exception();
  }
  if (!request) {
    s.ended = true;
    s.ready.notify_all();
    s.work.notify_all();
    return false;
  }
  auto slot = std::make_unique<Slot>(std::move(*request));
  if (!s.spare.empty()) {
    slot->batch = std::move(s.spare.back());
    s.spare.pop_back();
  }
  if (slot->size() == 0) {
    pack(*slot);
    slot->ready = true;
    s.ready.notify_all();
  }
  s.slots.push_back(std::move(slot));
  s.work.notify_all();
  return true;
}

void Prefetcher::work() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (!s.stop) {
    const auto open = std::find_if(s.slots.begin(), s.slots.end(),
                                   [](const auto& slot) { return slot->taken < slot->size(); });
    if (open == s.slots.end()) {
      if (!open_slot()) s.work.wait(lock);
      continue;
    }
    Slot& slot = **open;
    const size_t i = slot.taken++;
    lock.unlock();
    load_one(slot, i);
    lock.lock();
    if (--slot.left > 0) continue;
    lock.unlock();
    pack(slot);
    lock.lock();
    slot.ready = true;
    s.ready.notify_all();
  }
}

std::unique_ptr<Prefetcher::Slot> Prefetcher::make_now() {
  std::optional<BatchRequest> request = source_();
  if (!request) return nullptr;
  auto slot = std::make_unique<Slot>(std::move(*request));
  for (size_t i = 0; i < slot->size(); ++i) load_one(*slot, i);
  pack(*slot);
  return slot;
}

std::unique_ptr<Prefetcher::Slot> Prefetcher::wait_for_front() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.ready.wait(lock, [&] { return s.slots.empty() ? s.ended : s.slots.front()->ready; });
  if (s.slots.empty()) {
    if (s.source_failure) std::rethrow_exception(std::exchange(s.source_failure, nullptr));
    return nullptr;
  }
  std::unique_ptr<Slot> slot = std::move(s.slots.front());
  s.slots.pop_front();
  s.work.notify_all();
  return slot;
}

bool Prefetcher::next(HostBatch& out) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Slot> slot = state_->threads.empty() ? make_now() : wait_for_front();
  wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!slot) return false;
  if (slot->failure) std::rethrow_exception(slot->failure);
  std::swap(out, slot->batch);
  const std::lock_guard lock(state_->mutex);
  state_->spare.push_back(std::move(slot->batch));
  return true;
}

}  // namespace rondo
