#include "engine/steps/sequence_shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "kernels/base/error.h"
#include "kernels/base/tensor.h"

namespace rondo {
namespace {

size_t row_bytes(const Graph& graph, ValueId id) {
  return static_cast<size_t>(graph.shape(id).cols) * size_of(graph.value(id).dtype);
}

}  // namespace

SequenceShards::SequenceShards(const Graph& training, ValueId loss, const Context& context,
                               ProcessGroup& group, int first, int count, int32_t max_label_length)
    : context_(context),
      rank_(group.rank() - first),
      ranks_(count),
      chunk_(shard_graph(training, loss, max_label_length)),
      borders_(context, group, first) {
  RONDO_CHECK(rank_ >= 0 && rank_ < ranks_ && first + ranks_ <= group.size(), "rank ", group.rank(),
              " of ", group.size(), " has no shard among ranks ", first, " to ",
              first + ranks_ - 1);
  find_exchanges();
}

BatchCapacity SequenceShards::capacity(const BatchCapacity& whole) const {
  return shard_capacity(whole, chunk_.block, ranks_, chunk_.least_blocks);
}

BatchSlice SequenceShards::cut(const BatchView& whole) const {
  std::vector<FrameRange> ranges;
  for (int32_t length : whole.layout->lengths) {
    ranges.push_back(shard_frames(length, chunk_.block, rank_, ranks_, chunk_.least_blocks));
  }
  int64_t factor = 1;
  if (chunk_.logits != no_value) {
    factor = chunk_.graph.total_factor(chunk_.graph.shape(chunk_.logits).level);
  }
  return {whole, chunk_.graph, ranges, factor};
}

void SequenceShards::find_exchanges() {
  exchanges_.clear();
  int stage = 0;
  for (const RecurrentLayer& l : chunk_.layers) {
    exchanges_.push_back({l.forward, l.directions, false, l.initial, l.final, {}, stage});
    if (l.backward != no_node) {
      exchanges_.push_back(
          {l.backward, l.directions, true, l.final_gradient, l.initial_gradient, {}, stage});
    }
    ++stage;
  }
  if (chunk_.ctc_alpha != no_node) {
    const ChunkGraph& c = chunk_;
    exchanges_.push_back({c.ctc_alpha, 1, false, {c.alpha_in}, {c.alpha_out}, {}, stage});
    exchanges_.push_back({c.ctc_grad, 1, true, {c.beta_in}, {c.beta_out}, {}, stage});
  }
  for (const PooledLayer& l : chunk_.pools) {
    exchanges_.push_back({l.forward, 1, false, {}, {}, &l, stage});
    if (l.backward != no_node) exchanges_.push_back({l.backward, 1, true, {}, {}, &l, stage});
  }
  for (const HaloLayer& h : chunk_.halos) {
    const auto add = [&](size_t node, bool backward, std::vector<ValueId> in) {
      if (node == no_node) return;
      std::erase(in, no_value);
      exchanges_.push_back({node, 1, backward, std::move(in), {}, nullptr, stage, &h});
    };
    add(h.edges, false, {h.before, h.after});
    add(h.edges_grad, true, {h.dtail, h.dhead});
  }
  std::sort(exchanges_.begin(), exchanges_.end(),
            [](const Exchange& a, const Exchange& b) { return a.node < b.node; });
}

// The directions of a bidirectional layer one at a time. dx is made of both, so with the later one.
SequenceShards::Pass SequenceShards::bind(BoundGraph& bound, int stage) const {
  Pass pass;
  pass.bound = &bound;
  pass.early.resize(exchanges_.size());
  pass.late.resize(exchanges_.size());
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    const Exchange& e = exchanges_[i];
    const Node& node = chunk_.graph.nodes[e.node];
    if (e.directions == 1 || node.stage != stage) continue;
    const auto alone = time_rule_of(node).one_direction;
    const int early = e.early(rank_, ranks_);
    pass.early[i] = bound.bind_part(e.node, alone(node, early, false));
    pass.late[i] = bound.bind_part(e.node, alone(node, 1 - early, true));
  }
  return pass;
}

void SequenceShards::begin(Pass& pass, const BatchSlice& slice, const BatchView& whole,
                           size_t number) const {
  pass.slice = &slice;
  pass.number = number;
  pass.lengths.clear();
  for (int32_t n : slice.order()) {
    pass.lengths.push_back(whole.layout->lengths[static_cast<size_t>(n)]);
  }
  // Where nobody is on the other side, states and their gradients are zero.
  for (const Exchange& e : exchanges_) {
    std::vector<ValueId> fed = e.in;
    if (e.pool) fed.push_back(e.backward ? e.pool->share : e.pool->whole);
    for (ValueId id : fed) {
      const TensorView view = pass.bound->view(id);
      if (view) context_.device->fill_bytes(*context_.stream, view.data, 0, view.bytes());
    }
  }
}

void SequenceShards::start(CommClock::duration timeout) {
  started_ = CommClock::now();
  borders_.start(started_ + timeout);
  timeline_.clear();
}

double SequenceShards::seconds() const {
  return std::chrono::duration<double>(CommClock::now() - started_).count();
}

void SequenceShards::note(ActionKind kind, int stage, int micro_batch, int peer, double began) {
  if (timed_) context_.stream->synchronize();
  timeline_.push_back({{kind, stage, micro_batch, peer}, began, seconds()});
}

void SequenceShards::finish() { borders_.finish(); }

bool SequenceShards::is_duplicate(const Node& node) const {
  if (rank_ == 0 || node.phase != Phase::weight_gradient) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [this](ValueId id) {
    return id != no_value && chunk_.graph.shape(id).axis == Axis::frames;
  });
}

// The transport keeps the order of equal tags; the numbers only make messages readable.
uint32_t SequenceShards::number(size_t micro_batch, size_t exchange, int direction) const {
  return static_cast<uint32_t>(
      ((micro_batch * exchanges_.size() + exchange) * 2 + static_cast<size_t>(direction)) * 2);
}

void SequenceShards::run_direction(Pass& pass, size_t exchange, int direction) {
  const Exchange& e = exchanges_[exchange];
  const int from = shard_before(e.order(), direction, rank_, ranks_);
  const int to = shard_after(e.order(), direction, rank_, ranks_);
  const uint32_t first = number(pass.number, exchange, direction);
  const auto micro_batch = static_cast<int>(pass.number);
  double began = seconds();
  if (from >= 0) {
    borders_.receive(from, first, planes(pass, e.in, direction), pass.slice->order());
    note(e.backward ? ActionKind::recv_gradient : ActionKind::recv_activation,
         e.stage + (e.backward ? -1 : 1), micro_batch, from, began);
    began = seconds();
  }
  compute(pass, exchange, direction);
  note(e.backward ? ActionKind::input_backward : ActionKind::forward, e.stage, micro_batch, -1,
       began);
  if (to < 0) return;
  began = seconds();
  borders_.send(to, first, planes(pass, e.out, direction), pass.slice->order());
  note(e.backward ? ActionKind::send_gradient : ActionKind::send_activation, e.stage, micro_batch,
       to, began);
}

void SequenceShards::compute(Pass& pass, size_t exchange, int direction) {
  const Exchange& e = exchanges_[exchange];
  pass.bound->run_recorded(2 * exchange + static_cast<size_t>(direction), [&] {
    if (e.directions == 1) return pass.bound->run_node(e.node);
    const bool early = direction == e.early(rank_, ranks_);
    (early ? pass.early : pass.late)[exchange](context_);
  });
}

void SequenceShards::expect(const BatchSlice& slice, size_t micro_batch, size_t exchange,
                            int direction) {
  const Exchange& e = exchanges_[exchange];
  const int from = shard_before(e.order(), direction, rank_, ranks_);
  if (from < 0) return;
  std::vector<size_t> rows;
  for (ValueId id : e.in) rows.push_back(row_bytes(chunk_.graph, id));
  borders_.expect(from, number(micro_batch, exchange, direction), rows, slice.order().size());
}

void SequenceShards::begin_meeting(Pass& pass, size_t exchange) {
  const Exchange& e = exchanges_[exchange];
  if (e.halo) return begin_halo(pass, exchange);
  if (e.backward) take_share(pass, *e.pool);
  pass.bound->run_node(e.node);
  if (!e.backward) send_partial(pass, exchange);
}

void SequenceShards::end_meeting(Pass& pass, size_t exchange) {
  const Exchange& e = exchanges_[exchange];
  if (e.halo) return end_halo(pass, exchange);
  if (!e.backward) add_partials(pass, exchange);
}

// Number 0 of a meeting goes right, number 1 left. Backward the gradient of the frames before this
// part is that of the left neighbour's last ones.
void SequenceShards::begin_halo(Pass& pass, size_t exchange) {
  const Exchange& e = exchanges_[exchange];
  if (!e.backward) pass.bound->run_node(e.node);
  const ValueId right = e.backward ? e.halo->dafter : e.halo->tail;
  const ValueId left = e.backward ? e.halo->dbefore : e.halo->head;
  if (rank_ + 1 < ranks_) send_frames(pass, right, rank_ + 1, number(pass.number, exchange, 0));
  if (rank_ > 0) send_frames(pass, left, rank_ - 1, number(pass.number, exchange, 1));
}

void SequenceShards::end_halo(Pass& pass, size_t exchange) {
  const Exchange& e = exchanges_[exchange];
  const ValueId left = e.backward ? e.halo->dhead : e.halo->before;
  const ValueId right = e.backward ? e.halo->dtail : e.halo->after;
  if (rank_ > 0) receive_frames(pass, left, rank_ - 1, number(pass.number, exchange, 0));
  if (rank_ + 1 < ranks_) receive_frames(pass, right, rank_ + 1, number(pass.number, exchange, 1));
  if (e.backward) pass.bound->run_node(e.node);
}

// One direction's planes of states.
std::vector<ShardBorders::Rows> SequenceShards::planes(const Pass& pass,
                                                       const std::vector<ValueId>& values,
                                                       int direction) const {
  std::vector<ShardBorders::Rows> planes;
  for (ValueId id : values) {
    const TensorView view = pass.bound->view(id);
    const size_t plane = view.bytes() / static_cast<size_t>(chunk_.graph.shape(id).planes);
    planes.push_back({static_cast<std::byte*>(view.data) + static_cast<size_t>(direction) * plane,
                      row_bytes(chunk_.graph, id)});
  }
  return planes;
}

// All planes of a value: a frame each.
ShardBorders::Rows SequenceShards::frames_of(const Pass& pass, ValueId id) const {
  const TensorView view = pass.bound->view(id);
  const auto planes = static_cast<size_t>(chunk_.graph.shape(id).planes);
  return {static_cast<std::byte*>(view.data), row_bytes(chunk_.graph, id), planes,
          view.bytes() / planes};
}

void SequenceShards::send_frames(const Pass& pass, ValueId id, int to, uint32_t number) {
  if (id == no_value) return;
  const ShardBorders::Rows frames = frames_of(pass, id);
  borders_.send(to, number, {&frames, 1}, pass.slice->order());
}

void SequenceShards::receive_frames(const Pass& pass, ValueId id, int from, uint32_t number) {
  if (id == no_value) return;
  const ShardBorders::Rows frames = frames_of(pass, id);
  borders_.receive(from, number, {&frames, 1}, pass.slice->order());
}

namespace {

// How much of a whole sequence's pooling is this part's: its share of the frames, or all of it
// where the last frame is.
double part_of_pool(const PooledLayer& pool, int64_t factor, int32_t first, int32_t length,
                    int32_t whole) {
  if (length == 0) return 0;
  if (pool.pooling == Pooling::last) return first + length == whole ? 1 : 0;
  const auto frames = [factor](int32_t n) {
    return static_cast<double>((n + factor - 1) / factor);
  };
  return frames(length) / frames(whole);
}

// f(row, column, weight) for each sequence of a part.
template <class F>
void for_weighted(const ChunkGraph& chunk, const PooledLayer& pool, const PackedHost& layout,
                  const std::vector<int32_t>& whole_lengths, F f) {
  const int64_t factor = chunk.graph.total_factor(pool.level);
  const int64_t cols = chunk.graph.shape(pool.partial).cols;
  for (size_t i = 0; i < whole_lengths.size(); ++i) {
    const double weight =
        part_of_pool(pool, factor, layout.first_frame[i], layout.lengths[i], whole_lengths[i]);
    for (int64_t c = 0; c < cols; ++c) f(i, c, weight);
  }
}

}  // namespace

// A value of sequences where the host can read it.
TensorView SequenceShards::fetched(const Pass& pass, ValueId id) {
  TensorView view = pass.bound->view(id);
  view.data =
      const_cast<std::byte*>(borders_.fetched(static_cast<std::byte*>(view.data), view.bytes()));
  return view;
}

// To everybody, in double and in the order of the whole pass.
void SequenceShards::send_partial(Pass& pass, size_t exchange) {
  const PooledLayer& pool = *exchanges_[exchange].pool;
  const TensorView view = fetched(pass, pool.partial);
  const auto cols = static_cast<size_t>(chunk_.graph.shape(pool.partial).cols);
  std::vector<std::byte> bytes(pass.lengths.size() * cols * sizeof(double));
  visit_floating(view.dtype, [&]<class T>(T) {
    for_weighted(chunk_, pool, pass.slice->layout(), pass.lengths,
                 [&](size_t i, int64_t c, double weight) {
                   const auto at = static_cast<size_t>(pass.slice->order()[i]) * cols;
                   const size_t from = i * cols + static_cast<size_t>(c);
                   const double value = weight * static_cast<double>(view.as<T>()[from]);
                   std::memcpy(bytes.data() + (at + static_cast<size_t>(c)) * sizeof(double),
                               &value, sizeof value);
                 });
  });
  // Oneself is among the receivers of the sum, but not of the message.
  for (int to = 0; to < ranks_; ++to) {
    if (to != rank_) borders_.post(to, number(pass.number, exchange, 0), bytes);
  }
  pass.partial = std::move(bytes);
}

// The parts of all shards are added in the order of the ranks: the same bits everywhere.
void SequenceShards::add_partials(Pass& pass, size_t exchange) {
  const PooledLayer& pool = *exchanges_[exchange].pool;
  const auto cols = static_cast<size_t>(chunk_.graph.shape(pool.partial).cols);
  std::vector<double> sums(pass.lengths.size() * cols, 0.0), terms(sums.size());
  const auto bytes = std::as_writable_bytes(std::span(terms));
  for (int from = 0; from < ranks_; ++from) {
    if (from == rank_) {
      std::copy(pass.partial.begin(), pass.partial.end(), bytes.begin());
    } else {
      borders_.receive(from, number(pass.number, exchange, 0), bytes);
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
  }
  const TensorView view = pass.bound->view(pool.whole);
  visit_floating(view.dtype, [&]<class T>(T) {
    std::vector<T> whole(sums.size());
    for (size_t i = 0; i < pass.lengths.size(); ++i) {
      const auto at = static_cast<size_t>(pass.slice->order()[i]) * cols;
      for (size_t c = 0; c < cols; ++c) whole[i * cols + c] = static_cast<T>(sums[at + c]);
    }
    borders_.upload(static_cast<std::byte*>(view.data), std::as_bytes(std::span(whole)));
  });
}

// pool_grad divides by the part's length: what it gets is scaled to make it the whole's.
void SequenceShards::take_share(const Pass& pass, const PooledLayer& pool) {
  const TensorView from = fetched(pass, pool.gradient), to = pass.bound->view(pool.share);
  const int64_t cols = chunk_.graph.shape(pool.partial).cols;
  visit_floating(from.dtype, [&]<class T>(T) {
    std::vector<T> share(pass.lengths.size() * static_cast<size_t>(cols));
    for_weighted(chunk_, pool, pass.slice->layout(), pass.lengths,
                 [&](size_t i, int64_t c, double weight) {
                   const int64_t at = static_cast<int64_t>(i) * cols + c;
                   share[static_cast<size_t>(at)] =
                       static_cast<T>(weight * static_cast<double>(from.as<T>()[at]));
                 });
    borders_.upload(static_cast<std::byte*>(to.data), std::as_bytes(std::span(share)));
  });
}

void SequenceShards::add_losses(const Pass& pass, LossTotals& totals, std::vector<double>& losses) {
  const Graph& g = chunk_.graph;
  const Value& value = g.value(chunk_.loss);
  const bool by_sequence = value.shape.axis == Axis::sequences;
  if (rank_ == 0) totals.sequences += static_cast<double>(pass.slice->order().size());
  totals.frames += static_cast<double>(pass.slice->layout().extent.rows);
  if (by_sequence && rank_ != 0) return;
  const TensorView view = fetched(pass, chunk_.loss);
  const auto rows = static_cast<size_t>(pass.bound->live_rows(value.shape));
  losses.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    const double loss =
        value.dtype == DType::f64 ? view.as<double>()[i] : static_cast<double>(view.as<float>()[i]);
    losses[by_sequence ? static_cast<size_t>(pass.slice->order()[i]) : i] = loss;
    count_loss(totals, loss);
  }
}

}  // namespace rondo
