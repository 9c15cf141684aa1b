#include "engine/reduce/long_work.h"

#include <array>
#include <exception>
#include <mutex>
#include <vector>

#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

constexpr uint32_t news_tag = 0x6e657773;
constexpr std::array<std::byte, 1> at_work{std::byte{1}}, ready{std::byte{2}};

// What ranks tell each other of their work: all tell rank 0, which tells all.
class News {
 public:
  News(const Ranks& ranks, CommClock::duration patience)
      : group_(*ranks.group()), patience_(patience) {
    if (ranks.first()) {
      for (int r = 1; r < ranks.size(); ++r) others_.push_back(r);
    } else {
      others_.push_back(0);
    }
    thread_ = start_thread(str("rank ", ranks.rank(), ": the thread of its news"),
                           [this] { tell_now_and_then(); });
  }
  ~News() { stop(); }
  News(const News&) = delete;
  News& operator=(const News&) = delete;

  // Returns when all ranks are ready. Throws CommError.
  void wait_for_all() {
    const bool first = group_.rank() == 0;
    if (!first) tell_ready();
    for (const int other : others_) wait_for(other);
    if (first) tell_ready();
    for (Work& w : told_) w.wait();
  }

 private:
  void tell(std::span<const std::byte> what) {
    for (const int other : others_) {
      told_.push_back(group_.send(other, news_tag, what, Deadline::max()));
    }
  }

  void tell_now_and_then() {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, patience_ / 4, [this] { return stop_; })) tell(at_work);
  }

  void tell_ready() {
    stop();
    tell(ready);
  }

  void wait_for(int other) {
    std::array<std::byte, 1> heard{};
    while (heard != ready) group_.recv(other, news_tag, heard, within(patience_)).wait();
  }

  void stop() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_all();
    thread_.join();
  }

  ProcessGroup& group_;
  const CommClock::duration patience_;
  std::vector<int> others_;  // to be told, and heard
  std::vector<Work> told_;
  std::mutex mutex_;
  ConditionVariable stopped_;
  bool stop_ = false;
  Thread thread_;
};

}  // namespace

void together_at_length(const Ranks& ranks, CommClock::duration patience,
                        const std::function<void()>& action) {
  if (ranks.size() == 1) return action();
  std::exception_ptr failure;
  {
    News news(ranks, patience);
    try {
      action();
    } catch (const CommError&) {
      throw;
    } catch (...) {
      failure = std::current_exception();
    }
    news.wait_for_all();
  }
  ranks.together([&] {
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace rondo
