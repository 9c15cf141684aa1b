#include "comm/group/link.h"

#include <algorithm>
#include <utility>

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

Work Link::recv_add(int from, std::span<std::byte> data, Element element) {
  return start(
      [&] { return transport_.recv_add(world_rank(from), tag_, data, element, deadline_); });
}

std::string Link::text_of(const Record& record) {
  const std::string_view text(record.data(), record.size());
  return std::string(text.substr(0, text.find_last_not_of('\0') + 1));
}

void Link::begin_check(Tag tag, const std::string& what) {
  check_tag_ = tag;
  std::copy_n(what.begin(), std::min(what.size(), own_.size()), own_.begin());
  const int right = world_rank((rank_ + 1) % size());
  const int left = world_rank((rank_ + size() - 1) % size());
  theirs_come_ = start([&] {
    return transport_.recv(left, tag, std::as_writable_bytes(std::span(theirs_)), deadline_);
  });
  own_sent_ =
      start([&] { return transport_.send(right, tag, std::as_bytes(std::span(own_)), deadline_); });
}

void Link::finish_check() {
  if (!theirs_come_) return;
  Work sent = std::exchange(own_sent_, Work());
  std::exchange(theirs_come_, Work()).wait();
  sent.wait();
  if (theirs_ == own_) return;
  disagrees_ = true;
  const int left = world_rank((rank_ + size() - 1) % size());
  throw CommError(CommErrorKind::mismatch, left,
                  str("ranks disagree on collective ", number(), ": rank ", left, " calls ",
                      text_of(theirs_), ", rank ", world_rank(rank_), " calls ", text_of(own_)));
}

void Link::hear_of_mismatch() {
  if (!check_tag_) return;
  // Nothing comes under this tag any more: only an abort ends it early.
  std::byte nothing{};
  Work work = start([&] {
    return transport_.recv(world_rank((rank_ + 1) % size()), *check_tag_, {&nothing, 1},
                           std::min(deadline_, within(std::chrono::seconds(2))));
  });
  try {
    work.wait();
  } catch (const CommError& e) {
    if (e.kind() != CommErrorKind::timeout) throw;
  }
}

void Link::break_off(CommErrorKind kind, const std::string& cause, const std::string& message) {
  std::lock_guard lock(mutex_);
  if (broken_) return;
  broken_.emplace(kind, -1, message);
  for (const auto& state : under_way_) state->withdraw(kind, cause);
}

}  // namespace rondo
