// What the host does for variant `wavefront` of the stack ops; for kernels/lstm/stack alone.
//
// Time is cut into chunks of frames. A diagonal is one chunk of every layer that has its turn: of
// each layer the one after (backward: before) that of the diagonal before, and of layers above the
// chunk that the layer below had then (backward: the other way round). A launch runs all its time
// loops, each in clusters of its own, a launch copies rows next to each other that products read,
// and these make of them what a loop reads: forward x W^T, before the loops; backward dx of all
// layers but the lowest, after them. The states lie in memory from chunk to chunk. With K chunks
// there are K + layers - 1 diagonals.
//
// The host does not know in which row a chunk begins, as batches of one capacity differ, which is
// why rows are copied to where products can be told to find them.
#pragma once

#include "kernels/lstm/stack/lstm_stack.h"

namespace rondo {

struct LstmWavefront {
  int64_t layers = 0, hidden = 0, input = 0;  // input: of the lowest layer
  int64_t sequences = 0;                      // of the capacity
  int64_t chunk_frames = 0, chunks = 0, chunk_rows = 0;

  int64_t diagonals() const { return chunks + layers - 1; }
};

// The layers [first, end) of a diagonal; layer l has chunk `number` - l.
struct LstmDiagonal {
  int64_t number;
  int first, end;
};
// The i-th of a pass.
LstmDiagonal lstm_diagonal(const LstmWavefront& wavefront, LstmPhase phase, int64_t i);

LstmWavefront lstm_wavefront(std::span<const LstmDims> layers, const PackedCapacity& capacity);
LstmWavefront lstm_wavefront(const LstmStackForwardArgs& args);
LstmWavefront lstm_wavefront(const LstmStackBackwardArgs& args);

// T: the compute dtype. Rows of a layer's chunk are its rows [0, chunk_rows).
struct LstmWavefrontSpace {
  PackedExtent* extents;  // [chunks]
  int32_t* lengths;       // [chunks, N]
  void* rows;  // what products read. Forward: x, [layers, chunk_rows, max(input, hidden)]
               // T; backward: dgates, [layers, chunk_rows, 4H] T
  void* made;  // what they make. Forward: x W^T, [layers, chunk_rows, 4H] T; backward: dy
               // of all layers but the highest, [layers - 1, chunk_rows, H] T
  void* h;     // forward [layers, N, H] T: states of layers whose hn nobody wants
  float* dh;   // backward [layers, N, H]
  float* c;    // [layers, N, H]: states of c, backward their gradients
  void* gemm;
  size_t gemm_bytes;
};

size_t lstm_wavefront_bytes(const Context& context, LstmPhase phase, const LstmWavefront& wavefront,
                            DType compute, const PackedCapacity& capacity);
// Throw Error when the workspace is too small.
LstmWavefrontSpace lstm_wavefront_space(const Context& context, const LstmStackForwardArgs& args);
LstmWavefrontSpace lstm_wavefront_space(const Context& context, const LstmStackBackwardArgs& args);

// A layer's part of space.rows, and of space.made.
void* lstm_wavefront_rows(const LstmWavefront& wavefront, const LstmWavefrontSpace& space,
                          LstmPhase phase, DType compute, int64_t layer);
void* lstm_wavefront_made(const LstmWavefront& wavefront, const LstmWavefrontSpace& space,
                          LstmPhase phase, DType compute, int64_t layer);

// The products of a diagonal, from space.rows to space.made: x W^T, in f32 with b; dgates W, for
// the layers below its own.
void lstm_wavefront_products(const Context& context, const LstmStackForwardArgs& args,
                             const LstmWavefrontSpace& space, const LstmDiagonal& diagonal);
void lstm_wavefront_products(const Context& context, const LstmStackBackwardArgs& args,
                             const LstmWavefrontSpace& space, const LstmDiagonal& diagonal);
// dx of the lowest layer, when wanted, once all its dgates are there.
void lstm_wavefront_input_gradient(const Context& context, const LstmStackBackwardArgs& args,
                                   const LstmWavefrontSpace& space);

// Whether the layers are of a kind that `wavefront` takes, but for what the machine holds: two or
// more of one H without projections, and time for two chunks.
bool lstm_wavefront_suits(Backend backend, const LstmStackForwardArgs& args);
bool lstm_wavefront_suits(Backend backend, const LstmStackBackwardArgs& args);

}  // namespace rondo
