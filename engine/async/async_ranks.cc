#include "engine/async/async_ranks.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "engine/async/rank_average.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr uint32_t weights_tag = 0x6173796e;

struct Header {
  double age = 0;
  uint32_t last = 0;  // nothing follows
  uint32_t unused = 0;
};

}  // namespace

// A message: the header, what is known of each rank, the lasting votes, the weights.
struct AsyncRanks::Neighbour {
  int rank = 0;
  std::vector<std::byte> out, in;
  Work sending, receiving;
  CommClock::time_point sent_at = CommClock::now();
  bool news = false;  // since then
  bool got_last = false;
};

AsyncRanks::AsyncRanks(RankModel& model, const Ranks& ranks, size_t lasting,
                       const AsyncOptions& options)
    : model_(model),
      ranks_(ranks),
      lasting_votes_(lasting),
      options_(options),
      weights_(model.parameters().weights(), *model.context().device, "weights that ranks average"),
      known_(static_cast<size_t>(ranks.size())),
      lasting_(lasting) {
  const int n = ranks.size();
  std::vector<int> around;
  for (int r : {(ranks.rank() + 1) % n, (ranks.rank() + n - 1) % n}) {
    if (r != ranks.rank() && std::find(around.begin(), around.end(), r) == around.end()) {
      around.push_back(r);
    }
  }
  for (int r : around) {
    neighbours_.push_back(std::make_unique<Neighbour>());
    neighbours_.back()->rank = r;
  }
}

AsyncRanks::~AsyncRanks() = default;

DataShare AsyncRanks::share() const {
  DataShare s;
  s.stride = ranks_.size();
  s.index = ranks_.rank();
  return s;
}

void AsyncRanks::enqueue(std::span<const BatchView> parts) {
  model_.enqueue(parts, false);
  for (const BatchView& batch : parts) pending_ += batch.layout->extent.sequences;
}

bool AsyncRanks::enqueue_update(const Votes& votes) {
  if (votes.failed || pending_ == 0) return false;
  model_.enqueue_update();
  pending_ = 0;
  applied_ = true;
  return true;
}

void AsyncRanks::meet(const Votes& votes) {
  if (applied_ && !model_.last_result().skipped) age_ += 1;
  applied_ = false;
  if (!votes.failed) ++own().updates;
  note(votes);
  fetched_ = false;
  exchange(++since_sent_ >= options_.every);
  for (size_t i = 0; i < lasting_votes_; ++i) {
    votes.ballot[i] = std::max(votes.ballot[i], lasting_[i]);
  }
  if (failed()) {
    close();
    throw UpdateWithdrawn();
  }
}

void AsyncRanks::finish(const Votes& votes) {
  note(votes);
  fetched_ = false;
  close();
  if (failed()) throw UpdateWithdrawn();
  divergence_ = average_over_ranks(model_, ranks_);
}

void AsyncRanks::note(const Votes& votes) {
  for (size_t i = 0; i < lasting_votes_; ++i) {
    if (votes.ballot[i] > lasting_[i]) {
      lasting_[i] = votes.ballot[i];
      tell_all();
    }
  }
  if (votes.failed && !own().failed) {
    own().failed = 1;
    tell_all();
  }
}

void AsyncRanks::tell_all() {
  for (auto& n : neighbours_) n->news = true;
}

size_t AsyncRanks::message_bytes() const {
  return sizeof(Header) + known_.size() * sizeof(Progress) + lasting_.size() * sizeof(double) +
         weights_.size() * sizeof(float);
}

// Takes what has arrived, and sends to those who have taken what was sent before. Never waits.
void AsyncRanks::exchange(bool weights_are_due) {
  if (weights_are_due) since_sent_ = 0;
  for (auto& n : neighbours_) receive(*n);
  for (auto& n : neighbours_) {
    if (!is_free(*n)) continue;
    const bool silent = CommClock::now() - n->sent_at > options_.timeout / 4;
    if (weights_are_due || n->news || silent) send(*n, Message::weights);
  }
}

void AsyncRanks::receive(Neighbour& from) {
  while (!from.got_last) {
    if (from.receiving) {
      if (!from.receiving.poll()) return;
      from.receiving.wait();
      merge(from);
      if (from.got_last) return;
    }
    from.in.resize(message_bytes());
    from.receiving =
        ranks_.group()->recv(from.rank, weights_tag, from.in, within(options_.timeout));
  }
}

bool AsyncRanks::is_free(Neighbour& to) {
  if (!to.sending) return true;
  if (!to.sending.poll()) return false;
  to.sending.wait();
  to.sending = {};
  return true;
}

void AsyncRanks::send(Neighbour& to, Message kind) {
  to.out.resize(message_bytes());
  std::byte* at = to.out.data();
  const auto append = [&at](const void* data, size_t bytes) {
    copy_bytes(at, data, bytes);
    at += bytes;
  };
  const Header header{age_, kind == Message::last ? 1u : 0u, 0};
  append(&header, sizeof header);
  append(known_.data(), known_.size() * sizeof(Progress));
  append(lasting_.data(), lasting_.size() * sizeof(double));
  append(weights().data(), weights_.size() * sizeof(float));
  to.sending = ranks_.group()->send(to.rank, weights_tag, to.out, within(options_.timeout));
  to.sent_at = CommClock::now();
  to.news = false;
}

void AsyncRanks::merge(Neighbour& from) {
  const std::byte* at = from.in.data();
  const auto read = [&at](void* data, size_t bytes) {
    copy_bytes(data, at, bytes);
    at += bytes;
  };
  Header header;
  std::vector<Progress> known(known_.size());
  std::vector<double> lasting(lasting_.size());
  read(&header, sizeof header);
  read(known.data(), known.size() * sizeof(Progress));
  read(lasting.data(), lasting.size() * sizeof(double));
  for (size_t r = 0; r < known.size(); ++r) {
    Progress& mine = known_[r];
    const Progress& theirs = known[r];
    if (theirs.done > mine.done || theirs.failed > mine.failed) tell_all();
    mine.updates = std::max(mine.updates, theirs.updates);
    mine.done = std::max(mine.done, theirs.done);
    mine.failed = std::max(mine.failed, theirs.failed);
  }
  for (size_t i = 0; i < lasting.size(); ++i) {
    if (lasting[i] > lasting_[i]) tell_all();
    lasting_[i] = std::max(lasting_[i], lasting[i]);
  }
  from.got_last = header.last != 0;
  average(header.age, reinterpret_cast<const float*>(at));
}

std::span<float> AsyncRanks::weights() {
  if (!fetched_) weights_.fetch(*model_.context().stream);
  fetched_ = true;
  return weights_.values();
}

void AsyncRanks::average(double age, const float* theirs) {
  const double ahead = age_ - age;
  if (ahead > options_.max_staleness) {
    ++dropped_;
    return;
  }
  const bool take_over = -ahead > options_.max_staleness;
  const std::span<float> mine = weights();
  double apart = 0, norm = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    const double a = mine[i], b = theirs[i];
    apart += (a - b) * (a - b);
    norm += a * a;
    mine[i] = take_over ? theirs[i] : static_cast<float>(0.5 * (a + b));
  }
  weights_.store(*model_.context().stream);
  age_ = take_over ? age : 0.5 * (age_ + age);
  ++(take_over ? taken_over_ : averaged_);
  staleness_ = ahead;
  divergence_ = norm > 0 ? std::sqrt(apart / norm) : 0;
}

bool AsyncRanks::all_done() const {
  return std::all_of(known_.begin(), known_.end(), [](const Progress& p) { return p.done != 0; });
}

bool AsyncRanks::failed() const {
  return std::any_of(known_.begin(), known_.end(), [](const Progress& p) { return p.failed != 0; });
}

// Until all ranks are done; what neighbours send meanwhile is averaged as before. Then nothing is
// on its way any more.
void AsyncRanks::close() {
  constexpr auto pause = std::chrono::milliseconds(1);
  own().done = 1;
  tell_all();
  for (exchange(false); !all_done(); exchange(false)) std::this_thread::sleep_for(pause);
  size_t open = neighbours_.size();
  std::vector<char> sent(neighbours_.size());
  while (open > 0) {
    open = 0;
    for (size_t i = 0; i < neighbours_.size(); ++i) {
      Neighbour& n = *neighbours_[i];
      receive(n);
      if (!is_free(n)) {
        ++open;
      } else if (!sent[i]) {
        send(n, Message::last);
        sent[i] = 1;
        ++open;
      } else if (!n.got_last) {
        ++open;
      }
    }
    if (open > 0) std::this_thread::sleep_for(pause);
  }
}

int64_t AsyncRanks::slowest_updates() const {
  return std::min_element(known_.begin(), known_.end(),
                          [](const auto& a, const auto& b) { return a.updates < b.updates; })
      ->updates;
}

std::vector<std::pair<const char*, double>> AsyncRanks::log_values() const {
  return {{"staleness", staleness_},
          {"divergence", divergence_},
          {"averaged", static_cast<double>(averaged_)},
          {"taken_over", static_cast<double>(taken_over_)},
          {"dropped", static_cast<double>(dropped_)}};
}

}  // namespace rondo
