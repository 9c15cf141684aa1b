#include "comm/mpi/mpi_transport.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "comm/mpi/mpi_channel.h"
#include "comm/mpi/poller.h"
#include "comm/work_state.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {
namespace {

using namespace mpi_transport;
using channels::Direction;
using channels::Ending;

constexpr uint16_t own_group = 0xFFFE;
constexpr uint32_t watch_number = 0;
// For what has been sent to leave.
constexpr auto farewell = std::chrono::seconds(2);

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::unique_ptr<Transport> inner, const MpiOptions& options);
  ~MpiTransport() override;

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  Work send(int to, Tag tag, std::span<const std::byte> data, Deadline deadline) override {
    // Never written to: a send only reads.
    return channel(to).post(Direction::send, tag, const_cast<std::byte*>(data.data()), data.size(),
                            deadline);
  }
  Work recv(int from, Tag tag, std::span<std::byte> data, Deadline deadline) override {
    return channel(from).post(Direction::recv, tag, data.data(), data.size(), deadline);
  }
  bool adds_on_arrival(int) const override { return true; }
  Work recv_add(int from, Tag tag, std::span<std::byte> data, Element element,
                Deadline deadline) override {
    return channel(from).post(Direction::recv, tag, data.data(), data.size(), deadline,
                              channels::landing_of(element, data));
  }
  void abort(const std::string& reason) noexcept override {
    failed_ = true;
    inner_->abort(reason);
  }

 private:
  using ChannelPtr = std::shared_ptr<MpiChannel>;
  struct DueEnd {
    Deadline when;
    ChannelPtr channel;
    Ending ending;
  };

  MpiChannel& channel(int peer);
  MpiChannel& make_channel(int peer);
  void watch_over(const ChannelPtr& channel);
  bool progress();
  void end_what_is_due();

  const Origin origin_;
  std::unique_ptr<Transport> inner_;
  const MpiOptions options_;
  std::unique_ptr<Exchange> exchange_;
  std::byte nothing_{};
  std::atomic<bool> failed_{false};  // some rank is lost, or has given up: MPI_Finalize would wait

  std::mutex mutex_;                  // of what follows
  std::vector<ChannelPtr> channels_;  // in the order in which they were needed; room for all
  // Receives that nobody answers; their errors are the news of the other ranks.
  std::vector<Work> watches_;
  std::atomic<size_t> channel_count_{0};
  std::unique_ptr<std::atomic<MpiChannel*>[]> found_;  // by rank

  std::mutex due_mutex_;
  std::vector<DueEnd> due_;
  std::atomic<bool> has_due_{false};

  Poller poller_{[this] { return progress(); }};
};

MpiTransport::MpiTransport(std::unique_ptr<Transport> inner, const MpiOptions& options)
    : inner_(std::move(inner)),
      options_(options),
      exchange_(std::make_unique<Exchange>(inner_->rank(), options.processes, options.world)),
      found_(
          std::make_unique<std::atomic<MpiChannel*>[]>(static_cast<size_t>(inner_->world_size()))) {
  if (options.processes == 0 &&
      (exchange_->size() != world_size() || exchange_->own_number() != rank())) {
    fail_input("rank ", rank(), " of ", world_size(), " is rank ", exchange_->own_number(), " of ",
               exchange_->size(), " for MPI (", mpi_library_name(), "): expected the same; the ",
               "launcher has to be that of the library");
  }
  channels_.reserve(static_cast<size_t>(world_size()));
  poller_.start();
}

MpiChannel& MpiTransport::channel(int peer) {
  RONDO_CHECK(peer >= 0 && peer < world_size(), "rank ", peer, " of a world of ", world_size());
  RONDO_CHECK(peer != rank(), "rank ", peer, " exchanges a message with itself");
  MpiChannel* const found = found_[static_cast<size_t>(peer)].load(std::memory_order_acquire);
  return found != nullptr ? *found : make_channel(peer);
}

MpiChannel& MpiTransport::make_channel(int peer) {
  std::atomic<MpiChannel*>& place = found_[static_cast<size_t>(peer)];
  const std::lock_guard lock(mutex_);
  if (MpiChannel* const found = place.load()) return *found;
  const auto made =
      std::make_shared<MpiChannel>(rank(), peer, *exchange_, poller_, *inner_, options_.grace);
  watch_over(made);
  channels_.push_back(made);
  channel_count_.store(channels_.size(), std::memory_order_release);
  place.store(made.get(), std::memory_order_release);
  return *made;
}

void MpiTransport::watch_over(const ChannelPtr& channel) {
  Work work = inner_->recv(channel->peer(), message_tag(own_group, watch_number), {&nothing_, 1},
                           Deadline::max());
  const std::shared_ptr<detail::WorkState> state = work.shared_state();
  state->on_done([this, state = state.get(), channel] {
    const auto error = state->error();
    if (!error) return;  // a rank that sends under this tag breaks the contract, and no more
    std::string cause = error->what();
    const std::string start = state->description() + ": ";
    if (cause.starts_with(start)) cause.erase(0, start.size());
    const Ending ending{error->kind(), error->peer(), cause};
    if (error->kind() != CommErrorKind::peer_lost) {
      failed_ = true;
      return channel->end(ending);
    }
    const std::lock_guard lock(due_mutex_);
    due_.push_back({within(options_.linger), channel, ending});
    has_due_ = true;
  });
  watches_.push_back(std::move(work));
}

void MpiTransport::end_what_is_due() {
  if (!has_due_) return;
  std::vector<DueEnd> now;
  {
    const std::lock_guard lock(due_mutex_);
    const auto later = std::partition(due_.begin(), due_.end(),
                                      [](const DueEnd& d) { return CommClock::now() >= d.when; });
    now.assign(due_.begin(), later);
    due_.erase(due_.begin(), later);
    has_due_ = !due_.empty();
  }
  for (const DueEnd& d : now) {
    if (!d.channel->has_finished()) failed_ = true;
    d.channel->end(d.ending);
  }
}

bool MpiTransport::progress() {
  end_what_is_due();
  bool any = false;
  try {
    for (const Chunk& c : exchange_->poll()) {
      RONDO_CHECK(c.head.from < static_cast<uint32_t>(world_size()), "a chunk from rank ",
                  c.head.from);
      channel(static_cast<int>(c.head.from)).mpi().arrived(c);
      any = true;
    }
    const size_t n = channel_count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < n; ++i) {
      MpiChannel& c = *channels_[i];
      c.mpi().look_for_room();
      if (!c.has_work()) continue;
      c.progress();
      any = true;
    }
  } catch (const Error& e) {
    failed_ = true;
    inner_->abort(e.what());
  }
  return any;
}

MpiTransport::~MpiTransport() {
  if (!origin_.here()) {
    leave_behind(watches_);
    leave_behind(channels_);
    leave_behind(inner_);
    leave_behind(exchange_);
    return;
  }
  const Deadline deadline = within(farewell);
  for (const ChannelPtr& c : channels_) c->say_bye();
  const auto all_gone = [&] {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const ChannelPtr& c) { return c->has_said_bye(); });
  };
  while ((!all_gone() || has_due_) && CommClock::now() < deadline) {
    if (!progress()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  poller_.stop();
  for (const ChannelPtr& c : channels_) c->close_pipe();
  const bool finalizes = options_.finalizes && !failed_;
  inner_.reset();
  try {
    if (finalizes) exchange_->drain();
  } catch (const Error&) {
    // Nobody waits for what is left.
  }
  if (!finalizes) exchange_->forget();
  exchange_.reset();
  if (finalizes) finalize_mpi();
}

}  // namespace

bool is_started_for_mpi() {
  return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         std::getenv("PMI_RANK") != nullptr;
}

std::string mpi_library_name() { return library_name(); }

std::unique_ptr<Transport> make_mpi_transport(std::unique_ptr<Transport> inner,
                                              const MpiOptions& options) {
  start_mpi();
  return std::make_unique<MpiTransport>(std::move(inner), options);
}

}  // namespace rondo
