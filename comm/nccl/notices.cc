#include "comm/nccl/notices.h"

#include <sstream>
#include <utility>

namespace rondo {
namespace {

// A request of a store that answers takes milliseconds.
Deadline soon() { return within(std::chrono::seconds(2)); }

constexpr size_t longest_reason = 4096;

}  // namespace

Notices::Notices(Store& store, std::string name, int rank, int size)
    : store_(store), name_(std::move(name)), rank_(rank), size_(size) {}

void Notices::announce() { store_.add(key("news"), 1, soon()); }

void Notices::abort(const std::string& reason) {
  if (store_.add(key("aborts"), 1, soon()) != 1) return;
  store_.set(key("abort"), str(rank_, " ", reason.substr(0, longest_reason)), soon());
  announce();
}

void Notices::leave(int64_t collectives) {
  store_.set(key("left", rank_), std::to_string(collectives), soon());
  announce();
}

void Notices::ask_standing() {
  store_.set(key("standing"), "asked", soon());
  announce();
}

void Notices::publish_standing(const Standing& s) {
  store_.set(key("standing", rank_), str(s.issued, " ", s.number, " ", s.what), soon());
}

bool Notices::news() {
  const auto now = store_.try_get(key("news"), soon());
  if (!now) return false;
  const std::lock_guard lock(mutex_);
  if (*now == seen_) return false;
  seen_ = *now;
  return true;
}

std::optional<CommError> Notices::aborted() {
  const auto text = store_.try_get(key("abort"), soon());
  if (!text) return std::nullopt;
  const size_t space = text->find(' ');
  const int rank = std::stoi(text->substr(0, space));
  return CommError(CommErrorKind::aborted, rank,
                   str("rank ", rank, " aborted: ", text->substr(space + 1)));
}

std::vector<Notices::Left> Notices::left() {
  std::vector<Left> all;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    if (const auto count = store_.try_get(key("left", r), soon())) {
      all.push_back({r, std::stoll(*count)});
    }
  }
  return all;
}

bool Notices::standing_asked() { return store_.try_get(key("standing"), soon()).has_value(); }

std::optional<Notices::Standing> Notices::standing_of(int rank) {
  const auto text = store_.try_get(key("standing", rank), soon());
  if (!text) return std::nullopt;
  Standing s;
  std::istringstream in(*text);
  in >> s.issued >> s.number;
  in.get();
  std::getline(in, s.what);
  return s;
}

}  // namespace rondo
