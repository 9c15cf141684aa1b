// Between padded arrays and packed batches (kernels/base/packed.h), at the borders of the library.
//
//   pack    packed row (t, n) = padded frame t of sequence order[n]
//   unpack  the inverse; padded frames past a sequence's length become 0
//
// Each is the gradient of the other (padding has none).
//
// Shapes: packed [rows, C]; padded (T, N, C) for time_major, (N, T, C) for batch_major; N =
//   layout.capacity.sequences, T >= extent->frames. order [N] int32 in device memory, a permutation
//   of [0, N): the padded index of each packed sequence; absent: the identity.
// Sequences at or past extent->sequences count as empty. Any dtype, the same on both sides.
// pack never reads padding (it may hold NaN). unpack writes all of `padded`; pack does not write
// rows past the extent. Aliasing: none.
// Determinism: copies.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

enum class PaddedLayout : uint8_t { time_major, batch_major };

struct PackArgs {
  static constexpr const char* op = "pack";
  PaddedLayout padded_layout = PaddedLayout::time_major;
  PackedView layout;
  const int32_t* order = nullptr;
  TensorView padded;
  TensorView packed;
};

struct UnpackArgs {
  static constexpr const char* op = "unpack";
  PaddedLayout padded_layout = PaddedLayout::time_major;
  PackedView layout;
  const int32_t* order = nullptr;
  TensorView packed;
  TensorView padded;
};

std::span<const Variant> pack_variants();
std::span<const Variant> unpack_variants();

}  // namespace rondo
