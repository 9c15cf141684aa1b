#include "engine/sync/local_synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

LocalSynchronizer::LocalSynchronizer(Session& session, const Ranks& ranks, int every,
                                     const OuterStep& outer)
    : SessionSynchronizer(session), ranks_(ranks), every_(every), outer_(outer), last_(session) {
  RONDO_CHECK(every >= 1, "an average every ", every, " updates");
  if (outer.momentum > 0) momentum_.resize(last_.weights());
}

DataShare LocalSynchronizer::share() const {
  DataShare s;
  s.stride = ranks_.size();
  s.index = ranks_.rank();
  return s;
}

void LocalSynchronizer::accumulate(const BatchView& batch, int, bool) {
  session().enqueue(batch);
  pending_ += batch.layout->extent.sequences;
}

bool LocalSynchronizer::apply(const Update& update) {
  if (update.failed || pending_ == 0) return false;
  session().enqueue_update();
  pending_ = 0;
  applied_ = true;
  return true;
}

bool LocalSynchronizer::meet(const Update& update) {
  if (applied_) {
    const StepResult& r = session().last_result();
    if (!r.skipped) utterances_ += static_cast<double>(r.sequences - r.infeasible);
    applied_ = false;
  }
  ++updates_;
  if (!update.failed && !update.must_meet && updates_ < every_) return false;
  const auto begin = CommClock::now();
  std::vector<double> message(update.ballot.begin(), update.ballot.end());
  message.push_back(update.failed ? 1 : 0);
  message.push_back(utterances_);
  ranks_.sum(message);
  const double of_all = message.back();
  message.pop_back();
  if (message.back() != 0) throw UpdateWithdrawn();
  std::copy_n(message.begin(), update.ballot.size(), update.ballot.begin());
  if (of_all > 0) average(of_all);
  const double seconds = std::chrono::duration<double>(CommClock::now() - begin).count();
  times_.communication += seconds;
  times_.exposed += seconds;
  staleness_ = updates_;
  updates_ = 0;
  utterances_ = 0;
  return true;
}

void LocalSynchronizer::average(double utterances_of_all) {
  if (ranks_.size() == 1 && outer_.none()) {
    last_.take();
    return;
  }
  divergence_ = last_.average(ranks_, utterances_ / utterances_of_all,
                              [this](std::span<float> difference) { step_outwards(difference); });
}

void LocalSynchronizer::step_outwards(std::span<float> difference) {
  if (outer_.none()) return;
  for (size_t i = 0; i < difference.size(); ++i) {
    const double d = difference[i];
    double v = d;
    if (outer_.momentum > 0) {
      v += outer_.momentum * static_cast<double>(momentum_[i]);
      momentum_[i] = static_cast<float>(v);
    }
    difference[i] = static_cast<float>(outer_.rate * (d + outer_.momentum * v));
  }
}

bool LocalSynchronizer::roll_back() {
  last_.put_back();
  updates_ = 0;
  utterances_ = 0;
  return true;
}

std::vector<Optimizer::Slot> LocalSynchronizer::state() {
  if (momentum_.empty()) return {};
  const auto n = static_cast<int64_t>(momentum_.size());
  return {{"outer_momentum", TensorView(momentum_.data(), DType::f32, {n})}};
}

std::vector<LogValue> LocalSynchronizer::log_values() const {
  return {{"staleness", staleness_}, {"divergence", divergence_}};
}

}  // namespace rondo
