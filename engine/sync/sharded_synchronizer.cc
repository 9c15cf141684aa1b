#include "engine/sync/sharded_synchronizer.h"

#include "kernels/base/dispatch.h"
#include "kernels/base/error.h"
#include "kernels/reduce/reduce.h"

namespace rondo {

OptimizerOptions ShardedSynchronizer::without_state(const OptimizerOptions& options) {
  OptimizerOptions o;
  o.kind = OptimizerOptions::sgd;
  o.clip_norm = options.clip_norm;
  return o;
}

ShardedSynchronizer::ShardedSynchronizer(Session& session, const OptimizerOptions& options,
                                         const Ranks& ranks, std::unique_ptr<RankReducer> reducer)
    : SessionSynchronizer(session),
      ranks_(ranks),
      layout_(session.parameters().flat_size(), ranks.size()),
      part_(layout_.graph(), session.parameters().device()),
      optimizer_(options, part_,
                 layout_.first_of(ranks.rank(), session.parameters().frozen_size())),
      parts_(session.parameters().device(), part_bytes() * static_cast<size_t>(ranks.size()),
             "weights of all ranks"),
      scratch_(session.parameters().device(), 64 + reduce_workspace_bytes, "sums of squares"),
      reducer_(std::move(reducer)) {
  RONDO_CHECK(session.optimizer().state().empty(), "the session keeps state of its own");
  RONDO_CHECK(device().kind() == DeviceKind::cpu || ranks.sums() != nullptr,
              "ranks on devices need a group of devices");
  // What no block fills is never read as a weight, but it is copied and squared.
  const TensorView gradients = part_.gradients(), weights = part_.weights();
  device().fill_bytes(*context().stream, gradients.data, 0, gradients.bytes());
  device().fill_bytes(*context().stream, weights.data, 0, weights.bytes());
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

void ShardedSynchronizer::accumulate(const BatchView& batch, int, bool last) {
  if (last) reducer_->last_batch();
  session().enqueue(batch);
}

bool ShardedSynchronizer::apply(const Update& update) {
  whole_ = {};
  const double rate = session().learning_rate();
  session().set_learning_rate(0);
  update_by(*reducer_, update);
  update_part(rate);
  const auto begin = CommClock::now();
  gather_weights(part_.weights());
  const std::chrono::duration<double> took = CommClock::now() - begin;
  gathering_.communication += took.count();
  gathering_.exposed += took.count();
  return true;
}

void ShardedSynchronizer::update_part(double rate) {
  optimizer_.set_learning_rate(rate);
  device().copy(*context().stream, optimizer_.inverse_count(),
                session().optimizer().inverse_count(), sizeof(double));
  Optimizer::Staging staging;
  optimizer_.enqueue(context(), staging);
  context().stream->synchronize();
  optimizer_.finish(staging);
}

void ShardedSynchronizer::gather_parts() {
  const TensorView all(parts_.data(), DType::f32, {layout_.part() * ranks_.size()});
  context().stream->synchronize();
  ProcessGroup* const group = ranks_.sums() ? ranks_.sums() : ranks_.group();
  group->all_gather(all).wait();
}

void ShardedSynchronizer::gather_weights(const TensorView& part) {
  device().copy(*context().stream, place_of(ranks_.rank()), part.data, part_bytes());
  gather_parts();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    copy_blocks(layout_, context(), rank, session().parameters().weights().data, place_of(rank),
                BlockCopy::unpack);
  }
}

// With the sums of the own blocks in place.
double ShardedSynchronizer::sum_of_squares() {
  const TensorView own = part_.gradients();
  copy_blocks(layout_, context(), ranks_.rank(), session().parameters().gradients().data, own.data,
              BlockCopy::pack);
  SumSquaresArgs a;
  a.x = own;
  a.out = TensorView(scratch_.data(), DType::f64, {1});
  a.workspace = TensorView(scratch_.as<uint8_t>() + 64, DType::u8,
                           {static_cast<int64_t>(reduce_workspace_bytes)});
  run(context(), a);
  double sum = 0;
  device().copy(*context().stream, &sum, scratch_.data(), sizeof sum);
  context().stream->synchronize();
  ranks_.sum(std::span(&sum, 1));
  return sum;
}

void ShardedSynchronizer::swap_average() {
  if (!optimizer_.averages()) return;
  averaged_ = !averaged_;
  if (!averaged_) return gather_weights(part_.weights());
  for (const auto& slot : optimizer_.state()) {
    if (slot.name == "average") return gather_weights(slot.view);
  }
}

std::vector<Optimizer::Slot> ShardedSynchronizer::gather_state() {
  const auto& slots = optimizer_.state();
  const int64_t part = layout_.part(), flat = session().parameters().flat_size();
  std::vector<Optimizer::Slot> whole;
  whole_.resize(ranks_.first() ? slots.size() : 0);
  std::vector<float> all(static_cast<size_t>(ranks_.first() ? part * ranks_.size() : 0));
  for (size_t i = 0; i < slots.size(); ++i) {
    device().copy(*context().stream, place_of(ranks_.rank()), slots[i].view.data, part_bytes());
    gather_parts();
    if (!ranks_.first()) continue;
    device().copy(*context().stream, all.data(), parts_.data(), all.size() * sizeof(float));
    context().stream->synchronize();
    whole_[i].resize(static_cast<size_t>(flat));
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      layout_.unpack(rank, all.data() + rank * part, whole_[i].data());
    }
    whole.push_back({slots[i].name, TensorView(whole_[i].data(), DType::f32, {flat})});
  }
  return whole;
}

void ShardedSynchronizer::restore(const Ranks& ranks, const ReadSlot& read) {
  const int64_t flat = session().parameters().flat_size();
  std::vector<float> whole(static_cast<size_t>(flat)), part(static_cast<size_t>(layout_.part()));
  for (const auto& slot : optimizer_.state()) {
    const TensorView view(whole.data(), DType::f32, {flat});
    ranks.at_first([&] { read({slot.name, view}); });
    ranks.broadcast(view);
    layout_.pack(ranks_.rank(), whole.data(), part.data());
    device().copy(*context().stream, slot.view.data, part.data(), part_bytes());
    context().stream->synchronize();
  }
}

void ShardedSynchronizer::restart() {
  copy_blocks(layout_, context(), ranks_.rank(), session().parameters().weights().data,
              part_.weights().data, BlockCopy::pack);
  context().stream->synchronize();
  optimizer_.set_steps(session().optimizer().steps());
  if (optimizer_.averages() && optimizer_.steps() == 0) optimizer_.reset_average(context());
}

RankReducer::Times ShardedSynchronizer::times() const {
  RankReducer::Times t = reducer_->times();
  t.communication += gathering_.communication;
  t.exposed += gathering_.exposed;
  return t;
}

}  // namespace rondo
