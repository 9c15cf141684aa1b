#include "tools/ranks/elastic_member.h"

#include <algorithm>
#include <thread>

#include "engine/io/signals.h"
#include "kernels/base/error.h"
#include "tools/ranks/rank_world.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;

constexpr auto store_timeout = std::chrono::seconds(30);
constexpr auto question_pause = milliseconds(25);
// The ranks of a generation are all there when it begins: they need no longer to connect, unless
// one is lost just then.
constexpr auto longest_meeting = std::chrono::seconds(20);

// Where the ranks of one generation find each other: waiting there ends when the launcher says that
// one of them is lost.
class GenerationStore final : public Store {
 public:
  GenerationStore(Store& store, int64_t generation)
      : store_(store), broken_key_(elastic::broken_key(generation)) {}

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    store_.set(key, value, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    for (;;) {
      if (auto value = store_.try_get(key, deadline)) return std::move(*value);
      if (const auto why = store_.try_get(broken_key_, deadline)) {
        throw CommError(CommErrorKind::peer_lost, -1, *why);
      }
      if (CommClock::now() >= deadline) {
        throw CommError(CommErrorKind::timeout, -1, str("'", key, "' is not in the store in time"));
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return store_.try_get(key, deadline);
  }
  int64_t add(const std::string& key, int64_t delta, Deadline deadline) override {
    return store_.add(key, delta, deadline);
  }
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    for (const std::string& key : keys) get(key, deadline);
  }

 private:
  Store& store_;
  const std::string broken_key_;
};

}  // namespace

ElasticMember::ElasticMember(const RankPlace& place, RankTransport transport,
                             CommClock::duration patience)
    : place_(place),
      transport_(transport),
      patience_(patience),
      store_(make_tcp_store(place.master_address, place.master_port, place.token,
                            within(store_timeout))) {}

std::optional<elastic::Seat> ElasticMember::take_seat(const elastic::Progress& progress,
                                                      const std::string& why) {
  const double seconds = std::chrono::duration<double>(patience_).count();
  const elastic::Arrival arrival{++round_, progress, seconds, why};
  store_->set(elastic::arrival_key(place_.attempt), elastic::encode(arrival),
              within(store_timeout));
  store_->add(elastic::arrivals_key, 1, within(store_timeout));
  const std::string key = elastic::seat_key(place_.attempt, round_);
  for (auto pause = milliseconds(1);; pause = std::min(2 * pause, milliseconds(20))) {
    if (const auto seat = store_->try_get(key, within(store_timeout))) {
      return elastic::parse_seat(*seat);
    }
    if (store_->try_get(elastic::over_key, within(store_timeout))) {
      throw CommError(CommErrorKind::aborted, -1, why.empty() ? "the run has ended" : why);
    }
    if (stop_requested() && progress.step < 0) return std::nullopt;
    std::this_thread::sleep_for(pause);
  }
}

std::unique_ptr<Transport> ElasticMember::connect(const elastic::Seat& seat) {
  GenerationStore store(*store_, seat.generation);
  TcpOptions o;
  o.rank = seat.rank;
  o.world_size = seat.size;
  o.store = &store;
  o.rendezvous_id = str("generation-", seat.generation);
  o.token = place_.token;
  o.bind_address = place_.master_address;
  o.timeout = std::min<CommClock::duration>(patience_, longest_meeting);
  // Who is lost on the way is a stranger that leaves: the launcher tells of it.
  o.log = [](const std::string&) {};
  return connect_ranks(o, transport_);
}

bool ElasticMember::newcomers_wait(const elastic::Seat& seat) {
  if (CommClock::now() < next_question_) return false;
  next_question_ = within(question_pause);
  try {
    return store_->try_get(elastic::newcomers_key(seat.generation), within(store_timeout))
        .has_value();
  } catch (const CommError&) {
    return false;  // the launcher is gone: a signal comes, and the ranks save together
  }
}

}  // namespace rondo
