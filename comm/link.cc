#include "comm/link.h"

namespace rondo {

template <class Post>
Work Link::start(Post post) {
  std::lock_guard lock(mutex_);
  if (broken_) throw *broken_;
  std::erase_if(under_way_, [](const auto& state) { return state->done(); });
  Work work = post();
  under_way_.push_back(work.shared_state());
  return work;
}

Work Link::send(int to, std::span<const std::byte> data) {
  bytes_sent_ += data.size();
  return start(
      [&] { return transport_.send(members_[static_cast<size_t>(to)], tag_, data, deadline_); });
}

Work Link::recv(int from, std::span<std::byte> data) {
  return start(
      [&] { return transport_.recv(members_[static_cast<size_t>(from)], tag_, data, deadline_); });
}

std::optional<std::string> Link::compare(Tag tag, const std::string& own) {
  std::string theirs(own.size(), '\0');
  const int right = world_rank((rank_ + 1) % size());
  const int left = world_rank((rank_ + size() - 1) % size());
  Work recv = start([&] {
    return transport_.recv(left, tag, std::as_writable_bytes(std::span(theirs)), deadline_);
  });
  Work send =
      start([&] { return transport_.send(right, tag, std::as_bytes(std::span(own)), deadline_); });
  recv.wait();
  send.wait();
  if (theirs == own) return std::nullopt;
  return theirs;
}

void Link::break_off(CommErrorKind kind, const std::string& cause, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (broken_) return;
  broken_.emplace(kind, -1, message);
  for (const auto& state : under_way_) state->withdraw(kind, cause);
}

}  // namespace rondo
