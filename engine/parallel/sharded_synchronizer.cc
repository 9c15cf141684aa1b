#include "engine/parallel/sharded_synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

int64_t ShardLayout::part() const {
  const int64_t blocks = (flat_size_ + block_elements - 1) / block_elements;
  return (blocks + ranks_ - 1) / ranks_ * block_elements;
}

// Leaves the sums of this rank's part in its place among `parts_`; the session's gradients are of
// no use afterwards.
class ShardedSynchronizer::Reducer final : public RankReducer {
 public:
  Reducer(ShardedSynchronizer& owner, size_t ballot)
      : RankReducer(*owner.ranks_.group(), ballot), owner_(owner) {}

 protected:
  void sum_gradients(TensorView gradients) override {
    const auto begin = CommClock::now();
    std::vector<float>& parts = owner_.parts_;
    const int64_t part = owner_.layout_.part();
    for (int rank = 0; rank < group().size(); ++rank) {
      float* const to = parts.data() + rank * part;
      const float* const from = gradients.as<float>();
      owner_.layout_.for_blocks(rank, [&](int64_t flat, int64_t place, int64_t n) {
        std::copy_n(from + flat, n, to + place);
      });
    }
    group()
        .reduce_scatter(TensorView(parts.data(), DType::f32, {part * group().size()}),
                        Reduction::sum)
        .wait();
    add_exposed(begin);
  }

 public:
  void add_exposed(CommClock::time_point begin) {
    const double seconds = std::chrono::duration<double>(CommClock::now() - begin).count();
    times_.communication += seconds;
    times_.exposed += seconds;
  }

 private:
  ShardedSynchronizer& owner_;
};

ShardedSynchronizer::ShardedSynchronizer(Session& session, const Ranks& ranks, size_t ballot)
    : Synchronizer(session),
      ranks_(ranks),
      layout_(session.parameters().flat_size(), ranks.size()),
      weights_(static_cast<size_t>(layout_.part())),
      parts_(weights_.size() * static_cast<size_t>(ranks.size())),
      reducer_(std::make_unique<Reducer>(*this, ballot)) {
  RONDO_CHECK(session.parameters().device().host_memory(), "weights must be in host memory");
  const int64_t part = layout_.part();
  float* const gradients = parts_.data() + ranks.rank() * part;
  session.optimizer().set_part(TensorView(weights_.data(), DType::f32, {part}),
                               TensorView(gradients, DType::f32, {part}));
  session.optimizer().set_sum_of_squares([this] { return sum_of_squares(); });
  session.set_reducer(reducer_.get());
}

ShardedSynchronizer::~ShardedSynchronizer() {
  session().set_reducer(nullptr);
  session().optimizer().set_sum_of_squares({});
}

DataShare ShardedSynchronizer::share() const {
  DataShare s;
  s.own = {ranks_.rank(), ranks_.rank() + 1};
  s.shards = ranks_.size();
  return s;
}

bool ShardedSynchronizer::apply(const Update& update) {
  const std::span<double> ballot = reducer_->ballot();
  std::copy(update.ballot.begin(), update.ballot.end(), ballot.begin());
  if (update.failed) {
    reducer_->withdraw(session().parameters().gradients(), Session::count_sums);
  }
  session().enqueue_update();
  std::copy(ballot.begin(), ballot.end(), update.ballot.begin());
  const auto begin = CommClock::now();
  gather_weights(weights_.data());
  reducer_->add_exposed(begin);
  return true;
}

void ShardedSynchronizer::take_own(const float* flat, float* part) const {
  layout_.for_blocks(ranks_.rank(), [&](int64_t at, int64_t place, int64_t n) {
    std::copy_n(flat + at, n, part + place);
  });
}

void ShardedSynchronizer::gather_weights(const float* part) {
  const int64_t size = layout_.part();
  std::copy_n(part, size, parts_.data() + ranks_.rank() * size);
  ranks_.group()->all_gather(TensorView(parts_.data(), DType::f32, {size * ranks_.size()})).wait();
  auto* const flat = session().parameters().weights().as<float>();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const float* const from = parts_.data() + rank * size;
    layout_.for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
      std::copy_n(from + place, n, flat + at);
    });
  }
}

double ShardedSynchronizer::sum_of_squares() {
  const float* const own = parts_.data() + ranks_.rank() * layout_.part();
  double sum = 0;
  layout_.for_blocks(ranks_.rank(), [&](int64_t, int64_t place, int64_t n) {
    double of_block = 0;
    for (int64_t i = place; i < place + n; ++i) {
      of_block += static_cast<double>(own[i]) * static_cast<double>(own[i]);
    }
    sum += of_block;
  });
  ranks_.sum(std::span(&sum, 1));
  return sum;
}

void ShardedSynchronizer::swap_average() {
  averaged_ = !averaged_;
  if (!averaged_) return gather_weights(weights_.data());
  for (const auto& slot : session().optimizer().state()) {
    if (slot.name == "average") return gather_weights(slot.view.as<float>());
  }
}

std::vector<Optimizer::Slot> ShardedSynchronizer::gather_state() {
  const auto& slots = session().optimizer().state();
  const int64_t part = layout_.part(), flat = session().parameters().flat_size();
  std::vector<Optimizer::Slot> whole;
  whole_.resize(ranks_.first() ? slots.size() : 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    std::copy_n(slots[i].view.as<float>(), part, parts_.data() + ranks_.rank() * part);
    ranks_.group()
        ->all_gather(TensorView(parts_.data(), DType::f32, {part * ranks_.size()}))
        .wait();
    if (!ranks_.first()) continue;
    whole_[i].resize(static_cast<size_t>(flat));
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      layout_.for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
        std::copy_n(parts_.data() + rank * part + place, n, whole_[i].data() + at);
      });
    }
    whole.push_back({slots[i].name, TensorView(whole_[i].data(), DType::f32, {flat})});
  }
  return whole;
}

void ShardedSynchronizer::restore(const ReadSlot& read) {
  const int64_t flat = session().parameters().flat_size();
  std::vector<float> whole(static_cast<size_t>(flat));
  for (const auto& slot : session().optimizer().state()) {
    const TensorView view(whole.data(), DType::f32, {flat});
    ranks_.at_first([&] { read({slot.name, view}); });
    ranks_.broadcast(view);
    take_own(whole.data(), slot.view.as<float>());
  }
}

void ShardedSynchronizer::restart() {
  take_own(session().parameters().weights().as<float>(), weights_.data());
  const Optimizer& optimizer = session().optimizer();
  if (optimizer.averages() && optimizer.steps() == 0) {
    session().optimizer().reset_average(session().context());
  }
}

RankReducer::Times ShardedSynchronizer::times() const { return reducer_->times(); }

}  // namespace rondo
