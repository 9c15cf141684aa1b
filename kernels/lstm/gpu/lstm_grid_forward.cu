// The forward pass over the whole grid; kernels/lstm/gpu/lstm_grid.h has the tiling.
//
// A block owns 8 or 16 cells and their four gates. h is exchanged through y: a block reads the rows
// of the step before, which are complete once all flags are there. c stays with the thread that
// computes the cell.
#include "kernels/lstm/gpu/lstm_grid_product.h"
#include "kernels/lstm/lstm_impl.h"

namespace rondo::RONDO_GPU {
namespace {

using namespace grid;

template <class T>
struct Forward : LstmForwardArrays<T> {
  uint32_t* flags;

  Forward(const LstmForwardArgs& a, const LstmGpuForwardSpace& space)
      : LstmForwardArrays<T>(a, space), flags(space.flags) {}
};

// The rows of a block's weights: gate row / cells of cell row % cells.
template <class Product>
constexpr int cells_of = Product::rows / 4;

template <class Product>
struct ForwardShared {
  Parts<Product::rows> parts;
  typename Product::Shared product;
};

template <class Product, class T>
__device__ void load_weights(const Forward<T>& f, ForwardShared<Product>& s, Product& product) {
  constexpr int cells = cells_of<Product>;
  const int64_t H = f.shape.hidden, first = int64_t{blockIdx.x} * cells;
  const T* r = f.r[blockIdx.y];
  product.template load<Adjacent::columns>(s.product, [&](int row, int k) {
    const int64_t unit = first + row % cells;
    return unit < H && k < H ? r[(row / cells * H + unit) * H + k] : to<T>(0.0f);
  });
}

template <int rows, int cells, class T>
__device__ void forward_cell(const Forward<T>& f, const Step& step, int64_t first,
                             const Place<cells>& p, ForwardInputs<T> in,
                             const LstmCellBias<T>& bias, const Parts<rows>& parts, int buffer) {
  const LstmShape& s = f.shape;
  const int64_t n = first + p.sequence, H = s.hidden;
  if (p.sequence < 0 || n >= step.active) return;
  float gate[4];
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) {
    gate[g] = bias.added_to(in.pre[g], g) + total(parts, buffer, g * cells + p.cell, p.sequence);
  }
  const T h = to<T>(lstm_cell_forward<T>(gate, in.c));
  const int64_t row = step.row + n, at = s.plane_row(p.d, row);
  f.y[(row * s.directions + p.d) * H + p.unit] = h;
  f.c[s.state(p.d, n) * H + p.unit] = in.c;
  if (f.cells) f.cells[at * H + p.unit] = in.c;
  if (!f.gates) return;
  RONDO_UNROLL_ALL
  for (int g = 0; g < 4; ++g) f.gates[(at * 4 + g) * H + p.unit] = to<T>(gate[g]);
}

template <int cells, class T>
__device__ void load_states(const Forward<T>& f, const Place<cells>& p) {
  if (p.sequence < 0) return;
  for (int64_t n = p.sequence; n < f.shape.layout.extent->sequences; n += pass_sequences) {
    const int64_t at = f.shape.state(p.d, n) * f.shape.hidden + p.unit;
    f.c[at] = f.c0 ? f.c0[at] : 0.0f;
  }
}

template <class Product>
__global__ void __launch_bounds__(threads, 1) grid_forward(Forward<typename Product::Element> f) {
  using T = typename Product::Element;
  auto& shared_memory = shared<ForwardShared<Product>>();
  const LstmShape& s = f.shape;
  const int64_t H = s.hidden;
  const Place<cells_of<Product>> p(H);
  const Flags flags(f.flags, p.d);
  Product product;
  load_weights(f, shared_memory, product);
  load_states(f, p);
  const LstmCellBias<T> bias(f, p.d, p.unit);
  const int64_t frames = s.layout.extent->frames;
  int buffer = 0;
  for (int64_t step = 0; step < frames; ++step) {
    const Step now = step_at(s.layout, p.d, step), before = step_at(s.layout, p.d, step - 1);
    ForwardInputs<T> in = load_forward_inputs<T>(f, now, 0, p);
    flags.wait_for(static_cast<uint32_t>(step));
    for (int64_t first = 0; first < now.active; first += pass_sequences) {
      const auto h_before = [&](int n) -> const T* {
        if (first + n < before.active) {
          return f.y + ((before.row + first + n) * s.directions + p.d) * H;
        }
        const bool starts = f.h0 && first + n < now.active;
        return starts ? f.h0 + s.state(p.d, first + n) * H : nullptr;
      };
      auto& parts = shared_memory.parts;
      auto* part = parts.part[buffer][threadIdx.x / 32];
      const auto width = static_cast<int>(H);
      if (H % Product::loaded_at_once == 0) {
        product.template multiply<true>(shared_memory.product, h_before, width, part);
      } else {
        product.template multiply<false>(shared_memory.product, h_before, width, part);
      }
      __syncthreads();
      forward_cell(f, now, first, p, in, bias, parts, buffer);
      in = load_forward_inputs<T>(f, now, first + pass_sequences, p);
      buffer = 1 - buffer;
    }
    flags.announce(static_cast<uint32_t>(step + 1));
  }
  store_final_states(f, p);
}

// f(launch, kernel) for H: as few cells per block as let all blocks be resident.
template <int k_tiles, class F>
void with_k_tiles(const LstmDims& dims, DType compute, F f) {
  const auto with_product = [&](auto product, auto use) {
    using Product = decltype(product);
    use(configuration("lstm grid_forward", dims, cells_of<Product>, sizeof(ForwardShared<Product>)),
        grid_forward<Product>);
  };
  if (compute == DType::f32) return with_product(Tf32Product<32, k_tiles>(), f);
  bool few = false;
  with_product(MmaProduct<2, k_tiles>(),
               [&](const LaunchConfig& config, auto kernel) { few = fits(config, kernel); });
  few ? with_product(MmaProduct<2, k_tiles>(), f) : with_product(MmaProduct<4, k_tiles>(), f);
}

template <class F>
void with_kernel(const LstmDims& dims, DType compute, F f) {
  switch (k_tiles_for(dims.hidden)) {
    case 1:
      return with_k_tiles<1>(dims, compute, f);
    case 2:
      return with_k_tiles<2>(dims, compute, f);
    case 4:
      return with_k_tiles<4>(dims, compute, f);
    default:
      return with_k_tiles<8>(dims, compute, f);
  }
}

}  // namespace

bool lstm_forward_grid_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmForwardArgs*>(args);
  if (a && a->run != LstmRun::both) return false;
  const LstmDims dims = a ? a->dims : LstmDims{1, 1, 1, 0};
  const DType compute = a ? a->x.dtype : DType::bf16;
  if (!lstm_suits("grid", context.backend, dims, compute)) return false;
  if (a && !(starts_aligned(a->y) && starts_aligned(a->h0))) return false;
  bool all = false;
  with_kernel(dims, compute,
              [&](const LaunchConfig& config, auto kernel) { all = fits(config, kernel); });
  return all;
}

void lstm_forward_grid(const Context& context, const LstmForwardArgs& a) {
  check_lstm(a);
  if (a.layout.capacity.sequences == 0) return;
  const LstmGpuForwardSpace space = lstm_gpu_space(context, a);
  lstm_gpu_input_products(context, a, space);
  fill_bytes(context, space.flags, 0, lstm_grid_flag_bytes(a.dims));
  with_kernel(a.dims, a.x.dtype,
              [&]<class T>(const LaunchConfig& config, void (*kernel)(Forward<T>)) {
                launch(context, config, kernel, Forward<T>(a, space));
              });
}

}  // namespace rondo::RONDO_GPU
