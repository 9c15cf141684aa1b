// The forward pass over a grid of clusters; kernels/lstm/gpu/lstm_grid_cluster.h has the
// tiling.
//
// A cluster of two blocks owns 16 or 32 cells. h is exchanged; c stays with the thread that
// computes the cell. The exchanged memory also holds the initial h of every sequence, so that every
// operand is found in the same way.
#include "kernels/lstm/gpu/lstm_grid_cluster.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace grid_cluster;
using grid::store_final_states;
using Inputs = grid::ForwardInputs<bf16>;

struct Forward : LstmForwardArrays<bf16> {
  int64_t exchanged_cells;  // of a row; H, padded
  bf16* exchange;

  Forward(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : LstmForwardArrays<bf16>(a, space),
        exchanged_cells(lstm_exchanged_cells(a.dims.hidden)),
        exchange(space.exchange) {}

  // Exchanged rows of a direction: first one for every row of the batch, then the initial h of
  // every sequence.
  __device__ int64_t first_exchanged_row(int64_t d) const {
    return d * (shape.layout.capacity.rows + shape.layout.capacity.sequences);
  }
  __device__ int initial_row(int n) const {
    return static_cast<int>(shape.layout.capacity.rows) + n;
  }
};

template <class P>
constexpr int cells_of = P::block_quads;
template <class P>
using PlaceOf = Place<P, cells_of<P>>;

// A quad is the four gates of a cell.
template <class P>
__device__ void multiply(const Forward& f, Shared<P>& s) {
  const int64_t H = f.shape.hidden, first = first_cell<cells_of<P>>(), d = blockIdx.y;
  const bf16* r = f.r[d];
  Products<P> products(static_cast<int>(f.exchanged_cells));
  products.template load_weights<Adjacent::columns>(
      s.stages[threadIdx.x / 32], [&](int quad, int gate, int column) {
        const int64_t unit = first + quad;
        return unit < H && column < H ? r[(gate * H + unit) * H + column] : to_bf16(0.0f);
      });
  const Column<const bf16> exchanged(f.exchange, f.exchanged_cells, f.first_exchanged_row(d),
                                     Products<P>::lane_column());
  TeamTurns<P> turns;
  for (Walk walk(f.shape.layout, d == 0); !walk.done(); walk.advance()) {
    const auto h_before = [&](int n) {
      return n < walk.previous.active ? walk.previous.first + n : f.initial_row(n);
    };
    products.multiply(exchanged, walk.now.active, h_before, s, turns);
  }
}

// The columns of a thread's cell.
struct ForwardColumns {
  Column<const bf16> pre;
  Column<float> c, cells;
  Column<bf16> y, gates, exchanged;

  template <class Place>
  __device__ ForwardColumns(const Forward& f, const Place& p)
      : pre(f.pre, 4 * f.shape.hidden, f.shape.plane_row(p.d, 0), p.unit),
        c(f.c, f.shape.hidden, f.shape.state(p.d, 0), p.unit),
        cells(f.cells, f.shape.hidden, f.shape.plane_row(p.d, 0), p.unit),
        y(f.y, f.shape.directions * f.shape.hidden, 0, p.d * f.shape.hidden + p.unit),
        gates(f.gates, 4 * f.shape.hidden, f.shape.plane_row(p.d, 0), p.unit),
        exchanged(f.exchange, f.exchanged_cells, f.first_exchanged_row(p.d), p.unit) {}
};

// The h of two neighbouring cells of one sequence, as one word, by the even one; its place, or null
// where there is none. All threads of the warp.
__device__ void announce(bf16* to, bool even, bf16 h) {
  const uint32_t mine = h.bits;
  const uint32_t other = __shfl_xor_sync(~0u, mine, 1);
  if (to && even) store_relaxed(to, Words<4>{{pair_of(mine, other)}});
}

template <class Place>
__device__ void load_states(const Forward& f, const ForwardColumns& columns, const Place& p) {
  const auto sequences = static_cast<int>(f.shape.layout.extent->sequences);
  for (int first = p.team * pass_sequences, n = p.sequence; first < sequences;
       first += Place::round, n += Place::round) {
    const bool mine = n < sequences, computed = mine && p.real;
    const int64_t at = f.shape.state(p.d, n) * f.shape.hidden + p.unit;
    if (computed) *columns.c.at(n) = f.c0 ? f.c0[at] : 0.0f;
    announce(mine && p.announces ? columns.exchanged.at(f.initial_row(n)) : nullptr,
             p.unit % 2 == 0, computed && f.h0 ? f.h0[at] : to_bf16(0.0f));
  }
}

// What does not depend on the step before; zeros where there is nothing to compute.
__device__ Inputs load_inputs(const Forward& f, const ForwardColumns& columns, int row, int n,
                              bool computed) {
  Inputs in = {};
  if (!computed) return in;
  const bf16* pre = columns.pre.at(row);
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) in.pre[g] = pre[g * f.shape.hidden];
  in.c = *columns.c.at(n);
  return in;
}

__device__ void store_outputs(const Forward& f, const ForwardColumns& columns, int row, int n,
                              const float (&gate)[4], float c, bf16 h) {
  *columns.y.at(row) = h;
  *columns.c.at(n) = c;
  if (f.cells) *columns.cells.at(row) = c;
  if (!f.gates) return;
  bf16* gates = columns.gates.at(row);
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) gates[g * f.shape.hidden] = to_bf16(gate[g]);
}

// A pass's new h is announced before anything else is stored.
template <class P>
__device__ void compute_cells(const Forward& f, Shared<P>& s) {
  const PlaceOf<P> p(f.shape.hidden, f.exchanged_cells);
  const ForwardColumns columns(f, p);
  load_states(f, columns, p);
  const LstmCellBias<bf16> bias(f, p.d, p.unit);
  Turn turn;
  for (Walk walk(f.shape.layout, p.d == 0); !walk.done(); walk.advance()) {
    for (int pass = p.team, n = p.sequence; pass * pass_sequences < walk.now.active;
         pass += P::teams, n += PlaceOf<P>::round, ++turn.n) {
      const int row = walk.now.first + n;
      const bool mine = n < walk.now.active, computed = mine && p.real;
      Inputs in = load_inputs(f, columns, row, n, computed);
      const Inbox<P>& inbox = exchange_sums(s, p.team, p.thread, turn);
      float sum[4] = {};
      RONDO_UNROLL_ALL
      for (int from = 0; from < P::blocks; ++from) {
        const Quad q = inbox.from[from][p.thread];
        RONDO_UNROLL_ALL
        for (int g = 0; g < 4; ++g) sum[g] += q.of_row[g];
      }
      float gate[4];
      RONDO_UNROLL_ALL
      for (int g = 0; g < 4; ++g) gate[g] = bias.added_to(in.pre[g], g) + sum[g];
      const bf16 h = to_bf16(lstm_cell_forward<bf16>(gate, in.c));
      announce(mine && p.announces ? columns.exchanged.at(row) : nullptr, p.unit % 2 == 0,
               computed ? h : to_bf16(0.0f));
      if (computed) store_outputs(f, columns, row, n, gate, in.c, h);
    }
  }
  store_final_states(f, p);
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1) grid_cluster_forward(Forward f) {
  if (!RONDO_SM90) return;
  auto& s = shared<Shared<P>>();
  init_mbarriers(s);
  divide_work<P>([&] { multiply(f, s); }, [&] { compute_cells(f, s); });
}

// f(launch, kernel) for H: as few cells per block as let all clusters be resident.
template <class F>
void with_kernel(const LstmDims& dims, F f) {
  const auto with_tiling = [&](auto tiling, auto use) {
    using P = decltype(tiling);
    use(configuration<P>("lstm grid_cluster_forward", dims, cells_of<P>), grid_cluster_forward<P>);
  };
  using Few = Tiling<2, 4, 4, 4>;   // 8 cells to a block
  using Many = Tiling<2, 8, 8, 2>;  // 16
  bool few = false;
  with_tiling(Few(), [&](const LaunchConfig& config, auto kernel) { few = fits(config, kernel); });
  few ? with_tiling(Few(), f) : with_tiling(Many(), f);
}

}  // namespace

bool lstm_forward_grid_cluster_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmForwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1024, 1024, 0};
  if (!lstm_suits("grid_cluster", context.backend, dims, a ? a->x.dtype : DType::bf16))
    return false;
  bool all = false;
  with_kernel(dims, [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_forward_grid_cluster(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  lstm_gpu_input_products(context, a, space);
  fill_bytes(context, space.exchange, missing_byte,
             lstm_exchange_bytes(LstmPhase::forward, a.dims, a.layout.capacity));
  with_kernel(a.dims, [&](const LaunchConfig& config, auto kernel) {
    launch(context, config, kernel, Forward(a, space));
  });
}

}  // namespace rondo::RONDO_GPU
