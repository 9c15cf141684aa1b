#include "engine/parallel/sharded_synchronizer.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace rondo {

namespace {

Graph one_parameter(int64_t size) {
  Graph g;
  g.add_parameter("part", 1, size, {Init::constant, 0});
  return g;
}

}  // namespace

// Sums this rank's part of the gradients; the session's are of no use afterwards.
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
    std::copy_n(owner_.own_place(), part, owner_.part_.gradients().as<float>());
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

OptimizerOptions ShardedSynchronizer::without_state(const OptimizerOptions& options) {
  OptimizerOptions o;
  o.kind = OptimizerOptions::sgd;
  o.clip_norm = options.clip_norm;
  return o;
}

ShardedSynchronizer::ShardedSynchronizer(Session& session, const OptimizerOptions& options,
                                         const Ranks& ranks, size_t ballot)
    : Synchronizer(session),
      ranks_(ranks),
      layout_(session.parameters().flat_size(), ranks.size()),
      part_(one_parameter(layout_.part()), session.parameters().device()),
      optimizer_(options, part_),
      parts_(static_cast<size_t>(layout_.part() * ranks.size())),
      reducer_(std::make_unique<Reducer>(*this, ballot)) {
  RONDO_CHECK(session.parameters().device().host_memory(), "weights must be in host memory");
  RONDO_CHECK(session.optimizer().state().empty(), "the session keeps state of its own");
  session.optimizer().set_sum_of_squares([this] { return squares_ = sum_of_squares(); });
  optimizer_.set_sum_of_squares([this] { return squares_; });
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
  whole_ = {};
  const std::span<double> ballot = reducer_->ballot();
  std::copy(update.ballot.begin(), update.ballot.end(), ballot.begin());
  if (update.failed) {
    reducer_->withdraw(session().parameters().gradients(), Session::count_sums);
  }
  const double rate = session().learning_rate();
  session().set_learning_rate(0);
  session().enqueue_update();
  std::copy(ballot.begin(), ballot.end(), update.ballot.begin());
  update_part(rate);
  const auto begin = CommClock::now();
  gather_weights(part_.weights().as<float>());
  reducer_->add_exposed(begin);
  return true;
}

void ShardedSynchronizer::update_part(double rate) {
  const Context& context = session().context();
  context.stream->synchronize();
  optimizer_.set_learning_rate(rate);
  *optimizer_.inverse_count() = *session().optimizer().inverse_count();
  Optimizer::Staging staging;
  optimizer_.enqueue(context, staging);
  context.stream->synchronize();
  optimizer_.finish(staging);
}

void ShardedSynchronizer::gather_weights(const float* part) {
  const int64_t size = layout_.part();
  std::copy_n(part, size, own_place());
  ranks_.group()->all_gather(TensorView(parts_.data(), DType::f32, {size * ranks_.size()})).wait();
  auto* const flat = session().parameters().weights().as<float>();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const float* const from = parts_.data() + rank * size;
    layout_.for_blocks(rank, [&](int64_t at, int64_t place, int64_t n) {
      std::copy_n(from + place, n, flat + at);
    });
  }
}

double ShardedSynchronizer::sum_of_squares() const {
  const auto* const own = part_.gradients().as<float>();
  double sum = 0;
  for (int64_t begin = 0; begin < layout_.part(); begin += ShardLayout::block_elements) {
    double of_block = 0;
    for (int64_t i = begin; i < begin + ShardLayout::block_elements; ++i) {
      of_block += static_cast<double>(own[i]) * static_cast<double>(own[i]);
    }
    sum += of_block;
  }
  ranks_.sum(std::span(&sum, 1));
  return sum;
}

void ShardedSynchronizer::swap_average() {
  if (!optimizer_.averages()) return;
  averaged_ = !averaged_;
  if (!averaged_) return gather_weights(part_.weights().as<float>());
  for (const auto& slot : optimizer_.state()) {
    if (slot.name == "average") return gather_weights(slot.view.as<float>());
  }
}

std::vector<Optimizer::Slot> ShardedSynchronizer::gather_state() {
  const auto& slots = optimizer_.state();
  const int64_t part = layout_.part(), flat = session().parameters().flat_size();
  std::vector<Optimizer::Slot> whole;
  whole_.resize(ranks_.first() ? slots.size() : 0);
  for (size_t i = 0; i < slots.size(); ++i) {
    std::copy_n(slots[i].view.as<float>(), part, own_place());
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

void ShardedSynchronizer::restore(const Ranks& ranks, const ReadSlot& read) {
  const int64_t flat = session().parameters().flat_size();
  std::vector<float> whole(static_cast<size_t>(flat));
  for (const auto& slot : optimizer_.state()) {
    const TensorView view(whole.data(), DType::f32, {flat});
    ranks.at_first([&] { read({slot.name, view}); });
    ranks.broadcast(view);
    layout_.for_blocks(ranks_.rank(), [&](int64_t at, int64_t place, int64_t n) {
      std::copy_n(whole.data() + at, n, slot.view.as<float>() + place);
    });
  }
}

void ShardedSynchronizer::restart() {
  const auto* const flat = session().parameters().weights().as<float>();
  layout_.for_blocks(ranks_.rank(), [&](int64_t at, int64_t place, int64_t n) {
    std::copy_n(flat + at, n, part_.weights().as<float>() + place);
  });
  optimizer_.set_steps(session().optimizer().steps());
  if (optimizer_.averages() && optimizer_.steps() == 0)
    optimizer_.reset_average(session().context());
}

RankReducer::Times ShardedSynchronizer::times() const { return reducer_->times(); }

}  // namespace rondo
