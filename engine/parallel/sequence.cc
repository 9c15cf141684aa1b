#include "engine/parallel/sequence.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/base/tensor.h"
#include "kernels/lstm/lstm.h"

namespace rondo {
namespace {

Node with_run(const Node& node, LstmRun run) {
  Node copy = node;
  copy.attributes = node.attributes.with("run", static_cast<int64_t>(run));
  return copy;
}

}  // namespace

// A node that needs what a neighbour has. Every value is [directions, N, width].
struct SequenceRank::Exchange {
  size_t node = no_node;
  int directions = 1;
  bool backward = false;  // direction 0 comes from the right
  std::vector<ValueId> in, out;
  const PooledLayer* pool = nullptr;  // instead: a sum over all shards, or a share of a gradient

  // Which of two directions is computed first: the one whose end is nearer.
  int early(int rank, int ranks) const {
    const bool near_left = 2 * rank < ranks - 1;
    return near_left != backward ? 0 : 1;
  }
  bool from_left(int direction) const { return (direction == 0) != backward; }
};

struct SequenceRank::MicroBatch {
  std::unique_ptr<Plan> plan;
  std::unique_ptr<BatchPart> part;
  std::vector<Thunk> early, late;  // by exchange, where there are two directions
  std::vector<int32_t> lengths;    // of whole sequences, in their order here
  std::vector<std::byte> partial;  // of a pooling, as it was sent
};

SequenceRank::SequenceRank(const Graph& training, ValueId loss, const Context& context,
                           ProcessGroup& group, ShardRanks shards, Parameters& parameters)
    : training_(training),
      loss_(loss),
      context_(context),
      group_(group),
      parameters_(parameters),
      first_(shards.first),
      rank_(group.rank() - shards.first),
      ranks_(shards.count) {
  RONDO_CHECK(context.device->host_memory(), "states must be in host memory to be sent");
  RONDO_CHECK(rank_ >= 0 && rank_ < ranks_ && first_ + ranks_ <= group.size(), "rank ",
              group.rank(), " of ", group.size(), " has no shard among ranks ", first_, " to ",
              first_ + ranks_ - 1);
  shard_graph(training, loss, 0);  // whether it can be cut at all
}

SequenceRank::~SequenceRank() = default;

size_t SequenceRank::arena_bytes() const {
  return micro_batches_.empty() ? 0 : micro_batches_.front()->plan->arena_bytes();
}

void SequenceRank::reserve(const BatchCapacity& capacity, size_t micro_batches) {
  if (micro_batches_.size() >= micro_batches && capacity_.holds(capacity)) return;
  build(BatchCapacity::merge(capacity_, capacity), std::max(micro_batches, micro_batches_.size()));
}

// A shard has at most ceil(blocks / ranks) blocks of a sequence.
BatchCapacity SequenceRank::shard_capacity(const BatchCapacity& whole) const {
  BatchCapacity c = whole;
  const auto most = [&](int64_t frames, int64_t sequences) {
    return std::min((frames + sequences * (chunk_.block - 1)) / ranks_ + sequences * chunk_.block,
                    frames);
  };
  c.packed.frames = static_cast<int32_t>(most(whole.packed.frames, 1));
  c.packed.rows = most(whole.packed.rows, whole.packed.sequences);
  return c;
}

void SequenceRank::build(const BatchCapacity& capacity, size_t micro_batches) {
  micro_batches_.clear();
  capacity_ = capacity;
  chunk_ = shard_graph(training_, loss_, capacity.max_label_length);
  find_exchanges();
  for (size_t m = 0; m < micro_batches; ++m) {
    auto item = std::make_unique<MicroBatch>();
    item->plan =
        std::make_unique<Plan>(chunk_.graph, context_, shard_capacity(capacity), parameters_);
    bind_parts(*item);
    micro_batches_.push_back(std::move(item));
  }
}

void SequenceRank::find_exchanges() {
  exchanges_.clear();
  for (const RecurrentLayer& l : chunk_.layers) {
    exchanges_.push_back({l.forward, l.directions, false, {l.h0, l.c0}, {l.hn, l.cn}});
    if (l.backward == no_node) continue;
    exchanges_.push_back({l.backward, l.directions, true, {l.dhn, l.dcn}, {l.dh0, l.dc0}});
  }
  if (chunk_.ctc_alpha != no_node) {
    exchanges_.push_back({chunk_.ctc_alpha, 1, false, {chunk_.alpha_in}, {chunk_.alpha_out}});
    exchanges_.push_back({chunk_.ctc_grad, 1, true, {chunk_.beta_in}, {chunk_.beta_out}});
  }
  for (const PooledLayer& l : chunk_.pools) {
    exchanges_.push_back({l.forward, 1, false, {}, {}, &l});
    if (l.backward != no_node) exchanges_.push_back({l.backward, 1, true, {}, {}, &l});
  }
  std::sort(exchanges_.begin(), exchanges_.end(),
            [](const Exchange& a, const Exchange& b) { return a.node < b.node; });
  const auto& nodes = chunk_.graph.nodes;
  const auto first = std::find_if(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.phase == Phase::weight_gradient;
  });
  weight_gradients_ = static_cast<size_t>(first - nodes.begin());
}

// The directions of a bidirectional layer one at a time. dx is made of both, so with the later one.
void SequenceRank::bind_parts(MicroBatch& m) {
  m.early.resize(exchanges_.size());
  m.late.resize(exchanges_.size());
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    const Exchange& e = exchanges_[i];
    if (e.directions == 1) continue;
    const Node& node = chunk_.graph.nodes[e.node];
    const bool first_early = e.early(rank_, ranks_) == 0;
    Node early = with_run(node, first_early ? LstmRun::first : LstmRun::second);
    if (e.backward) early.outputs[2] = no_value;
    m.early[i] = m.plan->bind_part(e.node, early);
    m.late[i] =
        m.plan->bind_part(e.node, with_run(node, first_early ? LstmRun::second : LstmRun::first));
  }
}

void SequenceRank::run(std::span<const BatchView> micro_batches, CommClock::duration timeout) {
  BatchCapacity need = capacity_;
  for (const BatchView& batch : micro_batches) need = BatchCapacity::merge(need, batch.extent());
  reserve(need, micro_batches.size());
  count_ = micro_batches.size();
  deadline_ = CommClock::now() + timeout;
  sent_.clear();
  for (size_t m = 0; m < count_; ++m) load(*micro_batches_[m], micro_batches[m]);
  size_t done = 0;
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    for (size_t m = 0; m < count_; ++m) run_nodes(*micro_batches_[m], done, exchanges_[i].node);
    run_exchanged(i);
    done = exchanges_[i].node + 1;
  }
  for (size_t m = 0; m < count_; ++m) {
    run_nodes(*micro_batches_[m], done, weight_gradients_);
  }
  for (size_t m = 0; m < count_; ++m) {
    run_nodes(*micro_batches_[m], weight_gradients_, chunk_.graph.nodes.size());
  }
  totals_ = {};
  losses_.assign(count_, {});
  for (size_t m = 0; m < count_; ++m) collect(m);
  for (Message& message : sent_) message.work.wait();
  sent_.clear();
}

// A node that needs neighbours, for all micro-batches.
void SequenceRank::run_exchanged(size_t index) {
  const Exchange& e = exchanges_[index];
  if (e.pool) {
    for (size_t m = 0; m < count_; ++m) {
      if (e.backward) take_share(*e.pool, *micro_batches_[m]);
      micro_batches_[m]->plan->run_node(e.node);
      if (!e.backward) send_partial(index, m);
    }
    for (size_t m = 0; !e.backward && m < count_; ++m) add_partials(index, m);
    return;
  }
  const int early = e.directions == 1 ? 0 : e.early(rank_, ranks_);
  for (size_t m = 0; m < count_; ++m) exchange(index, m, early);
  for (size_t m = 0; e.directions == 2 && m < count_; ++m) exchange(index, m, 1 - early);
}

// Behind a pooling all shards compute the same; its weight gradients count once.
bool SequenceRank::is_duplicate(const Node& node) const {
  if (rank_ == 0 || node.phase != Phase::weight_gradient) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [this](ValueId id) {
    return id != no_value && chunk_.graph.shape(id).axis == Axis::frames;
  });
}

void SequenceRank::run_nodes(MicroBatch& m, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (!is_duplicate(chunk_.graph.nodes[i])) m.plan->run_node(i);
  }
}

// One direction of exchange `index` for micro-batch `m`: its state comes, the node runs, the state
// goes on.
void SequenceRank::exchange(size_t index, size_t m, int direction) {
  const Exchange& e = exchanges_[index];
  MicroBatch& batch = *micro_batches_[m];
  const bool from_left = e.from_left(direction);
  const int from = from_left ? rank_ - 1 : rank_ + 1, to = from_left ? rank_ + 1 : rank_ - 1;
  // Of equal tags the transport keeps the order; the numbers only make messages readable.
  const auto number = static_cast<uint32_t>(
      ((m * exchanges_.size() + index) * 2 + static_cast<size_t>(direction)) * 2);
  for (size_t v = 0; v < e.in.size() && from >= 0 && from < ranks_; ++v) {
    receive(batch, e.in[v], direction, from, number + static_cast<uint32_t>(v));
  }
  if (e.directions == 1) {
    batch.plan->run_node(e.node);
  } else {
    const bool early = direction == e.early(rank_, ranks_);
    (early ? batch.early : batch.late)[index](context_);
  }
  for (size_t v = 0; v < e.out.size() && to >= 0 && to < ranks_; ++v) {
    send(batch, e.out[v], direction, to, number + static_cast<uint32_t>(v));
  }
}

void SequenceRank::load(MicroBatch& m, const BatchView& whole) {
  std::vector<FrameRange> ranges;
  for (int32_t length : whole.layout->lengths) {
    ranges.push_back(shard_frames(length, chunk_.block, rank_, ranks_));
  }
  int64_t factor = 1;
  if (chunk_.logits != no_value) {
    factor = chunk_.graph.total_factor(chunk_.graph.shape(chunk_.logits).level);
  }
  m.part = std::make_unique<BatchPart>(whole, chunk_.graph, ranges, factor);
  m.lengths.clear();
  for (int32_t n : m.part->order()) {
    m.lengths.push_back(whole.layout->lengths[static_cast<size_t>(n)]);
  }
  m.plan->load(m.part->view());
  clear_borders(m);
}

// Where nobody is on the other side, states and their gradients are zero.
void SequenceRank::clear_borders(MicroBatch& m) {
  for (const Exchange& e : exchanges_) {
    std::vector<ValueId> fed = e.in;
    if (e.pool) fed.push_back(e.backward ? e.pool->share : e.pool->whole);
    for (ValueId id : fed) {
      const TensorView view = m.plan->view(id);
      if (view) std::memset(view.data, 0, view.bytes());
    }
  }
}

namespace {

// One direction's plane of a state, its rows in the order of the plan.
struct Plane {
  std::byte* data;
  size_t row;
};
Plane plane_of(const Plan& plan, ValueId id, int direction) {
  const TensorView view = plan.view(id);
  const Shape& shape = plan.graph().shape(id);
  const size_t plane = view.bytes() / static_cast<size_t>(shape.planes);
  return {static_cast<std::byte*>(view.data) + static_cast<size_t>(direction) * plane,
          static_cast<size_t>(shape.cols) * size_of(plan.graph().value(id).dtype)};
}

}  // namespace

// Rows travel in the order of the whole batch: each shard sorts its sequences in its own way.
void SequenceRank::send(MicroBatch& m, ValueId id, int direction, int to, uint32_t number) {
  const Plane plane = plane_of(*m.plan, id, direction);
  const std::vector<int32_t>& order = m.part->order();
  std::vector<std::byte> bytes(order.size() * plane.row);
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(bytes.data() + static_cast<size_t>(order[i]) * plane.row,
                plane.data + i * plane.row, plane.row);
  }
  post(to, number, std::move(bytes));
}

void SequenceRank::post(int to, uint32_t number, std::vector<std::byte> bytes) {
  Message message;
  message.bytes = std::move(bytes);
  message.work = group_.send(first_ + to, number, message.bytes, deadline_);
  sent_.push_back(std::move(message));
}

void SequenceRank::receive(MicroBatch& m, ValueId id, int direction, int from, uint32_t number) {
  const Plane plane = plane_of(*m.plan, id, direction);
  const std::vector<int32_t>& order = m.part->order();
  std::vector<std::byte> bytes(order.size() * plane.row);
  group_.recv(first_ + from, number, bytes, deadline_).wait();
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(plane.data + i * plane.row,
                bytes.data() + static_cast<size_t>(order[i]) * plane.row, plane.row);
  }
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

// To everybody, in double and in the order of the whole batch.
void SequenceRank::send_partial(size_t index, size_t m) {
  const MicroBatch& batch = *micro_batches_[m];
  const PooledLayer& pool = *exchanges_[index].pool;
  const TensorView view = batch.plan->view(pool.partial);
  const auto cols = static_cast<size_t>(chunk_.graph.shape(pool.partial).cols);
  std::vector<std::byte> bytes(batch.lengths.size() * cols * sizeof(double));
  visit_floating(view.dtype, [&]<class T>(T) {
    for_weighted(chunk_, pool, batch.part->layout(), batch.lengths,
                 [&](size_t i, int64_t c, double weight) {
                   const auto at = static_cast<size_t>(batch.part->order()[i]) * cols;
                   const size_t from = i * cols + static_cast<size_t>(c);
                   const double value = weight * static_cast<double>(view.as<T>()[from]);
                   std::memcpy(bytes.data() + (at + static_cast<size_t>(c)) * sizeof(double),
                               &value, sizeof value);
                 });
  });
  // Oneself is among the receivers of the sum, but not of the message.
  for (int to = 0; to < ranks_; ++to) {
    if (to != rank_) post(to, static_cast<uint32_t>((m * exchanges_.size() + index) * 4), bytes);
  }
  micro_batches_[m]->partial = std::move(bytes);
}

// Of all shards, in the order of the ranks: the same bits everywhere.
void SequenceRank::add_partials(size_t index, size_t m) {
  MicroBatch& batch = *micro_batches_[m];
  const PooledLayer& pool = *exchanges_[index].pool;
  const auto cols = static_cast<size_t>(chunk_.graph.shape(pool.partial).cols);
  std::vector<double> sums(batch.lengths.size() * cols, 0.0), terms(sums.size());
  const auto bytes = std::as_writable_bytes(std::span(terms));
  for (int from = 0; from < ranks_; ++from) {
    if (from == rank_) {
      std::copy(batch.partial.begin(), batch.partial.end(), bytes.begin());
    } else {
      const auto number = static_cast<uint32_t>((m * exchanges_.size() + index) * 4);
      group_.recv(first_ + from, number, bytes, deadline_).wait();
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += terms[i];
  }
  const TensorView view = batch.plan->view(pool.whole);
  visit_floating(view.dtype, [&]<class T>(T) {
    for (size_t i = 0; i < batch.lengths.size(); ++i) {
      const auto at = static_cast<size_t>(batch.part->order()[i]) * cols;
      for (size_t c = 0; c < cols; ++c) view.as<T>()[i * cols + c] = static_cast<T>(sums[at + c]);
    }
  });
}

// pool_grad divides by the part's length: what it gets is scaled to make it the whole's.
void SequenceRank::take_share(const PooledLayer& pool, MicroBatch& m) {
  const TensorView from = m.plan->view(pool.gradient), to = m.plan->view(pool.share);
  const int64_t cols = chunk_.graph.shape(pool.partial).cols;
  visit_floating(from.dtype, [&]<class T>(T) {
    for_weighted(chunk_, pool, m.part->layout(), m.lengths,
                 [&](size_t i, int64_t c, double weight) {
                   const int64_t at = static_cast<int64_t>(i) * cols + c;
                   to.as<T>()[at] = static_cast<T>(weight * static_cast<double>(from.as<T>()[at]));
                 });
  });
}

void SequenceRank::collect(size_t index) {
  const MicroBatch& m = *micro_batches_[index];
  const Graph& g = chunk_.graph;
  const Value& value = g.value(loss_);
  const bool by_sequence = value.shape.axis == Axis::sequences;
  if (rank_ == 0) totals_.sequences += static_cast<double>(m.part->order().size());
  totals_.frames += static_cast<double>(m.part->layout().extent.rows);
  if (by_sequence && rank_ != 0) return;
  const TensorView view = m.plan->view(loss_);
  const auto rows = static_cast<size_t>(m.plan->live_rows(value.shape));
  std::vector<double>& losses = losses_[index];
  losses.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    const double loss =
        value.dtype == DType::f64 ? view.as<double>()[i] : static_cast<double>(view.as<float>()[i]);
    losses[by_sequence ? static_cast<size_t>(m.part->order()[i]) : i] = loss;
    if (std::isfinite(loss)) {
      totals_.loss += loss;
    } else if (std::isinf(loss) && loss > 0) {
      ++totals_.infeasible;
    } else {
      ++totals_.nonfinite;
    }
  }
}

}  // namespace rondo
