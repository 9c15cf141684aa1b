#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "comm/group/collectives.h"
#include "comm/group/process_group.h"
#include "comm/work_state.h"
#include "kernels/base/cpu/thread.h"
#include "kernels/base/device.h"

namespace rondo {
namespace {

class RingGroup;
class Collective;

// Whose turn it is. Outlives the group in the hands of its collectives.
struct Turns {
  std::mutex mutex;  // of everything here
  ConditionVariable changed;
  std::deque<std::shared_ptr<Collective>> queue;
  std::shared_ptr<Collective> running;
  std::optional<std::string> closed;  // why no collective can run any more
  int closed_by = -1;
  bool stop = false;
};

// One collective, waiting for its turn or running: in the group's thread, or in the one that waits
// for it, if that comes first, so that no work passes from thread to thread.
class Collective final : public detail::WorkState {
 public:
  using Body = std::function<void(Link&)>;

  Collective(RingGroup& group, const std::string& what, uint32_t number, Deadline deadline,
             Body body);
  bool wait_until(Deadline deadline) override;
  void withdraw(CommErrorKind kind, const std::string& cause) override;
  std::string description() const override {
    return str("rank ", world_rank_, ": ", what_, ", ", describe_tag(tag_));
  }

  void run();
  // Instead of run().
  void refuse(CommErrorKind kind, int peer, const std::string& cause) {
    fail(CommError(kind, peer, str(description(), ": ", cause)));
  }
  void break_off(CommErrorKind kind, const std::string& cause) {
    link_.break_off(kind, cause, str(description(), ": ", cause));
  }

 private:
  CommError explain(const CommError& error);

  RingGroup& group_;
  const std::shared_ptr<Turns> turns_;
  const int world_rank_;
  const Tag tag_;
  const std::string what_;
  const uint32_t number_;
  Link link_;
  const Body body_;
};

class RingGroup final : public ProcessGroup {
 public:
  RingGroup(Transport& transport, GroupOptions options);
  ~RingGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(options_.members.size()); }

  Work all_reduce(const TensorView& data, Reduction op, Limit deadline) override;
  Work reduce_scatter(const TensorView& data, Reduction op, Limit deadline) override;
  Work all_gather(const TensorView& data, Limit deadline) override;
  Work broadcast(const TensorView& data, int root, Limit deadline) override;
  Work barrier(Limit deadline) override;
  Work send(int peer, uint32_t tag, std::span<const std::byte> data, Limit deadline) override;
  Work recv(int peer, uint32_t tag, std::span<std::byte> data, Limit deadline) override;
  void abort(const std::string& reason) noexcept override { transport_.abort(reason); }

 private:
  friend class Collective;

  Work issue(const std::string& what, Limit deadline, Collective::Body body);
  std::string describe_sum(const char* name, const TensorView& data, Reduction op) const;
  std::span<std::byte> staging() const { return {staging_.as<std::byte>(), staging_.bytes()}; }
  void withdraw(Collective& collective, CommErrorKind kind, const std::string& cause);
  void close(int peer, const std::string& cause);
  void work();
  Deadline limit(Limit deadline) const { return deadline.value_or(within(options_.timeout)); }
  int world_rank(int peer) const {
    RONDO_CHECK(peer >= 0 && peer < size(), "rank ", peer, " of a group of ", size());
    return options_.members[static_cast<size_t>(peer)];
  }

  Transport& transport_;
  GroupOptions options_;
  int rank_ = -1;
  std::optional<Machines> machines_;
  Buffer staging_;

  const std::shared_ptr<Turns> turns_ = std::make_shared<Turns>();
  uint32_t sequence_ = 0;  // guarded by the mutex of the turns
  Thread thread_;
};

Collective::Collective(RingGroup& group, const std::string& what, uint32_t number,
                       Deadline deadline, Body body)
    : WorkState(deadline),
      group_(group),
      turns_(group.turns_),
      world_rank_(group.transport_.rank()),
      tag_(collective_tag(group.options_.id, number)),
      what_(what),
      number_(number),
      link_(group.transport_, group.options_.members, group.rank_,
            collective_tag(group.options_.id, number), deadline),
      body_(std::move(body)) {}

// Runs what is next, with the lock held but not meanwhile. The group lives until that has ended.
void run_next(Turns& turns, std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Collective> next = std::move(turns.queue.front());
  turns.queue.pop_front();
  turns.running = next;
  lock.unlock();
  next->run();
  lock.lock();
  turns.running = nullptr;
  if (turns.stop || !turns.queue.empty()) turns.changed.notify_all();
}

bool Collective::wait_until(Deadline deadline) {
  if (!done() && deadline >= this->deadline()) {
    std::unique_lock lock(turns_->mutex);
    const bool next =
        !turns_->running && !turns_->queue.empty() && turns_->queue.front().get() == this;
    if (next) run_next(*turns_, lock);
  }
  return WorkState::wait_until(deadline);
}

// A Work may outlive its group: by then the collective is done, and the group is not touched.
void Collective::withdraw(CommErrorKind kind, const std::string& cause) {
  if (!done()) group_.withdraw(*this, kind, cause);
}

CommError Collective::explain(const CommError& error) {
  const auto named = [&](const CommError& e) {
    return CommError(e.kind(), e.peer(), str(what_, ": ", e.what()));
  };
  if (error.kind() != CommErrorKind::mismatch || link_.disagrees()) return named(error);
  try {
    link_.hear_of_mismatch();
  } catch (const CommError& e) {
    return named(e);
  }
  return named(error);
}

void Collective::run() {
  began();
  std::optional<CommError> error;
  try {
    if (group_.options_.verify) {
      link_.begin_check(verification_tag(group_.options_.id, number_), what_);
    }
    body_(link_);
    link_.finish_check();
  } catch (const CommError& e) {
    error.emplace(explain(e));
  } catch (const std::exception& e) {
    error.emplace(CommErrorKind::aborted, -1, str(description(), ": ", e.what()));
  }
  if (!error) {
    succeed(link_.bytes_sent());
    return;
  }
  link_.drop_check();
  if (error->kind() != CommErrorKind::aborted) group_.transport_.abort(error->what());
  group_.close(error->peer(), error->what());
  fail(*error);
}

RingGroup::RingGroup(Transport& transport, GroupOptions options)
    : transport_(transport), options_(std::move(options)) {
  auto& members = options_.members;
  if (members.empty()) {
    for (int r = 0; r < transport.world_size(); ++r) members.push_back(r);
  }
  for (int r : members) {
    RONDO_CHECK(r >= 0 && r < transport.world_size(), "member ", r, " of a world of ",
                transport.world_size());
    RONDO_CHECK(std::count(members.begin(), members.end(), r) == 1, "member ", r, " twice");
  }
  RONDO_CHECK(options_.id < 0x8000, "group id ", options_.id, ", expected less than 32768");
  const auto own = std::find(members.begin(), members.end(), transport.rank());
  RONDO_CHECK(own != members.end(), "rank ", transport.rank(), " is not a member of the group");
  rank_ = static_cast<int>(own - members.begin());
  if (size() == 1) return;
  std::vector<int> on_machine;
  for (int r : members) on_machine.push_back(transport.machine_of(r));
  if (!options_.one_ring) machines_ = machines_of(on_machine, rank_);
  const size_t message = std::max(options_.message_bytes, sizeof(double)) / sizeof(double);
  staging_ =
      Buffer(cpu_device(), ring_staging_messages * message * sizeof(double), "the ring's messages");
  thread_ = start_thread("the thread of a process group", [this] { work(); });
}

RingGroup::~RingGroup() {
  if (!thread_.joinable()) return;
  const char* const cause = "the process group was destroyed";
  close(-1, cause);
  {
    std::unique_lock lock(turns_->mutex);
    turns_->stop = true;
    if (turns_->running) turns_->running->break_off(CommErrorKind::aborted, cause);
    turns_->changed.notify_all();
    turns_->changed.wait(lock, [&] { return !turns_->running; });
  }
  thread_.join();
}

// Later collectives will fail at once, and so do those that wait for their turn.
void RingGroup::close(int peer, const std::string& cause) {
  std::deque<std::shared_ptr<Collective>> waiting;
  std::string closed;
  {
    std::lock_guard lock(turns_->mutex);
    if (turns_->closed) return;
    closed = str("not run, because the group has ended: ", cause);
    turns_->closed = closed;
    turns_->closed_by = peer;
    waiting.swap(turns_->queue);
  }
  for (const auto& c : waiting) c->refuse(CommErrorKind::aborted, peer, closed);
}

void RingGroup::withdraw(Collective& collective, CommErrorKind kind, const std::string& cause) {
  std::unique_lock lock(turns_->mutex);
  auto& queue = turns_->queue;
  const auto queued = std::find_if(queue.begin(), queue.end(),
                                   [&](const auto& c) { return c.get() == &collective; });
  if (queued != queue.end()) {
    const std::shared_ptr<Collective> keep = *queued;
    queue.erase(queued);
    lock.unlock();
    const std::string message = str(collective.description(), ": ", cause);
    if (kind == CommErrorKind::timeout) transport_.abort(message);
    close(-1, message);
    collective.refuse(kind, -1, cause);
  } else {
    if (turns_->running.get() == &collective) collective.break_off(kind, cause);
    lock.unlock();
    collective.wait_until(Deadline::max());
  }
}

void RingGroup::work() {
  Turns& turns = *turns_;
  std::unique_lock lock(turns.mutex);
  for (;;) {
    turns.changed.wait(lock,
                       [&] { return turns.stop || (!turns.running && !turns.queue.empty()); });
    if (turns.stop) return;
    run_next(turns, lock);
  }
}

Work RingGroup::issue(const std::string& what, Limit deadline, Collective::Body body) {
  if (size() == 1) return Work::nothing_to_do();
  std::unique_lock lock(turns_->mutex);
  const uint32_t number = sequence_++;
  auto collective =
      std::make_shared<Collective>(*this, what, number, limit(deadline), std::move(body));
  if (turns_->closed) {
    collective->refuse(CommErrorKind::aborted, turns_->closed_by, *turns_->closed);
  } else {
    turns_->queue.push_back(collective);
  }
  lock.unlock();
  turns_->changed.notify_all();
  return Work(std::move(collective));
}

std::string RingGroup::describe_sum(const char* name, const TensorView& data, Reduction op) const {
  RONDO_CHECK(op == Reduction::sum, "the ring only sums");
  RONDO_CHECK(data.dtype == DType::f32 || data.dtype == DType::f64, name, " of ",
              name_of(data.dtype), ", expected f32 or f64");
  const bool rounded = options_.wire == Wire::bf16 && data.dtype == DType::f32;
  return str(name, " of ", data.numel(), " ", name_of(data.dtype), rounded ? " as bf16" : "");
}

Work RingGroup::all_reduce(const TensorView& data, Reduction op, Limit deadline) {
  const std::string what = describe_sum("all_reduce", data, op);
  if (options_.all_reduce) {
    return issue(what, deadline, [this, data](Link& link) {
      link.finish_check();  // a backend's own all-reduce may not survive a disagreement
      options_.all_reduce(data, link.number(), link.deadline());
    });
  }
  if (fits_doubling(data, size(), staging_.bytes())) {
    return issue(what, deadline,
                 [this, data](Link& link) { doubling_all_reduce(link, data, staging()); });
  }
  if (machines_) {
    return issue(what, deadline, [this, data](Link& link) {
      hierarchical_all_reduce(link, *machines_, data, staging(), options_.wire);
    });
  }
  return issue(what, deadline,
               [this, data](Link& link) { ring_all_reduce(link, data, staging(), options_.wire); });
}

Work RingGroup::reduce_scatter(const TensorView& data, Reduction op, Limit deadline) {
  const std::string what = describe_sum("reduce_scatter", data, op);
  return issue(what, deadline, [this, data](Link& link) {
    ring_reduce_scatter(link, data, staging(), options_.wire);
  });
}

Work RingGroup::all_gather(const TensorView& data, Limit deadline) {
  const std::string what = str("all_gather of ", data.numel(), " ", name_of(data.dtype));
  return issue(what, deadline,
               [this, data](Link& link) { ring_all_gather(link, data, staging()); });
}

Work RingGroup::broadcast(const TensorView& data, int root, Limit deadline) {
  world_rank(root);
  const std::string what =
      str("broadcast of ", data.numel(), " ", name_of(data.dtype), " from ", root);
  return issue(what, deadline, [data, root](Link& link) {
    if (data.bytes() == 0) return;
    tree_broadcast(link, {static_cast<std::byte*>(data.data), data.bytes()}, root);
  });
}

Work RingGroup::barrier(Limit deadline) {
  return issue("barrier", deadline, dissemination_barrier);
}

Work RingGroup::send(int peer, uint32_t tag, std::span<const std::byte> data, Limit deadline) {
  return transport_.send(world_rank(peer), message_tag(options_.id, tag), data, limit(deadline));
}

Work RingGroup::recv(int peer, uint32_t tag, std::span<std::byte> data, Limit deadline) {
  return transport_.recv(world_rank(peer), message_tag(options_.id, tag), data, limit(deadline));
}

}  // namespace

std::unique_ptr<ProcessGroup> make_ring_group(Transport& transport, GroupOptions options) {
  return std::make_unique<RingGroup>(transport, std::move(options));
}

}  // namespace rondo
