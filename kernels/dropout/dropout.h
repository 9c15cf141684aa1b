// Dropout with counter-based random numbers. The gradient is the same op, applied to dy.
//
//   y[r, c] = keep(r, c) ? x[r, c] / (1 - p) : 0
//
// Or, with `channels` above 0, for images (kernels/conv/conv.h), whose pixels have so many
// channels: keep is the same for all pixels of a channel in a sequence, and is that of column
// c % channels in frame 0.
//
// The mask is a pure function of (step seed, layer, utterance key, absolute frame, column): it
// depends neither on how utterances were batched, nor on how they were cut into shards or chunks,
// nor on the device, so the backward pass draws it again instead of storing it.
//
// Generator: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2,
// 3", 2011), kernels/dropout/philox.h.
//   key      dropout_key(*step_seed, layer), 64 bits
//   counter  { 16 * (c / 64) + c % 16, absolute frame, utterance key low, utterance key high }
//   column c takes word (c % 64) / 16 of the result: 16 calls give 64 adjacent columns, and a
//   vector of 16 lanes needs no shuffle.
//   keep     word >= dropout_threshold(p), so P(drop) is exactly threshold / 2^32
//
// Shapes: x, y [rows, C], C a multiple of `channels` if that is above 0, row-major, one dtype (f32,
// bf16, f64) within a call. The first layout.extent->rows rows are touched. With layout.row_frame
// absent, row n is sequence n itself (a pooled batch): layout.extent->sequences rows, frame 0. p is
// in [0, 1). A dropped NaN is 0. Aliasing: y may be x. Determinism: bitwise the same for any thread
// count and any backend (f32, bf16).
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct DropoutArgs {
  static constexpr const char* op = "dropout";
  PackedView layout;
  TensorView x;
  TensorView y;
  double p = 0;
  uint32_t layer = 0;
  const uint64_t* step_seed = nullptr;  // device memory: may change between runs of one graph
  int64_t channels = 0;                 // 0: each value is kept or dropped by itself
};

std::span<const Variant> dropout_variants();

}  // namespace rondo
