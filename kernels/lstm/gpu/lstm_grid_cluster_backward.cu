// The backward pass over a grid of clusters; kernels/lstm/gpu/lstm_grid_cluster.h has the
// tiling.
//
// A cluster of eight blocks owns 64 or 128 cells: their columns of R, and so their dh, for which
// each block reads an eighth of the gradients of the pre-activations of the step before (in
// backward order). These are exchanged four to a cell; dc stays with the thread that computes the
// cell.
#include "kernels/lstm/gpu/lstm_grid_cluster.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace grid_cluster;

struct Backward : LstmBackwardArrays<bf16> {
  int64_t exchanged_cells;  // of a row; H, padded
  bf16* exchange;

  Backward(const LstmBackwardArgs& a, const LstmGpuBackwardSpace& space)
      : LstmBackwardArrays<bf16>(a, space),
        exchanged_cells(lstm_exchanged_cells(a.dims.hidden)),
        exchange(space.exchange) {}

  __device__ bool wants_initial_gradients() const { return dh0 || dc0; }
  // The row at which the gradient of a sequence's initial state leaves; -1: it has none.
  __device__ int visited_first(int64_t d, int n) const {
    return static_cast<int>(shape.row(n, d == 0 ? 0 : shape.layout.lengths[n] - 1));
  }
};

template <class P>
constexpr int cells_of = 4 * P::block_quads;
template <class P>
using PlaceOf = Place<P, cells_of<P>>;

// A quad is four neighbouring cells.
template <class P>
__device__ void multiply(const Backward& b, Shared<P>& s) {
  const int64_t H = b.shape.hidden, first = first_cell<cells_of<P>>(), d = blockIdx.y;
  const bf16* r = b.r[d];
  const auto width = static_cast<int>(4 * b.exchanged_cells);
  Products<P> products(width);
  products.template load_weights<Adjacent::rows>(
      s.stages[threadIdx.x / 32], [&](int quad, int cell, int column) {
        const int64_t unit = first + 4 * quad + cell, from = column / 4;
        return unit < H && from < H ? r[(column % 4 * H + from) * H + unit] : to_bf16(0.0f);
      });
  const Column<const bf16> exchanged(b.exchange, width, b.shape.plane_row(d, 0),
                                     Products<P>::lane_column());
  TeamTurns<P> turns;
  for (Walk walk(b.shape.layout, d != 0); !walk.done(); walk.advance()) {
    const auto after = [&](int n) {
      return n < walk.previous.active ? walk.previous.first + n : -1;
    };
    products.multiply(exchanged, walk.now.active, after, s, turns);
  }
  if (!b.wants_initial_gradients()) return;
  products.multiply(
      exchanged, static_cast<int>(b.shape.layout.extent->sequences),
      [&](int n) { return b.visited_first(d, n); }, s, turns);
}

// The columns of a thread's cell.
struct BackwardColumns {
  Column<const bf16> gates, dy, dhn;
  Column<const float> cells, c0;
  Column<float> dc;
  Column<bf16> dgates, exchanged;

  template <class Place>
  __device__ BackwardColumns(const Backward& b, const Place& p)
      : gates(b.gates, 4 * b.shape.hidden, b.shape.plane_row(p.d, 0), p.unit),
        dy(b.dy, b.shape.directions * b.shape.hidden, 0, p.d * b.shape.hidden + p.unit),
        dhn(b.dhn, b.shape.hidden, b.shape.state(p.d, 0), p.unit),
        cells(b.cells, b.shape.hidden, b.shape.plane_row(p.d, 0), p.unit),
        c0(b.c0, b.shape.hidden, b.shape.state(p.d, 0), p.unit),
        dc(b.dc, b.shape.hidden, b.shape.state(p.d, 0), p.unit),
        dgates(b.dgates, 4 * b.shape.hidden, b.shape.plane_row(p.d, 0), p.unit),
        exchanged(b.exchange, 4 * b.exchanged_cells, b.shape.plane_row(p.d, 0), 4 * p.unit) {}
};

// What does not depend on the step after; zeros where there is nothing to compute. As it is in
// memory: to convert it would be to wait for it.
struct Inputs {
  bf16 gate[4], dy, dhn;  // dhn: of a sequence that ends here
  float c, c_before, dc;
};

__device__ Inputs load_inputs(const Backward& b, const BackwardColumns& columns, const Walk& walk,
                              int n, bool real) {
  Inputs in = {};
  if (n >= walk.now.active || !real) return in;
  const int row = walk.now.first + n;
  const bf16* gates = columns.gates.at(row);
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) in.gate[g] = gates[g * b.shape.hidden];
  in.dy = *columns.dy.at(row);
  in.c = *columns.cells.at(row);
  in.dc = *columns.dc.at(n);
  const float* before = n < walk.next.active ? columns.cells.at(walk.next.first + n)
                        : columns.c0.first   ? columns.c0.at(n)
                                             : nullptr;
  if (before) in.c_before = *before;
  if (n >= walk.previous.active && columns.dhn.first) in.dhn = *columns.dhn.at(n);
  return in;
}

// The gradients are announced before anything else is stored.
template <class Place>
__device__ void backward_cell(const Backward& b, const BackwardColumns& columns, const Place& p,
                              int row, int n, const Inputs& in, float dh) {
  float gate[4], dc = in.dc;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) gate[g] = to_float(in.gate[g]);
  lstm_cell_backward(gate, in.c, in.c_before, dh + to_float(in.dy), dc);
  uint32_t dz[4];
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) dz[g] = p.real ? to_bf16(gate[g]).bits : 0;
  if (p.announces) {
    store_relaxed(columns.exchanged.at(row),
                  Words<8>{{pair_of(dz[0], dz[1]), pair_of(dz[2], dz[3])}});
  }
  if (!p.real) return;
  *columns.dc.at(n) = dc;
  // The same elements, which may be where the gates were.
  bf16* to = columns.dgates.at(row);
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) to[g * b.shape.hidden].bits = static_cast<uint16_t>(dz[g]);
}

// dh that came through R from the step after.
template <class P>
__device__ float received(const Inbox<P>& inbox, int thread) {
  float sum = 0;
  RONDO_UNROLL_ALL
  for (int from = 0; from < P::blocks; ++from) {
    sum += inbox.from[from][thread / 4].of_row[thread % 4];
  }
  return sum;
}

// dh0 and dc0.
template <class P>
__device__ void store_states(const Backward& b, const BackwardColumns& columns, const PlaceOf<P>& p,
                             Shared<P>& s, Turn turn) {
  const auto sequences = static_cast<int>(b.shape.layout.extent->sequences);
  for (int pass = p.team, n = p.sequence; pass * pass_sequences < sequences;
       pass += P::teams, n += PlaceOf<P>::round, ++turn.n) {
    const float through = received(exchange_sums(s, p.team, p.thread, turn), p.thread);
    if (n >= sequences || !p.real) continue;
    const int64_t at = b.shape.state(p.d, n) * b.shape.hidden + p.unit;
    if (b.dh0) {
      b.dh0[at] = b.visited_first(p.d, n) >= 0 ? to_bf16(through)
                  : b.dhn                      ? b.dhn[at]
                                               : to_bf16(0.0f);
    }
    if (b.dc0) b.dc0[at] = *columns.dc.at(n);
  }
}

template <class P>
__device__ void compute_cells(const Backward& b, Shared<P>& s) {
  const PlaceOf<P> p(b.shape.hidden, b.exchanged_cells);
  const BackwardColumns columns(b, p);
  const auto sequences = static_cast<int>(b.shape.layout.extent->sequences);
  for (int n = p.sequence; p.real && n < sequences; n += PlaceOf<P>::round) {
    const int64_t at = b.shape.state(p.d, n) * b.shape.hidden + p.unit;
    *columns.dc.at(n) = b.dcn ? b.dcn[at] : 0.0f;
  }
  Turn turn;
  for (Walk walk(b.shape.layout, p.d != 0); !walk.done(); walk.advance()) {
    for (int pass = p.team, n = p.sequence; pass * pass_sequences < walk.now.active;
         pass += P::teams, n += PlaceOf<P>::round, ++turn.n) {
      const Inputs in = load_inputs(b, columns, walk, n, p.real);
      const float through = received(exchange_sums(s, p.team, p.thread, turn), p.thread);
      if (n >= walk.now.active) continue;
      const bool ends = n >= walk.previous.active;  // in time
      backward_cell(b, columns, p, walk.now.first + n, n, in, ends ? to_float(in.dhn) : through);
    }
  }
  if (b.wants_initial_gradients()) store_states<P>(b, columns, p, s, turn);
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1) grid_cluster_backward(Backward b) {
  if (!RONDO_SM90) return;
  auto& s = shared<Shared<P>>();
  init_mbarriers(s);
  divide_work<P>([&] { multiply(b, s); }, [&] { compute_cells(b, s); });
}

// f(launch, kernel) for H: as few cells per block as let all clusters be resident.
template <class F>
void with_kernel(const LstmDims& dims, F f) {
  const auto with_tiling = [&](auto tiling, auto use) {
    using P = decltype(tiling);
    use(configuration<P>("lstm grid_cluster_backward", dims, cells_of<P>),
        grid_cluster_backward<P>);
  };
  using Few = Tiling<8, 4, 4, 4>;   // 8 cells to a block
  using Many = Tiling<8, 8, 8, 2>;  // 16
  bool few = false;
  with_tiling(Few(), [&](const LaunchConfig& config, auto kernel) { few = fits(config, kernel); });
  few ? with_tiling(Few(), f) : with_tiling(Many(), f);
}

}  // namespace

bool lstm_backward_grid_cluster_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmBackwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1024, 1024, 0};
  if (!lstm_suits("grid_cluster", context.backend, dims, a ? a->dy.dtype : DType::bf16))
    return false;
  bool all = false;
  with_kernel(dims, [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_backward_grid_cluster(const Context& context, const LstmBackwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  fill_bytes(context, space.exchange, missing_byte,
             lstm_exchange_bytes(LstmPhase::backward, a.dims, a.layout.capacity));
  with_kernel(a.dims, [&](const LaunchConfig& config, auto kernel) {
    launch(context, config, kernel, Backward(a, space));
  });
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace rondo::RONDO_GPU
