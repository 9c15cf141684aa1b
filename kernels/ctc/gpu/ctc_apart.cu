// The fast lattice with a gradient, where several warps walk in a direction: 128 labels and more. A
// direction of a sequence has a block of its own, for two reasons: its walkers then have a
// scheduler each, and a block's shared memory holds their stages (ctc_stage_gpu.h).
//
// Blocks do not wait for each other. `lattice_half` is launched twice: for the first half of the
// frames, whose columns are stored, and for the second, which goes on from the last column of its
// own direction through those of the other. Otherwise it is the lattice of ctc_lattice_gpu.h.
//
// Stages of up to four warps (511 labels) take 194 KB, and more labels are two blocks' in a
// direction: ctc_strips_gpu.h. Where a block does not get so much, walkers do without, with loads
// in registers.
#include "kernels/ctc/gpu/ctc_strips_gpu.h"

namespace rondo::RONDO_GPU {
namespace {

enum class Half : uint8_t { first, second };

template <int warps, bool with_stages>
struct Direction {
  static constexpr int P = 4;
  using W = Walker<P, warps, false, with_stages, StoredEmissions>;
  using Shared = typename W::Shared;
  static constexpr int threads = 32 * warps * (with_stages ? role_count : 1);
  const LatticeArgs<StoredEmissions>& a;
  Shared& s;
  const int32_t n;
  const int frames, labels;
  const int needed;  // frames
  const int block_warps = static_cast<int>(blockDim.x) / (with_stages ? 32 * role_count : 32);
  const int index = static_cast<int>(threadIdx.x) / 32;
  const int middle = frames / 2, rest = frames - middle;

  template <bool up>
  __device__ void first_half() const {
    W w = walker();
    w.template start<up>(needed);
    walk<up, Phase::store>(w, up ? 0 : frames - 1, up ? middle : rest);
  }

  template <bool up>
  __device__ void second_half() const {
    const int z = exponent_of_z();
    if (up && threadIdx.x == 0) a.work.z_exponent[n] = z;
    W w = walker();
    resume<up>(w);
    w.z_exponent = z;
    walk<up, Phase::posteriors>(w, up ? middle : middle - 1, up ? rest : middle);
  }

 private:
  __device__ W walker() const {
    W w(a, s, n, frames, labels, block_warps, block_warps, index % block_warps, 0,
        a.work.columns + n * a.work.column_words);
    if (with_stages) w.role = static_cast<Role>(index / block_warps);
    return w;
  }
  // The states that the first half has ended with.
  template <bool up>
  __device__ void resume(W& w) const {
    w.template start<up>(needed);
    if (!up || middle > 0) w.columns.load(a.layout.row_offsets[up ? middle - 1 : middle], w.tile);
  }
  template <bool up, Phase phase>
  static __device__ void walk(W& w, int from, int count) {
    w.template prime<up, phase>(from, count);
    const int chunks = (count + W::chunk_frames - 1) / W::chunk_frames;
    if constexpr (with_stages) {
      SharedWalk<W, up, phase>{w}.run(chunks);
    } else {
      w.template run<phase>(up, chunks);
    }
  }

  // In which units posteriors are: both directions' blocks find it.
  __device__ int exponent_of_z() const {
    W w = walker();
    resume<true>(w);
    const bool walks = w.role == Role::walker;
    if (walks) {
      CtcSeam& out = s.seam[0][w.warp][0];
      w.template write_seam<true>(out, 0);
      if (w.lane == 31) out.exponent = w.tile.exponent;
    }
    __syncthreads();
    if (walks) {
      const CtcSeam* in = w.warp > 0 ? &s.seam[0][w.warp - 1][0] : nullptr;
      const int top = w.meet(a.layout.row_offsets[middle], in);
      if (w.lane == 0) s.top[w.warp] = top;
    }
    __syncthreads();
    int z = no_exponent;
    for (int i = 0; i < block_warps; ++i) z = larger(z, s.top[i]);
    return z;
  }
};

// grid: sequences x directions. lattice_end() looks after sequences that have nothing to walk.
template <int warps, bool with_stages, Half half>
__global__ void __launch_bounds__(Direction<warps, with_stages>::threads, 1)
    lattice_half(LatticeArgs<StoredEmissions> a) {
  auto& s = shared<typename Direction<warps, with_stages>::Shared>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) return;
  const int frames = a.layout.lengths[n], labels = a.label_offsets[n + 1] - a.label_offsets[n];
  const int needed = SequenceLoss{a, s.loss, n, frames, labels}.needed_frames();
  if (frames < needed || frames == 0) return;
  const Direction<warps, with_stages> x{a, s, n, frames, labels, needed};
  if constexpr (half == Half::first) {
    blockIdx.y == 0 ? x.template first_half<true>() : x.template first_half<false>();
  } else {
    blockIdx.y == 0 ? x.template second_half<true>() : x.template second_half<false>();
  }
}

template <int warps, bool with_stages>
bool launch_halves(const Context& context, const LatticeArgs<StoredEmissions>& a) {
  const auto go = [&](void (*kernel)(LatticeArgs<StoredEmissions>), const char* name) {
    const LaunchConfig config{
        .kernel = name,
        .grid = {static_cast<unsigned>(a.layout.capacity.sequences), 2},
        .block = {32u * static_cast<unsigned>(a.work.tiling.warps) *
                  (with_stages ? role_count : 1)},
        .shared_bytes = sizeof(typename Direction<warps, with_stages>::Shared)};
    if (with_stages && resident_blocks(config, kernel) == 0) return false;
    launch(context, config, kernel, a);
    return true;
  };
  return go(lattice_half<warps, with_stages, Half::first>, "ctc lattice_store") &&
         go(lattice_half<warps, with_stages, Half::second>, "ctc lattice_posteriors");
}

// grid: sequences x directions x strips.
template <Half half>
__global__ void __launch_bounds__(Strip::threads, 1)
    lattice_strips(LatticeArgs<StoredEmissions> a, int launch) {
  auto& s = shared<Strip::Shared>();
  const auto n = static_cast<int32_t>(blockIdx.x);
  if (n >= a.layout.extent->sequences) return;
  const int frames = a.layout.lengths[n], labels = a.label_offsets[n + 1] - a.label_offsets[n];
  const int needed = SequenceLoss{a, s.loss, n, frames, labels}.needed_frames();
  if (frames < needed || frames == 0) return;
  const Strip x{a, s, n, frames, labels, needed, static_cast<int>(blockIdx.z)};
  if constexpr (half == Half::first) {
    blockIdx.y == 0 ? x.template first_half<true>(launch) : x.template first_half<false>(launch);
  } else {
    blockIdx.y == 0 ? x.template second_half<true>(launch) : x.template second_half<false>(launch);
  }
}

bool launch_strips(const Context& context, const CtcArgs& args,
                   const LatticeArgs<StoredEmissions>& a) {
  const auto go = [&](void (*kernel)(LatticeArgs<StoredEmissions>, int), const char* name) {
    const LaunchConfig config{
        .kernel = name,
        .grid = {static_cast<unsigned>(a.layout.capacity.sequences), 2, 2},
        .block = {32u * role_count * static_cast<unsigned>((a.work.tiling.warps + 1) / 2)},
        .shared_bytes = sizeof(Strip::Shared)};
    if (resident_blocks(config, kernel) == 0) return false;
    for (int i = 0; i < strip_launches; ++i) launch(context, config, kernel, a, i);
    return true;
  };
  if (!go(lattice_strips<Half::first>, "ctc lattice_strips_store")) return false;
  ctc_lattice_meet(context, args);
  return go(lattice_strips<Half::second>, "ctc lattice_strips_posteriors");
}

void launch_lattice(const Context& context, const CtcArgs& args,
                    const LatticeArgs<StoredEmissions>& a, bool staged) {
  const int warps = a.work.tiling.warps;
  if (staged && warps <= 2 && launch_halves<2, true>(context, a)) return;
  if (staged && warps > 2 && warps <= ctc_staged_warps &&
      launch_halves<ctc_staged_warps, true>(context, a)) {
    return;
  }
  if (staged && warps > ctc_staged_warps && launch_strips(context, args, a)) return;
  launch_halves<8, false>(context, a);
}

void run(const Context& context, const CtcArgs& a, bool staged) {
  a.logits.dtype == DType::f32
      ? launch_lattice(context, a, stored_emissions(Problem<float>(a)), staged)
      : launch_lattice(context, a, stored_emissions(Problem<bf16>(a)), staged);
  ctc_lattice_end(context, a);
}

}  // namespace

void ctc_lattice_apart(const Context& context, const CtcArgs& a) { run(context, a, true); }

void ctc_lattice_without_stages(const Context& context, const CtcArgs& a) {
  run(context, a, false);
}

}  // namespace rondo::RONDO_GPU
