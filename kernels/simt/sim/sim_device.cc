#include "kernels/simt/sim/sim_device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/cpu/thread.h"
#include "kernels/base/error.h"
#include "kernels/simt/sim/observer.h"

namespace rondo {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t guard_bytes = 0;  // AddressSanitizer's own zones follow at once
#else
constexpr size_t guard_bytes = 256;
#endif
constexpr uint16_t guard_pattern = 0xffa5;  // NaN as bf16, f32 and f64, and not the usual one

struct Counters {
  std::atomic<int64_t> allocations = 0, stream_waits = 0, event_waits = 0, launches = 0;
  std::atomic<int64_t> copies_to_host = 0, copies_from_host = 0, pieces = 0;
};
Counters counters;

// ---- memory ----

class Memory {
 public:
  void* allocate(size_t bytes, const char* purpose) {
    const size_t free = free_bytes();
    if (free != 0 && bytes > free) throw OutOfMemory(out_of_memory("sim", bytes, purpose, free));
    ++counters.allocations;
    std::byte* data = simt::allocate_simulated(bytes, guard_bytes, simt::Space::global, purpose);
    std::memset(data, 0xff, bytes);
    fill_guard(data - guard_bytes);
    fill_guard(data + bytes);
    const std::lock_guard lock(mutex_);
    blocks_[data] = {bytes, purpose};
    used_ += bytes;
    return data;
  }

  void set_limit(size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }
  size_t free_bytes() {
    const std::lock_guard lock(mutex_);
    return limit_ == 0 ? 0 : std::max<size_t>(limit_ - std::min(limit_, used_), 1);
  }

  void deallocate(void* memory) {
    auto* data = static_cast<std::byte*>(memory);
    {
      const std::lock_guard lock(mutex_);
      const auto block = blocks_.find(data);
      used_ -= block->second.bytes;
      blocks_.erase(block);
    }
    simt::free_simulated(data, guard_bytes);
  }

  bool contains(const void* memory) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(memory));
    const std::lock_guard lock(mutex_);
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return false;
    --block;
    return at < block->first + std::max<size_t>(block->second.bytes, 1);
  }

  // Empty, or what was written outside; repaired, so that it is told once.
  std::string find_damage() {
    if constexpr (guard_bytes == 0) return {};
    const std::lock_guard lock(mutex_);
    std::string damage;
    for (auto& [data, block] : blocks_) {
      for (std::byte* zone : {data - guard_bytes, data + block.bytes}) {
        if (guard_is_clean(zone)) continue;
        damage = str("wrote ", zone < data ? "before the start" : "past the end", " of the ",
                     block.bytes, " bytes of '", block.purpose, "'");
        fill_guard(zone);
      }
    }
    return damage;
  }

 private:
  struct Block {
    size_t bytes;
    std::string purpose;
  };
  using Zone = std::array<std::byte, guard_bytes>;
  static const Zone& clean_zone() {
    static const Zone zone = [] {
      Zone z;
      for (size_t i = 0; i < guard_bytes; i += 2) std::memcpy(z.data() + i, &guard_pattern, 2);
      return z;
    }();
    return zone;
  }
  static void fill_guard(std::byte* zone) {
    if constexpr (guard_bytes > 0) std::memcpy(zone, clean_zone().data(), guard_bytes);
  }
  static bool guard_is_clean(const std::byte* zone) {
    return std::memcmp(zone, clean_zone().data(), guard_bytes) == 0;
  }

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
  size_t used_ = 0, limit_ = 0;
};

// ---- queues ----

// Whether this host thread is running a piece of stream work.
thread_local bool inside_work = false;

class SimStream;

// One record() of an event.
struct Mark {
  SimStream* stream = nullptr;
  bool done = false;
  std::chrono::steady_clock::time_point at{};  // when it was
  std::exception_ptr failure;
};

struct Item {
  std::function<void()> work;        // or
  std::shared_ptr<Mark> record;      // or
  std::shared_ptr<const Mark> wait;  // or
  std::function<bool()> until;
};

using Clock = std::chrono::steady_clock;
constexpr auto retry_after = std::chrono::microseconds(100);  // of an `until`

// All streams of the process, under one lock.
class Queues {
 public:
  void add(SimStream* stream);
  void remove(SimStream* stream) noexcept;
  void push(SimStream* stream, Item item);
  // Runs work until `stream` is empty and idle (or `mark` is done), then throws its failure.
  void synchronize(SimStream* stream, const Mark* mark);
  // Runs one piece of work, if any can run.
  bool advance(const Mark* mark);
  void drain_own_streams() noexcept;

  Memory memory;

 private:
  enum class Others : uint8_t { lag, lead, mixed };
  using Lock = std::unique_lock<std::mutex>;

  bool can_run(const SimStream* s) const;
  // Streams `target` cannot go on without, and the calling thread's own.
  std::vector<SimStream*> scope(SimStream* target) const;
  SimStream* choose(SimStream* target, Others others);
  void run_one(SimStream* s, Lock& lock);
  void drain(SimStream* target, const Mark* mark, Lock& lock);

  std::mutex mutex_;
  ConditionVariable changed_;
  std::vector<SimStream*> streams_;
  std::mt19937_64 random_;
  uint64_t seed_ = 0;
};

Queues& queues() {
  static Queues q;
  return q;
}

class SimStream final : public detail::StreamImpl {
 public:
  SimStream() { queues().add(this); }
  ~SimStream() override { queues().remove(this); }
  SimStream(const SimStream&) = delete;
  SimStream& operator=(const SimStream&) = delete;

  void enqueue_until(std::function<bool()> done) override {
    refuse_while_recording("enqueue_until");
    queues().push(this, {nullptr, nullptr, nullptr, std::move(done)});
  }
  void enqueue(std::function<void()> work) override {
    if (recording) {
      recording->push_back([work = std::move(work)](SimStream& at) { at.enqueue(work); });
    } else {
      queues().push(this, {std::move(work), nullptr, nullptr, nullptr});
    }
  }
  void synchronize() override {
    refuse_while_recording("synchronize");
    ++counters.stream_waits;
    queues().synchronize(this, nullptr);
  }
  // For code that hands a stream to a library: on this device one of the tests' own.
  void* native() override { return static_cast<detail::StreamImpl*>(this); }
  void refuse_while_recording(const char* what) const {
    RONDO_CHECK(!recording, what, " of a stream whose work is being recorded");
  }

  // What a launch of the recording enqueues. Used by the thread that enqueues.
  using Recorded = std::vector<std::function<void(SimStream&)>>;
  std::unique_ptr<Recorded> recording;

  // Guarded by the lock of Queues.
  std::deque<Item> items;
  bool busy = false;
  Clock::time_point retry_at = {};  // the front item, an `until`, was tried in vain
  std::exception_ptr failure;
  const std::thread::id owner = std::this_thread::get_id();
};

void Queues::add(SimStream* stream) {
  const Lock lock(mutex_);
  streams_.push_back(stream);
}

void Queues::remove(SimStream* stream) noexcept {
  Lock lock(mutex_);
  drain(stream, nullptr, lock);
  std::erase(streams_, stream);
}

void Queues::push(SimStream* stream, Item item) {
  const Lock lock(mutex_);
  stream->items.push_back(std::move(item));
  changed_.notify_all();
}

bool Queues::can_run(const SimStream* s) const {
  if (s->busy || s->items.empty()) return false;
  const Item& next = s->items.front();
  if (next.until && !s->failure) return s->retry_at <= Clock::now();
  return !next.wait || next.wait->done;
}

std::vector<SimStream*> Queues::scope(SimStream* target) const {
  std::vector<SimStream*> found = {target};
  for (SimStream* s : streams_) {
    if (s != target && s->owner == std::this_thread::get_id()) found.push_back(s);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]->items.empty() || !found[i]->items.front().wait) continue;
    const Mark& awaited = *found[i]->items.front().wait;
    if (!awaited.done && std::find(found.begin(), found.end(), awaited.stream) == found.end()) {
      found.push_back(awaited.stream);
    }
  }
  return found;
}

// The stream to run one item of; null when nothing can run now.
SimStream* Queues::choose(SimStream* target, Others others) {
  std::vector<SimStream*> ready = scope(target);
  std::erase_if(ready, [&](const SimStream* s) { return !can_run(s); });
  if (ready.empty()) return nullptr;
  if (others == Others::mixed) return ready[random_() % ready.size()];
  if (others == Others::lead) {
    std::erase(ready, target);
    return ready.empty() ? target : ready[random_() % ready.size()];
  }
  // Lag: follow the waits from the target to the one stream that must move.
  SimStream* s = target;
  for (size_t hops = 0; hops <= streams_.size(); ++hops) {
    if (can_run(s)) return s;
    if (s->busy || s->items.empty() || !s->items.front().wait) return nullptr;
    s = s->items.front().wait->stream;
  }
  return nullptr;
}

void Queues::run_one(SimStream* s, Lock& lock) {
  Item item = std::move(s->items.front());
  s->items.pop_front();
  if (item.record) {
    item.record->failure = s->failure;
    item.record->at = std::chrono::steady_clock::now();
    item.record->done = true;
  } else if (item.wait) {
    if (item.wait->failure && !s->failure) s->failure = item.wait->failure;
  } else if (!s->failure) {
    s->busy = true;
    lock.unlock();
    std::exception_ptr failure;
    bool again = false;
    inside_work = true;
    try {
      simt::last_kernel = "host work";
      if (item.until) {
        again = !item.until();
      } else {
        item.work();
        ++counters.pieces;
      }
      if (const std::string damage = memory.find_damage(); !damage.empty()) {
        throw Error(str("simulated device: ", simt::last_kernel, " ", damage));
      }
    } catch (...) {
      failure = std::current_exception();  // thrown by synchronize()
    }
    inside_work = false;
    if (!again) item = {};
    lock.lock();
    s->busy = false;
    s->failure = failure;
    if (again && !failure) {
      s->items.push_front(std::move(item));
      s->retry_at = Clock::now() + retry_after;
    }
  }
  changed_.notify_all();
}

void Queues::drain(SimStream* target, const Mark* mark, Lock& lock) {
  if (const uint64_t seed = sim_options().seed; seed != seed_) {
    seed_ = seed;
    random_.seed(seed);
  }
  const auto others = static_cast<Others>(random_() % 3);
  const auto finished = [&] { return mark ? mark->done : target->items.empty() && !target->busy; };
  while (!finished()) {
    if (SimStream* s = choose(target, others)) {
      run_one(s, lock);
    } else {
      changed_.wait_for(lock, retry_after);  // another host thread runs what is needed
    }
  }
}

void Queues::synchronize(SimStream* stream, const Mark* mark) {
  Lock lock(mutex_);
  drain(stream, mark, lock);
  const std::exception_ptr failure = mark ? mark->failure : std::exchange(stream->failure, nullptr);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

bool Queues::advance(const Mark* mark) {
  Lock lock(mutex_);
  if (!mark->done) {
    if (SimStream* s = choose(mark->stream, Others::mixed)) run_one(s, lock);
  }
  return mark->done;
}

void Queues::drain_own_streams() noexcept {
  if (inside_work) return;  // its stream cannot be waited for
  Lock lock(mutex_);
  const std::vector<SimStream*> all = streams_;
  for (SimStream* s : all) {
    // While one is drained the lock is free, and other threads may destroy theirs.
    if (std::find(streams_.begin(), streams_.end(), s) == streams_.end()) continue;
    if (s->owner == std::this_thread::get_id() && !s->busy) drain(s, nullptr, lock);
  }
}

class SimEvent final : public detail::EventImpl {
 public:
  void record(detail::StreamImpl& stream) override {
    auto& sim = static_cast<SimStream&>(stream);
    if (sim.recording) {
      sim.recording->push_back([this](SimStream& at) { record(at); });
      return;
    }
    mark_ = std::make_shared<Mark>();
    mark_->stream = &sim;
    queues().push(&sim, {nullptr, mark_, nullptr, nullptr});
  }
  void wait(detail::StreamImpl& stream) override {
    auto& sim = static_cast<SimStream&>(stream);
    sim.refuse_while_recording("event wait");
    if (mark_) queues().push(&sim, {nullptr, nullptr, mark_, nullptr});
  }
  void synchronize() override {
    if (!mark_) return;
    ++counters.event_waits;
    queues().synchronize(mark_->stream, mark_.get());
  }
  bool done() override { return !mark_ || queues().advance(mark_.get()); }
  double seconds_since(detail::EventImpl& earlier) override {
    const auto& before = static_cast<SimEvent&>(earlier).mark_;
    RONDO_CHECK(mark_ && before && mark_->done && before->done, "the time of an event to come");
    return std::chrono::duration<double>(mark_->at - before->at).count();
  }

 private:
  std::shared_ptr<Mark> mark_;
};

class SimRecording final : public detail::CapturedImpl {
 public:
  explicit SimRecording(SimStream::Recorded work) : work_(std::move(work)) {}
  void launch(detail::StreamImpl& stream) override {
    ++counters.launches;
    for (const auto& item : work_) item(static_cast<SimStream&>(stream));
  }

 private:
  SimStream::Recorded work_;
};

class SimDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::sim; }
  std::string describe() const override { return "sim (CUDA kernels on the host)"; }

  void* allocate(size_t bytes, const char* purpose) override {
    return queues().memory.allocate(bytes, purpose);
  }
  void deallocate(void* memory, size_t) noexcept override {
    queues().drain_own_streams();
    queues().memory.deallocate(memory);
  }

  size_t free_memory() const override { return queues().memory.free_bytes(); }

  bool can_capture() const override { return true; }
  void begin_capture(Stream& stream) override {
    auto& sim = static_cast<SimStream&>(stream.impl());
    sim.refuse_while_recording("begin_capture");
    sim.recording = std::make_unique<SimStream::Recorded>();
  }
  CapturedWork end_capture(Stream& stream) override {
    auto& sim = static_cast<SimStream&>(stream.impl());
    RONDO_CHECK(sim.recording, "end_capture without begin_capture");
    const auto recorded = std::move(sim.recording);
    return CapturedWork(std::make_unique<SimRecording>(std::move(*recorded)));
  }

  Stream make_stream() override { return Stream(std::make_unique<SimStream>()); }
  Event make_event() override { return Event(std::make_unique<SimEvent>()); }
  Event make_timed_event() override { return make_event(); }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    const bool from_here = is_sim_memory(from), to_here = is_sim_memory(to);
    if (from_here && !to_here) ++counters.copies_to_host;
    if (!from_here && to_here) ++counters.copies_from_host;
    stream.enqueue([=] { std::memmove(to, from, bytes); });
  }
  void fill_bytes(Stream& stream, void* to, int byte, size_t bytes) override {
    if (bytes == 0) return;
    stream.enqueue([=] { std::memset(to, byte, bytes); });
  }
};

}  // namespace

Device& sim_device() {
  static SimDevice device;
  return device;
}

SimCounters sim_counters() {
  return {counters.allocations, counters.stream_waits,   counters.event_waits,
          counters.launches,    counters.copies_to_host, counters.copies_from_host,
          counters.pieces};
}

bool is_sim_memory(const void* memory) { return queues().memory.contains(memory); }

void set_sim_memory_limit(size_t bytes) { queues().memory.set_limit(bytes); }

}  // namespace rondo
