// One LSTM layer over a packed batch, one or two directions at once.
//
// Hochreiter & Schmidhuber 1997 with forget gates (Gers et al. 2000), no peepholes:
//   [i f g o] = x_t W^T + b + h_{t-1} R^T          gate order i, f, g, o (PyTorch, cuDNN)
//   c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g)
//   h_t = sigmoid(o) * tanh(c_t)                   optionally h_t = P h'_t (projection, Sak 2014)
//
// Shapes (D directions, I inputs, H cells, P outputs per direction: P = H without projection):
//   x            [rows, I]
//   weights[d].w [4H, I]   weights[d].r [4H, P]   weights[d].b [4H]   weights[d].p [P, H] or absent
//   y            [rows, D*P]   direction d owns columns [d*P, (d+1)*P)
//   h0, hn       [D, N, P]    c0, cn [D, N, H]    N = layout.capacity.sequences, in packed order
//   gates        [D, rows, 4H] activated gates, kept for the backward pass
//   cells        [D, rows, H]  c_t, kept for the backward pass
//   hidden       [D, rows, H]  h' before the projection; absent without projection
// Direction 1 reads each sequence from its own last frame to its first; its initial state applies
// at the last frame and its final state is the one at frame 0.
// The final state of an empty sequence (length 0) equals its initial state; states at or past
// extent.sequences are neither read nor written.
//
// dtypes: x, y, w, r, p, h0, hn, gates, hidden share one "compute" dtype (f32, bf16, f64);
//   b, cells, c0, cn are f32 (f64 when the compute dtype is f64). Accumulation is f32 (f64 in ref).
//   With bf16, h_t is rounded to bf16 before it enters the next step: y is what was computed with.
// Absent h0 / c0 mean zeros. Absent hn / cn are not written. Absent gates/cells: inference, nothing
// is kept (then `workspace` holds what the kernel needs). An absent b means zeros.
// Aliasing: outputs alias nothing, but dgates may be gates.
// Workspace: at least lstm_workspace_bytes(), 64-byte aligned; its content means nothing before
// or after a call. `ref` needs none.
// Errors: Error for shapes or dtypes against this contract.
// Thread safety: calls with different outputs and workspaces may run at once.
// Determinism: bitwise, for any thread count.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

class PackedWeights;  // kernels/base/cpu/packed_weights.h

struct LstmWeights {
  TensorView w, r, b, p;
};

struct LstmDims {
  int directions = 1;
  int64_t input = 0, hidden = 0;
  int64_t projection = 0;  // 0: none
  // Inference in f32: products have operands of 8 bits (kernels/gemm/int8.h); `ref` and CPUs.
  bool int8 = false;
  int64_t output() const { return projection ? projection : hidden; }
};

// Which directions a call computes. The states of a bidirectional layer come from opposite ends, so
// that a shard of a sequence has them at different times. On GPUs only variants with launches per
// time step take one direction of two. What belongs to the other one is neither read nor written,
// but for dx.
enum class LstmRun : uint8_t { both, first, second };

struct LstmForwardArgs {
  static constexpr const char* op = "lstm_forward";
  LstmDims dims;
  PackedView layout;
  TensorView x;
  LstmWeights weights[2];
  TensorView h0, c0;
  TensorView y;
  TensorView hn, cn;
  TensorView gates, cells, hidden;
  TensorView workspace;  // u8, at least lstm_workspace_bytes()
  LstmRun run = LstmRun::both;
  // Where the weights do not change: each direction's w, r and p as the CPU variants keep them
  // packed, and then read the weights themselves no more. The other variants ignore it.
  struct Packed {
    PackedWeights *w = nullptr, *r = nullptr, *p = nullptr;
  } packed[2];
};

// Gradients through time; the weight gradients are a separate op, because they need no time loop
// and can wait (zero-bubble pipelines, sequence shards).
//   dy [rows, D*P]; dhn [D,N,P], dcn [D,N,H] (absent: zeros)
//   dgates [D, rows, 4H] pre-activation gradients; may alias `gates`
//   dprojected [D, rows, P] total gradient of each h_t (dy plus what came back through R), needed
//     for the projection's weight gradient; absent without projection
// dtypes: dy, dhn, dh0, dgates, dprojected, dx are of the compute dtype; dcn, dc0 f32 (f64).
//   dx [rows, I] (absent: not computed); dh0 [D,N,P], dc0 [D,N,H] (absent: not computed)
// dx is made of all directions' dgates: when `run` is not both, those of the other direction must
// be there already.
struct LstmBackwardArgs {
  static constexpr const char* op = "lstm_backward";
  LstmDims dims;
  PackedView layout;
  LstmWeights weights[2];
  TensorView c0;
  TensorView gates, cells;
  TensorView dy, dhn, dcn;
  TensorView dgates, dprojected;
  TensorView dx;
  TensorView dh0, dc0;
  TensorView workspace;
  LstmRun run = LstmRun::both;
};

// dw[d] += / = dgates^T x, dr[d] = dgates^T h_{t-1}, db = column sums, dp = dprojected^T hidden.
// The gradients are f32 (f64 for f64). accumulate: added to what is there. A grad view that is
// absent is not computed. y is the output of the forward pass (its rows are the h_{t-1}).
struct LstmWeightGradArgs {
  static constexpr const char* op = "lstm_weight_grad";
  LstmDims dims;
  PackedView layout;
  TensorView x, h0, y, hidden;
  TensorView dgates, dprojected;
  LstmWeights grads[2];  // shapes of LstmWeights, f32
  bool accumulate = false;
  TensorView workspace;
};

// Bytes of scratch for one of the three ops on `context`, for a capacity; an upper bound over all
// variants of the backend and any thread count up to context.pool->size().
enum class LstmPhase : uint8_t { forward, backward, weight_grad };
size_t lstm_workspace_bytes(const Context& context, LstmPhase phase, const LstmDims& dims,
                            DType compute, const PackedCapacity& capacity);

std::span<const Variant> lstm_forward_variants();
std::span<const Variant> lstm_backward_variants();
std::span<const Variant> lstm_weight_grad_variants();

}  // namespace rondo
