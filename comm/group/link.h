// Link: what a running collective sees of the transport. It maps the ranks of a group to those of
// the world, stamps every message with the collective's tag and deadline, counts what it sends, and
// lets another thread break the collective off.
//
// Thread safety: one thread runs the collective; break_off may be called from any.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "comm/work_state.h"

namespace rondo {

class Link {
 public:
  // `members` are the world ranks of the group, in group order; it must outlive the Link.
  Link(Transport& transport, const std::vector<int>& members, int rank, Tag tag, Deadline deadline)
      : transport_(transport), members_(members), rank_(rank), tag_(tag), deadline_(deadline) {
    under_way_.reserve(16);  // more than an algorithm has at once
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  size_t bytes_sent() const { return bytes_sent_; }
  uint32_t number() const { return static_cast<uint32_t>(tag_); }
  Deadline deadline() const { return deadline_; }

  // `to` and `from` are ranks of the group. Throw what break_off was given.
  Work send(int to, std::span<const std::byte> data);
  Work recv(int from, std::span<std::byte> data);

  bool adds_on_arrival(int from) const { return transport_.adds_on_arrival(world_rank(from)); }
  Work recv_add(int from, std::span<std::byte> data, Element element);

  // Sends what this rank is about to do to the right neighbour, under a tag of its own; not
  // counted. Must come before the first send and recv. What the left neighbour says is compared
  // with it before the first wait() returns: on its way it costs no time of its own.
  void begin_check(Tag tag, const std::string& what);
  // Throws a mismatch that names both sides; at the first call after begin_check.
  void finish_check();
  // Whether that was so.
  bool disagrees() const { return disagrees_; }
  // After a send did not match what the right neighbour expects: that one sees in its check what
  // both are doing, and aborts. Waits for its words a moment; throws them when they come.
  void hear_of_mismatch();
  // Withdraws what is left of it.
  void drop_check() {
    theirs_come_ = Work();
    own_sent_ = Work();
  }

  // Work::wait, after finish_check. Algorithms wait by this alone.
  void wait(Work work) {
    finish_check();
    work.wait();
  }

  int world_rank(int rank) const { return members_[static_cast<size_t>(rank)]; }

  // The messages under way fail for this reason, and no further ones start: those throw `message`.
  void break_off(CommErrorKind kind, const std::string& cause, const std::string& message);

 private:
  template <class Post>
  Work start(Post post);

  Transport& transport_;
  const std::vector<int>& members_;
  const int rank_;
  const Tag tag_;
  const Deadline deadline_;
  size_t bytes_sent_ = 0;
  std::mutex mutex_;
  std::optional<CommError> broken_;
  std::vector<std::shared_ptr<detail::WorkState>> under_way_;

  // Cut to a fixed length: no hash says as much.
  using Record = std::array<char, 96>;
  static std::string text_of(const Record& record);
  Record own_{}, theirs_{};
  std::optional<Tag> check_tag_;
  bool disagrees_ = false;
  Work own_sent_, theirs_come_;
};

}  // namespace rondo
