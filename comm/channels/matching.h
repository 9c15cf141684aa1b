// Which send belongs to which recv of the other rank: in the order in which they were posted, per
// tag. The receiver announces every recv, the sender matches announcements with its sends; so sizes
// are compared before any byte moves. Internal to comm. Guarded by the channel's lock.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/channels/operation.h"

namespace rondo::channels {

// The announcement of recv `number` of the other side.
struct Announcement {
  uint64_t number = 0, size = 0;
};

// Op: Operation, or what a channel makes of it.
template <class Op>
class Matching {
 public:
  using OpPtr = std::shared_ptr<Op>;

  // The announcement that this send meets; without one it waits.
  std::optional<Announcement> offer(const OpPtr& send) {
    const auto met = announced_.find(send->tag);
    if (met == announced_.end()) {
      sends_[send->tag].push_back(send);
      return std::nullopt;
    }
    return pop(announced_, met);
  }
  // The send that this announcement meets; without one (null) it waits.
  OpPtr announced(Tag tag, const Announcement& announcement) {
    const auto waiting = sends_.find(tag);
    if (waiting != sends_.end()) return pop(sends_, waiting);
    announced_[tag].push_back(announcement);
    return nullptr;
  }
  // A send that met its announcement and could not be begun: it waits, to fail with the rest.
  void put_back(const OpPtr& send) { sends_[send->tag].push_front(send); }
  // Whether the announcement waited; if not, its send is on its way.
  bool forget(Tag tag, uint64_t number) {
    return erase_if(announced_, tag, [&](const Announcement& a) { return a.number == number; });
  }
  // Whether the send waited.
  bool take_send(const Operation& send) {
    return erase_if(sends_, send.tag, [&](const OpPtr& op) { return op.get() == &send; });
  }

  // Gives the recv its number.
  void expect(const OpPtr& recv) {
    recv->number = next_number_++;
    recvs_[recv->number] = recv;
  }
  // Null when it is unknown.
  Op* recv(uint64_t number) const {
    const auto found = recvs_.find(number);
    return found == recvs_.end() ? nullptr : found->second.get();
  }
  OpPtr take_recv(uint64_t number) {
    const auto found = recvs_.find(number);
    if (found == recvs_.end()) return nullptr;
    OpPtr op = std::move(found->second);
    recvs_.erase(found);
    return op;
  }

  // Forgets everything.
  std::vector<OpPtr> take_all() {
    std::vector<OpPtr> all;
    for (auto& [tag, queue] : std::exchange(sends_, {})) {
      all.insert(all.end(), queue.begin(), queue.end());
    }
    for (auto& [number, op] : std::exchange(recvs_, {})) all.push_back(op);
    announced_.clear();
    return all;
  }
  bool idle() const { return sends_.empty() && recvs_.empty(); }

 private:
  template <class Queues>
  static auto pop(Queues& queues, typename Queues::iterator at) {
    auto first = std::move(at->second.front());
    at->second.pop_front();
    if (at->second.empty()) queues.erase(at);
    return first;
  }
  template <class Queues, class Is>
  static bool erase_if(Queues& queues, Tag tag, Is is) {
    const auto at = queues.find(tag);
    if (at == queues.end()) return false;
    const size_t erased = std::erase_if(at->second, is);
    if (at->second.empty()) queues.erase(at);
    return erased > 0;
  }

  std::map<Tag, std::deque<OpPtr>> sends_;             // no announcement yet
  std::map<Tag, std::deque<Announcement>> announced_;  // no send yet
  std::map<uint64_t, OpPtr> recvs_;
  uint64_t next_number_ = 0;
};

}  // namespace rondo::channels
