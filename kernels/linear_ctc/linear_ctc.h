// An output layer and connectionist temporal classification in one: loss and gradients of
// ctc(x w^T + bias), without the logits in memory.
//
// CTC reads of a frame's logits the denominator of their softmax and the probabilities of the blank
// and of the sequence's labels. So the products are made in tiles of some classes (and on CPUs of
// some rows): the first pass keeps of each tile what the denominator needs, as a running maximum
// and sum (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"), and the
// logits of the labels; the recursion of kernels/ctc runs on these. The second pass,
// linear_ctc_grad, makes each tile of logits once more, its gradient in place (softmax -
// posterior), and adds the products with it to dx, dw and dbias. That is four products of a matrix
// where a layer with its logits in memory has three.
//
// Shapes: x, dx [rows, H] packed (kernels/base/packed.h), w [V, H]: f32, bf16 or f64, all the same;
//   bias [V], dw [V, H], dbias [V]: f32 (f64 for f64), bias and dbias may be absent.
//   columns = max_label_length + 1. label_grad [rows, columns] f32 (f64 for f64): -posterior of the
//   blank in column 0 and of label i of the row's sequence in column 1 + i; of a class that the
//   sequence has several times, the first column has all and the others have 0, as have those of
//   labels that the sequence has not. NaN
//   in all columns of a sequence whose gradient is NaN.
//   normalizer [rows] f32 (f64 for f64): the logarithm of the softmax's denominator; +inf in rows
//   of sequences without a gradient, and NaN in those of sequences whose gradient is NaN.
//   labels, label_offsets, blank, zero_infinity, loss: as in kernels/ctc/ctc.h, and so are the
//   edges; a row whose logits have a NaN, +inf or no finite one makes its sequence NaN.
// linear_ctc_grad wants label_grad and normalizer as linear_ctc left them. dx is written, and is
// what linear_ctc's loss depends on x by; dw and dbias are added to. Each may be absent.
// Rows past the extent are never read for a result; those of x, dx, label_grad and normalizer may
// be written. Nothing may alias.
// Logits are f32 for bf16 too (a layer that stores them rounds them).
// Determinism: bitwise, for any thread count. Sums over classes and rows go tile by tile.
#pragma once

#include "kernels/base/op.h"
#include "kernels/base/packed.h"

namespace rondo {

struct LinearCtc {
  PackedView layout;
  TensorView x, w, bias;
  const int32_t* labels = nullptr;
  const int32_t* label_offsets = nullptr;  // [N + 1]
  int32_t max_label_length = 0;            // capacity: upper bound over the batch
  int32_t blank = 0;
  TensorView label_grad, normalizer;
  TensorView workspace;  // u8, at least linear_ctc_workspace_bytes(), aligned to 64 bytes
};

struct LinearCtcArgs : LinearCtc {
  static constexpr const char* op = "linear_ctc";
  bool zero_infinity = false;
  TensorView loss;  // [N]
};

struct LinearCtcGradArgs : LinearCtc {
  static constexpr const char* op = "linear_ctc_grad";
  TensorView dx, dw, dbias;
};

// Enough for either op, for every batch within the capacity.
size_t linear_ctc_workspace_bytes(const Context& context, const PackedCapacity& capacity,
                                  DType dtype, int64_t hidden, int64_t classes,
                                  int32_t max_label_length);

std::span<const Variant> linear_ctc_variants();
std::span<const Variant> linear_ctc_grad_variants();

}  // namespace rondo
