#include "engine/train/make_synchronizer.h"

#include <algorithm>
#include <cmath>

#include "engine/reduce/device_bucket_sums.h"
#include "engine/sync/async_synchronizer.h"
#include "engine/sync/step_synchronizer.h"
#include "engine/train/model/build_model.h"
#include "engine/train/training_strategy.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

class Maker {
 public:
  Maker(const Config& config, const Ranks& ranks, Session& session, size_t ballot,
        const std::function<void(const std::string&)>& say)
      : config_(config), ranks_(ranks), session_(session), ballot_(ballot), say_(say) {}

  std::unique_ptr<Synchronizer> make() {
    const ParallelConfig& p = config_.parallel;
    if (p.sync == Sync::step) return in_step();
    const std::chrono::duration<double> timeout(p.timeout_seconds);
    return std::make_unique<AsyncSynchronizer>(
        session_, ranks_,
        AsyncOptions{p.sync_every, p.max_staleness,
                     std::chrono::duration_cast<CommClock::duration>(timeout)});
  }

 private:
  std::unique_ptr<Synchronizer> in_step() {
    if (config_.parallel.deterministic == Deterministic::world_invariant) return invariant();
    if (ranks_.size() == 1) return std::make_unique<StepSynchronizer>(session_);
    const bool divided = session_.optimizer().divided();
    return std::make_unique<StepSynchronizer>(
        session_,
        sums(session_.planned_training_graph(), divided ? SumsAt::own_blocks : SumsAt::everywhere),
        ranks_.rank(), ranks_.size());
  }

  std::unique_ptr<Synchronizer> invariant() {
    const int shards = config_.parallel.virtual_shards;
    if (shards < ranks_.size()) {
      fail_input("parallel.virtual_shards is ", shards, ", fewer than the ", ranks_.size(),
                 " ranks");
    }
    return std::make_unique<StepSynchronizer>(session_, ranks_.group(), shards, ballot_);
  }

  std::unique_ptr<Sums> sums(const Graph& graph, SumsAt at) {
    const Parameters& parameters = session_.parameters();
    if (parameters.device().kind() == DeviceKind::cpu) {
      return std::make_unique<BucketSums>(*ranks_.group(), graph, parameters, bucket_bytes(),
                                          ballot_, at);
    }
    RONDO_CHECK(ranks_.sums() != nullptr, "ranks on devices need a group of devices");
    return std::make_unique<DeviceBucketSums>(*ranks_.group(), *ranks_.sums(), session_.context(),
                                              graph, parameters, bucket_bytes(), ballot_, at);
  }

  LinkSpeed link_speed() const {
    return ranks_.sums() ? measure_link(*ranks_.sums(), *ranks_.group())
                         : measure_link(*ranks_.group());
  }

  int64_t bucket_bytes() {
    if (config_.parallel.bucket_kb > 0) return config_.parallel.bucket_kb * 1024;
    const LinkSpeed link = link_speed();
    const int64_t bytes = bucket_bytes_for(link);
    say_(str("all-reduce: ", std::lround(link.latency * 1e6), " us, ",
             std::lround(link.bandwidth / 1e6), " MB/s; gradients in buckets of ", bytes / 1024,
             " KiB"));
    return bytes;
  }

  const Config& config_;
  const Ranks& ranks_;
  Session& session_;
  const size_t ballot_;
  const std::function<void(const std::string&)>& say_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_synchronizer(
    const Config& config, const Ranks& ranks, Session& session, size_t ballot,
    const std::function<void(const std::string&)>& say) {
  return Maker(config, ranks, session, ballot, say).make();
}

}  // namespace rondo
