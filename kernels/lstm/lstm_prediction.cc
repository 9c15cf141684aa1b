#include "kernels/lstm/lstm_prediction.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"
#include "kernels/lstm/lstm_conditions.h"
#include "kernels/lstm/lstm_cycles.h"

namespace rondo {
namespace {

// Of H100s, as published: bench/results/lstm-gpu-times.md.
constexpr double cycles_per_us = 1800;
constexpr double launch_us = 2.5;  // in a recorded graph: 2 to 3
constexpr double l2_bytes_per_us = 5.5e6;
constexpr double block_l2_bytes_per_us = 64 * cycles_per_us;
constexpr double shared_bytes_per_us = 128 * cycles_per_us;
constexpr double bf16_flops_per_us = 800e6, f32_flops_per_us = 60e6;
constexpr double seen_us = 0.7;               // until what one block stores is seen by another
constexpr int64_t part_multiprocessors = 16;  // a cluster is within a part of the chip

double up(int64_t n, int64_t size) { return static_cast<double>((n + size - 1) / size); }

// Clusters of so many blocks that are resident at once, a block to a multiprocessor.
int64_t resident_clusters(const GpuLimits& gpu, int64_t blocks) {
  return gpu.multiprocessors / part_multiprocessors * (part_multiprocessors / blocks);
}

template <size_t n>
double cycles_of(const LstmLaunchCycles (&table)[n], const LstmLoop& loop) {
  for (const LstmLaunchCycles& row : table) {
    if (row.phase == loop.phase && row.compute == loop.compute) return row.cycles;
  }
  RONDO_CHECK(false, "lstm: no cycles for ", name_of(loop.compute));
}

// The kernel whose clusters are all resident with the fewest sequences to each; of the last one
// they come one after the other (with_geometry in kernels/lstm/gpu/lstm_cluster.h).
std::optional<double> cluster_us(const LstmLoop& loop, const GpuLimits& gpu, bool split) {
  constexpr int64_t block_cells = 32;
  int64_t cells = 64;
  while (cells < loop.dims.hidden) cells *= 2;
  const int64_t resident = resident_clusters(gpu, cells / block_cells);
  if (resident == 0) return std::nullopt;
  std::optional<double> us;
  for (const LstmClusterCycles& row : lstm_cluster_cycles) {  // in the order of sequences
    if (row.phase != loop.phase || row.compute != loop.compute || row.split != split ||
        row.cells != cells) {
      continue;
    }
    const double clusters = loop.dims.directions * up(loop.sequences, row.sequences);
    const double turns = std::ceil(clusters / static_cast<double>(resident));
    us = turns * row.cycles / cycles_per_us;
    if (turns <= 1) break;
  }
  return us;
}

// The units' times: a warp's chain is longer for 8 cells to a block, but hides behind the flags.
std::optional<double> grid_us(const LstmLoop& loop, const GpuLimits& gpu) {
  constexpr int64_t pass = 16;
  const bool f32 = loop.compute == DType::f32, forward = loop.phase == LstmPhase::forward;
  const auto hidden = static_cast<double>(loop.dims.hidden);
  const auto blocks_of = [&](int64_t cells) {
    return loop.dims.directions * ((loop.dims.hidden + cells - 1) / cells);
  };
  const bool few = f32 || (forward && blocks_of(8) <= gpu.multiprocessors);
  const int64_t cells = few ? 8 : 16, blocks = blocks_of(cells);
  const size_t shared_bytes = f32        ? (forward ? 167936 : 140288)
                              : !forward ? 36864
                              : few      ? 55296
                                         : 92160;  // kernels/shared_memory.txt
  if (blocks > gpu.multiprocessors || shared_bytes > gpu.shared_bytes) return std::nullopt;
  // At H = 1024: mma_m16n8k16, or three mma_m16n8k8 for one.
  const double product_us = (f32 ? 1.36 : few ? 0.23 : 0.45) * hidden / 1024;
  const double columns = (forward ? 1 : 4) * hidden;
  const double operand_bytes =
      static_cast<double>(blocks * pass) * columns * static_cast<double>(size_of(loop.compute));
  const double rows = static_cast<double>(forward ? 4 * cells : cells);
  const double parts_us = rows * pass * sizeof(float) * 8 * 2 / shared_bytes_per_us;
  constexpr double flags_us = seen_us + 0.3, cells_us = 0.15;
  return flags_us + up(loop.sequences, pass) *
                        (product_us + operand_bytes / l2_bytes_per_us + parts_us + cells_us);
}

// By `tools/cuda/cycles --ready`, put together by hand: bench/results/lstm-gpu-times.md, "Grid of
// clusters". A step takes the longest of three times.
struct GridClusterCycles {
  LstmPhase phase;
  int64_t cells;  // of a block
  double chain, product_pass, team_pass;
  int64_t teams;
  size_t shared_bytes;  // kernels/shared_memory.txt
};
constexpr GridClusterCycles grid_cluster_cycles[] = {
    {LstmPhase::forward, 8, 1399, 520, 807 + 270, 2, 50272},
    {LstmPhase::backward, 8, 1241, 477, 890 + 270, 2, 50272},
    {LstmPhase::forward, 16, 1684, 512, 937 + 270, 1, 157776},
    {LstmPhase::backward, 16, 1760, 509, 1208 + 270, 1, 157776},
};

std::optional<double> grid_cluster_us(const LstmLoop& loop, const GpuLimits& gpu) {
  constexpr int64_t pass = 8;
  const int64_t blocks = loop.phase == LstmPhase::forward ? 2 : 8;
  const double passes = up(loop.sequences, pass);
  for (const GridClusterCycles& row : grid_cluster_cycles) {  // the fewest cells first
    if (row.phase != loop.phase || row.shared_bytes > gpu.shared_bytes) continue;
    const double clusters = loop.dims.directions * up(loop.dims.hidden, blocks * row.cells);
    if (clusters > static_cast<double>(resident_clusters(gpu, blocks))) continue;
    const double chain = row.chain + seen_us * cycles_per_us;
    const double teams = std::ceil(passes / static_cast<double>(row.teams)) * row.team_pass;
    return std::max({chain, passes * row.product_pass, teams}) / cycles_per_us;
  }
  return std::nullopt;
}

// A launch that multiplies: blocks of 16 sequences, and 16 cells forward, 64 columns of dh
// backward, in tiles of 32 columns. A warp waits for memory most of the time, so that blocks on one
// multiprocessor cost nothing, as many as fit.
double fused_us(const LstmLoop& loop, const GpuLimits& gpu) {
  constexpr int64_t resident = 6;
  const LstmDims& d = loop.dims;
  const auto product_us = [&](int64_t columns, int64_t block_columns, int64_t depth) {
    const double blocks = (loop.run == LstmRun::both ? d.directions : 1) * up(loop.sequences, 16) *
                          up(columns, block_columns);
    const double turns = std::ceil(blocks / static_cast<double>(resident * gpu.multiprocessors));
    return launch_us +
           turns * up(depth, 32) * cycles_of(lstm_fused_tile_cycles, loop) / cycles_per_us;
  };
  const bool forward = loop.phase == LstmPhase::forward;
  double us =
      forward ? product_us(d.hidden, 16, d.output()) : product_us(d.output(), 64, 4 * d.hidden);
  if (d.projection) {
    us += forward ? product_us(d.projection, 64, d.hidden) : product_us(d.hidden, 64, d.projection);
  }
  return us + cycles_of(lstm_cells_cycles, loop) / cycles_per_us;
}

// A product by cuBLASLt, which reads a matrix from L2 by 64 to 128 of its columns to a block.
double library_product_us(const LstmLoop& loop, int64_t width, int64_t depth) {
  const double directions = loop.run == LstmRun::both ? loop.dims.directions : 1;
  const double size = static_cast<double>(width * depth);
  const double bytes = size * static_cast<double>(size_of(loop.compute));
  const auto read_us = [&](int64_t block_columns) {
    return std::max(bytes / (up(width, block_columns) * block_l2_bytes_per_us),
                    directions * bytes / l2_bytes_per_us);
  };
  const double flops = 2 * directions * static_cast<double>(loop.sequences) * size;
  return std::max((read_us(64) + read_us(128)) / 2,
                  flops / (loop.compute == DType::f32 ? f32_flops_per_us : bf16_flops_per_us));
}

double portable_us(const LstmLoop& loop) {
  const LstmDims& d = loop.dims;
  double us = 2 * launch_us + library_product_us(loop, 4 * d.hidden, d.output()) +
              cycles_of(lstm_cells_cycles, loop) / cycles_per_us;
  if (d.projection) us += 2 * launch_us + library_product_us(loop, d.projection, d.hidden);
  // What cells read and write.
  const double bytes = (loop.phase == LstmPhase::forward ? 68 : 58) *
                       static_cast<double>(d.hidden * loop.sequences * d.directions);
  return us + bytes * static_cast<double>(size_of(loop.compute)) / 2 / l2_bytes_per_us;
}

}  // namespace

std::optional<double> lstm_predicted_us(std::string_view variant, const LstmLoop& loop,
                                        const GpuLimits& gpu) {
  const LstmConditions* c = find_lstm_conditions(variant);
  RONDO_CHECK(c && loop.phase != LstmPhase::weight_grad, "lstm: no time loop '", variant, "'");
  const bool per_step = variant == "fused" || variant == "portable";
  if (!lstm_suits(variant, Backend::cuda, loop.dims, loop.compute, loop.sequences) ||
      gpu.architecture < c->architecture || (!per_step && loop.run != LstmRun::both)) {
    return std::nullopt;
  }
  if (variant == "fused") return fused_us(loop, gpu);
  if (variant == "portable") return portable_us(loop);
  if (variant == "grid") return grid_us(loop, gpu);
  if (variant == "grid_cluster") return grid_cluster_us(loop, gpu);
  return cluster_us(loop, gpu, variant == "cluster_split");
}

LstmPrediction lstm_quickest(const LstmLoop& loop, const GpuLimits& gpu, const MayRun& may_run) {
  LstmPrediction best;
  for (const LstmConditions& c : lstm_conditions) {
    const std::optional<double> us = lstm_predicted_us(c.variant, loop, gpu);
    if (!us || !(best.variant.empty() || *us < best.us) || !may_run(c.variant)) continue;
    best = {c.variant, *us};
  }
  return best;
}

LstmStackPrediction lstm_stack_predicted(const LstmStackShape& stack, const GpuLimits& gpu,
                                         const MayRun& may_run) {
  const auto of = [&](int64_t layers) {
    LstmLoop loop{stack.phase, {}, stack.compute, stack.sequences};
    loop.dims.directions = static_cast<int>(layers);
    loop.dims.input = loop.dims.hidden = stack.hidden;
    return loop;
  };
  const bool f32 = stack.compute == DType::f32;
  const auto size = static_cast<double>(4 * stack.hidden * stack.hidden);
  const auto rows = static_cast<double>(stack.frames * stack.sequences);
  const double weight_us = size * static_cast<double>(size_of(stack.compute)) / l2_bytes_per_us;
  const double product_us = 2 * rows * size / (f32 ? f32_flops_per_us : bf16_flops_per_us);
  const auto layers = static_cast<double>(stack.layers), frames = static_cast<double>(stack.frames);
  LstmStackPrediction p;
  p.in_turn_us =
      layers * (frames * lstm_quickest(of(1), gpu, may_run).us + product_us + 2 * launch_us);
  // Each layer's clusters are those of a direction. A launch reads R of its layers.
  const std::optional<double> step = lstm_predicted_us("cluster_split", of(stack.layers), gpu);
  if (!step) return p;
  const double diagonals = up(stack.frames, stack.chunk_frames) + layers - 1;
  const double copied_us = 2 * rows * static_cast<double>(stack.hidden) *
                           (stack.phase == LstmPhase::forward ? 1 : 4) *
                           static_cast<double>(size_of(stack.compute)) / l2_bytes_per_us;
  p.at_once_us = diagonals * (static_cast<double>(stack.chunk_frames) * *step + 3 * launch_us +
                              layers * weight_us) +
                 layers * (product_us + copied_us);
  return p;
}

}  // namespace rondo
