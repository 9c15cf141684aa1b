// The fast lattice of ctc in segments: see ctc_segments_gpu.h.
#include "kernels/ctc/gpu/ctc_segments_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

template <int P, int warps, bool across, class Emissions>
using SegmentsShared = typename Segments<P, warps, across, Emissions>::Shared;

enum class Half : uint8_t { first, second };

// grid: sequences x directions x strips.
template <int P, int warps, bool across, Half half, class Emissions>
__device__ void lattice_launch(const LatticeArgs<Emissions>& a, int tick) {
  auto& s = shared<SegmentsShared<P, warps, across, Emissions>>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) return;
  const int frames = a.layout.lengths[n], labels = a.label_offsets[n + 1] - a.label_offsets[n];
  const int needed = SequenceLoss{a, s.loss, n, frames, labels}.needed_frames();
  if (frames < needed || frames == 0) return;
  const int groups = half == Half::first ? 1 : 2;
  const Segments<P, warps, across, Emissions> x{a,
                                                s,
                                                n,
                                                frames,
                                                labels,
                                                static_cast<int>(blockIdx.z),
                                                blockIdx.y == 0,
                                                static_cast<int>(blockDim.x) / (32 * groups)};
  if constexpr (half == Half::first) {
    x.pass(tick, needed);
  } else {
    x.through(tick, needed);
  }
}

template <int P, int warps, bool across, class Emissions>
__global__ void __launch_bounds__(32 * warps, 1) lattice_pass(LatticeArgs<Emissions> a, int tick) {
  lattice_launch<P, warps, across, Half::first>(a, tick);
}
template <int P, int warps, bool across>
__global__ void __launch_bounds__(64 * warps, 1)
    lattice_through(LatticeArgs<StoredEmissions> a, int tick) {
  lattice_launch<P, warps, across, Half::second>(a, tick);
}

constexpr unsigned end_threads = 256;
struct EndShared {
  LossShared loss;
  int top[end_threads / 32];
  End end[2];
};

// Between the halves: in which units posteriors are.
__global__ void __launch_bounds__(end_threads) lattice_meet(LossArgs a) {
  auto& s = shared<EndShared>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) return;
  const int frames = a.layout.lengths[n], labels = a.label_offsets[n + 1] - a.label_offsets[n];
  const int needed = SequenceLoss{a, s.loss, n, frames, labels}.needed_frames();
  if (frames < needed || frames == 0) return;
  int top = meeting_exponent(a, n, frames, labels);
  for (int d = 16; d > 0; d /= 2) top = larger(top, __shfl_xor_sync(all_lanes, top, d));
  if (threadIdx.x % 32 == 0) s.top[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const int other : s.top) top = larger(top, other);
  a.work.z_exponent[n] = top;
}

__global__ void __launch_bounds__(end_threads) lattice_end(LossArgs a, bool with_grad) {
  auto& s = shared<EndShared>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) {
    if (threadIdx.x == 0) {
      a.loss[n] = 0;
      a.work.state[n] = CtcState::no_gradient;
    }
    return;
  }
  const int frames = a.layout.lengths[n], labels = a.label_offsets[n + 1] - a.label_offsets[n];
  const SequenceLoss loss{a, s.loss, n, frames, labels};
  if (!loss.begins(loss.needed_frames())) return;
  if (with_grad) {
    const CtcTiling t = a.work.tiling;
    const int used = t.strips == 1 ? t.warps : (labels / (32 * t.pairs * t.warps) + 1) * t.warps;
    loss.from_posteriors(a.work.z_exponent[n], used);
    return;
  }
  if (threadIdx.x == 0) {
    const auto alpha = ColumnStates::head(a.work, n, true, 0);
    const auto beta = ColumnStates::head(a.work, n, false, 0);
    const auto last = alpha.at(labels), before = alpha.at(larger(labels - 1, 0));
    const auto first = beta.at(0);
    s.end[0] = {{last.b, before.l}, {last.exponent, before.exponent}};
    s.end[1] = {{first.b, first.l}, {first.exponent, first.exponent}};
  }
  loss.from_ends(s.end[0], s.end[1]);
}

template <int P, int warps, bool across, class Emissions>
void launch_half(const Context& context, const LatticeArgs<Emissions>& a, Half half) {
  const CtcGpuWorkspace& work = a.work;
  const unsigned groups = half == Half::first ? 1 : 2;
  const LaunchConfig config{
      .kernel = half == Half::first ? "ctc lattice_pass" : "ctc lattice_through",
      .grid = {static_cast<unsigned>(a.layout.capacity.sequences), 2,
               static_cast<unsigned>(work.tiling.strips)},
      .block = {32 * groups * static_cast<unsigned>(work.tiling.warps)},
      .shared_bytes = sizeof(SegmentsShared<P, warps, across, Emissions>)};
  for (int tick = 0; tick < work.segments.spans + work.tiling.strips - 1; ++tick) {
    if (half == Half::first) {
      launch(context, config, lattice_pass<P, warps, across, Emissions>, a, tick);
    } else if constexpr (std::is_same_v<Emissions, StoredEmissions>) {
      launch(context, config, lattice_through<P, warps, across>, a, tick);
    }
  }
}

template <class Emissions>
void launch_half(const Context& context, const LatticeArgs<Emissions>& a, Half half) {
  const CtcTiling t = a.work.tiling;
  if (t.warps > 4) return launch_half<4, 8, true>(context, a, half);
  if constexpr (std::is_same_v<Emissions, StoredEmissions>) {
    if (t.pairs == 1) return launch_half<1, 1, false>(context, a, half);
    if (t.pairs == 2) return launch_half<2, 1, false>(context, a, half);
    if (t.warps == 1) return launch_half<4, 1, false>(context, a, half);
    launch_half<4, 4, false>(context, a, half);
  } else {
    RONDO_CHECK(false, "ctc: one block holds a lattice without gradient");
  }
}

void launch_meet(const Context& context, const LossArgs& a) {
  launch(context,
         {.kernel = "ctc lattice_meet",
          .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
          .block = {end_threads},
          .shared_bytes = sizeof(EndShared)},
         lattice_meet, a);
}
template <class T>
void launch_end(const Context& context, const Problem<T>& p) {
  const LossArgs a = loss_args(p);
  launch(context,
         {.kernel = "ctc lattice_end",
          .grid = {static_cast<unsigned>(a.layout.capacity.sequences)},
          .block = {end_threads},
          .shared_bytes = sizeof(EndShared)},
         lattice_end, a, static_cast<bool>(p.grad));
}

template <class T>
void run_as(const Context& context, const CtcArgs& args) {
  const Problem<T> p(args);
  if (p.grad) {
    launch_half(context, stored_emissions(p), Half::first);
    launch_meet(context, loss_args(p));
    launch_half(context, stored_emissions(p), Half::second);
  } else {
    launch_half(context, gathered_emissions(p), Half::first);
  }
  launch_end(context, p);
}

}  // namespace

void ctc_lattice_in_segments(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? run_as<float>(context, a) : run_as<bf16>(context, a);
}

void ctc_lattice_meet(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? launch_meet(context, loss_args(Problem<float>(a)))
                               : launch_meet(context, loss_args(Problem<bf16>(a)));
}

void ctc_lattice_end(const Context& context, const CtcArgs& a) {
  a.logits.dtype == DType::f32 ? launch_end(context, Problem<float>(a))
                               : launch_end(context, Problem<bf16>(a));
}

}  // namespace rondo::RONDO_GPU
