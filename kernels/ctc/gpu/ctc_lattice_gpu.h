// The fast lattice: one block per sequence, half of its warps run alpha from the first frame up,
// half beta from the last frame down; each stores its columns until they have met in the middle,
// then goes on through what the other has stored, and posteriors fall out. T + O(1) dependent
// steps. A warp needs its neighbour's last state of every frame: warps of one direction lie one
// chunk of frames behind each other, so that a barrier per chunk is enough. Where one warp per
// direction walks and the gradient is wanted, two more read and write for it: ctc_stage_gpu.h.
// Where several walk and the gradient is wanted, directions have blocks of their own: ctc_apart.cu.
// Range and tiles: ctc_tile_gpu.h; one warp: ctc_walker_gpu.h. For the *.cu files of kernels/ctc
// alone.
#pragma once

#include "kernels/ctc/gpu/ctc_shared_walk_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

// ---- one block ----

template <int P, int warps, class Emissions>
struct Lattice {
  static constexpr bool with_grad = std::is_same_v<Emissions, StoredEmissions>;
  static_assert(warps == 1 || !with_grad);  // ctc_apart.cu
  using W = Walker<P, warps, false, with_grad, Emissions>;
  using Shared = typename W::Shared;
  const LatticeArgs<Emissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels;
  const SequenceLoss loss{a, s.loss, n, frames, labels};

  __device__ void run() {
    const int needed = loss.needed_frames();
    if (!loss.begins(needed)) return;
    const int index = static_cast<int>(threadIdx.x) / 32;
    const int tile_warps = W::stages ? 1 : static_cast<int>(blockDim.x) / 64;
    const bool up = W::stages ? index % 2 == 0 : index < tile_warps;
    const int in_direction = W::stages ? 0 : up ? index : index - tile_warps;
    // Without a gradient there are no columns, and nothing is read or written at this address.
    float* const none = reinterpret_cast<float*>(&s);
    W w(a, s, n, frames, labels, tile_warps, tile_warps, in_direction, 0,
        with_grad ? a.work.columns + n * a.work.column_words : none);
    if (W::stages) w.role = static_cast<Role>(index / 2);
    up ? w.template start<true>(needed) : w.template start<false>(needed);
    if constexpr (with_grad) {
      with_gradient(w, up);
    } else {
      loss_only(w, up);
    }
  }

 private:
  static __device__ int chunks_of(int count) {
    return (count + W::chunk_frames - 1) / W::chunk_frames;
  }

  __device__ void with_gradient(W& w, bool up) {
    const int middle = frames / 2, rest = frames - middle;
    up ? w.template prime<true, Phase::store>(0, middle)
       : w.template prime<false, Phase::store>(frames - 1, rest);
    run_half<Phase::store>(w, up, chunks_of(rest));
    const int z = exponent_of_z(w, up, middle);
    w.z_exponent = z;
    up ? w.template prime<true, Phase::posteriors>(middle, rest)
       : w.template prime<false, Phase::posteriors>(middle - 1, middle);
    run_half<Phase::posteriors>(w, up, chunks_of(rest));
    __syncthreads();
    loss.from_posteriors(z, 1);
  }

  template <Phase phase>
  static __device__ void run_half(W& w, bool up, int chunks) {
    up ? SharedWalk<W, true, phase>{w}.run(chunks) : SharedWalk<W, false, phase>{w}.run(chunks);
  }

  __device__ int exponent_of_z(W& w, bool up, int middle) {
    __syncthreads();
    if (up && w.role == Role::walker) {
      const int top = w.meet(a.layout.row_offsets[middle], nullptr);
      if (w.lane == 0) s.top[0] = top;
    }
    __syncthreads();
    return s.top[0];
  }

  // Both directions go through all frames.
  __device__ void loss_only(W& w, bool up) {
    up ? w.template prime<true, Phase::pass>(0, frames)
       : w.template prime<false, Phase::pass>(frames - 1, frames);
    w.template run<Phase::pass>(up, chunks_of(frames));
    w.write_end(up);
    loss.from_ends(s.end[0], s.end[1]);
  }
};

// Threads for each warp that walks in a direction.
template <int P, int warps, class Emissions>
constexpr unsigned threads_per_warp =
    Lattice<P, warps, Emissions>::W::stages ? 64 * role_count : 64;

template <int P, int warps, class Emissions>
__global__ void __launch_bounds__(threads_per_warp<P, warps, Emissions>* warps, 1)
    lattice(LatticeArgs<Emissions> a) {
  auto& s = shared<typename Lattice<P, warps, Emissions>::Shared>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) {
    if (threadIdx.x == 0) {
      a.loss[n] = 0;
      a.work.state[n] = CtcState::no_gradient;
    }
    return;
  }
  const int labels = a.label_offsets[n + 1] - a.label_offsets[n];
  Lattice<P, warps, Emissions>{a, s, n, a.layout.lengths[n], labels}.run();
}

template <class Emissions>
void launch_lattice(const Context& context, const LatticeArgs<Emissions>& a) {
  const auto go = [&]<int P, int warps>(std::integral_constant<int, P>,
                                        std::integral_constant<int, warps>) {
    launch(context,
           {.kernel = "ctc lattice",
            .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
            .block = {threads_per_warp<P, warps, Emissions> *
                      static_cast<unsigned>(a.work.tiling.warps)},
            .shared_bytes = sizeof(typename Lattice<P, warps, Emissions>::Shared)},
           lattice<P, warps, Emissions>, a);
  };
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 4> four;
  constexpr std::integral_constant<int, 8> eight;
  static_assert(ctc_tiling(ctc_block_labels).warps == eight);
  const CtcTiling t = a.work.tiling;
  if (t.pairs == 1) return go(one, one);
  if (t.pairs == 2) return go(two, one);
  if (t.warps == 1) return go(four, one);
  if constexpr (!std::is_same_v<Emissions, StoredEmissions>) {
    if (t.warps <= four) return go(four, four);
    go(four, eight);
  }
}

}  // namespace
}  // namespace rondo::RONDO_GPU
