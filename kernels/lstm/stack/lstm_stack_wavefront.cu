// The layers of a stack at once, each a chunk of frames behind the one that it reads, in the
// clusters of kernels/lstm/gpu/lstm_cluster.h; kernels/lstm/stack/lstm_wavefront.h has the
// outline.
#include "kernels/lstm/gpu/lstm_cluster_backward.h"
#include "kernels/lstm/gpu/lstm_cluster_forward.h"
#include "kernels/lstm/stack/lstm_stack_impl.h"
#include "kernels/lstm/stack/lstm_wavefront.h"
#include "kernels/simt/copy_rows.h"

namespace rondo::RONDO_GPU {
namespace {

using cluster::backward::Backward, cluster::forward::Forward;

// What every launch of a call is told of time.
struct Chunks {
  PackedView whole;
  int64_t frames;  // of a chunk
  int64_t count;
  PackedExtent* extents;  // [count]
  int32_t* lengths;       // [count, N]

  Chunks(const PackedView& layout, const LstmWavefront& w, const LstmWavefrontSpace& s)
      : whole(layout),
        frames(w.chunk_frames),
        count(w.chunks),
        extents(s.extents),
        lengths(s.lengths) {}

  // Chunk i as a batch of its own, whose rows are those of the whole.
  __device__ PackedView view(int64_t i) const {
    PackedView v = whole;
    v.extent = extents + i;
    v.lengths = lengths + i * whole.capacity.sequences;
    v.batch_sizes += i * frames;
    v.row_offsets += i * frames;
    return v;
  }
  __device__ bool is_empty(int64_t i) const { return extents[i].rows == 0; }
  __device__ int64_t first_row(int64_t i) const {
    return is_empty(i) ? 0 : whole.row_offsets[i * frames];
  }
  // The row of sequence 0 in the frame before.
  __device__ int64_t row_before(int64_t i) const {
    return is_empty(i) ? 0 : whole.row_offsets[i * frames - 1];
  }
};

// chunks.extents and chunks.lengths. Sequences that are over count as empty ones.
__global__ void cut_chunks(Chunks chunks) {
  const PackedView& whole = chunks.whole;
  const int64_t N = whole.capacity.sequences;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t chunk = i / N, n = i % N;
  if (chunk >= chunks.count) return;
  const int64_t first = chunk * chunks.frames;
  const auto within = [&](int64_t frames) {
    const int64_t left = frames - first;
    return static_cast<int32_t>(left < 0 ? 0 : left < chunks.frames ? left : chunks.frames);
  };
  if (n < whole.extent->sequences) chunks.lengths[i] = within(whole.lengths[n]);
  if (n > 0) return;
  const int32_t frames = within(whole.extent->frames);
  const int32_t rows =
      frames > 0 ? whole.row_offsets[first + frames] - whole.row_offsets[first] : 0;
  chunks.extents[chunk] = {rows, frames, whole.extent->sequences};
}

// Rows that a product of a layer's chunk reads: `width` numbers each, from its first row on in
// `from`, next to each other in `to`.
template <class T>
struct Rows {
  const T* from;
  T* to;
  int64_t width;
};

// What a loop reads and writes of one layer; `pre` of its chunk alone.
template <class T>
struct ForwardLayer {
  Rows<T> rows;  // of x
  const T *r, *h0, *pre;
  const float *b, *c0;
  T *y, *gates, *h;  // h, c: the states between chunks, and at the end
  float *cells, *c;
};

// `dy` of its chunk alone, but for the highest layer, which has all.
template <class T>
struct BackwardLayer {
  Rows<T> rows;  // of dgates
  const T *r, *gates, *dy, *dhn;
  const float *c0, *cells, *dcn;
  T *dgates, *dh0;
  float *dc0, *dh, *dc;  // dh, dc: the states between chunks
};

template <class T, template <class> class Loop, template <class> class Layer>
struct Stack {
  Chunks chunks;
  Loop<T> loop;  // what all layers have in common
  int count;
  Layer<T> layers[lstm_stack_layers];
};
template <class T>
using ForwardStack = Stack<T, LstmForwardArrays, ForwardLayer>;
template <class T>
using BackwardStack = Stack<T, LstmBackwardArrays, BackwardLayer>;

// The layer and the chunk of a block: blockIdx.y counts from the diagonal's first layer.
struct Place {
  int layer;
  int64_t chunk;

  __device__ explicit Place(const LstmDiagonal& diagonal)
      : layer(diagonal.first + static_cast<int>(blockIdx.y)), chunk(diagonal.number - layer) {}
};

constexpr int row_lanes = 32;

// layers[].rows of a diagonal; a warp to a row.
template <class AnyStack>
__global__ void gather_rows(AnyStack stack, LstmDiagonal diagonal) {
  const Place p(diagonal);
  const auto [first, to, width] = stack.layers[p.layer].rows;
  using T = std::remove_pointer_t<std::remove_const_t<decltype(to)>>;
  constexpr int wide = 16 / static_cast<int>(sizeof(T));
  const T* from = first + stack.chunks.first_row(p.chunk) * width;
  const bool words = width % wide == 0 && reinterpret_cast<uintptr_t>(first) % 16 == 0;
  const Team<row_lanes> team;
  for (int64_t r = team.first(); r < stack.chunks.extents[p.chunk].rows; r += team.stride()) {
    if (words) {
      copy_row(team, reinterpret_cast<Words<16>*>(to + r * width),
               reinterpret_cast<const Words<16>*>(from + r * width), width / wide);
    } else {
      copy_row(team, to + r * width, from + r * width, width);
    }
  }
}

// f(layer, state) for the block's sequence of a layer, if there is one: of [N, H] states those of
// this thread's cells.
template <class AnyStack, class F>
__device__ void for_states(AnyStack& stack, F f) {
  const int64_t n = blockIdx.x, H = stack.loop.shape.hidden;
  if (n >= stack.chunks.whole.extent->sequences) return;
  for (int64_t k = threadIdx.x; k < H; k += blockDim.x) f(stack.layers[blockIdx.y], n * H + k);
}

template <class T>
__global__ void begin_forward(ForwardStack<T> stack) {
  for_states(stack, [](const ForwardLayer<T>& layer, int64_t at) {
    layer.h[at] = layer.h0 ? layer.h0[at] : to<T>(0.0f);
    layer.c[at] = layer.c0 ? layer.c0[at] : 0.0f;
  });
}
template <class T>
__global__ void begin_backward(BackwardStack<T> stack) {
  for_states(stack, [](const BackwardLayer<T>& layer, int64_t at) {
    layer.dh[at] = layer.dhn ? to_float(layer.dhn[at]) : 0.0f;
    layer.dc[at] = layer.dcn ? layer.dcn[at] : 0.0f;
  });
}
template <class T>
__global__ void end_backward(BackwardStack<T> stack) {
  for_states(stack, [](const BackwardLayer<T>& layer, int64_t at) {
    if (layer.dh0) layer.dh0[at] = to<T>(layer.dh[at]);
    if (layer.dc0) layer.dc0[at] = layer.dc[at];
  });
}

template <class T, int blocks, int tiles>
__global__ void __launch_bounds__(cluster::threads, 1)
    stack_forward(ForwardStack<T> stack, LstmDiagonal diagonal) {
  const Place p(diagonal);
  const ForwardLayer<T>& layer = stack.layers[p.layer];
  Forward<T> f = stack.loop;
  f.shape.layout = stack.chunks.view(p.chunk);
  f.r[0] = layer.r;
  f.b[0] = layer.b;
  f.pre = layer.pre - stack.chunks.first_row(p.chunk) * 4 * f.shape.hidden;
  f.h0 = f.hn = layer.h;
  f.c0 = f.cn = layer.c;
  f.y = layer.y;
  f.gates = layer.gates;
  f.cells = layer.cells;
  cluster::forward::run_sequences<T, blocks, tiles>(f, 0);
}

template <class T, int blocks, int tiles>
__global__ void __launch_bounds__(cluster::threads, 1)
    stack_backward(BackwardStack<T> stack, LstmDiagonal diagonal) {
  const Place p(diagonal);
  const BackwardLayer<T>& layer = stack.layers[p.layer];
  const int64_t H = stack.loop.shape.hidden;
  Backward<T> b = stack.loop;
  b.shape.layout = stack.chunks.view(p.chunk);
  b.r[0] = layer.r;
  b.gates = layer.gates;
  b.cells = layer.cells;
  // Before a chunk's first frame c is that of the frame before.
  b.c0 = p.chunk == 0 ? layer.c0 : layer.cells + stack.chunks.row_before(p.chunk) * H;
  const bool highest = p.layer == stack.count - 1;
  b.dy = layer.dy - (highest ? 0 : stack.chunks.first_row(p.chunk) * H);
  b.dhn = nullptr;
  b.dh0 = nullptr;
  b.dh = layer.dh;
  b.dcn = b.dc0 = layer.dc;
  b.dgates = layer.dgates;
  cluster::backward::run_sequences<T, blocks, tiles>(b, 0);
}

// Of either pass: its kernels, and a layer's arrays.
template <class T>
struct ForwardPass {
  using Args = LstmStackForwardArgs;
  using Arrays = ForwardStack<T>;
  static constexpr const char* name = "lstm stack_forward";
  template <int blocks, int tiles>
  static auto kernel() {
    return stack_forward<T, blocks, tiles>;
  }
  template <int blocks, int tiles>
  static size_t shared_bytes() {
    return sizeof(cluster::forward::ForwardShared<T, blocks, tiles>);
  }

  static ForwardLayer<T> layer(const Args& a, const LstmWavefront& w, const LstmWavefrontSpace& s,
                               int64_t l) {
    const LstmForwardArgs& args = a.layers[static_cast<size_t>(l)];
    const DType t = args.x.dtype;
    const int64_t states = l * w.sequences * w.hidden;
    void* const x = lstm_wavefront_rows(w, s, LstmPhase::forward, t, l);
    void* const pre = lstm_wavefront_made(w, s, LstmPhase::forward, t, l);
    ForwardLayer<T> layer;
    layer.rows = {args.x.as<T>(), static_cast<T*>(x), args.dims.input};
    layer.r = args.weights[0].r.as<T>();
    layer.b = args.weights[0].b.as<float>();
    layer.h0 = args.h0.as<T>();
    layer.c0 = args.c0.as<float>();
    layer.pre = static_cast<const T*>(pre);
    layer.y = args.y.as<T>();
    layer.gates = args.gates.as<T>();
    layer.cells = args.cells.as<float>();
    layer.h = args.hn ? args.hn.as<T>() : static_cast<T*>(s.h) + states;
    layer.c = args.cn ? args.cn.as<float>() : s.c + states;
    return layer;
  }
};

template <class T>
struct BackwardPass {
  using Args = LstmStackBackwardArgs;
  using Arrays = BackwardStack<T>;
  static constexpr const char* name = "lstm stack_backward";
  template <int blocks, int tiles>
  static auto kernel() {
    return stack_backward<T, blocks, tiles>;
  }
  template <int blocks, int tiles>
  static size_t shared_bytes() {
    return sizeof(cluster::backward::BackwardShared<T, blocks, tiles>);
  }

  static BackwardLayer<T> layer(const Args& a, const LstmWavefront& w, const LstmWavefrontSpace& s,
                                int64_t l) {
    const LstmBackwardArgs& args = a.layers[static_cast<size_t>(l)];
    const DType t = args.dy.dtype;
    const int64_t states = l * w.sequences * w.hidden;
    void* const dgates = lstm_wavefront_rows(w, s, LstmPhase::backward, t, l);
    BackwardLayer<T> layer;
    layer.rows = {args.dgates.as<T>(), static_cast<T*>(dgates), 4 * w.hidden};
    layer.r = args.weights[0].r.as<T>();
    layer.gates = args.gates.as<T>();
    layer.cells = args.cells.as<float>();
    layer.c0 = args.c0.as<float>();
    layer.dy = l == w.layers - 1
                   ? args.dy.as<T>()
                   : static_cast<const T*>(lstm_wavefront_made(w, s, LstmPhase::backward, t, l));
    layer.dhn = args.dhn.as<T>();
    layer.dcn = args.dcn.as<float>();
    layer.dgates = args.dgates.as<T>();
    layer.dh0 = args.dh0.as<T>();
    layer.dc0 = args.dc0.as<float>();
    layer.dh = s.dh + states;
    layer.dc = s.c + states;
    return layer;
  }
};

// f(launch, kernel) for all layers of a stack.
template <class Pass, class T, class F>
void with_kernel(const LstmWavefront& w, F f) {
  const int layers = static_cast<int>(w.layers);
  const auto launch_of = [&](auto blocks, auto tiles) {
    return cluster::configuration(Pass::name, blocks, tiles, layers, w.sequences,
                                  Pass::template shared_bytes<blocks, tiles>());
  };
  cluster::with_geometry<T>(
      w.hidden, layers, w.sequences,
      [&](auto blocks, auto tiles) {
        return resident_clusters(launch_of(blocks, tiles), Pass::template kernel<blocks, tiles>());
      },
      [&](auto blocks, auto tiles) {
        f(launch_of(blocks, tiles), Pass::template kernel<blocks, tiles>());
      });
}

// The launches of one call.
template <class Pass, class T>
class Wavefront {
 public:
  using Args = typename Pass::Args;

  template <class Space>
  Wavefront(const Context& context, const Args& a, const Space& none)
      : context_(context),
        args_(a),
        shape_(lstm_wavefront(a)),
        space_(lstm_wavefront_space(context, a)),
        stack_{Chunks(a.layers[0].layout, shape_, space_),
               {a.layers[0], none},
               static_cast<int>(shape_.layers),
               {}} {
    for (int64_t l = 0; l < shape_.layers; ++l) {
      stack_.layers[l] = Pass::layer(a, shape_, space_, l);
    }
    launch(context_,
           {.kernel = "lstm cut_chunks",
            .grid = {blocks_for(shape_.chunks * shape_.sequences, block_threads)},
            .block = {block_threads}},
           cut_chunks, stack_.chunks);
  }

  const LstmWavefront& shape() const { return shape_; }
  const LstmWavefrontSpace& space() const { return space_; }

  // A kernel of for_states().
  void run_states(const char* name, void (*kernel)(typename Pass::Arrays)) const {
    launch(context_,
           {.kernel = name,
            .grid = {static_cast<unsigned>(shape_.sequences), static_cast<unsigned>(shape_.layers)},
            .block = {block_threads}},
           kernel, stack_);
  }
  void run_loops(const LstmDiagonal& diagonal) const {
    with_kernel<Pass, T>(shape_, [&](LaunchConfig config, auto kernel) {
      config.grid.y = static_cast<unsigned>(diagonal.end - diagonal.first);
      launch(context_, config, kernel, stack_, diagonal);
    });
  }
  // Of the diagonal's layers from `first` on: what products read, and the products.
  void run_products(const LstmDiagonal& diagonal, int first) const {
    LstmDiagonal read = diagonal;
    read.first = read.first < first ? first : read.first;
    if (read.first >= read.end) return;
    LaunchConfig config =
        launch_shape("lstm gather_rows", blocks_for(shape_.chunk_rows, Team<row_lanes>::per_block));
    config.grid.y = static_cast<unsigned>(read.end - read.first);
    launch(context_, config, gather_rows<typename Pass::Arrays>, stack_, read);
    lstm_wavefront_products(context_, args_, space_, diagonal);
  }

 private:
  const Context& context_;
  const Args& args_;
  LstmWavefront shape_;
  LstmWavefrontSpace space_;
  typename Pass::Arrays stack_;
};

template <class T>
void run_forward(const Context& context, const LstmStackForwardArgs& a) {
  const Wavefront<ForwardPass<T>, T> wavefront(context, a, LstmGpuForwardSpace{});
  wavefront.run_states("lstm begin_forward", begin_forward<T>);
  for (int64_t i = 0; i < wavefront.shape().diagonals(); ++i) {
    const LstmDiagonal diagonal = lstm_diagonal(wavefront.shape(), LstmPhase::forward, i);
    wavefront.run_products(diagonal, 0);
    wavefront.run_loops(diagonal);
  }
}

template <class T>
void run_backward(const Context& context, const LstmStackBackwardArgs& a) {
  const Wavefront<BackwardPass<T>, T> wavefront(context, a, LstmGpuBackwardSpace{});
  wavefront.run_states("lstm begin_backward", begin_backward<T>);
  bool wanted = false;
  for (const LstmBackwardArgs& layer : a.layers) wanted = wanted || layer.dh0 || layer.dc0;
  for (int64_t i = 0; i < wavefront.shape().diagonals(); ++i) {
    const LstmDiagonal diagonal = lstm_diagonal(wavefront.shape(), LstmPhase::backward, i);
    wavefront.run_loops(diagonal);
    wavefront.run_products(diagonal, 1);
  }
  if (wanted) wavefront.run_states("lstm end_backward", end_backward<T>);
  lstm_wavefront_input_gradient(context, a, wavefront.space());
}

template <template <class> class Pass, class Args>
bool accepts(const Context& context, const Args* a, DType t) {
  if (!a) {
    return cluster::cluster_machine(Pass<bf16>::template kernel<2, 1>(),
                                    Pass<bf16>::template shared_bytes<2, 1>());
  }
  if (!lstm_wavefront_suits(context.backend, *a)) return false;
  bool fits = false;
  const auto ask = [&](const LaunchConfig& config, auto kernel) {
    fits = resident_clusters(config, kernel) > 0;
  };
  const LstmWavefront w = lstm_wavefront(*a);
  t == DType::f32 ? with_kernel<Pass<float>, float>(w, ask) : with_kernel<Pass<bf16>, bf16>(w, ask);
  return fits;
}

}  // namespace

bool lstm_stack_forward_wavefront_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmStackForwardArgs*>(args);
  return accepts<ForwardPass>(context, a, a ? lstm_compute_dtype(a->layers[0]) : DType::bf16);
}
bool lstm_stack_backward_wavefront_accepts(const Context& context, const void* args) {
  const auto* a = static_cast<const LstmStackBackwardArgs*>(args);
  return accepts<BackwardPass>(context, a, a ? lstm_compute_dtype(a->layers[0]) : DType::bf16);
}

void lstm_stack_forward_wavefront(const Context& context, const LstmStackForwardArgs& a) {
  check_lstm_stack(a);
  if (a.layers[0].layout.capacity.sequences == 0) return;
  (lstm_compute_dtype(a.layers[0]) == DType::f32 ? run_forward<float> : run_forward<bf16>)(context,
                                                                                           a);
}
void lstm_stack_backward_wavefront(const Context& context, const LstmStackBackwardArgs& a) {
  check_lstm_stack(a);
  if (a.layers[0].layout.capacity.sequences == 0) return;
  (lstm_compute_dtype(a.layers[0]) == DType::f32 ? run_backward<float>
                                                 : run_backward<bf16>)(context, a);
}

}  // namespace rondo::RONDO_GPU
