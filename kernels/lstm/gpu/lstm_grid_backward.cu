// The backward pass over the whole grid; kernels/lstm/gpu/lstm_grid.h has the tiling.
//
// A block owns 16 cells (f32: 8): their columns of R, and so their dh, for which it reads the
// gradients of all pre-activations of the step before (in backward order) from dgates, complete
// once all flags are there. dc stays with the thread that computes the cell.
#include "kernels/lstm/gpu/lstm_grid_product.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace grid;

template <class T>
struct Backward : LstmBackwardArrays<T> {
  uint32_t* flags;

  Backward(const LstmBackwardArgs& a, const LstmGpuBackwardSpace& space)
      : LstmBackwardArrays<T>(a, space), flags(space.flags) {}
};

// The rows of a block's weights are its cells.
template <class Product>
struct BackwardShared {
  Parts<Product::rows> parts;
  typename Product::Shared product;
};

template <class Product, class T>
__device__ void load_weights(const Backward<T>& b, BackwardShared<Product>& s, Product& product) {
  const int64_t H = b.shape.hidden, first = int64_t{blockIdx.x} * Product::rows;
  const T* r = b.r[blockIdx.y];
  product.template load<Adjacent::rows>(s.product, [&](int row, int j) {
    const int64_t unit = first + row;
    return unit < H && j < 4 * H ? r[j * H + unit] : to<T>(0.0f);
  });
}

template <int cells, class T>
__device__ void backward_cell(const Backward<T>& b, const Step& step, int64_t first,
                              const Place<cells>& p, BackwardInputs in, float dh) {
  const LstmShape& s = b.shape;
  const int64_t n = first + p.sequence, H = s.hidden;
  if (p.sequence < 0 || n >= step.active) return;
  lstm_cell_backward(in.gate, in.c, in.c_before, dh + in.dy, in.dc);
  b.dc[s.state(p.d, n) * H + p.unit] = in.dc;
  const int64_t at = s.plane_row(p.d, step.row + n);
  // The same elements, which may be where the gates were.
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) b.dgates[(at * 4 + g) * H + p.unit] = to<T>(in.gate[g]);
}

// dh of the thread's cell and sequence of a pass: from the rows of dgates that source(n) gives, or
// dhn where it gives -1.
template <class Product, class T, class Source>
__device__ float recurrent_gradient(const Backward<T>& b, const Product& product, Source source,
                                    int64_t first, int64_t active, const Place<Product::rows>& p,
                                    BackwardShared<Product>& shared_memory, int buffer) {
  const LstmShape& s = b.shape;
  const int64_t G = 4 * s.hidden;
  const auto dgates = [&](int n) -> const T* {
    const int64_t row = first + n < active ? source(first + n) : -1;
    return row < 0 ? nullptr : b.dgates + s.plane_row(p.d, row) * G;
  };
  auto& parts = shared_memory.parts;
  product.template multiply<true>(shared_memory.product, dgates, static_cast<int>(G),
                                  parts.part[buffer][threadIdx.x / 32]);
  __syncthreads();
  const int64_t n = first + p.sequence;
  if (p.sequence < 0 || n >= active) return 0.0f;
  if (source(n) >= 0) return total(parts, buffer, p.cell, p.sequence);
  return b.dhn ? to_float(b.dhn[s.state(p.d, n) * s.hidden + p.unit]) : 0.0f;
}

// dh0, which leaves at the first frame each sequence visited, and dc0.
template <class Product, class T>
__device__ void store_states(const Backward<T>& b, const Product& product,
                             const Place<Product::rows>& p, BackwardShared<Product>& shared_memory,
                             int buffer) {
  const LstmShape& s = b.shape;
  const int64_t sequences = s.layout.extent->sequences;
  for (int64_t first = 0; first < sequences; first += pass_sequences) {
    const auto visited_first = [&](int64_t n) {
      return s.row(n, p.d == 0 ? 0 : s.layout.lengths[n] - 1);
    };
    const float dh =
        recurrent_gradient(b, product, visited_first, first, sequences, p, shared_memory, buffer);
    buffer = 1 - buffer;
    const int64_t n = first + p.sequence;
    if (p.sequence < 0 || n >= sequences) continue;
    const int64_t at = s.state(p.d, n) * s.hidden + p.unit;
    if (b.dh0) b.dh0[at] = to<T>(dh);
    if (b.dc0) b.dc0[at] = b.dc[at];
  }
}

template <class Product>
__global__ void __launch_bounds__(threads, 1) grid_backward(Backward<typename Product::Element> b) {
  auto& shared_memory = shared<BackwardShared<Product>>();
  const LstmShape& s = b.shape;
  const Place<Product::rows> p(s.hidden);
  const Flags flags(b.flags, p.d);
  Product product;
  load_weights(b, shared_memory, product);
  const int64_t frames = s.layout.extent->frames, sequences = s.layout.extent->sequences;
  for (int64_t n = p.sequence; n >= 0 && n < sequences; n += pass_sequences) {
    const int64_t at = s.state(p.d, n) * s.hidden + p.unit;
    b.dc[at] = b.dcn ? b.dcn[at] : 0.0f;
  }
  int buffer = 0;
  for (int64_t done = 0; done < frames; ++done) {
    const int64_t step = frames - 1 - done;
    const Step now = step_at(s.layout, p.d, step), earlier = step_at(s.layout, p.d, step - 1);
    const Step later = step_at(s.layout, p.d, step + 1);
    BackwardInputs in = load_backward_inputs(b, now, earlier, 0, p);
    flags.wait_for(static_cast<uint32_t>(done));
    for (int64_t first = 0; first < now.active; first += pass_sequences) {
      const auto after = [&](int64_t n) { return n < later.active ? later.row + n : -1; };
      const float dh =
          recurrent_gradient(b, product, after, first, now.active, p, shared_memory, buffer);
      backward_cell(b, now, first, p, in, dh);
      in = load_backward_inputs(b, now, earlier, first + pass_sequences, p);
      buffer = 1 - buffer;
    }
    flags.announce(static_cast<uint32_t>(done + 1));
  }
  if (!b.dh0 && !b.dc0) return;
  flags.wait_for(static_cast<uint32_t>(frames));
  store_states(b, product, p, shared_memory, buffer);
}

// f(launch, kernel) for H.
template <int k_tiles, class F>
void with_k_tiles(const LstmDims& dims, DType compute, F f) {
  const auto with_product = [&](auto product) {
    using Product = decltype(product);
    f(configuration("lstm grid_backward", dims, Product::rows, sizeof(BackwardShared<Product>)),
      grid_backward<Product>);
  };
  compute == DType::f32 ? with_product(Tf32Product<8, k_tiles>())
                        : with_product(MmaProduct<1, k_tiles>());
}

template <class F>
void with_kernel(const LstmDims& dims, DType compute, F f) {
  switch (k_tiles_for(4 * dims.hidden)) {
    case 1:
    case 2:
    case 4:
      return with_k_tiles<4>(dims, compute, f);
    case 8:
      return with_k_tiles<8>(dims, compute, f);
    case 16:
      return with_k_tiles<16>(dims, compute, f);
    default:
      return with_k_tiles<32>(dims, compute, f);
  }
}

}  // namespace

bool lstm_backward_grid_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmBackwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1, 1, 0};
  const DType compute = a ? a->dy.dtype : DType::bf16;
  if (!lstm_suits("grid", context.backend, dims, compute)) return false;
  if (a && !starts_aligned(a->dgates)) return false;
  bool all = false;
  with_kernel(dims, compute,
              [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_backward_grid(const Context& context, const LstmBackwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuBackwardSpace space = lstm_gpu_space(context, a);
  fill_bytes(context, space.flags, 0, lstm_grid_flag_bytes(a.dims));
  with_kernel(a.dims, a.dy.dtype,
              [&]<class T>(const LaunchConfig& config, void (*kernel)(Backward<T>)) {
                launch(context, config, kernel, Backward<T>(a, space));
              });
  lstm_gpu_input_gradients(context, a, space);
}

}  // namespace rondo::RONDO_GPU
