#include "kernels/lstm/lstm_blocks.h"

#include "kernels/base/arithmetic.h"
#include "kernels/lstm/lstm_conditions.h"
#include "kernels/lstm/lstm_gpu.h"
#include "kernels/lstm/lstm_prediction.h"

namespace rondo {
namespace {

// A cluster lies in one part of the chip, of 16 or 18 multiprocessors.
int64_t resident_clusters(int64_t blocks, int64_t multiprocessors) {
  const int64_t parts = multiprocessors / 16, large = multiprocessors % 16 / 2;
  return (parts - large) * (16 / blocks) + large * (18 / blocks);
}

// lstm_cluster.h: 32 cells to a block, 8 sequences to a tile.
int64_t cluster_blocks(const LstmDims& dims, DType compute, int64_t sequences,
                       int64_t multiprocessors) {
  const int64_t h = dims.hidden, blocks = h <= 64 ? 2 : h <= 128 ? 4 : h <= 256 ? 8 : 16;
  const int64_t most = resident_clusters(blocks, multiprocessors);
  const int64_t most_tiles = compute == DType::f32 ? 2 : 4;
  for (int64_t tiles = 1; tiles <= most_tiles; tiles *= 2) {
    const int64_t clusters = dims.directions * ceil_div(sequences, 8 * tiles);
    if (clusters <= most) return clusters * blocks;
  }
  return most * blocks;  // the others follow
}

// lstm_grid_{forward,backward}.cu: as few cells to a block as let all be resident.
int64_t grid_blocks(LstmPhase phase, const LstmDims& dims, DType compute, int64_t multiprocessors) {
  const bool backward = phase == LstmPhase::backward, f32 = compute == DType::f32;
  for (const int64_t cells : {8, 16}) {
    if (f32 ? cells != 8 : backward && cells != 16) continue;
    const int64_t blocks = dims.directions * ceil_div(dims.hidden, cells);
    if (blocks <= multiprocessors) return blocks;
  }
  return 0;
}

// lstm_grid_cluster_{forward,backward}.cu: clusters of 2 blocks forward, of 8 backward.
int64_t grid_cluster_blocks(LstmPhase phase, const LstmDims& dims, int64_t multiprocessors) {
  const int64_t blocks = phase == LstmPhase::backward ? 8 : 2;
  for (const int64_t cells : {8, 16}) {
    const int64_t clusters =
        dims.directions * ceil_div(lstm_exchanged_cells(dims.hidden), blocks * cells);
    if (clusters <= resident_clusters(blocks, multiprocessors)) return clusters * blocks;
  }
  return 0;
}

}  // namespace

LstmHold lstm_hold_of(std::string_view variant, LstmPhase phase, const LstmDims& dims,
                      DType compute, int64_t sequences, int64_t multiprocessors) {
  if (!lstm_suits(variant, Backend::cuda, dims, compute, sequences)) return {};
  int64_t blocks = 0;
  if (variant == "cluster" || variant == "cluster_split") {
    blocks = cluster_blocks(dims, compute, sequences, multiprocessors);
  } else if (variant == "grid") {
    blocks = grid_blocks(phase, dims, compute, multiprocessors);
  } else if (variant == "grid_cluster") {
    blocks = grid_cluster_blocks(phase, dims, multiprocessors);
  }
  return blocks > 0 ? LstmHold{variant, blocks} : LstmHold{};
}

LstmHold lstm_hold(LstmPhase phase, const LstmDims& dims, DType compute, int64_t sequences,
                   int64_t multiprocessors) {
  GpuLimits gpu;
  gpu.multiprocessors = static_cast<int>(multiprocessors);
  const LstmLoop loop = {phase, dims, compute, sequences, LstmRun::both};
  const auto any = [](std::string_view) { return true; };
  return lstm_hold_of(lstm_quickest(loop, gpu, any).variant, phase, dims, compute, sequences,
                      multiprocessors);
}

}  // namespace rondo
