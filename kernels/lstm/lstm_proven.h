// Written by tools/gpu/proofs.py --update; a test compares it with bench/results. A variant may be
// chosen by default on GPUs (Role::standard) once a committed result shows that the sources it has
// now gave the right numbers on one, twice with the same bits.
#pragma once

namespace rondo {

inline constexpr bool lstm_forward_cluster_proven = false;
inline constexpr bool lstm_forward_cluster_split_proven = false;
inline constexpr bool lstm_backward_cluster_proven = false;
inline constexpr bool lstm_backward_cluster_split_proven = false;
inline constexpr bool lstm_forward_grid_cluster_proven = false;
inline constexpr bool lstm_backward_grid_cluster_proven = false;
inline constexpr bool lstm_forward_grid_proven = false;
inline constexpr bool lstm_backward_grid_proven = false;
inline constexpr bool lstm_stack_forward_wavefront_proven = false;
inline constexpr bool lstm_stack_backward_wavefront_proven = false;

}  // namespace rondo
