#include "comm/shared/shared_transport.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "comm/shared/shared_channel.h"
#include "comm/shared/waiting.h"
#include "comm/work_state.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

using namespace shared_transport;
using channels::Direction;

constexpr uint16_t own_group = 0xFFFF;
enum Number : uint32_t { cards, answers, watch };
// With many ranks the streams are shorter.
constexpr size_t longest_inbox = size_t{32} << 20, shortest_stream = size_t{64} << 10;
constexpr size_t of_machine = size_t{4} << 30;

size_t stream_bytes(size_t wanted, size_t streams, int local_ranks) {
  const size_t inbox = std::min(longest_inbox, of_machine / static_cast<size_t>(local_ranks));
  const size_t share = std::max(inbox / (streams + 1) / 4096 * 4096, shortest_stream);
  return std::min(wanted, share);
}

class SharedTransport final : public Transport {
 public:
  SharedTransport(std::unique_ptr<Transport> inner, const SharedTransportOptions& options);
  ~SharedTransport() override;

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  int machine_of(int rank) const override {
    return machines_.empty() ? 0 : machines_.at(static_cast<size_t>(rank));
  }

  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    SharedChannel* const c = channel(to);
    if (c == nullptr) return inner_->send(to, tag, data, deadline);
    // Never written to: a send only reads.
    return c->post(Direction::send, tag, const_cast<std::byte*>(data.data()), data.size(),
                   deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    SharedChannel* const c = channel(from);
    if (c == nullptr) return inner_->recv(from, tag, data, deadline);
    return c->post(Direction::recv, tag, data.data(), data.size(), deadline);
  }
  bool adds_on_arrival(int from) const override {
    return channel(from) != nullptr || inner_->adds_on_arrival(from);
  }
  Work recv_add(int from, Tag tag, std::span<std::byte> data, Element element,
                Deadline deadline) override {
    SharedChannel* const c = channel(from);
    if (c == nullptr) return inner_->recv_add(from, tag, data, element, deadline);
    return c->post(Direction::recv, tag, data.data(), data.size(), deadline,
                   channels::landing_of(element, data));
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }

  bool shares_with(int peer) const {
    return peer >= 0 && peer < world_size() && channels_[static_cast<size_t>(peer)] != nullptr;
  }

 private:
  // This rank's `size` bytes to each other rank, and theirs, by rank.
  template <class T>
  std::vector<T> exchange(Number number, const std::vector<T>& mine, Deadline deadline);
  std::vector<std::shared_ptr<const Inbox>> open(const std::vector<Card>& theirs,
                                                 std::vector<std::string>& why) const;
  void connect(const SharedTransportOptions& options);
  void watch_over(int peer);
  SharedChannel* channel(int peer) const {
    if (peer < 0 || peer >= world_size()) return nullptr;  // inner_ complains
    return channels_[static_cast<size_t>(peer)].get();
  }

  const Origin origin_;
  std::unique_ptr<Transport> inner_;
  const std::vector<int> machines_;
  const std::vector<int> peers_;  // with whom memory may be shared
  std::shared_ptr<const Inbox> inbox_;
  std::shared_ptr<Waiting> waiting_;
  std::vector<std::shared_ptr<SharedChannel>> channels_;  // by rank; null: over inner_
  // Receives that nobody answers; their errors are the news of the other ranks.
  std::vector<Work> watches_;
  std::byte nothing_{};
};

SharedTransport::SharedTransport(std::unique_ptr<Transport> inner,
                                 const SharedTransportOptions& options)
    : inner_(std::move(inner)),
      machines_(options.machines),
      peers_(options.first_peers(inner_->rank(), inner_->world_size())),
      channels_(static_cast<size_t>(inner_->world_size())) {
  RONDO_CHECK(machines_.empty() || machines_.size() == channels_.size(), "machines of ",
              machines_.size(), " ranks in a world of ", world_size());
  RONDO_CHECK(options.stream_bytes >= 4096 && options.stream_bytes % 4096 == 0, "streams of ",
              options.stream_bytes, " bytes, expected a multiple of 4096");
  if (world_size() > 1) connect(options);
}

template <class T>
std::vector<T> SharedTransport::exchange(Number number, const std::vector<T>& mine,
                                         Deadline deadline) {
  std::vector<T> theirs(mine.size());
  std::vector<Work> works;
  const Tag tag = message_tag(own_group, number);
  for (const int r : peers_) {
    const auto at = static_cast<size_t>(r);
    works.push_back(
        inner_->recv(r, tag, std::as_writable_bytes(std::span(&theirs[at], 1)), deadline));
    works.push_back(inner_->send(r, tag, std::as_bytes(std::span(&mine[at], 1)), deadline));
  }
  for (Work& w : works) w.wait();
  return theirs;
}

// The inboxes of the others, by rank; null with the reason where there is none.
std::vector<std::shared_ptr<const Inbox>> SharedTransport::open(
    const std::vector<Card>& theirs, std::vector<std::string>& why) const {
  std::vector<std::shared_ptr<const Inbox>> opened(theirs.size());
  for (const int peer : peers_) {
    const auto r = static_cast<size_t>(peer);
    try {
      if (!inbox_) throw Error("this rank shares no memory");
      opened[r] = std::make_shared<const Inbox>(theirs[r]);
    } catch (const Error& e) {
      why[r] = e.what();
    }
  }
  return opened;
}

void SharedTransport::connect(const SharedTransportOptions& options) {
  const Deadline deadline = within(options.timeout);
  const auto ranks = static_cast<size_t>(world_size());
  std::vector<std::string> why(ranks);
  std::optional<Inbox> own;
  std::string own_trouble;
  try {
    if (options.share) {
      const int local = options.local_ranks > 0 ? options.local_ranks : world_size();
      own.emplace(static_cast<int>(peers_.size()),
                  stream_bytes(options.stream_bytes, peers_.size(), local));
    }
  } catch (const Error& e) {
    own_trouble = e.what();
  }
  std::vector<Card> mine_for(ranks, own ? own->card() : Card());
  for (size_t i = 0; i < peers_.size(); ++i) {
    mine_for[static_cast<size_t>(peers_[i])].stream = static_cast<int32_t>(i);
  }
  const std::vector<Card> theirs = exchange(cards, mine_for, deadline);
  std::shared_ptr<Inbox> inbox;
  if (own) inbox_ = inbox = std::make_shared<Inbox>(std::move(*own));
  const auto opened = open(theirs, why);
  std::vector<uint8_t> mine(ranks);
  for (size_t r = 0; r < ranks; ++r) mine[r] = opened[r] != nullptr;
  const std::vector<uint8_t> agreed = exchange(answers, mine, deadline);
  if (inbox) {
    inbox->close_file();
    waiting_ = std::make_shared<Waiting>(inbox_);
  }
  std::vector<std::shared_ptr<channels::Channel>> shared;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const int peer = peers_[i];
    const auto r = static_cast<size_t>(peer);
    if (!mine[r] || agreed[r] != 1) {
      if (!options.required) continue;
      fail_input("rank ", rank(), " shares no memory with rank ", peer, ": ",
                 !own_trouble.empty() ? own_trouble
                 : mine[r]            ? "it cannot reach this rank's"
                                      : why[r]);
    }
    const MemoryEnds ends{inbox_->stream(static_cast<int>(i)), opened[r]->stream(theirs[r].stream),
                          inbox_, opened[r]};
    channels_[r] =
        std::make_shared<SharedChannel>(rank(), peer, ends, waiting_, *inner_, options.grace);
    shared.push_back(channels_[r]);
  }
  if (shared.empty()) return;
  waiting_->start(std::move(shared));
  for (const int r : peers_) {
    if (channel(r) != nullptr) watch_over(r);
  }
}

void SharedTransport::watch_over(int peer) {
  Work work = inner_->recv(peer, message_tag(own_group, watch), {&nothing_, 1}, Deadline::max());
  const std::shared_ptr<detail::WorkState> state = work.shared_state();
  state->on_done([state = state.get(), c = channels_[static_cast<size_t>(peer)]] {
    const auto error = state->error();
    if (!error) return;  // a rank that sends under this tag breaks the contract, and no more
    std::string cause = error->what();
    const std::string start = state->description() + ": ";
    if (cause.starts_with(start)) cause.erase(0, start.size());
    c->end({error->kind(), error->peer(), cause});
  });
  watches_.push_back(std::move(work));
}

SharedTransport::~SharedTransport() {
  if (!origin_.here()) {
    leave_behind(watches_);
    leave_behind(channels_);
    leave_behind(waiting_);
    leave_behind(inner_);
    return;
  }
  for (const auto& c : channels_) {
    if (c) c->end({CommErrorKind::aborted, -1, "the transport was destroyed"});
  }
  if (waiting_) waiting_->stop();
  inner_.reset();
}

}  // namespace

std::unique_ptr<Transport> make_shared_transport(std::unique_ptr<Transport> inner,
                                                 const SharedTransportOptions& options) {
  return std::make_unique<SharedTransport>(std::move(inner), options);
}

bool shares_memory_with(const Transport& transport, int rank) {
  const auto* const shared = dynamic_cast<const SharedTransport*>(&transport);
  return shared != nullptr && shared->shares_with(rank);
}

}  // namespace rondo
