#include "comm/in_process/in_process.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "comm/recycling_allocator.h"
#include "comm/work_state.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {

enum class Direction : uint8_t { send, recv };

// The stages of an operation, guarded by the world's mutex: queued -> moving (its bytes are being
// copied, outside the mutex) -> done, or queued -> done when it fails.
class InProcessWorld::Operation final : public detail::WorkState {
 public:
  Operation(std::shared_ptr<Shared> shared, Direction direction, int rank, int peer, Tag tag,
            std::byte* data, size_t size, Deadline deadline);

  void withdraw(CommErrorKind kind, const std::string& cause) override;
  std::string description() const override {
    return str("rank ", rank, ": ",
               direction == Direction::send ? "send to rank " : "recv from rank ", peer, " (",
               describe_tag(tag), ", ", size, " bytes)");
  }

  void complete() {
    stage = Stage::done;
    succeed(size);
  }
  void break_off(CommErrorKind kind, int culprit, const std::string& cause) {
    stage = Stage::done;
    fail(CommError(kind, culprit, str(description(), ": ", cause)));
  }
  bool involves(int r) const { return r == rank || r == peer; }

  enum class Stage : uint8_t { queued, moving, done };

  const std::shared_ptr<Shared> shared;
  const Direction direction;
  const int rank, peer;
  const Tag tag;
  std::byte* const data;
  const size_t size;
  Stage stage = Stage::queued;
};

struct InProcessWorld::Shared {
  using Channel = std::tuple<int, int, Tag>;  // from, to, tag
  // Holds sends or recvs that wait for their counterpart, never both.
  using Queue = std::pmr::deque<std::shared_ptr<Operation>>;

  explicit Shared(int n) : world_size(n), lost(static_cast<size_t>(n)) {}

  void post(const std::shared_ptr<Operation>& op);
  void withdraw(Operation& op, CommErrorKind kind, const std::string& cause);
  void abort(int culprit, const std::string& reason);
  void lose(int rank, const std::string& reason);

  const int world_size;
  std::mutex mutex;
  ConditionVariable moved;
  // Keep what was allocated for messages, for those to come.
  std::pmr::unsynchronized_pool_resource memory;
  std::pmr::map<Channel, Queue> channels{&memory};
  const std::shared_ptr<MemoryPool> operations = std::make_shared<MemoryPool>();
  bool aborted = false;
  int aborted_by = -1;
  std::string abort_reason;
  std::vector<std::optional<std::string>> lost;

 private:
  static Channel channel_of(const Operation& op) {
    return op.direction == Direction::send ? Channel{op.rank, op.peer, op.tag}
                                           : Channel{op.peer, op.rank, op.tag};
  }
  bool refuse(Operation& op);
  template <class Match, class Act>
  void remove_if(Match match, Act act);
};

InProcessWorld::Operation::Operation(std::shared_ptr<Shared> world, Direction d, int own_rank,
                                     int other_rank, Tag t, std::byte* memory, size_t bytes,
                                     Deadline deadline)
    : WorkState(deadline),
      shared(std::move(world)),
      direction(d),
      rank(own_rank),
      peer(other_rank),
      tag(t),
      data(memory),
      size(bytes) {}

void InProcessWorld::Operation::withdraw(CommErrorKind kind, const std::string& cause) {
  shared->withdraw(*this, kind, cause);
}

bool InProcessWorld::Shared::refuse(Operation& op) {
  if (aborted) {
    op.break_off(CommErrorKind::aborted, aborted_by, abort_reason);
    return true;
  }
  for (int r : {op.peer, op.rank}) {
    if (const auto& reason = lost[static_cast<size_t>(r)]) {
      op.break_off(CommErrorKind::peer_lost, r, str("rank ", r, " is lost: ", *reason));
      return true;
    }
  }
  return false;
}

void InProcessWorld::Shared::post(const std::shared_ptr<Operation>& op) {
  std::unique_lock lock(mutex);
  if (refuse(*op)) return;
  const Channel channel = channel_of(*op);
  Queue& queue = channels[channel];
  if (queue.empty() || queue.front()->direction == op->direction) {
    queue.push_back(op);
    return;
  }
  const std::shared_ptr<Operation> other = std::move(queue.front());
  queue.pop_front();
  if (queue.empty()) channels.erase(channel);
  if (op->size != other->size) {
    const Operation& from = op->direction == Direction::send ? *op : *other;
    const Operation& to = op->direction == Direction::send ? *other : *op;
    const std::string cause = str("rank ", from.rank, " sends ", from.size, " bytes, rank ",
                                  to.rank, " expects ", to.size);
    op->break_off(CommErrorKind::mismatch, op->peer, cause);
    other->break_off(CommErrorKind::mismatch, other->peer, cause);
    return;
  }
  op->stage = other->stage = Operation::Stage::moving;
  lock.unlock();
  if (op->size != 0) {
    const bool sending = op->direction == Direction::send;
    std::memcpy((sending ? *other : *op).data, (sending ? *op : *other).data, op->size);
  }
  lock.lock();
  op->complete();
  other->complete();
  moved.notify_all();
}

void InProcessWorld::Shared::withdraw(Operation& op, CommErrorKind kind, const std::string& cause) {
  std::unique_lock lock(mutex);
  moved.wait(lock, [&] { return op.stage != Operation::Stage::moving; });
  if (op.stage == Operation::Stage::done) return;
  remove_if([&](const Operation& o) { return &o == &op; },
            [&](Operation& o) { o.break_off(kind, o.peer, cause); });
}

template <class Match, class Act>
void InProcessWorld::Shared::remove_if(Match match, Act act) {
  for (auto it = channels.begin(); it != channels.end();) {
    Queue& queue = it->second;
    std::erase_if(queue, [&](const std::shared_ptr<Operation>& op) {
      if (!match(*op)) return false;
      act(*op);
      return true;
    });
    it = queue.empty() ? channels.erase(it) : std::next(it);
  }
}

void InProcessWorld::Shared::abort(int culprit, const std::string& reason) {
  std::lock_guard lock(mutex);
  if (aborted) return;
  aborted = true;
  aborted_by = culprit;
  abort_reason = culprit < 0 ? reason : str("rank ", culprit, " aborted: ", reason);
  remove_if([](const Operation&) { return true; }, [&](Operation& op) { refuse(op); });
}

void InProcessWorld::Shared::lose(int rank, const std::string& reason) {
  std::lock_guard lock(mutex);
  auto& entry = lost[static_cast<size_t>(rank)];
  if (entry) return;
  entry = reason;
  remove_if([&](const Operation& op) { return op.involves(rank); },
            [&](Operation& op) { refuse(op); });
}

class InProcessWorld::Endpoint final : public Transport {
 public:
  Endpoint(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  int rank() const override { return rank_; }
  int world_size() const override { return shared_->world_size; }

  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    // Never written to: a send only reads.
    return post(Direction::send, to, tag, const_cast<std::byte*>(data.data()), data.size(),
                deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    return post(Direction::recv, from, tag, data.data(), data.size(), deadline);
  }

  void abort(const std::string& reason) noexcept override { shared_->abort(rank_, reason); }

 private:
  Work post(Direction direction, int peer, Tag tag, std::byte* data, size_t size,
            Deadline deadline) {
    RONDO_CHECK(peer >= 0 && peer < world_size(), "rank ", peer, " of a world of ", world_size());
    RONDO_CHECK(peer != rank_, "rank ", rank_, " exchanges a message with itself");
    auto op =
        std::allocate_shared<Operation>(RecyclingAllocator<Operation>(shared_->operations), shared_,
                                        direction, rank_, peer, tag, data, size, deadline);
    shared_->post(op);
    return Work(std::move(op));
  }

  const std::shared_ptr<Shared> shared_;
  const int rank_;
};

InProcessWorld::InProcessWorld(int world_size) {
  RONDO_CHECK(world_size >= 1, "a world of ", world_size, " ranks");
  shared_ = std::make_shared<Shared>(world_size);
  for (int r = 0; r < world_size; ++r) {
    endpoints_.push_back(std::make_unique<Endpoint>(shared_, r));
  }
}

InProcessWorld::~InProcessWorld() { shared_->abort(-1, "the world has ended"); }

int InProcessWorld::world_size() const { return shared_->world_size; }

Transport& InProcessWorld::transport(int rank) {
  RONDO_CHECK(rank >= 0 && rank < world_size(), "rank ", rank, " of a world of ", world_size());
  return *endpoints_[static_cast<size_t>(rank)];
}

void InProcessWorld::lose(int rank, const std::string& reason) {
  RONDO_CHECK(rank >= 0 && rank < world_size(), "rank ", rank, " of a world of ", world_size());
  shared_->lose(rank, reason);
}

}  // namespace rondo
