// Written by `tools/cuda/lstm_times --update` from the machine code for sm_90a; it says how. The
// cycles are of steps of the LSTM's time loops, predicted: nothing was measured on a GPU. For
// kernels/lstm/lstm_prediction.cc. The compiler: nvcc 13.0.88
#pragma once

#include "kernels/lstm/lstm.h"

namespace rondo {

// A step of `cluster` or (split) `cluster_split`, its barrier included, where a cluster has up to
// so many cells and sequences.
struct LstmClusterCycles {
  LstmPhase phase;
  DType compute;
  bool split;
  int64_t cells, sequences;
  double cycles;
};
inline constexpr LstmClusterCycles lstm_cluster_cycles[] = {
    {LstmPhase::backward, DType::bf16, false, 64, 8, 1550},
    {LstmPhase::backward, DType::bf16, false, 64, 16, 2558},
    {LstmPhase::backward, DType::bf16, false, 64, 32, 4612},
    {LstmPhase::backward, DType::bf16, false, 128, 8, 1548},
    {LstmPhase::backward, DType::bf16, false, 128, 16, 2581},
    {LstmPhase::backward, DType::bf16, false, 128, 32, 4653},
    {LstmPhase::backward, DType::bf16, false, 256, 8, 1584},
    {LstmPhase::backward, DType::bf16, false, 256, 16, 2648},
    {LstmPhase::backward, DType::bf16, false, 256, 32, 4818},
    {LstmPhase::backward, DType::bf16, false, 512, 8, 1697},
    {LstmPhase::backward, DType::bf16, false, 512, 16, 2850},
    {LstmPhase::backward, DType::bf16, false, 512, 32, 5259},
    {LstmPhase::backward, DType::bf16, true, 64, 8, 1391},
    {LstmPhase::backward, DType::bf16, true, 64, 16, 2415},
    {LstmPhase::backward, DType::bf16, true, 64, 32, 4515},
    {LstmPhase::backward, DType::bf16, true, 128, 8, 1391},
    {LstmPhase::backward, DType::bf16, true, 128, 16, 2415},
    {LstmPhase::backward, DType::bf16, true, 128, 32, 4515},
    {LstmPhase::backward, DType::bf16, true, 256, 8, 1449},
    {LstmPhase::backward, DType::bf16, true, 256, 16, 2500},
    {LstmPhase::backward, DType::bf16, true, 256, 32, 4827},
    {LstmPhase::backward, DType::bf16, true, 512, 8, 1527},
    {LstmPhase::backward, DType::bf16, true, 512, 16, 2700},
    {LstmPhase::backward, DType::bf16, true, 512, 32, 5241},
    {LstmPhase::backward, DType::f32, false, 64, 8, 1542},
    {LstmPhase::backward, DType::f32, false, 64, 16, 2600},
    {LstmPhase::backward, DType::f32, false, 128, 8, 1553},
    {LstmPhase::backward, DType::f32, false, 128, 16, 2638},
    {LstmPhase::backward, DType::f32, false, 256, 8, 2054},
    {LstmPhase::backward, DType::f32, false, 256, 16, 3882},
    {LstmPhase::backward, DType::f32, true, 64, 8, 1427},
    {LstmPhase::backward, DType::f32, true, 64, 16, 2446},
    {LstmPhase::backward, DType::f32, true, 128, 8, 1427},
    {LstmPhase::backward, DType::f32, true, 128, 16, 2446},
    {LstmPhase::backward, DType::f32, true, 256, 8, 1909},
    {LstmPhase::backward, DType::f32, true, 256, 16, 3721},
    {LstmPhase::forward, DType::bf16, false, 64, 8, 1318},
    {LstmPhase::forward, DType::bf16, false, 64, 16, 1984},
    {LstmPhase::forward, DType::bf16, false, 64, 32, 3351},
    {LstmPhase::forward, DType::bf16, false, 128, 8, 1327},
    {LstmPhase::forward, DType::bf16, false, 128, 16, 2078},
    {LstmPhase::forward, DType::bf16, false, 128, 32, 3675},
    {LstmPhase::forward, DType::bf16, false, 256, 8, 1421},
    {LstmPhase::forward, DType::bf16, false, 256, 16, 2471},
    {LstmPhase::forward, DType::bf16, false, 256, 32, 4392},
    {LstmPhase::forward, DType::bf16, false, 512, 8, 1721},
    {LstmPhase::forward, DType::bf16, false, 512, 16, 3125},
    {LstmPhase::forward, DType::bf16, false, 512, 32, 5616},
    {LstmPhase::forward, DType::bf16, true, 64, 8, 1172},
    {LstmPhase::forward, DType::bf16, true, 64, 16, 1881},
    {LstmPhase::forward, DType::bf16, true, 64, 32, 3278},
    {LstmPhase::forward, DType::bf16, true, 128, 8, 1202},
    {LstmPhase::forward, DType::bf16, true, 128, 16, 1961},
    {LstmPhase::forward, DType::bf16, true, 128, 32, 3507},
    {LstmPhase::forward, DType::bf16, true, 256, 8, 1311},
    {LstmPhase::forward, DType::bf16, true, 256, 16, 2395},
    {LstmPhase::forward, DType::bf16, true, 256, 32, 4243},
    {LstmPhase::forward, DType::bf16, true, 512, 8, 1590},
    {LstmPhase::forward, DType::bf16, true, 512, 16, 3020},
    {LstmPhase::forward, DType::bf16, true, 512, 32, 5598},
    {LstmPhase::forward, DType::f32, false, 64, 8, 1406},
    {LstmPhase::forward, DType::f32, false, 64, 16, 2233},
    {LstmPhase::forward, DType::f32, false, 128, 8, 1640},
    {LstmPhase::forward, DType::f32, false, 128, 16, 2798},
    {LstmPhase::forward, DType::f32, false, 256, 8, 2363},
    {LstmPhase::forward, DType::f32, false, 256, 16, 4263},
    {LstmPhase::forward, DType::f32, true, 64, 8, 1240},
    {LstmPhase::forward, DType::f32, true, 64, 16, 2046},
    {LstmPhase::forward, DType::f32, true, 128, 8, 1492},
    {LstmPhase::forward, DType::f32, true, 128, 16, 2712},
    {LstmPhase::forward, DType::f32, true, 256, 8, 2257},
    {LstmPhase::forward, DType::f32, true, 256, 16, 4131},
};

// `fused`: 32 columns of the sums of one block. `portable`: the cells of a step.
struct LstmLaunchCycles {
  LstmPhase phase;
  DType compute;
  double cycles;
};
inline constexpr LstmLaunchCycles lstm_fused_tile_cycles[] = {
    {LstmPhase::backward, DType::bf16, 11910},
    {LstmPhase::backward, DType::f32, 11489},
    {LstmPhase::forward, DType::bf16, 12060},
    {LstmPhase::forward, DType::f32, 11582},
};
inline constexpr LstmLaunchCycles lstm_cells_cycles[] = {
    {LstmPhase::backward, DType::bf16, 2399},
    {LstmPhase::backward, DType::f32, 2350},
    {LstmPhase::forward, DType::bf16, 2578},
    {LstmPhase::forward, DType::f32, 1986},
};

}  // namespace rondo
