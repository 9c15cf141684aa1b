// The forward pass over a grid of clusters; kernels/lstm/lstm_grid_cluster.h has the plan.
//
// A cluster of two blocks owns 16 or 32 cells. h is exchanged; c stays with the thread that
// computes the cell. The exchanged memory also holds the initial h of every sequence, so that every
// operand is found in the same way.
#include "kernels/lstm/lstm_grid_cluster.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace grid_cluster;

struct Forward : LstmForwardArrays<bf16> {
  int64_t exchanged_cells;  // of a row; H, padded
  bf16* exchange;

  Forward(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : LstmForwardArrays<bf16>(a, space),
        exchanged_cells(lstm_exchanged_cells(a.dims.hidden)),
        exchange(space.exchange) {}

  // Where h of a row, or the initial h of a sequence, is exchanged.
  __device__ bf16* exchanged(int64_t d, int64_t row) const {
    const PackedCapacity& capacity = shape.layout.capacity;
    return exchange + (d * (capacity.rows + capacity.sequences) + row) * exchanged_cells;
  }
  __device__ bf16* exchanged_initial(int64_t d, int64_t n) const {
    return exchanged(d, shape.layout.capacity.rows + n);
  }
};

template <class P>
constexpr int cells_of = P::block_rows / 4;
template <class P>
using PlaceOf = Place<cells_of<P>, P::pass_sequences>;

// Rows of a cluster's weights: block, gate, cell.
template <class P>
__device__ void load_weights(const Forward& f, Shared<P>& s, P& product) {
  constexpr int cells = cells_of<P>;
  const int64_t H = f.shape.hidden, first = first_cell<cells>();
  const bf16* r = f.r[blockIdx.y];
  const auto at = [&](int row, int column) {
    const int within = row % P::block_rows;
    const int64_t unit = first + row / P::block_rows * cells + within % cells;
    return unit < H && column < H ? r[(within / cells * H + unit) * H + column] : to_bf16(0.0f);
  };
  product.template load<Adjacent::columns>(s.stages[threadIdx.x / 32], at);
}

// The h of two neighbouring cells of one sequence, as one word. All threads of the warp.
__device__ void announce(bf16* row, int64_t unit, bf16 h) {
  const uint32_t mine = h.bits;
  const uint32_t other = __shfl_xor_sync(~0u, mine, 1);
  if (row && unit % 2 == 0) store_relaxed(row + unit, Words<4>{{pair_of(mine, other)}});
}

template <class Place>
__device__ void load_states(const Forward& f, const Place& p) {
  const int64_t H = f.shape.hidden;
  for (int64_t first = 0; first < f.shape.layout.extent->sequences; first += Place::round) {
    const int64_t n = first + p.sequence;
    const bool mine = p.sequence >= 0 && n < f.shape.layout.extent->sequences;
    const int64_t at = f.shape.state(p.d, n) * H + p.unit;
    if (mine && p.real) f.c[at] = f.c0 ? f.c0[at] : 0.0f;
    announce(mine ? f.exchanged_initial(p.d, n) : nullptr, p.unit,
             mine && p.real && f.h0 ? f.h0[at] : to_bf16(0.0f));
  }
}

// All threads: the new h is announced before anything else is stored.
template <class P>
__device__ void forward_cells(const Forward& f, const Step& step, int64_t first,
                              const PlaceOf<P>& p, ForwardInputs in, const Shared<P>& shared,
                              int buffer) {
  const LstmShape& s = f.shape;
  const int64_t n = p.sequence_of(first), H = s.hidden, row = step.row + n;
  const bool mine = n >= 0 && n < step.active;
  bf16 h = to_bf16(0.0f);
  if (mine && p.real) {
    RONDO_UNROLL_ALL
    for (int g = 0; g < 4; ++g) {
      in.pre[g] += received(shared, buffer, g * cells_of<P> + p.cell, static_cast<int>(n - first));
    }
    h = to_bf16(lstm_cell_forward<bf16>(in.pre, in.c));
  }
  announce(mine ? f.exchanged(p.d, row) : nullptr, p.unit, h);
  if (!mine || !p.real) return;
  const int64_t at = s.plane_row(p.d, row);
  f.y[(row * s.directions + p.d) * H + p.unit] = h;
  f.c[s.state(p.d, n) * H + p.unit] = in.c;
  if (f.cells) f.cells[at * H + p.unit] = in.c;
  if (!f.gates) return;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + p.unit] = to_bf16(in.pre[g]);
}

template <class P>
__global__ void __launch_bounds__(threads, 1) grid_cluster_forward(Forward f) {
  if (!RONDO_SM90) return;
  auto& shared_memory = shared<Shared<P>>();
  const LstmShape& s = f.shape;
  const PlaceOf<P> p(s.hidden, f.exchanged_cells);
  P product;
  load_weights(f, shared_memory, product);
  load_states(f, p);
  cluster_sync();
  const auto width = static_cast<int>(f.exchanged_cells);
  const int64_t frames = s.layout.extent->frames;
  int buffer = 0;
  for (int64_t step = 0; step < frames; ++step) {
    const Step now = step_at(s.layout, p.d, step), before = step_at(s.layout, p.d, step - 1);
    ForwardInputs in = load_forward_inputs(f, now, 0, p);
    for (int64_t first = 0; first < now.active; first += P::pass_sequences) {
      const auto h_before = [&](int n) -> const bf16* {
        if (first + n >= now.active) return nullptr;
        return first + n < before.active ? f.exchanged(p.d, before.row + first + n)
                                         : f.exchanged_initial(p.d, first + n);
      };
      product.multiply(h_before, width, shared_memory.part[threadIdx.x / 32]);
      send_sums(shared_memory, buffer);
      forward_cells<P>(f, now, first, p, in, shared_memory, buffer);
      in = load_forward_inputs(f, now, first + P::pass_sequences, p);
      buffer = 1 - buffer;
    }
  }
  store_final_states(f, p);
}

// f(launch, kernel) for H: as few cells per block as let all clusters be resident.
template <int tiles, class F>
void with_tiles(const LstmDims& dims, F f) {
  const auto with_product = [&](auto product, auto use) {
    using P = decltype(product);
    use(configuration("lstm grid_cluster_forward", dims, P::blocks, cells_of<P>, sizeof(Shared<P>)),
        grid_cluster_forward<P>);
  };
  using Few = Product<2, 4, 2, tiles>;   // 8 cells to a block
  using Many = Product<2, 8, 2, tiles>;  // 16
  bool few = false;
  with_product(Few(), [&](const LaunchConfig& config, auto kernel) { few = fits(config, kernel); });
  few ? with_product(Few(), f) : with_product(Many(), f);
}

template <class F>
void with_kernel(const LstmDims& dims, int64_t sequences, F f) {
  sequences <= most_in_small_passes ? with_tiles<1>(dims, f) : with_tiles<2>(dims, f);
}

}  // namespace

bool lstm_forward_grid_cluster_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmForwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1024, 1024, 0};
  const int64_t sequences = a ? a->layout.capacity.sequences : 1;
  if (!lstm_suits("grid_cluster", context.backend, dims, a ? a->x.dtype : DType::bf16, sequences))
    return false;
  bool all = false;
  with_kernel(dims, sequences,
              [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_forward_grid_cluster(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  lstm_gpu_input_products(context, a, space);
  context.device->fill_bytes(*context.stream, space.exchange, missing_byte,
                             lstm_exchange_bytes(LstmPhase::forward, a.dims, a.layout.capacity));
  with_kernel(a.dims, a.layout.capacity.sequences, [&](const LaunchConfig& config, auto kernel) {
    launch(context, config, kernel, Forward(a, space));
  });
}

}  // namespace rondo::RONDO_GPU
