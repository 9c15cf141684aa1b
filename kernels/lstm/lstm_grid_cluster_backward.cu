// The backward pass over a grid of clusters; kernels/lstm/lstm_grid_cluster.h has the plan.
//
// A cluster of eight blocks owns 64 or 128 cells: their columns of R, and so their dh, for which
// each block reads an eighth of the gradients of the pre-activations of the step before (in
// backward order). These are exchanged four to a cell; dc stays with the thread that computes the
// cell.
#include "kernels/lstm/lstm_grid_cluster.h"
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

  __device__ bf16* exchanged(int64_t d, int64_t row) const {
    return exchange + shape.plane_row(d, row) * 4 * exchanged_cells;
  }
};

// The rows of a cluster's weights are its cells, and each block's are a block's rows.
template <class P>
constexpr int cells_of = P::block_rows;
template <class P>
using PlaceOf = Place<cells_of<P>, P::pass_sequences>;

template <class P>
__device__ void load_weights(const Backward& b, Shared<P>& s, P& product) {
  const int64_t H = b.shape.hidden, first = first_cell<cells_of<P>>();
  const bf16* r = b.r[blockIdx.y];
  const auto at = [&](int row, int column) {
    const int64_t unit = first + row, from = column / 4;
    return unit < H && from < H ? r[(column % 4 * H + from) * H + unit] : to_bf16(0.0f);
  };
  product.template load<Adjacent::rows>(s.stages[threadIdx.x / 32], at);
}

// The gradients are announced before anything else is stored.
template <class Place>
__device__ void backward_cell(const Backward& b, const Step& step, int64_t first, const Place& p,
                              BackwardInputs in, float dh) {
  const LstmShape& s = b.shape;
  const int64_t n = p.sequence_of(first), H = s.hidden;
  if (n < 0 || n >= step.active) return;
  if (p.real) lstm_cell_backward(in.gate, in.c, in.c_before, dh + in.dy, in.dc);
  uint32_t dz[4];  // zeros for cells that are not real, as their inputs are
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) dz[g] = to_bf16(in.gate[g]).bits;
  store_relaxed(b.exchanged(p.d, step.row + n) + 4 * p.unit,
                Words<8>{{pair_of(dz[0], dz[1]), pair_of(dz[2], dz[3])}});
  if (!p.real) return;
  b.dc[s.state(p.d, n) * H + p.unit] = in.dc;
  // The same elements, which may be where the gates were.
  bf16* to = b.dgates + s.plane_row(p.d, step.row + n) * 4 * H + p.unit;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) to[g * H].bits = static_cast<uint16_t>(dz[g]);
}

// dh of the thread's cell and sequence of a pass: from the rows that source(n) gives, or dhn where
// it gives -1.
template <class P, class Source>
__device__ float recurrent_gradient(const Backward& b, const P& product, Source source,
                                    int64_t first, int64_t active, const PlaceOf<P>& p,
                                    Shared<P>& shared_memory, int buffer) {
  const LstmShape& s = b.shape;
  const auto gradients = [&](int n) -> const bf16* {
    const int64_t row = first + n < active ? source(first + n) : -1;
    return row < 0 ? nullptr : b.exchanged(p.d, row);
  };
  product.multiply(gradients, static_cast<int>(4 * b.exchanged_cells),
                   shared_memory.part[threadIdx.x / 32]);
  send_sums(shared_memory, buffer);
  const int64_t n = p.sequence_of(first);
  if (!p.real || n < 0 || n >= active) return 0.0f;
  if (source(n) >= 0) return received(shared_memory, buffer, p.cell, static_cast<int>(n - first));
  return b.dhn ? to_float(b.dhn[s.state(p.d, n) * s.hidden + p.unit]) : 0.0f;
}

// dh0, which leaves at the first frame each sequence visited, and dc0.
template <class P>
__device__ void store_states(const Backward& b, const P& product, const PlaceOf<P>& p,
                             Shared<P>& shared_memory, int buffer) {
  const LstmShape& s = b.shape;
  const int64_t sequences = s.layout.extent->sequences;
  for (int64_t first = 0; first < sequences; first += P::pass_sequences) {
    const auto visited_first = [&](int64_t n) {
      return s.row(n, p.d == 0 ? 0 : s.layout.lengths[n] - 1);
    };
    const float dh =
        recurrent_gradient(b, product, visited_first, first, sequences, p, shared_memory, buffer);
    buffer = 1 - buffer;
    const int64_t n = p.sequence_of(first);
    if (!p.real || n < 0 || n >= sequences) continue;
    const int64_t at = s.state(p.d, n) * s.hidden + p.unit;
    if (b.dh0) b.dh0[at] = to_bf16(dh);
    if (b.dc0) b.dc0[at] = b.dc[at];
  }
}

template <class P>
__global__ void __launch_bounds__(threads, 1) grid_cluster_backward(Backward b) {
  if (!RONDO_SM90) return;
  auto& shared_memory = shared<Shared<P>>();
  const LstmShape& s = b.shape;
  const PlaceOf<P> p(s.hidden, b.exchanged_cells);
  P product;
  load_weights(b, shared_memory, product);
  const int64_t frames = s.layout.extent->frames, sequences = s.layout.extent->sequences;
  for (int64_t n = p.sequence; p.real && n < sequences; n += PlaceOf<P>::round) {
    const int64_t at = s.state(p.d, n) * s.hidden + p.unit;
    b.dc[at] = b.dcn ? b.dcn[at] : 0.0f;
  }
  cluster_sync();
  int buffer = 0;
  for (int64_t step = frames - 1; step >= 0; --step) {
    const Step now = step_at(s.layout, p.d, step), earlier = step_at(s.layout, p.d, step - 1);
    const Step later = step_at(s.layout, p.d, step + 1);
    BackwardInputs in = load_backward_inputs(b, now, earlier, 0, p);
    for (int64_t first = 0; first < now.active; first += P::pass_sequences) {
      const auto after = [&](int64_t n) { return n < later.active ? later.row + n : -1; };
      const float dh =
          recurrent_gradient(b, product, after, first, now.active, p, shared_memory, buffer);
      backward_cell(b, now, first, p, in, dh);
      in = load_backward_inputs(b, now, earlier, first + P::pass_sequences, p);
      buffer = 1 - buffer;
    }
  }
  if (b.dh0 || b.dc0) store_states(b, product, p, shared_memory, buffer);
}

// f(launch, kernel) for H: as few cells per block as let all clusters be resident.
template <int tiles, class F>
void with_tiles(const LstmDims& dims, F f) {
  const auto with_product = [&](auto product, auto use) {
    using P = decltype(product);
    use(configuration("lstm grid_cluster_backward", dims, P::blocks, cells_of<P>,
                      sizeof(Shared<P>)),
        grid_cluster_backward<P>);
  };
  using Few = Product<8, 4, 2, tiles>;   // 8 cells to a block
  using Many = Product<8, 8, 2, tiles>;  // 16
  bool few = false;
  with_product(Few(), [&](const LaunchConfig& config, auto kernel) { few = fits(config, kernel); });
  few ? with_product(Few(), f) : with_product(Many(), f);
}

template <class F>
void with_kernel(const LstmDims& dims, int64_t sequences, F f) {
  sequences <= most_in_small_passes ? with_tiles<1>(dims, f) : with_tiles<2>(dims, f);
}

}  // namespace

bool lstm_backward_grid_cluster_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmBackwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1024, 1024, 0};
  const int64_t sequences = a ? a->layout.capacity.sequences : 1;
  if (!lstm_suits("grid_cluster", context.backend, dims, a ? a->dy.dtype : DType::bf16, sequences))
    return false;
  bool all = false;
  with_kernel(dims, sequences,
              [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_backward_grid_cluster(const Context& context, const LstmBackwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  context.device->fill_bytes(*context.stream, space.exchange, missing_byte,
                             lstm_exchange_bytes(LstmPhase::backward, a.dims, a.layout.capacity));
  with_kernel(a.dims, a.layout.capacity.sequences, [&](const LaunchConfig& config, auto kernel) {
    launch(context, config, kernel, Backward(a, space));
  });
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace rondo::RONDO_GPU
